"""The object store in this process's memory, for tests: fsspec's memory file system behind one lock."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fsspec.implementations.memory import MemoryFileSystem

from headgate_contract.errors import BadConfiguration, ObjectMissing, StorageError
from headgate_contract.store import Listing, ObjectInfo, ObjectStore, check_folder, check_path, whole_file

_LOCK = threading.RLock()


class MemoryStore(ObjectStore):
    """Objects of one process; two stores of one URL see the same ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        root = url.split("://", 1)[1].strip("/")
        if not root:
            raise BadConfiguration(f"the root {url!r} has no name", hint="write memory://name")
        self._root = f"/{root}"
        self._fs = MemoryFileSystem()

    def create(self, path: str, data: bytes) -> bool:
        with _LOCK:
            if self._fs.exists(self._path(path)):
                return self.stat(path) is not None and self.read(path) == data
            self.replace(path, data)
            return True

    def replace(self, path: str, data: bytes) -> None:
        with _LOCK:
            try:
                self._fs.pipe_file(self._path(path), data)
            except OSError as error:
                raise StorageError(f"cannot write {path} on {self.url}: a parent of it is an object") from error

    def read(self, path: str) -> bytes:
        with _LOCK:
            if not self._fs.isfile(self._path(path)):
                raise ObjectMissing(f"{path} is not on {self.url}")
            return bytes(self._fs.cat_file(self._path(path)))

    def stat(self, path: str) -> ObjectInfo | None:
        with _LOCK:
            found = self._fs.store.get(self._path(path))  # its own look goes through all that it holds
            return ObjectInfo(path, found.size, found.modified.timestamp()) if found is not None else None

    def list(self, folder: str) -> Listing:
        below = f"{self._root}/{check_folder(folder, self.url)}".rstrip("/") + "/"
        with _LOCK:
            names = sorted(name for name in tuple(self._fs.store) if name.startswith(below))  # others write to it
            found = [self.stat(name.removeprefix(f"{self._root}/")) for name in names]
            return [info for info in found if info is not None]

    def delete(self, path: str) -> bool:
        with _LOCK:
            if not self._fs.isfile(self._path(path)):
                return False
            self._fs.rm_file(self._path(path))
            return True

    def upload(self, local: Path, path: str) -> int:
        try:
            data = local.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(f"the local file {local} is gone") from None
        self.replace(path, data)
        return len(data)

    def download(self, path: str, local: Path) -> int:
        data = self.read(path)
        with whole_file(local) as temp:
            return temp.write_bytes(data)

    def move(self, source: str, target: str) -> bool:
        with _LOCK:
            if self.stat(source) is None:
                if self.stat(target) is None:
                    raise ObjectMissing(f"neither {source} nor {target} is on {self.url}")
                return False
            if source != target:
                self.replace(target, self.read(source))
                self.delete(source)
            return True

    def now(self) -> float:
        return time.time()

    def sync(self, path: str) -> None:
        if self.stat(path) is None:
            raise ObjectMissing(f"{path} is not on {self.url}")

    def check_writable(self) -> None:
        """Memory always is."""

    def _path(self, path: str) -> str:
        return f"{self._root}/{check_path(path, self.url)}"
