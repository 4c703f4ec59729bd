"""A store of which each request takes 20 ms: what is done there is told by requests, and nobody waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate_contract.errors import ObjectMissing
from headgate_contract.store import AT_ONCE, Aged, Listing, ObjectInfo, ObjectStore

REQUEST_S = 0.02
PAGE = 1000


class Far(ObjectStore):
    """Counts requests as S3 would have them, and the time that one has to wait for them."""

    def __init__(self, objects: dict[str, ObjectInfo], data: dict[str, bytes]) -> None:
        self.url = "far://"
        self._objects = objects
        self._data = data
        self.requests = 0
        self.waited_s = 0.0
        self.clock_s = 0.0
        """What its clock shows, if a test has set it."""

    def copy(self) -> Far:
        return Far(dict(self._objects), dict(self._data))

    def near(self) -> Far:
        """The same objects, whose requests count for nobody."""
        return Far(self._objects, self._data)

    def _asks(self, requests: int, at_once: int = 1) -> None:
        self.requests += requests
        self.waited_s += -(-requests // at_once) * REQUEST_S

    def start(self) -> None:
        self.requests, self.waited_s = 0, 0.0

    def create(self, path: str, data: bytes) -> bool:
        if path in self._data:
            return self._data[path] == data
        self.replace(path, data)
        return True

    def replace(self, path: str, data: bytes) -> None:
        self._asks(1)
        self._data[path] = data
        self._objects[path] = ObjectInfo(path, len(data), self.clock_s or float(len(self._objects)))

    def read(self, path: str) -> bytes:
        self._asks(1)
        return self._read(path)

    def _read(self, path: str) -> bytes:
        if path not in self._data:
            raise ObjectMissing(f"{path} is not there")
        return self._data[path]

    def read_all(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        self._asks(len(paths), AT_ONCE)
        return [self._data.get(path) for path in paths]

    def read_aged(self, path: str) -> Aged | None:
        self._asks(1)
        info = self._objects.get(path)
        return None if info is None else Aged(self._data[path], info.modified, 0.0)

    def stat(self, path: str) -> ObjectInfo | None:
        self._asks(1)
        return self._objects.get(path)

    def list(self, folder: str) -> Listing:
        return self.list_after(folder, "")

    def list_after(self, folder: str, name: str) -> Listing:
        found = sorted(path for path in self._data if path.startswith(f"{folder}/") and path > f"{folder}/{name}")
        self._asks(len(found) // PAGE + 1)
        return [self._objects[path] for path in found]

    def delete(self, path: str) -> bool:
        self._asks(1)
        self._objects.pop(path, None)
        return self._data.pop(path, None) is not None

    def now(self) -> float:
        self._asks(1)
        return self.clock_s or float(len(self._objects))

    def upload(self, local: Path, path: str) -> int:
        raise NotImplementedError

    def download(self, path: str, local: Path) -> int:
        raise NotImplementedError

    def move(self, source: str, target: str) -> bool:
        raise NotImplementedError

    def sync(self, path: str) -> None:
        raise NotImplementedError

    def check_writable(self) -> None:
        raise NotImplementedError
