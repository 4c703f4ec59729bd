"""The object store on a local (or NFS) folder: temp file, fsync, link, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from headgate_contract.errors import ObjectMissing, StorageError, StorageUnreachable
from headgate_contract.store import (
    TEMP_PREFIX,
    Listing,
    ObjectInfo,
    ObjectStore,
    check_folder,
    check_path,
    whole_file,
)

T = TypeVar("T")

_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_TRIES = 20
_WRITE_TAKES_S = 60.0
"""A temporary file that nobody has written to for this long is taken to have no writer any more."""


class LocalStore(ObjectStore):
    """Objects are files below `root`; a name that starts with `.tmp-` is a write that never ended and is not listed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()

    def create(self, path: str, data: bytes) -> bool:
        target = self._path(path)

        def link(temp: Path) -> bool:
            try:
                os.link(temp, target)
            except FileExistsError:
                return self._holds(target, data)
            return True

        with self._failing("create", path):
            won = _from_temp(target, data, link)
            if won:
                _sync_folder(target.parent)
        return won

    def replace(self, path: str, data: bytes) -> None:
        target = self._path(path)
        with self._failing("write", path):
            _from_temp(target, data, lambda temp: temp.replace(target))
            _sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        target = self._path(path)
        with self._failing("read", path):
            try:
                return target.read_bytes()
            except _GONE:
                raise self._missing(path) from None

    def stat(self, path: str) -> ObjectInfo | None:
        target = self._path(path)
        with self._failing("look at", path):
            try:
                found = target.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return ObjectInfo(path, found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None

    def list(self, folder: str) -> Listing:
        folder = check_folder(folder, self.url)
        found: Listing = []
        with self._failing("list", folder or "the root"):
            _walk(self.root / folder, f"{folder}/" if folder else "", found)
        return sorted(found, key=lambda info: info.path)

    def delete(self, path: str) -> bool:
        target = self._path(path)
        with self._failing("delete", path):
            try:
                target.unlink()
            except _GONE:
                return False
        return True

    def delete_all(self, folder: str) -> int:
        """Delete every object below `folder`, writes that ended long ago without an object, and folders left empty."""
        deleted = super().delete_all(folder)
        top = self.root / check_folder(folder, self.url)
        dead = self.now() - _WRITE_TAKES_S
        with self._failing("delete", folder or "the root"):
            for place, _, names in os.walk(top, topdown=False):
                for name in names:
                    if name.startswith(TEMP_PREFIX):
                        _remove_if_dead(Path(place, name), dead)
                if Path(place) != self.root:
                    with contextlib.suppress(OSError):  # not empty: somebody writes there
                        Path(place).rmdir()
        return deleted

    def upload(self, local: Path, path: str) -> int:
        target = self._path(path)
        temp = target.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"

        def copy() -> None:
            if not local.is_file():
                raise ObjectMissing(f"the local file {local} is gone")
            shutil.copyfile(local, temp)
            _sync_file(temp)
            temp.replace(target)

        with self._failing("write", path):
            try:
                _in_folder(target.parent, copy)
            finally:
                temp.unlink(missing_ok=True)
            _sync_folder(target.parent)
            return target.stat().st_size

    def download(self, path: str, local: Path) -> int:
        source = self._path(path)
        if self.stat(path) is None:
            raise self._missing(path)
        with whole_file(local) as temp:
            try:
                file = source.open("rb")
            except _GONE:
                raise self._missing(path) from None
            with file, temp.open("xb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        return local.stat().st_size

    def move(self, source: str, target: str) -> bool:
        start, end = self._path(source), self._path(target)
        with self._failing("move", f"{source} to {target}"):
            if not start.is_file():
                return self._was_moved(source, target)
            try:
                _in_folder(end.parent, lambda: start.rename(end))
            except FileNotFoundError:
                return self._was_moved(source, target)
            _sync_folder(end.parent)
            if start.parent != end.parent:
                _sync_folder(start.parent)
        return True

    def _was_moved(self, source: str, target: str) -> bool:
        """False, if an earlier call has moved `source` already."""
        if self.stat(target) is None:
            raise ObjectMissing(f"neither {source} nor {target} is on {self.url}")
        return False

    def now(self) -> float:
        """When a file that is written this moment was written: on a network mount that is the server's clock.

        Where nothing can be written it is this host's.
        """
        probe = self.root / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
        try:
            probe.touch(exist_ok=False)
            moment = probe.stat().st_mtime
            probe.unlink()
        except OSError:
            return time.time()
        return moment

    def sync(self, path: str) -> None:
        target = self._path(path)
        if self.stat(path) is None:
            raise self._missing(path)
        with self._failing("sync", path):
            _sync_file(target)
            _sync_folder(target.parent)

    def check_writable(self) -> None:
        try:
            self._probe()
        except StorageUnreachable:
            raise
        except StorageError as error:
            raise StorageUnreachable(
                f"the root {self.url} cannot be written: {error.what}",
                hint="create the folder for this user, or choose another root",
            ) from error

    def _path(self, path: str) -> Path:
        return self.root / check_path(path, self.url)

    def _missing(self, path: str) -> ObjectMissing:
        return ObjectMissing(f"{path} is not on {self.url}")

    @contextmanager
    def _failing(self, verb: str, path: str) -> Iterator[None]:
        """What the operating system refuses becomes a StorageError that says what was tried."""
        try:
            yield
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise StorageError(f"cannot {verb} {path} on {self.url}: {why}", hint=_advice(error)) from error

    def _holds(self, target: Path, data: bytes) -> bool:
        try:
            return target.read_bytes() == data
        except _GONE:
            return False  # deleted meanwhile, or a folder: it was there, and that is the answer


def _advice(error: OSError | ValueError) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "make room there; nothing that was written before is lost"
    if code in (errno.ENOTSUP, errno.EMLINK):
        return "this file system has no hard links, which an exclusive create needs: choose another root"
    return ""


def _walk(top: Path, prefix: str, found: Listing) -> None:
    pending = [(str(top), prefix)]
    while pending:
        place, prefix = pending.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name.startswith(TEMP_PREFIX):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, f"{prefix}{entry.name}/"))
                        continue
                    try:
                        seen = entry.stat()
                    except FileNotFoundError:
                        continue  # deleted between the listing and the look at it
                    if stat.S_ISREG(seen.st_mode):
                        found.append(ObjectInfo(f"{prefix}{entry.name}", seen.st_size, seen.st_mtime))
        except (FileNotFoundError, NotADirectoryError):
            continue  # the folder is not there (any more): it holds nothing


def _from_temp(target: Path, data: bytes, finish: Callable[[Path], T]) -> T:
    """Run `finish` on a temporary neighbour of `target` that holds `data`, on disk."""
    temp = target.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"

    def write() -> T:
        with temp.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            return finish(temp)
        finally:
            temp.unlink(missing_ok=True)

    try:
        return _in_folder(target.parent, write)
    except OSError:
        with contextlib.suppress(OSError):  # what went wrong first is what is told
            temp.unlink(missing_ok=True)
        raise


def _remove_if_dead(temp: Path, dead: float) -> None:
    try:
        if temp.stat().st_mtime < dead:
            temp.unlink()
    except FileNotFoundError:
        return  # its writer has finished with it


def _in_folder(folder: Path, action: Callable[[], T]) -> T:
    """Run `action`, which writes in `folder`; make it first, and both again if `delete_all` took it away in between.

    Folders that were made are durable at the end: a file on disk in a folder that is not would be lost. Not before: the
    less lies between making a folder and writing in it, the less it is taken for an empty one.
    """
    parents: set[Path] = set()
    for attempt in range(_TRIES):
        try:
            parents |= _make_folder(folder)
            done = action()
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
        else:
            break
    for parent in parents:
        _sync_folder(parent)
    return done


def _make_folder(folder: Path) -> set[Path]:
    """Make `folder` and what is missing above it; the folders that hold what was made."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
    return {new.parent for new in missing}


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # deleted meanwhile, with everything in it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
