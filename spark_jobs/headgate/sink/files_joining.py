"""Joins the small files that the micro-batches of one checkpoint have staged: of each subtask there is one in the end.

What a joined file was made from stays until its group is committed: should the checkpoint come to nothing, the next one
is given the same files again, with those staged since.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from headgate.sink.files_each import each
from headgate.sink.files_formats import ParquetFile
from headgate.sink.files_layout import SinkFile
from headgate_contract.errors import StorageError
from headgate_contract.modes import touch_private
from headgate_contract.store import ObjectStore

_log = logging.getLogger(__name__)

_LOCAL = "headgate-join-"

_REMEMBERED = 64
"""Groups: more snapshots than that are not under way at once."""
TARGET_BYTES = 128 << 20
"""What is together larger stays apart: to read and write it again would cost more than readers gain."""
MOST_BYTES = 256 << 20
"""What one checkpoint reads and writes again at the most; the files that are left over stay as they are."""
_SMALL_BYTES = 16 << 20
"""Of what is larger, readers would gain little by its being joined."""
_ROWS = 2048
"""Read at a time: rows may be wide."""
_ABANDONED_S = 3600.0
"""A local copy that nobody has touched for this long was left by a process that was killed."""


def bundles(
    files: Iterable[SinkFile], target_bytes: int = TARGET_BYTES, most_bytes: int = MOST_BYTES
) -> list[list[SinkFile]]:
    """Which files become one, in the order in which they were staged; one that stays as it is is a bundle of its own.

    Those of a subtask and a format, up to `target_bytes` together, and `most_bytes` in all.
    """
    found: list[list[SinkFile]] = []
    newest: dict[tuple[int, str], list[SinkFile]] = {}
    left = most_bytes
    for file in files:
        bundle = newest.get((file.subtask, file.suffix))
        if bundle is None or sum(part.bytes for part in bundle) + file.bytes > target_bytes or file.bytes > left:
            bundle = newest[file.subtask, file.suffix] = []
            found.append(bundle)
        bundle.append(file)
        left = max(0, left - file.bytes)
    return found


class FilesJoiner:
    """Joins staged files of one sink. For any thread."""

    def __init__(self, store: ObjectStore, compression: str, threads: int = 1) -> None:
        self._store = store
        self._compression = compression
        self._threads = threads
        """How many files are fetched or deleted at a time."""
        self._rest_told = False
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[str, ...]] = {}
        """Of each joined file whose group is not committed: the names of those that it was made from."""
        self._complete: deque[frozenset[str]] = deque(maxlen=_REMEMBERED)
        """The names of what has completed, by its group."""

    def join(self, files: Sequence[SinkFile]) -> list[SinkFile]:
        """The files that stand for these.

        What cannot be joined stays as it is: that is no reason to give a checkpoint up.
        """
        self._drop_superseded({file.staged for file in files})
        joined: list[SinkFile] = []
        found = bundles(files, TARGET_BYTES, MOST_BYTES)
        self._tell_of_rest(files, found)
        for bundle in found:
            try:
                joined += self._join(bundle) if len(bundle) > 1 else bundle
            except (StorageError, OSError, pa.ArrowException) as error:
                _log.warning("%s files staged for %s stay apart: %s", len(bundle), bundle[0].staged, error)
                joined += bundle
        return joined

    def _tell_of_rest(self, files: Sequence[SinkFile], found: Sequence[Sequence[SinkFile]]) -> None:
        """Say it when a checkpoint has more output than it may join; not with each one for which it stays so."""
        several = Counter((bundle[0].subtask, bundle[0].suffix) for bundle in found)
        alone = [bundle[0] for bundle in found if len(bundle) == 1 and bundle[0].bytes < _SMALL_BYTES]
        apart = sum(several[file.subtask, file.suffix] > 1 for file in alone)
        if sum(file.bytes for file in files) <= MOST_BYTES:
            apart = 0
        if apart and not self._rest_told:
            _log.warning(
                "%d small ones of a checkpoint's %d files below %s are published as micro-batches have written them: "
                "it joins %d MiB at the most; longer micro-batches (headgate.trigger-interval) or a shorter "
                "execution.checkpointing.interval leave fewer",
                apart,
                len(files),
                files[0].staged.rpartition("/")[0],
                MOST_BYTES >> 20,
            )
        self._rest_told = bool(apart)

    def complete(self, files: Iterable[SinkFile]) -> None:
        """A snapshot has completed with these files: they move now, and what they were made from goes.

        One whose barrier came before that may still be about to prepare them.
        """
        with self._lock:
            waiting, gone = [file.staged for file in files], set[str]()
            while waiting:
                name = waiting.pop()
                gone.add(name)
                waiting += self._parts.get(name, ())
            self._complete.append(frozenset(gone))

    def is_complete(self, staged: str) -> bool:
        """Whether it belongs to a snapshot that has completed a moment ago."""
        with self._lock:
            return any(staged in gone for gone in self._complete)

    def committed(self, files: Iterable[SinkFile]) -> None:
        """Their group is visible: what they were made from is needed no more.

        Nor is what an attempt had joined of the same files that came to nothing: the group was completed without it.
        """
        published = {file.staged for file in files}
        with self._lock:
            done = next((names for names in reversed(self._complete) if published <= names), frozenset(published))
            of_it = {name: parts for name, parts in self._parts.items() if name in done or done & set(parts)}
            for name in of_it:
                del self._parts[name]
        needless = {part for parts in of_it.values() for part in parts} | set(of_it)
        self._delete(needless - published)

    def _drop_superseded(self, given: set[str]) -> None:
        """An earlier attempt has come to nothing if what it had joined is given again: it is needed no more."""
        with self._lock:
            dead = [name for name, parts in self._parts.items() if name not in given and given & set(parts)]
            for name in dead:
                del self._parts[name]
        self._delete(dead)

    def _delete(self, paths: Iterable[str]) -> None:
        def delete(path: str) -> None:
            try:
                self._store.delete(path)
            except StorageError as error:  # the next life deletes it
                _log.warning("%s is needed no more and could not be deleted: %s", path, error)

        each(delete, paths, self._threads)

    def _join(self, bundle: Sequence[SinkFile]) -> list[SinkFile]:
        """One file, or several where columns have changed in between."""
        done: list[SinkFile] = []
        with self._here(bundle) as paths:
            runs = _KINDS[bundle[0].suffix](self._compression).runs(paths)
            for run in runs:
                parts = [bundle[index] for index in run.parts]
                done.append(parts[0] if len(parts) == 1 else self._write(parts, run))
        return done

    def _write(self, parts: Sequence[SinkFile], run: _Run) -> SinkFile:
        unique = uuid.uuid4().hex[:12]
        staged = f"{parts[0].staged.rpartition('-')[0]}-{unique}"
        with self._lock:
            self._parts[staged] = tuple(part.staged for part in parts)
        try:
            with self._place(staged) as path:
                run.write(path)
                length = path.stat().st_size
            self._refuse_if_complete(parts)
        except BaseException:
            with self._lock:
                self._parts.pop(staged, None)
            self._delete([staged])
            raise
        rows = sum(part.rows for part in parts)
        return replace(parts[0], staged=staged, unique=unique, rows=rows, bytes=length)

    def _refuse_if_complete(self, parts: Sequence[SinkFile]) -> None:
        """The attempt may have ended meanwhile, and a later one have completed with the files that this was made of."""
        if any(self.is_complete(part.staged) for part in parts):
            raise StorageError("their group has completed meanwhile")

    @contextmanager
    def _here(self, bundle: Sequence[SinkFile]) -> Iterator[list[Path]]:
        """The files of `bundle` on this machine."""
        if self._store.local is not None:
            yield [self._store.local / file.staged for file in bundle]
            return
        with _folder() as folder:
            paths = [Path(folder, str(index)) for index in range(len(bundle))]
            staged = [file.staged for file in bundle]
            each(lambda pair: self._store.download(*pair), zip(staged, paths, strict=True), self._threads)
            yield paths

    @contextmanager
    def _place(self, staged: str) -> Iterator[Path]:
        """Where to write what is to be called `staged`."""
        if self._store.local is not None:
            touch_private(self._store.local / staged, self._store.local)
            yield self._store.local / staged
            return
        with _folder() as folder:
            path = Path(folder, "joined")
            yield path
            self._store.upload(path, staged)


@contextmanager
def _folder() -> Iterator[str]:
    """A local folder for a moment; those that killed processes have left go by the way."""
    top, own = Path(tempfile.gettempdir()), os.getuid()
    for left in top.glob(f"{_LOCAL}*"):
        with suppress(OSError):
            found = left.stat(follow_symlinks=False)
            if found.st_uid == own and found.st_mtime < time.time() - _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_LOCAL) as folder:
        yield folder


class _Run:
    """Files that can be one: which of the bundle, and how they are written."""

    def __init__(self, write: Callable[[Sequence[Path], Path], None]) -> None:
        self.parts: list[int] = []
        self.paths: list[Path] = []
        self._write = write

    def write(self, path: Path) -> None:
        self._write(self.paths, path)


class _Kind(ABC):
    """How files of one format become one."""

    def __init__(self, compression: str) -> None:
        self.compression = compression

    @abstractmethod
    def likeness(self, path: Path) -> object:
        """Files of which this differs cannot be one."""

    @abstractmethod
    def write(self, paths: Sequence[Path], target: Path) -> None:
        """Write the rows of all of `paths`, in their order."""

    def runs(self, paths: Sequence[Path]) -> list[_Run]:
        found: list[_Run] = []
        like: object = None
        for index, path in enumerate(paths):
            likeness = self.likeness(path)
            if not found or likeness != like:
                found.append(_Run(self.write))
                like = likeness
            found[-1].parts.append(index)
            found[-1].paths.append(path)
        return found


class _Parquet(_Kind):
    def likeness(self, path: Path) -> object:
        import pyarrow.parquet as pq

        return pq.read_schema(path)

    def write(self, paths: Sequence[Path], target: Path) -> None:
        import pyarrow.parquet as pq

        schema = pq.read_schema(paths[0])
        joined = ParquetFile(target, schema, self.compression)
        try:
            for path in paths:
                with pq.ParquetFile(path) as file:
                    for rows in file.iter_batches(_ROWS, use_threads=False):
                        joined.write(pa.RecordBatch.from_arrays(rows.columns, schema=schema))
        finally:
            joined.close()


class _Json(_Kind):
    def likeness(self, path: Path) -> object:
        return None

    def write(self, paths: Sequence[Path], target: Path) -> None:
        with target.open("wb") as joined:
            for path in paths:
                with path.open("rb") as file:
                    shutil.copyfileobj(file, joined, 1 << 20)


class _Csv(_Kind):
    """Each file begins with the same header, which is kept once."""

    def likeness(self, path: Path) -> object:
        with path.open("rb") as file:
            return _header(file)

    def write(self, paths: Sequence[Path], target: Path) -> None:
        with target.open("wb") as joined:
            for index, path in enumerate(paths):
                with path.open("rb") as file:
                    header = _header(file)
                    if index == 0:
                        joined.write(header)
                    shutil.copyfileobj(file, joined, 1 << 20)


def _header(file: BinaryIO) -> bytes:
    """The first record of a CSV file, and `file` behind it: a line that is within quotes goes on in the next one."""
    header = b""
    for line in file:
        header += line
        if header.count(b'"') % 2 == 0:
            break
    return header


_KINDS: Mapping[str, type[_Kind]] = {".parquet": _Parquet, ".json": _Json, ".csv": _Csv}
