"""A store that is believed only while its anchor is there: an object that was written once and never changes.

A mount drops, a folder is renamed: the path is still good, and what is at it is empty, or something else. A write would
succeed there, and a look find nothing. So each write is made between two looks at the anchor, and that something is
absent is believed only if the anchor is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from headgate_contract.errors import HeadgateError, ObjectMissing
from headgate_contract.store import Aged, Listing, ObjectInfo, ObjectStore

T = TypeVar("T")


class AnchoredStore(ObjectStore):
    """`inner`, while `judge` is content with the bytes of `anchor` (None: it is not there); else what it raises."""

    def __init__(self, inner: ObjectStore, anchor: str, judge: Callable[[bytes | None], None]) -> None:
        self.inner = inner
        self.url = inner.url
        self.stays_s = inner.stays_s
        self._at = (anchor, judge)
        self._seen_at = float("-inf")
        inner.guard_by(lambda: self.check(anew=True))

    @property
    def local(self) -> Path | None:
        return self.inner.local

    def move_anchor(self, anchor: str, judge: Callable[[bytes | None], None]) -> None:
        """From now on it is `anchor` that has to be there: something newer, which an older copy does not have."""
        self._at = (anchor, judge)

    def check(self, *, anew: bool = False) -> None:
        began = time.monotonic()
        if not anew and began - self._seen_at < self.stays_s:
            return
        anchor, judge = self._at
        try:
            data = self.inner.read(anchor)
        except ObjectMissing:
            data = None
        judge(data)
        self._seen_at = began

    def _write(self, action: Callable[[], T]) -> T:
        """After a failed second look the outcome is open, as after any StorageError."""
        self.check()
        try:
            done = action()
        except HeadgateError:
            self.check(anew=True)
            raise
        self.check()
        return done

    def guard_by(self, check: Callable[[], None]) -> None:
        self.inner.guard_by(check)

    def make(self) -> None:
        self.inner.make()

    def make_folder(self, folder: str) -> None:
        self._write(lambda: self.inner.make_folder(folder))

    def create(self, path: str, data: bytes) -> bool:
        return self._write(lambda: self.inner.create(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._write(lambda: self.inner.replace(path, data))

    def read(self, path: str) -> bytes:
        try:
            return self.inner.read(path)
        except ObjectMissing:
            self.check()
            raise

    def read_all(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        found = self.inner.read_all(paths)
        if None in found:
            self.check()
        return found

    def read_aged(self, path: str) -> Aged | None:
        found = self.inner.read_aged(path)
        if found is None:
            self.check()
        return found

    def stat(self, path: str) -> ObjectInfo | None:
        found = self.inner.stat(path)
        if found is None:
            self.check()
        return found

    def list(self, folder: str) -> Listing:
        found = self.inner.list(folder)
        if not found:
            self.check()
        return found

    def list_after(self, folder: str, name: str) -> Listing:
        found = self.inner.list_after(folder, name)
        if not found:
            self.check()
        return found

    def folders(self, folder: str) -> Sequence[str]:
        found = self.inner.folders(folder)
        if not found:
            self.check()
        return found

    def delete(self, path: str) -> bool:
        return self._write(lambda: self.inner.delete(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        self._write(lambda: self.inner.delete_many(paths))

    def upload(self, local: Path, path: str) -> int:
        return self._write(lambda: self.inner.upload(local, path))

    def download(self, path: str, local: Path) -> int:
        try:
            return self.inner.download(path, local)
        except ObjectMissing:
            self.check()
            raise

    def move(self, source: str, target: str) -> bool:
        return self._write(lambda: self.inner.move(source, target))

    def now(self) -> float:
        return self.inner.now()

    def sync(self, path: str) -> None:
        self._write(lambda: self.inner.sync(path))

    def check_writable(self) -> None:
        self.check(anew=True)
        self.inner.check_writable()

    def elsewhere(self, url: str) -> ObjectStore:
        return self.inner.elsewhere(url)

    def delete_broken_writes(self, folder: str) -> int:
        return self._write(lambda: self.inner.delete_broken_writes(folder))

    def delete_all(self, folder: str) -> int:
        return self._write(lambda: self.inner.delete_all(folder))
