"""What Headgate needs of an object store, and `open_store`, which finds the one that a URL names.

fsspec promises no atomic create-if-absent; `ObjectStore.create` does, and one conformance suite with racing writers
proves it for each backend. Paths are relative to the root, separated by `/`; an object is never a folder.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate_contract.credentials import carries_credentials, masked
from headgate_contract.errors import BadConfiguration, BadInput, ObjectMissing, StorageError, StorageUnreachable

AT_ONCE = 32

TEMP_PREFIX = ".tmp-"
"""Names that begin so are writes under way or never ended: no object has one and no listing shows one."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing."""

    path: str
    length: int
    modified: float
    """When it was last written, in seconds, by the storage's own clock; S3 tells it by the second."""


Listing = list[ObjectInfo]


@dataclass(frozen=True, slots=True)
class Aged:
    """An object's bytes, and how old they are by the storage's own clock."""

    data: bytes
    modified: float
    age_s: float


class ObjectStore(ABC):
    """A root on shared storage. Methods may be called from any thread.

    What fails raises StorageError. After a write that raised it, the outcome is open: the object may be there all the
    same. Every method may be repeated.
    """

    url: str
    stays_s: float = 0.0
    """For how long a place that was seen is taken to be there still: a look costs nothing on a disk, and a request
    elsewhere."""

    @property
    def local(self) -> Path | None:
        """The folder that it is, on file systems."""
        return None

    def check(self, *, anew: bool = False) -> None:
        """Raise RootLost unless what is there is still what was worked on, for stores that can tell.

        `anew`: now, whenever it was last seen.
        """
        return

    def guard_by(self, check: Callable[[], None]) -> None:
        """Ask `check`, which raises what is wrong, before a folder is made: where folders are missing, all may be."""
        return

    def make(self) -> None:
        """Make the place itself where it is a folder that is not there yet, and nothing above it.

        Only this does. No write makes it again: whoever writes to a place that went away must hear of it.
        """
        return

    def make_folder(self, folder: str) -> None:
        """Make a folder below, durable, where there are folders: for those who put files into it by themselves."""
        return

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Create `path` with `data`, whole and durable. Of racing callers exactly one gets True.

        False: it exists, with other bytes. True, too, if it exists with these very bytes: that is this caller's own
        earlier try, whose answer was lost. Hence `data` must be unique to its caller (carry a nonce) wherever who won
        matters.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write `path` whether it exists or not; a reader sees the old bytes or the new ones, never a mix."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of `path`. Raises ObjectMissing."""

    def read_all(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        """The bytes of each, None for what is not there: many at once, so that far storage is not waited for each."""
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(paths))), thread_name_prefix="read") as pool:
            return list(pool.map(self._read_if_there, paths))

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except ObjectMissing:
            return None

    @abstractmethod
    def stat(self, path: str) -> ObjectInfo | None:
        """What is at `path`, or None."""

    @abstractmethod
    def list(self, folder: str) -> Listing:
        """Every object below `folder` ("" is the root), at any depth, sorted by path; empty if there is none.

        What was there before the call and still is, is listed. Of what is created meanwhile some may be missing, also
        if something newer is listed.
        """

    def list_after(self, folder: str, name: str) -> Listing:
        """The objects right in `folder` whose names sort behind `name`, as `list` gives them.

        What is before them costs nothing where the storage can begin in the middle.
        """
        above = f"{folder.rstrip('/')}/"
        return [
            info
            for info in self.list(folder)
            if "/" not in info.path.removeprefix(above) and info.path.removeprefix(above) > name
        ]

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders right below `folder`, sorted, whatever they hold."""
        above = f"{folder.rstrip('/')}/"
        below = (info.path.removeprefix(above).partition("/") for info in self.list(folder))
        return sorted({name for name, slash, _ in below if slash})

    def read_aged(self, path: str) -> Aged | None:
        """The bytes at `path` and how old they are, with one request where the storage can; None if there are none."""
        info = self.stat(path)
        if info is None:
            return None
        try:
            data = self.read(path)
        except ObjectMissing:
            return None
        return Aged(data, info.modified, max(0.0, self.now() - info.modified))

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete `path`; False if it was not there."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete all of them, many at once; what is not there is deleted."""
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(paths))), thread_name_prefix="delete") as pool:
            for _ in pool.map(self.delete, paths):
                pass

    @abstractmethod
    def upload(self, local: Path, path: str) -> int:
        """Copy a local file to `path`, durable; its length. For write-once names: an existing object is replaced.

        Raises ObjectMissing if the local file is gone.
        """

    @abstractmethod
    def download(self, path: str, local: Path) -> int:
        """Copy `path` to a local file; its length. Raises ObjectMissing and leaves no part of a file behind."""

    @abstractmethod
    def move(self, source: str, target: str) -> bool:
        """Give the write-once object `source` the name `target`, durable; True if this call did it.

        Repeating is harmless: if `source` is gone and `target` is there, it returns False. Raises ObjectMissing if
        both are gone. Not a lock: a `target` that exists is replaced.
        """

    @abstractmethod
    def now(self) -> float:
        """The storage's own clock, comparable with `ObjectInfo.modified`."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make an object durable that another process wrote below the root with plain file calls; raises ObjectMissing.

        Elsewhere than on local disks every object is.
        """

    @abstractmethod
    def check_writable(self) -> None:
        """Raise StorageUnreachable, with the reason, if the root cannot be read and written, or `create` is not safe.

        Whoever is about to work on a root calls it first: a launch, and the driver itself.
        """

    def elsewhere(self, url: str) -> ObjectStore:
        """The store at `url`, opened with the options of this one where they are for the same kind of storage."""
        return open_store(url)

    def _probe(self) -> None:
        """Create, read and delete an object. Raises StorageUnreachable if it could be created twice."""
        probe = f".probe-{uuid.uuid4().hex}"
        self.create(probe, b"probe\n")
        self.read(probe)
        twice = self.create(probe, b"another\n")
        self.delete(probe)
        if twice:
            raise StorageUnreachable(
                f"the root {self.url} lets an object be created that is there already: two drivers could both win",
                hint="choose a store that honours If-None-Match (S3, MinIO), or a file system with atomic hard links",
            )

    def delete_all(self, folder: str) -> int:
        """Delete every object below `folder`; how many."""
        return sum(self.delete(entry.path) for entry in self.list(folder))

    def delete_broken_writes(self, folder: str) -> int:
        """Delete what writes below `folder` have left that ended long ago without an object; how many.

        No listing shows them. Most storages keep nothing of a write that was broken off.
        """
        return 0


def check_path(path: str, url: str) -> str:
    """`path`, if it names an object below the root; whatever a hostile name tries, it does not leave the root."""
    parts = path.split("/")
    if not all(parts) or "." in parts or ".." in parts or "\0" in path:
        raise StorageError(f"{path!r} names no object below the root {url}", hint="write it like folder/name")
    if any(part.startswith(TEMP_PREFIX) for part in parts):
        raise StorageError(f"{path!r}: names that begin with {TEMP_PREFIX!r} are kept for writes under way")
    return path


def check_folder(folder: str, url: str) -> str:
    """`folder` without a slash at its end, if it lies below the root or is it."""
    folder = folder.rstrip("/")
    return check_path(folder, url) if folder else folder


@contextmanager
def whole_file(local: Path) -> Iterator[Path]:
    """A temporary neighbour of `local` to write to, which becomes `local` at the end, and vanishes after a failure."""
    if not local.parent.is_dir():
        raise StorageError(f"cannot write the local file {local}: {local.parent} is no folder")
    temp = local.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
    try:
        yield temp
        temp.replace(local)
    except OSError as error:
        raise StorageError(f"cannot write the local file {local}: {error.strerror or error}") from error
    finally:
        temp.unlink(missing_ok=True)


def open_store(
    url: str, options: Mapping[str, Any] | None = None, *, shown: Callable[[str], bool] | None = None
) -> ObjectStore:
    """The store at `url`: a local path, file://, memory:// or s3://. `options` go to fsspec (endpoint, credentials).

    `shown` says which paths are output for others to read. On a local disk all else is not, whatever the umask.
    """
    if carries_credentials(url):
        raise BadConfiguration(
            f"the root {masked(url)!r} carries credentials", hint="give them in the environment or as options"
        )
    scheme = urlsplit(url).scheme if "://" in url else "file"
    if options and scheme in ("file", "memory"):
        raise BadConfiguration(f"the root {url!r} takes no options, and has {', '.join(sorted(options))}")
    if scheme == "file":
        from headgate_contract.store_local import LocalStore

        return LocalStore(local_folder(url), shown)
    if scheme == "memory":
        from headgate_contract.store_memory import MemoryStore

        return MemoryStore(url)
    if scheme in ("s3", "s3a"):
        from headgate_contract.store_s3 import S3Store

        return S3Store(bucket_url(url), dict(options or {}))
    raise BadConfiguration(
        f"the root {url!r} is on {scheme!r}, for which no atomic create is proved",
        hint="use file://, s3:// or memory://",
    )


def open_lasting_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store at `url` as a root that outlives this process. Raises BadInput for one in its memory."""
    if url.strip().lower().startswith("memory:"):
        raise BadInput(
            f"the root {url} lives in this process only: no driver could see it", hint="use a folder or s3://"
        )
    return open_store(url, options)


def local_folder(url: str) -> Path:
    """The folder of a path or a file:// URL. Raises BadConfiguration."""
    if "://" not in url:
        path = url
    else:
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise BadConfiguration(
                f"the root {url!r} is not a local folder",
                hint="write file:///path with three slashes, and '%23', '%3F' for '#', '?'; or a plain path",
            )
        path = unquote(parts.path)
    if not path or "\0" in path:
        raise BadConfiguration(f"the root {url!r} names no folder", hint="write a path, or file:///path")
    return Path(path).expanduser().absolute()


def bucket_url(url: str) -> str:
    """A bucket's URL, or that of a folder in one, as all write it. Raises BadConfiguration."""
    root = url.partition("://")[2].rstrip("/")
    bucket = root.partition("/")[0]
    if not bucket:
        raise BadConfiguration(f"the root {url!r} names no bucket", hint="write s3://bucket/folder")
    return f"s3://{root}"
