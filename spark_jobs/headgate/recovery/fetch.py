"""Brings a snapshot's files to this host, each verified against its handle before anything is started."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headgate_contract import wire
from headgate_contract.errors import ObjectMissing, SnapshotDamaged
from headgate_contract.paths import METADATA
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, StateHandle, decode_metadata
from headgate_contract.store import ObjectStore


@dataclass(frozen=True)
class SnapshotFiles:
    """Reads the files of one snapshot."""

    store: ObjectStore
    ref: SnapshotRef

    @cached_property
    def _store(self) -> ObjectStore:
        return self.ref.store(self.store)

    def metadata(self) -> SnapshotMetadata:
        """The snapshot's metadata. Raises SnapshotDamaged if these are not the bytes that completed."""
        path = f"{self.ref.folder}/{METADATA}"
        try:
            return decode_metadata(self._store.read(path), self.ref, path)
        except ObjectMissing:
            raise SnapshotDamaged(f"{path} of {self.ref} is missing") from None

    def read(self, handle: StateHandle) -> bytes:
        """The bytes of a small file, verified."""
        try:
            data = self._store.read(self.ref.path(handle))
        except ObjectMissing:
            raise self._damaged(handle, "is missing") from None
        self._verify(handle, len(data), wire.sha256(data))
        return data

    def fetch(self, handles: Iterable[tuple[StateHandle, Path]]) -> int:
        """Copy files to local paths, verified, several at a time; the number of bytes."""
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="fetch") as pool:
            return sum(pool.map(lambda pair: self._fetch_one(*pair), handles))

    def _fetch_one(self, handle: StateHandle, local: Path) -> int:
        try:
            length = self._store.download(self.ref.path(handle), local)
        except ObjectMissing:
            raise self._damaged(handle, "is missing") from None
        with local.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        self._verify(handle, length, checksum)
        return length

    def _verify(self, handle: StateHandle, length: int, checksum: str) -> None:
        if length != handle.length:
            raise self._damaged(handle, f"has {length} bytes instead of {handle.length}")
        if checksum != handle.sha256:
            raise self._damaged(handle, "has another checksum than it was written with")

    def _damaged(self, handle: StateHandle, what: str) -> SnapshotDamaged:
        return SnapshotDamaged(
            f"{self.ref.path(handle)} of {self.ref} {what}",
            hint="`headgate snapshots STREAM` lists the others, `--fall-back` takes the next older one",
        )
