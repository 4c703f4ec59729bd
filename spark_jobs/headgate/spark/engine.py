"""The engine on Spark: a streaming query for each source, whose foreachBatch hands over its micro-batches."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.coordinator.cut import is_at_end
from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch, Written
from headgate.driver.loop import StreamEnding
from headgate.job.tasks import Task, TaskInput
from headgate.source.positions import PositionBook
from headgate.spark.chain import AlikeColumns, before_step, finish_step, from_channel, root_cause, run_step
from headgate.spark.readers import Reader, reader_of
from headgate.spark.session import start_session
from headgate.step.task import StepAck, StepTask
from headgate_contract.errors import BatchFailed, HeadgateError, JobInvalid
from headgate_contract.ids import VertexUid

log = logging.getLogger(__name__)


_PATIENCE_S = 20.0


class SparkEngine(Engine):
    """Runs the plan's tasks on Spark. Each life has queries and checkpoint folders of its own, private scratch."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._readers = self._new_readers()
        self._session: SparkSession | None = None
        self._schemas: dict[VertexUid, pa.Schema] = {}
        self._frames: dict[VertexUid, DataFrame] = {}
        """What each source hands over, with the DataFrame code before its step."""
        self._queries: dict[VertexUid, StreamingQuery] = {}
        self._ended: set[VertexUid] = set()
        """The bounded sources that have."""
        self._lives = 0
        self._halting = threading.Event()
        self._stopped = False

    def _new_readers(self) -> dict[VertexUid, Reader]:
        return {vertex.uid: reader_of(vertex, self._setup) for vertex in self._setup.plan.sources}

    @property
    def books(self) -> Mapping[VertexUid, PositionBook]:
        return {uid: reader.book for uid, reader in self._readers.items()}

    def schema(self, task: VertexUid) -> pa.Schema | None:
        return self._schemas.get(task)

    def _folder(self, source: VertexUid) -> Path:
        return self._setup.directory / f"query-{self._lives}" / source

    def open(self) -> None:
        if self._session is not None:
            return
        _ship_job_by_value()
        session = start_session(f"headgate {self._setup.stream}", self._setup.settings, self._setup.directory)
        alike = AlikeColumns()
        for uid, reader in self._readers.items():
            task, way = self._setup.plan.reader(uid)
            self._frames[uid], schema = self._before_step(task, way, reader.load(session))
            alike.check(task, way, schema)
        self._session = session

    def _before_step(self, task: Task, way: TaskInput, frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
        frame, schema = before_step(task, way, frame, self._setup.settings)
        if way.port == 0:
            self._schemas[task.uid] = schema
        return frame, schema

    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        for uid, reader in self._readers.items():
            reader.seed(self._folder(uid), positions[uid])
        self._ended = {uid for uid in self._frames if is_at_end(positions[uid])}
        for uid, frame in self._frames.items():
            if uid not in self._ended:
                self._queries[uid] = self._start(uid, frame, handler)

    def _start(self, uid: VertexUid, frame: DataFrame, handler: Callable[[MicroBatch], None]) -> StreamingQuery:
        halting = self._halting

        def on_batch(frame: DataFrame, number: int) -> None:
            try:
                handler(MicroBatch(number, frame, uid))
            except StreamEnding:
                halting.wait()  # Spark waits for this callback when it stops: hold it, but no longer

        location = f"file://{self._folder(uid)}"  # as it is: Spark does not decode a URI
        writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", location)
        if self._readers[uid].bounded:
            return writer.trigger(availableNow=True).start()
        pace = self._setup.settings["headgate.trigger-interval"]
        return writer.trigger(processingTime=f"{int(pace)} milliseconds").start()

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        return run_step(batch.content, task)

    def run_written(self, batch: Written, task: Task, way: TaskInput, step: StepTask) -> list[StepAck]:
        """What is wrong with its columns is the micro-batch's failure, not the job's: they are what came out before."""
        assert self._session is not None
        try:
            frame, _ = self._before_step(task, way, from_channel(self._session, batch.directory, batch.names))
        except JobInvalid as error:
            raise BatchFailed(error.what, hint=error.hint) from error.__cause__
        except HeadgateError:
            raise
        except Exception as error:
            raise BatchFailed(root_cause(error)) from error
        return run_step(frame, step)

    def finish(self, uid: VertexUid, task: StepTask) -> list[StepAck]:
        assert self._session is not None
        return finish_step(self._session, self._schemas.get(uid), task)

    def position_after(self, batch: MicroBatch) -> Json:
        return self._readers[batch.source].position(self._folder(batch.source), batch.number)

    def ended(self) -> frozenset[VertexUid]:
        if not self._halting.is_set():
            with suppress(Exception):  # of py4j's and of the socket's: failure() tells it
                self._ended.update(uid for uid, query in self._queries.items() if self._has_ended(uid, query))
        return frozenset(self._ended)

    def _has_ended(self, uid: VertexUid, query: StreamingQuery) -> bool:
        return self._readers[uid].bounded and not query.isActive and query.exception() is None

    def failure(self) -> str | None:
        if not self._queries or self._halting.is_set():
            return None
        gone = self._gone()
        if gone is not None:
            return gone
        try:
            for uid, query in self._queries.items():
                if not query.isActive and not self._has_ended(uid, query):
                    error = query.exception()
                    of = f" of source {uid}" if len(self._queries) > 1 else ""
                    return f"the streaming query{of} ended by itself" if error is None else root_cause(error)
        except Exception as lost:  # noqa: BLE001 - py4j raises its own and the socket's
            return _lost(lost)
        return None

    def _gone(self) -> str | None:
        """Why Spark itself is of no use any more, if it is."""
        try:
            if self._session is not None and self._session.sparkContext._jsc.sc().isStopped():
                return "the Spark context has stopped"
        except Exception as lost:  # noqa: BLE001 - py4j raises its own and the socket's
            return _lost(lost)
        return None

    def halt(self) -> bool:
        self._halting.set()
        queries, self._queries = self._queries, {}
        if self._gone() is not None:
            return False
        ended = [_within_patience("query", query.stop) for query in queries.values()]  # each is told
        if not all(ended):
            return False
        if self._session is not None and not _within_patience("jobs", self._session.sparkContext.cancelAllJobs):
            return False  # those of a drain's last step, and of tasks behind channels, are no query's
        readers = self._new_readers()
        followed = [reader.follow(self._readers[uid]) for uid, reader in readers.items()]
        if not all(followed):
            return False
        self._readers = readers
        self._lives += 1
        self._halting = threading.Event()
        return True

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._halting.set()
        for reader in self._readers.values():
            _within_patience("reader", reader.close)
        for query in self._queries.values():
            _within_patience("query", query.stop)
        if self._session is not None:
            _within_patience("session", self._session.stop)

    def facts(self) -> dict[str, str]:
        found: Any = self._session.sparkContext.uiWebUrl if self._session is not None else None
        return {"spark_ui": found} if found else {}


def _lost(error: Exception) -> str:
    return f"Spark's JVM is gone: {type(error).__name__}"


def _within_patience(what: str, end: Callable[[], None]) -> bool:
    """Whether it ended, well or with an error, in the time that it has."""
    done = threading.Thread(target=_quietly, args=(what, end), daemon=True)
    done.start()
    done.join(_PATIENCE_S)
    return not done.is_alive()


def _quietly(what: str, stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception as error:  # noqa: BLE001 - it is ending anyway
        log.info("the %s ended with %s", what, type(error).__name__)


def _ship_job_by_value() -> None:
    """The job file is no module that a worker could import: its functions travel with the task."""
    from pyspark import cloudpickle

    for name, module in list(sys.modules.items()):
        if name.startswith("headgate_job_"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
