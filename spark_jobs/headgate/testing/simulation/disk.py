"""Shared storage of the simulation: one dictionary, seen by each host through a store that may fail it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headgate.testing.simulation.turns import Host
from headgate_contract.errors import ObjectMissing
from headgate_contract.paths import ROOT
from headgate_contract.store import Listing, ObjectInfo, ObjectStore

T = TypeVar("T")


@dataclass
class Disk:
    """What is stored, and who is told of each change."""

    objects: dict[str, bytes] = field(default_factory=dict)
    """The root's."""
    elsewhere: dict[str, bytes] | None = None
    """What is in the root's place for a while: nothing, another root, a copy that somebody has made of it."""
    changes: int = 0
    created: Callable[[str, bytes, Host], None] = lambda path, data, host: None
    deleted: Callable[[str, Host], None] = lambda path, host: None

    @property
    def there(self) -> dict[str, bytes]:
        """What a path of the root leads to now."""
        return self.objects if self.elsewhere is None else self.elsewhere

    def create(self, path: str, data: bytes, host: Host) -> bool:
        before = self.there.get(path)
        if before is None:
            self.there[path] = data
            if self.elsewhere is None:
                self.created(path, data, host)
        return before is None or before == data

    def put(self, path: str, data: bytes, host: Host) -> None:
        self.changes += 1
        self.there[path] = data
        if self.elsewhere is None:
            self.created(path, data, host)

    def remove(self, path: str, host: Host) -> bool:
        self.changes += 1
        if self.there.pop(path, None) is None:
            return False
        if self.elsewhere is None:
            self.deleted(path, host)
        return True

    def has_folder_of(self, path: str) -> bool:
        """Whether the folder is there that `path` is in: the root's are never deleted."""
        if self.elsewhere is None:
            return True
        folder = f"{path.rpartition('/')[0]}/"
        return any(other.startswith(folder) for other in self.elsewhere)


class SimulatedStore(ObjectStore):
    """One host's view: every call is a turn, and the simulation says how it ends.

    But for looks at which root it is, which are part of the turn that they guard.
    """

    def __init__(self, disk: Disk, host: Host) -> None:
        self.url = "simulated://"
        self._disk = disk
        self._host = host
        self._guard: Callable[[], None] = lambda: None

    def guard_by(self, check: Callable[[], None]) -> None:
        self._guard = check

    def _turn(self, what: str, path: str, act: Callable[[], T]) -> T:
        return self._host.call(f"{what} {path}", act)

    def _make_folder_of(self, path: str) -> None:
        if not self._disk.has_folder_of(path):
            self._guard()

    def create(self, path: str, data: bytes) -> bool:
        def act() -> bool:
            self._make_folder_of(path)
            return self._disk.create(path, data, self._host)

        return self._turn("create", path, act)

    def replace(self, path: str, data: bytes) -> None:
        def act() -> None:
            self._make_folder_of(path)
            self._disk.put(path, data, self._host)

        self._turn("replace", path, act)

    def read(self, path: str) -> bytes:
        def act() -> bytes:
            if path not in self._disk.there:
                raise ObjectMissing(f"{path} is not there")
            return self._disk.there[path]

        return act() if path == ROOT else self._turn("read", path, act)

    def read_all(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        """One after the other: each is a turn."""
        return [self._read_if_there(path) for path in paths]

    def stat(self, path: str) -> ObjectInfo | None:
        found = self._turn("stat", path, lambda: self._disk.there.get(path))
        return None if found is None else ObjectInfo(path, len(found), 0.0)

    def list(self, folder: str) -> Listing:
        def act() -> Listing:
            below = f"{folder}/" if folder else ""
            found = sorted(path for path in self._disk.there if path.startswith(below))
            return [ObjectInfo(path, len(self._disk.there[path]), 0.0) for path in found]

        return self._turn("list", folder, act)

    def delete(self, path: str) -> bool:
        def act() -> bool:
            return self._disk.remove(path, self._host)

        return self._turn("delete", path, act)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

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
