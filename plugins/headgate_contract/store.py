"""What Headgate needs of an object store, and `open_store`, which finds the one that a URL names.

fsspec promises no atomic create-if-absent; `ObjectStore.create` does, and one conformance suite with racing writers
proves it for each backend. Paths are relative to the root, separated by `/`; an object is never a folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate_contract.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing."""

    path: str
    length: int
    modified: float
    """When it was last written, in seconds, by the storage's own clock."""


class ObjectStore(ABC):
    """A root on shared storage. Methods may be called from any thread."""

    url: str

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Create `path` with `data`, whole and durable; False if it exists already. Of racing callers exactly one gets True.

        `data` must be unique to its caller (carry a nonce): only so can a repeat after a lost answer be recognised.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write `path` whether it exists or not; a reader sees the old bytes or the new ones, never a mix."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of `path`. Raises ObjectMissing."""

    @abstractmethod
    def stat(self, path: str) -> ObjectInfo | None:
        """What is at `path`, or None."""

    @abstractmethod
    def list(self, folder: str) -> list[ObjectInfo]:
        """Every object below `folder`, at any depth, sorted by path; empty if there is none."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete `path`; False if it was not there."""

    @abstractmethod
    def upload(self, local: Path, path: str) -> int:
        """Copy a local file to `path`, durable; its length. For write-once names: an existing object is replaced."""

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
        """Make an object durable that another process wrote below the root with plain file calls; no-op off local disks."""

    @abstractmethod
    def check_writable(self) -> None:
        """Raise StorageUnreachable, with the reason, if the root cannot be read and written."""

    def delete_all(self, folder: str) -> int:
        """Delete every object below `folder`; how many."""
        return sum(self.delete(entry.path) for entry in self.list(folder))


def open_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store at `url`: a local path, file://, memory:// or s3://. `options` go to fsspec (endpoint, credentials)."""
    scheme = urlsplit(url).scheme if "://" in url else "file"
    if scheme == "file":
        from headgate_contract.store_local import LocalStore

        path = urlsplit(url).path if "://" in url else url
        if not path:
            raise BadConfiguration(f"the root {url!r} names no folder", hint="write a path, or file:///path")
        return LocalStore(Path(path).expanduser().absolute())
    if scheme == "memory":
        from headgate_contract.store_memory import MemoryStore

        return MemoryStore(url)
    if scheme in ("s3", "s3a"):
        from headgate_contract.store_s3 import S3Store

        return S3Store(url.replace("s3a://", "s3://", 1), dict(options or {}))
    raise BadConfiguration(
        f"the root {url!r} is on {scheme!r}, for which no atomic create is proved",
        hint="use file://, s3:// or memory://",
    )
