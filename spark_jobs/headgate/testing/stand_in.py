"""A stand-in for Spark: threads that read files, hash keys and run the step in this process.

It keeps what the driver relies on (one micro-batch at a time, in order, replayed from a position, failing as a whole),
takes a fraction of a second to start, and so makes crash tests quick. It reads Parquet files only and runs no DataFrame
code; only what Spark itself does is missing, and needs tests on the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.coordinator.cut import is_at_end
from headgate.driver import clock
from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch, Written
from headgate.driver.loop import StreamEnding
from headgate.job.graph import SourceVertex
from headgate.job.tasks import Task, TaskInput
from headgate.source.files import FilesSource
from headgate.source.positions import FileListBook, PositionBook
from headgate.state.key_groups import key_group, subtask_of
from headgate.step import channel_files
from headgate.step.operators import HASH
from headgate.step.task import TIME, StepAck, StepTask, run, without_rows
from headgate_contract.errors import JobInvalid, StreamFailed
from headgate_contract.ids import VertexUid

_POLL_S = 0.05


class _Feed:
    """One source in one life: a thread that reads a folder."""

    def __init__(
        self, vertex: SourceVertex, pace_s: float, stopping: threading.Event, reach: Callable[[str], None]
    ) -> None:
        source = vertex.source
        assert isinstance(source, FilesSource)
        self.folder = Path(source.path)
        self.book = FileListBook(vertex.uid, source.kind)
        self.failure: str | None = None
        self._uid = vertex.uid
        self.ended = False
        self._bounded = source.bounded
        self._limit = source.max_files_per_trigger
        self._pace_s = pace_s
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name=f"stand-in {vertex.uid}", daemon=True)
        self._seen: set[str] = set()
        self._next = 0
        self._reach = reach
        self.looks = 0
        """How often it has looked for files."""
        self.looking = False
        self.looked_ms: int | None = None
        """When it last began to look and found nothing."""
        self._handler: Callable[[MicroBatch], None] | None = None

    def begin(self, position: Json, handler: Callable[[MicroBatch], None]) -> None:
        if not position.get("initial"):
            entries = self.book.entries(int(position["count"]))
            self._seen = {entry["path"] for entry in entries}
            self._next = int(position["batch"]) + 1
        self._handler = handler
        self.ended = is_at_end(position)
        if not self.ended:
            self._thread.start()

    def has_ended(self, within_s: float) -> bool:
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        assert self._handler is not None
        there = self._unread()
        try:
            while not self._stopping.is_set():
                began_ms = clock.steady_ms()
                new = [path for path in there if path not in self._seen] if self._bounded else self._unread()
                if not new and self._bounded:
                    self.ended = True
                    return
                if not new:
                    self.looked_ms = began_ms
                    self._stopping.wait(_POLL_S)
                    continue
                taken = new[: self._limit]
                self._handler(MicroBatch(self._next, taken, self._uid, tuple(taken)))
                self._seen.update(taken)
                self._next += 1
                self._stopping.wait(self._pace_s)
        except StreamEnding:
            return
        except Exception as error:  # noqa: BLE001 - told to whoever asks for the failure
            self.failure = f"{type(error).__name__}: {error}"

    def _unread(self) -> list[str]:
        self.looks += 1
        self.looking = True
        self._reach("listing")
        found = sorted(str(path) for path in self.folder.glob("*.parquet") if str(path) not in self._seen)
        self.looking = False
        return found


class StandInEngine(Engine):
    """Hands over the files of folders, `max_files_per_trigger` at a time, by name; it knows no limit in bytes."""

    def __init__(self, setup: EngineSetup) -> None:
        for vertex in setup.plan.sources:
            if not isinstance(vertex.source, FilesSource) or vertex.source.format != "parquet":
                raise JobInvalid("the stand-in reads Parquet files")
        if any(way.transforms for task in setup.plan.tasks for way in task.inputs):
            raise JobInvalid("the stand-in runs no DataFrame code")
        self._setup = setup
        self._pace_s = setup.settings["headgate.trigger-interval"].seconds
        self._schemas: dict[VertexUid, pa.Schema] = {}
        """Of the tasks behind channels: what has come to their first inputs."""
        self._forget()

    def _forget(self) -> None:
        """Everything that one life knows."""
        self._stopping = threading.Event()
        sources = self._setup.plan.sources
        self._feeds = {vertex.uid: _Feed(vertex, self._pace_s, self._stopping, self.reach) for vertex in sources}

    def reach(self, place: str) -> None:
        """It comes by open, begin, listing, run, position_after, asked or halt; a test may let it hang there."""
        return

    @property
    def books(self) -> Mapping[VertexUid, PositionBook]:
        return {uid: feed.book for uid, feed in self._feeds.items()}

    def schema(self, task: VertexUid) -> pa.Schema | None:
        (planned,) = (each for each in self._setup.plan.tasks if each.uid == task)
        first = planned.inputs[0]
        if first.source is None:
            return self._schemas.get(task)
        file = next(self._feeds[first.producer].folder.glob("*.parquet"), None)
        return None if file is None else pq.read_schema(file)

    def open(self) -> None:
        self.reach("open")
        for feed in self._feeds.values():
            if not feed.folder.is_dir():
                raise StreamFailed(f"the source folder {feed.folder} does not exist")

    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        self.reach("begin")
        for uid, feed in self._feeds.items():
            feed.begin(positions[uid], handler)

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        self.reach("run")
        return _run(pa.concat_tables([pq.read_table(path) for path in batch.content]), task)

    def run_written(self, batch: Written, task: Task, way: TaskInput, step: StepTask) -> list[StepAck]:
        rows = pa.Table.from_batches(list(channel_files.read(batch.directory, batch.names)))
        if way == task.inputs[0]:
            self._schemas[task.uid] = rows.schema
        return _run(rows, step)

    def finish(self, uid: VertexUid, task: StepTask) -> list[StepAck]:
        if task.keyed is None:
            return [run(task, 0, 0, iter(()))]
        schema = self.schema(uid)
        rows = [] if schema is None else [without_rows(schema)]
        return [run(task, subtask, 0, iter(rows)) for subtask in range(task.keyed.parallelism)]

    def position_after(self, batch: MicroBatch) -> Json:
        self.reach("position_after")
        book = self._feeds[batch.source].book
        return {
            "batch": batch.number,
            "count": book.note([{"path": path, "batchId": batch.number} for path in batch.content]),
        }

    def ended(self) -> frozenset[VertexUid]:
        return frozenset(uid for uid, feed in self._feeds.items() if feed.ended)

    def signs(self) -> Mapping[VertexUid, Hashable | None]:
        return {uid: feed.looks if feed.looking else None for uid, feed in self._feeds.items()}

    def looked_ms(self) -> Mapping[VertexUid, int]:
        return {uid: feed.looked_ms for uid, feed in self._feeds.items() if feed.looked_ms is not None}

    def failure(self) -> str | None:
        self.reach("asked")
        return next((feed.failure for feed in self._feeds.values() if feed.failure is not None), None)

    def halt(self) -> bool:
        self.reach("halt")
        self._stopping.set()
        ended = [feed.has_ended(10) for feed in self._feeds.values()]
        if not all(ended):
            return False
        self._forget()
        return True

    def stop(self) -> None:
        self._stopping.set()
        for feed in self._feeds.values():
            feed.has_ended(10)


def _run(rows: pa.Table, task: StepTask) -> list[StepAck]:
    if task.time is not None:
        rows = rows.append_column(TIME, _milliseconds(rows.column(task.time.column)))
    if task.keyed is None or task.keyed.broadcast:
        return [run(task, 0, 0, iter(rows.to_batches()))]
    hashes = hash_keys(rows, task.keyed.keys)
    rows = rows.append_column(HASH, pa.array(hashes))
    parallelism, groups = task.keyed.parallelism, task.keyed.max_parallelism
    owners = subtask_of(key_group(hashes, groups), parallelism, groups)
    return [run(task, subtask, 0, iter(_rows_of(rows, owners, subtask))) for subtask in range(parallelism)]


def _milliseconds(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(moments.type):
        moments = moments.cast(pa.timestamp("ms", moments.type.tz), safe=False)
    return moments.cast(pa.int64())


def _rows_of(rows: pa.Table, owners: npt.NDArray[np.int64], subtask: int) -> list[pa.RecordBatch]:
    return list(rows.filter(pa.array(owners == subtask)).to_batches())


def hash_keys(rows: pa.Table, keys: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """A hash of the key columns that is the same in every process."""
    mixed = np.full(rows.num_rows, 42, dtype=np.uint64)
    for key in keys:
        column = rows.column(key)
        if pa.types.is_integer(column.type):
            own = column.cast(pa.int64()).to_numpy().astype(np.uint64)
        else:
            own = np.array([_text_hash(value) for value in column.to_pylist()], dtype=np.uint64)
        mixed = _mix(mixed ^ own)
    return mixed.view(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _text_hash(value: Any) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little")
