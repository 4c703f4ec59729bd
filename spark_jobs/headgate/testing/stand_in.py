"""A stand-in for Spark: a thread that reads files, hashes keys and runs the step in this process.

It keeps what the driver relies on (one micro-batch at a time, in order, replayed from a position, failing as a whole),
takes a fraction of a second to start, and so makes crash tests quick. It reads Parquet files only and runs no DataFrame
code; only what Spark itself does is missing, and needs tests on the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch
from headgate.driver.loop import StreamEnding
from headgate.source.files import FilesSource
from headgate.source.positions import FileListBook, PositionBook
from headgate.state.key_groups import key_group, subtask_of
from headgate.step.operators import HASH
from headgate.step.task import StepAck, StepTask, run, without_rows
from headgate_contract.errors import JobInvalid, StreamFailed

_POLL_S = 0.05


class StandInEngine(Engine):
    """Hands over the files of a folder, `max_files_per_trigger` at a time, by name; it knows no limit in bytes."""

    def __init__(self, setup: EngineSetup) -> None:
        source = setup.plan.source.source
        if not isinstance(source, FilesSource) or source.format != "parquet" or setup.plan.transforms:
            raise JobInvalid("the stand-in reads Parquet files and runs no DataFrame code")
        self._setup = setup
        self._folder = Path(source.path)
        self._limit = source.max_files_per_trigger
        self._pace_s = setup.settings["headgate.trigger-interval"].seconds
        self._forget()

    def _forget(self) -> None:
        """Everything that one life knows."""
        self._book = FileListBook(self._setup.plan.source.uid, self._setup.plan.source.source.kind)
        self._thread = threading.Thread(target=self._run, name="stand-in", daemon=True)
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._seen: set[str] = set()
        self._next = 0
        self._handler: Callable[[MicroBatch], None] | None = None

    @property
    def book(self) -> PositionBook:
        return self._book

    @property
    def schema(self) -> pa.Schema | None:
        first = next(self._folder.glob("*.parquet"), None)
        return None if first is None else pq.read_schema(first)

    def open(self) -> None:
        if not self._folder.is_dir():
            raise StreamFailed(f"the source folder {self._folder} does not exist")

    def begin(self, position: Json, handler: Callable[[MicroBatch], None]) -> None:
        if not position.get("initial"):
            entries = self._book.entries(int(position["count"]))
            self._seen = {entry["path"] for entry in entries}
            self._next = int(position["batch"]) + 1
        self._handler = handler
        self._thread.start()

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        rows = pa.concat_tables([pq.read_table(path) for path in batch.content])
        if task.keyed is None:
            return [run(task, 0, 0, iter(rows.to_batches()))]
        hashes = hash_keys(rows, task.keyed.keys)
        rows = rows.append_column(HASH, pa.array(hashes))
        parallelism, groups = task.keyed.parallelism, task.keyed.max_parallelism
        owners = subtask_of(key_group(hashes, groups), parallelism, groups)
        return [run(task, subtask, 0, iter(_rows_of(rows, owners, subtask))) for subtask in range(parallelism)]

    def finish(self, task: StepTask) -> list[StepAck]:
        if task.keyed is None:
            return [run(task, 0, 0, iter(()))]
        schema = self.schema
        rows = [] if schema is None else [without_rows(schema)]
        return [run(task, subtask, 0, iter(rows)) for subtask in range(task.keyed.parallelism)]

    def position_after(self, batch: MicroBatch) -> Json:
        count = self._book.note([{"path": path, "batchId": batch.number} for path in batch.content])
        return {"batch": batch.number, "count": count}

    def failure(self) -> str | None:
        return self._failure

    def halt(self) -> bool:
        self.stop()
        if self._thread.is_alive():
            return False
        self._forget()
        return True

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        assert self._handler is not None
        try:
            while not self._stopping.is_set():
                new = sorted(str(path) for path in self._folder.glob("*.parquet") if str(path) not in self._seen)
                if not new:
                    self._stopping.wait(_POLL_S)
                    continue
                taken = new[: self._limit]
                self._handler(MicroBatch(self._next, taken))
                self._seen.update(taken)
                self._next += 1
                self._stopping.wait(self._pace_s)
        except StreamEnding:
            return
        except Exception as error:  # noqa: BLE001 - told to whoever asks for the failure
            self._failure = f"{type(error).__name__}: {error}"


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
