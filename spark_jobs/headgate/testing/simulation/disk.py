"""Shared storage of the simulation: one dictionary, seen by each host through a store that may fail it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headgate.testing.simulation.turns import Host
from headgate_contract.errors import ObjectMissing
from headgate_contract.store import Listing, ObjectInfo, ObjectStore

T = TypeVar("T")


@dataclass
class Disk:
    """What is stored, and who is told of each change."""

    objects: dict[str, bytes] = field(default_factory=dict)
    changes: int = 0
    created: Callable[[str, bytes, Host], None] = lambda path, data, host: None
    deleted: Callable[[str, Host], None] = lambda path, host: None

    def put(self, path: str, data: bytes, host: Host) -> None:
        self.changes += 1
        self.objects[path] = data
        self.created(path, data, host)

    def remove(self, path: str, host: Host) -> bool:
        self.changes += 1
        if self.objects.pop(path, None) is None:
            return False
        self.deleted(path, host)
        return True


class SimulatedStore(ObjectStore):
    """One host's view: every call is a turn, and the simulation says how it ends."""

    def __init__(self, disk: Disk, host: Host) -> None:
        self.url = "simulated://"
        self._disk = disk
        self._host = host

    def _turn(self, what: str, path: str, act: Callable[[], T]) -> T:
        return self._host.call(f"{what} {path}", act)

    def create(self, path: str, data: bytes) -> bool:
        def act() -> bool:
            there = self._disk.objects.get(path)
            if there is None:
                self._disk.objects[path] = data
                self._disk.created(path, data, self._host)
            return there is None or there == data

        return self._turn("create", path, act)

    def replace(self, path: str, data: bytes) -> None:
        def act() -> None:
            self._disk.put(path, data, self._host)

        self._turn("replace", path, act)

    def read(self, path: str) -> bytes:
        def act() -> bytes:
            if path not in self._disk.objects:
                raise ObjectMissing(f"{path} is not there")
            return self._disk.objects[path]

        return self._turn("read", path, act)

    def stat(self, path: str) -> ObjectInfo | None:
        found = self._turn("stat", path, lambda: self._disk.objects.get(path))
        return None if found is None else ObjectInfo(path, len(found), 0.0)

    def list(self, folder: str) -> Listing:
        def act() -> Listing:
            below = f"{folder}/" if folder else ""
            found = sorted(path for path in self._disk.objects if path.startswith(below))
            return [ObjectInfo(path, len(self._disk.objects[path]), 0.0) for path in found]

        return self._turn("list", folder, act)

    def delete(self, path: str) -> bool:
        def act() -> bool:
            return self._disk.remove(path, self._host)

        return self._turn("delete", path, act)

    def upload(self, local: Path, path: str) -> int:
        raise NotImplementedError("the simulation has no local files")

    def download(self, path: str, local: Path) -> int:
        raise NotImplementedError("the simulation has no local files")

    def move(self, source: str, target: str) -> bool:
        raise NotImplementedError("nothing in the protocol moves objects")

    def now(self) -> float:
        return 0.0

    def sync(self, path: str) -> None:
        """Every object is durable."""

    def check_writable(self) -> None:
        """It may be."""
