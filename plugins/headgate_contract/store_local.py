"""The object store on a local (or NFS) folder: temp file, fsync, link, fsync of the folder."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path

from headgate_contract.errors import ObjectMissing, StorageError, StorageUnreachable
from headgate_contract.store import ObjectInfo, ObjectStore

_TEMP = ".tmp-"


class LocalStore(ObjectStore):
    """Objects are files below `root`; a name that starts with `.tmp-` is a write that never ended and is not listed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()

    def create(self, path: str, data: bytes) -> bool:
        target = self._path(path)
        temp = self._write_temp(target, data)
        try:
            os.link(temp, target)
        except FileExistsError:
            return False
        finally:
            temp.unlink(missing_ok=True)
        _sync_folder(target.parent)
        return True

    def replace(self, path: str, data: bytes) -> None:
        target = self._path(path)
        temp = self._write_temp(target, data)
        temp.replace(target)
        _sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        try:
            return self._path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(f"{path} is not on {self.url}") from None
        except OSError as error:
            raise StorageError(f"cannot read {path} on {self.url}: {error}") from error

    def stat(self, path: str) -> ObjectInfo | None:
        try:
            found = self._path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectInfo(path, found.st_size, found.st_mtime) if not os.path.isdir(self._path(path)) else None

    def list(self, folder: str) -> list[ObjectInfo]:
        entries: list[ObjectInfo] = []
        pending = [self._path(folder)]
        while pending:
            try:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        if entry.name.startswith(_TEMP):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(Path(entry.path))
                            continue
                        entries.extend(self._info(entry))
            except (FileNotFoundError, NotADirectoryError):
                continue  # the folder is not there (any more): it holds nothing
        return sorted(entries, key=lambda info: info.path)

    def _info(self, entry: os.DirEntry[str]) -> list[ObjectInfo]:
        try:
            found = entry.stat()
        except FileNotFoundError:
            return []  # deleted between the listing and the look at it
        return [ObjectInfo(Path(entry.path).relative_to(self.root).as_posix(), found.st_size, found.st_mtime)]

    def delete(self, path: str) -> bool:
        try:
            self._path(path).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def upload(self, local: Path, path: str) -> int:
        target = self._path(path)
        temp = target.parent / f"{_TEMP}{uuid.uuid4().hex}"
        self._make_folder(target.parent)
        try:
            shutil.copyfile(local, temp)
            _sync_file(temp)
            temp.replace(target)
        except FileNotFoundError as error:
            raise ObjectMissing(f"the local file {local} is gone") from error
        except OSError as error:
            raise StorageError(f"cannot write {path} on {self.url}: {error.strerror or error}") from error
        finally:
            temp.unlink(missing_ok=True)
        _sync_folder(target.parent)
        return target.stat().st_size

    def download(self, path: str, local: Path) -> int:
        source = self._path(path)
        temp = local.parent / f"{_TEMP}{uuid.uuid4().hex}"
        try:
            shutil.copyfile(source, temp)
            temp.replace(local)
        except FileNotFoundError as error:
            if source.exists():
                raise
            raise ObjectMissing(f"{path} is not on {self.url}") from error
        finally:
            temp.unlink(missing_ok=True)
        return local.stat().st_size

    def move(self, source: str, target: str) -> bool:
        start, end = self._path(source), self._path(target)
        self._make_folder(end.parent)
        try:
            start.rename(end)
        except FileNotFoundError:
            if end.exists():
                return False
            raise ObjectMissing(f"neither {source} nor {target} is on {self.url}") from None
        except OSError as error:
            raise StorageError(f"cannot move {source} to {target} on {self.url}: {error.strerror or error}") from error
        _sync_folder(end.parent)
        if start.parent != end.parent:
            _sync_folder(start.parent)
        return True

    def now(self) -> float:
        return time.time()

    def sync(self, path: str) -> None:
        target = self._path(path)
        try:
            _sync_file(target)
        except FileNotFoundError:
            raise ObjectMissing(f"{path} is not on {self.url}") from None
        _sync_folder(target.parent)

    def check_writable(self) -> None:
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.replace(probe, b"probe\n")
            self.delete(probe)
        except (StorageError, OSError) as error:
            raise StorageUnreachable(
                f"the root {self.url} cannot be written: {error}",
                hint="create the folder for this user, or choose another root",
            ) from error

    def _path(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the root {self.url}")
        return self.root / path

    def _make_folder(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {folder}: {error.strerror or error}") from error

    def _write_temp(self, target: Path, data: bytes) -> Path:
        self._make_folder(target.parent)
        temp = target.parent / f"{_TEMP}{uuid.uuid4().hex}"
        try:
            with temp.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            temp.unlink(missing_ok=True)
            raise StorageError(f"cannot write {target}: {error.strerror or error}") from error
        return temp


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
