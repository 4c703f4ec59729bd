"""Shared storage for positions, in memory."""

from __future__ import annotations

from headgate_contract import wire
from headgate_contract.snapshot import StateHandle


class Shelf:
    """Keeps what a book puts, under names of its own."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.written = 0

    def put(self, what: str, data: bytes) -> StateHandle:
        path = f"shared/{what}-{len(self.files)}-{self.written}"
        self.files[path] = data
        self.written += len(data)
        return StateHandle(path.rsplit("/", 1)[-1], path, len(data), wire.sha256(data))

    def get(self, handle: StateHandle) -> bytes:
        return self.files[handle.path]
