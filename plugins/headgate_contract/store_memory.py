"""The object store in this process's memory, for tests: fsspec's memory file system behind one lock."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fsspec.implementations.memory import MemoryFileSystem

from headgate_contract.errors import ObjectMissing, StorageError
from headgate_contract.store import ObjectInfo, ObjectStore

_LOCK = threading.RLock()


class MemoryStore(ObjectStore):
    """Objects of one process; two stores of one URL see the same ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = "/" + url.split("://", 1)[1].strip("/")
        self._fs = MemoryFileSystem()

    def create(self, path: str, data: bytes) -> bool:
        with _LOCK:
            if self._fs.exists(self._path(path)):
                return False
            self._fs.pipe_file(self._path(path), data)
            return True

    def replace(self, path: str, data: bytes) -> None:
        with _LOCK:
            self._fs.pipe_file(self._path(path), data)

    def read(self, path: str) -> bytes:
        with _LOCK:
            if not self._fs.isfile(self._path(path)):
                raise ObjectMissing(f"{path} is not on {self.url}")
            return bytes(self._fs.cat_file(self._path(path)))

    def stat(self, path: str) -> ObjectInfo | None:
        with _LOCK:
            if not self._fs.isfile(self._path(path)):
                return None
            found = self._fs.info(self._path(path))
            modified = self._fs.modified(self._path(path)).timestamp()
            return ObjectInfo(path, found["size"], modified)

    def list(self, folder: str) -> list[ObjectInfo]:
        with _LOCK:
            if not self._fs.isdir(self._path(folder)):
                return []
            names = sorted(self._fs.find(self._path(folder)))
            found = [self.stat(name.removeprefix(self._root).lstrip("/")) for name in names]
            return [info for info in found if info is not None]

    def delete(self, path: str) -> bool:
        with _LOCK:
            if not self._fs.isfile(self._path(path)):
                return False
            self._fs.rm_file(self._path(path))
            return True

    def upload(self, local: Path, path: str) -> int:
        data = local.read_bytes()
        self.replace(path, data)
        return len(data)

    def download(self, path: str, local: Path) -> int:
        return local.write_bytes(self.read(path))

    def move(self, source: str, target: str) -> bool:
        with _LOCK:
            if self.stat(source) is None:
                if self.stat(target) is None:
                    raise ObjectMissing(f"neither {source} nor {target} is on {self.url}")
                return False
            self.replace(target, self.read(source))
            self.delete(source)
            return True

    def now(self) -> float:
        return time.time()

    def sync(self, path: str) -> None:
        if self.stat(path) is None:
            raise ObjectMissing(f"{path} is not on {self.url}")

    def check_writable(self) -> None:
        self.replace(".probe", b"probe\n")
        self.delete(".probe")

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the root {self.url}")
        return f"{self._root}/{path}"
