"""A streaming query as the engine runs it, whose micro-batches a test takes one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headgate.source.positions import INITIAL, Json
from headgate.spark.failures import root_cause
from headgate.spark.readers import Reader
from headgate_contract.snapshot import SourceState
from tests.runtime.source.shelf import Shelf

PATIENCE_S = 120


@dataclass(frozen=True)
class Taken:
    """One micro-batch: its rows, and S_n behind it as a snapshot keeps it."""

    rows: list[tuple[Any, ...]]
    snapshot: SourceState


class RunningQuery:
    """Spark asks for leave before each micro-batch, so that a test knows where it stands."""

    def __init__(self, session: SparkSession, reader: Reader, folder: Path, position: Json) -> None:
        self.shelf = Shelf()
        self._session = session
        self._reader = reader
        self._folder = folder
        self._leave = threading.Semaphore(0)
        self._changed = threading.Condition()
        self._taken: list[Taken] = []
        self._stopping = False
        self.before_rows: Callable[[DataFrame], None] = lambda frame: None
        """Called in the callback before the rows are read."""
        frame = reader.load(session)
        reader.seed(folder, position)
        writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", folder.as_uri())
        self._query = writer.trigger(processingTime="20 milliseconds").start()

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        self._leave.acquire()
        if self._stopping:
            return
        self.before_rows(frame)
        own = self._reader.own_frame(self._session, self._reader.origin(self._folder, number))
        frame = frame if own is None else own
        rows = [tuple(row) for row in frame.collect()]
        position = self._reader.position(self._folder, number)
        taken = Taken(rows, self._reader.book.save(position, self.shelf.put))
        self._reader.book.confirm(taken.snapshot)
        with self._changed:
            self._taken.append(taken)
            self._changed.notify_all()

    def take(self, count: int) -> list[Taken]:
        """The next micro-batches."""
        wanted = len(self._taken) + count
        self._leave.release(count)
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._taken) >= wanted or self.failure(), PATIENCE_S)
        assert len(self._taken) >= wanted, self.failure()
        return self._taken[wanted - count : wanted]

    def take_rows(self, count: int) -> list[Taken]:
        """Micro-batches until they have so many rows."""
        taken: list[Taken] = []
        while sum(len(batch.rows) for batch in taken) < count:
            taken += self.take(1)
        return taken

    def failure(self) -> str | None:
        """Why the query has ended, or None."""
        error = None if self._query.isActive else self._query.exception()
        return root_cause(error) if error is not None else None

    def wait_for_failure(self) -> str:
        """Let micro-batches run until the query fails; with what."""
        self._leave.release(1000)
        with pytest.raises(StreamingQueryException) as caught:
            self._query.awaitTermination(PATIENCE_S)
        return str(caught.value)

    def stop(self) -> None:
        self._stopping = True
        self._leave.release(1000)
        self._query.stop()
        self._reader.close()


@dataclass
class Lives:
    """Starts queries of one source, each with a checkpoint folder of its own."""

    session: SparkSession
    base: Path
    shelf: Shelf
    count: int = 0

    @contextmanager
    def life(self, reader: Reader, snapshot: SourceState | None = None) -> Iterator[RunningQuery]:
        """A life of `reader`, restored from `snapshot` or from the very beginning."""
        self.count += 1
        position = dict(INITIAL) if snapshot is None else reader.book.load(snapshot, self.shelf.get)
        query = RunningQuery(self.session, reader, self.base / f"query-{self.count}", position)
        query.shelf = self.shelf
        try:
            yield query
        finally:
            query.stop()


def rows_of(batches: list[Taken]) -> list[tuple[Any, ...]]:
    """The rows of micro-batches in order of their content: Spark promises no other."""
    return sorted(row for batch in batches for row in batch.rows)
