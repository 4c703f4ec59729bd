"""The object store on a local (or NFS) folder: temp file, fsync, link, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from headgate_contract.errors import ObjectMissing, StorageError, StorageUnreachable
from headgate_contract.modes import OWN, file_mode, folder_mode, make_folder, mode_of, new_file, umask
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
_MOST_DURABLE = 4096
_WRITE_TAKES_S = 60.0
"""A temporary file that nobody has written to for this long is taken to have no writer any more."""


class LocalStore(ObjectStore):
    """Objects are files below `root`; a name that starts with `.tmp-` is a write that never ended and is not listed.

    Nobody but the owner and, if `root` says so by its own mode, its group may read them, except for what is `shown`:
    that is somebody's output, and follows the umask, as the folders beside it do.
    """

    def __init__(self, root: Path, shown: Callable[[str], bool] | None = None) -> None:
        self.root = root
        self._shown = shown
        self.url = root.as_uri()
        self._check_first: Callable[[], None] = lambda: None
        self._durable: set[Path] = set()
        """Folders whose names a crash of the machine leaves: what is above them was synced since they were made."""

    @property
    def local(self) -> Path:
        return self.root

    def guard_by(self, check: Callable[[], None]) -> None:
        self._check_first = check

    def make(self) -> None:
        try:
            self.root.mkdir(mode=OWN if self._shown is None else 0o777)
        except FileExistsError:
            if not self.root.is_dir():
                raise StorageUnreachable(f"the root {self.url} is no folder", hint="choose another root") from None
        except FileNotFoundError:
            raise StorageUnreachable(
                f"the root {self.url} cannot be made: {self.root.parent} is not there",
                hint="mount what belongs there, or create it",
            ) from None
        except OSError as error:
            raise StorageUnreachable(
                f"the root {self.url} cannot be made: {error.strerror}",
                hint="create it for this user, or choose another root",
            ) from error
        else:
            _sync_folder(self.root.parent)

    def make_folder(self, folder: str) -> None:
        place = self._path(folder)
        with self._failing("make", folder):
            self._make_folder(place)
            self._make_durable(place)

    def create(self, path: str, data: bytes) -> bool:
        target = self._path(path)

        def link(temp: Path) -> bool:
            try:
                os.link(temp, target)
            except FileExistsError:
                return self._holds(target, data)
            return True

        with self._failing("create", path):
            won = self._from_temp(target, data, link)
            if won:
                self._make_durable(target.parent)
        return won

    def replace(self, path: str, data: bytes) -> None:
        target = self._path(path)
        with self._failing("write", path):
            self._from_temp(target, data, lambda temp: temp.replace(target))
            self._make_durable(target.parent)

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

    def list_after(self, folder: str, name: str) -> Listing:
        folder = check_folder(folder, self.url)
        found: Listing = []
        with self._failing("list", folder or "the root"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self.root / folder) as entries:
                behind = [each for each in entries if each.name > name and not each.name.startswith(TEMP_PREFIX)]
            for entry in behind:
                with contextlib.suppress(FileNotFoundError):  # deleted between the listing and the look at it
                    if entry.is_file():
                        seen = entry.stat()
                        found.append(ObjectInfo(f"{folder}/{entry.name}", seen.st_size, seen.st_mtime))
        return sorted(found, key=lambda info: info.path)

    def folders(self, folder: str) -> Sequence[str]:
        folder = check_folder(folder, self.url)
        with self._failing("list", folder or "the root"):
            try:
                with os.scandir(self.root / folder) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

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
        self.delete_broken_writes(folder)
        top = self.root / check_folder(folder, self.url)
        with self._failing("delete", folder or "the root"):
            for place, _, _ in os.walk(top, topdown=False):
                if Path(place) != self.root:
                    self._durable.discard(Path(place))
                    with contextlib.suppress(OSError):  # not empty: somebody writes there
                        Path(place).rmdir()
        return deleted

    def delete_broken_writes(self, folder: str) -> int:
        """Whoever was only frozen all that time finds its file gone, and writes it anew."""
        top, dead = self.root / check_folder(folder, self.url), self.now() - _WRITE_TAKES_S
        with self._failing("delete", folder or "the root"):
            found = (Path(place, name) for place, _, names in os.walk(top) for name in names)
            return sum(_remove_if_dead(path, dead) for path in found if path.name.startswith(TEMP_PREFIX))

    def upload(self, local: Path, path: str) -> int:
        target = self._path(path)
        temp = target.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"

        def copy() -> None:
            if not local.is_file():
                raise ObjectMissing(f"the local file {local} is gone")
            with local.open("rb") as file, self._new_file(temp) as copied:
                shutil.copyfileobj(file, copied, 1 << 20)
                copied.flush()
                os.fsync(copied.fileno())
            temp.replace(target)

        with self._failing("write", path):
            try:
                self._in_folder(target.parent, copy)
            finally:
                temp.unlink(missing_ok=True)
            self._make_durable(target.parent)
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
                if self._shown is not None:
                    self._set_mode(start, target)
                self._in_folder(end.parent, lambda: start.rename(end))
            except FileNotFoundError:
                return self._was_moved(source, target)
            self._make_durable(end.parent)
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
            probe.touch(mode=0o600, exist_ok=False)
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
            self._make_durable(target.parent)

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

    def _from_temp(self, target: Path, data: bytes, finish: Callable[[Path], T]) -> T:
        """Run `finish` on a temporary neighbour of `target` that holds `data`, on disk."""
        temp = target.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"

        def write() -> T:
            with self._new_file(temp) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                return finish(temp)
            finally:
                temp.unlink(missing_ok=True)

        try:
            return self._in_folder(target.parent, write)
        except OSError:
            with contextlib.suppress(OSError):  # what went wrong first is what is told
                temp.unlink(missing_ok=True)
            raise

    def _in_folder(self, folder: Path, action: Callable[[], T]) -> T:
        """Run `action`, which writes in `folder`; make it first, and both again if it was taken away in between.

        Not synced before: the less lies between making a folder and writing in it, the less `delete_all` takes it for
        an empty one.
        """
        for attempt in range(_TRIES):
            try:
                self._make_folder(folder)
                return action()
            except FileNotFoundError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("not reached: the last attempt returns or raises")

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` and what is missing above it, below the root.

        Never the root: what a mount that dropped, or a rename, has taken away would come back empty, and be believed.
        """
        missing = []
        while not folder.is_dir():
            if folder == self.root:
                raise StorageUnreachable(
                    f"the root {self.url} is not there",
                    hint="is its storage mounted? nothing is written until it is back",
                )
            missing.append(folder)
            folder = folder.parent
        if missing:
            self._check_first()
        for new in reversed(missing):
            self._durable.discard(new)
            if self._shown is None:
                make_folder(new, folder_mode(mode_of(self.root)))
            else:  # a reader of the output lists them, and skips what is in them by its name
                new.mkdir(exist_ok=True)

    def _set_mode(self, path: Path, target: str) -> None:
        """Before `path` becomes `target`: readers' output, or hidden again."""
        assert self._shown is not None
        mode = 0o666 & ~umask() if self._shown(target) else file_mode(mode_of(self.root))
        with contextlib.suppress(PermissionError):  # another user of the group has staged it: it stays the group's
            if mode_of(path) != mode:
                path.chmod(mode)

    def _new_file(self, path: Path) -> IO[bytes]:
        return os.fdopen(new_file(path, file_mode(mode_of(self.root))), "wb")

    def _make_durable(self, folder: Path) -> None:
        """A file on disk in a folder that is not would be lost: sync `folder`, and those above that may be new.

        Whoever made them may be another thread or process, which has not come to that yet.
        """
        _sync_folder(folder)
        while folder != self.root and folder not in self._durable:
            _sync_folder(folder.parent)
            if len(self._durable) >= _MOST_DURABLE:
                self._durable.clear()
            self._durable.add(folder)
            folder = folder.parent

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


def _remove_if_dead(temp: Path, dead: float) -> bool:
    try:
        if temp.stat().st_mtime < dead:
            temp.unlink()
            return True
    except FileNotFoundError:
        return False  # its writer has finished with it
    return False


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
