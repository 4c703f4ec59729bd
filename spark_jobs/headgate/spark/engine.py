"""The engine on Spark: a streaming query for each source, whose foreachBatch hands over its micro-batches."""

from __future__ import annotations

import logging
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.coordinator.cut import is_at_end
from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch, Written
from headgate.driver.loop import StreamEnding
from headgate.job.tasks import Task, TaskInput
from headgate.source.place import Place
from headgate.source.positions import PositionBook
from headgate.spark.chain import AlikeColumns, before_step, finish_step, from_channel, run_step
from headgate.spark.failures import first_line, is_of_the_folder, root_cause
from headgate.spark.finding import find_failed
from headgate.spark.query_signs import QuerySigns
from headgate.spark.readers import Reader, reader_of
from headgate.spark.session import sockets_of, start_session, stop_session
from headgate.spark.source_watch import SourceWatch
from headgate.step.task import StepAck, StepTask
from headgate_contract.errors import BatchFailed, HeadgateError, JobInvalid, StreamFailed
from headgate_contract.ids import VertexUid

log = logging.getLogger(__name__)


_PATIENCE_S = 20.0


class SparkEngine(Engine):
    """Runs the plan's tasks on Spark. Each life has queries and checkpoint folders of its own, private scratch."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._readers = self._new_readers()
        self._watches: list[SourceWatch] = []
        self._blamed: VertexUid | None = None
        self._session: SparkSession | None = None
        self._schemas: dict[VertexUid, pa.Schema] = {}
        self._frames: dict[VertexUid, DataFrame] = {}
        """What each source hands over, with the DataFrame code before its step."""
        self._queries: dict[VertexUid, StreamingQuery] = {}
        self._sockets: Path | None = None
        self._ended: set[VertexUid] = set()
        """The bounded sources that have."""
        self._lives = 0
        self._forgotten = 0
        """So many lives have left no folder."""
        self._halting = Event()
        self._stopped = False
        self._handed_over: set[VertexUid] = set()
        """The sources whose threads are in the handler: what they wait for there is no business of theirs."""
        self._signs: dict[VertexUid, QuerySigns] = {}
        self._micro_batches: Counter[VertexUid] = Counter()
        """How many micro-batches each source has handed over."""

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
            self._frames[uid], schema = self._before_step(task, way, _load(uid, reader, session))
            alike.check(task, way, schema)
        self._session = session
        self._sockets = sockets_of(session)

    def _before_step(self, task: Task, way: TaskInput, frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
        frame, schema = before_step(task, way, frame, self._setup.settings)
        if way.port == 0:
            self._schemas[task.uid] = schema
        return frame, schema

    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        for uid, reader in self._readers.items():
            if not is_at_end(positions[uid]) and (missing := reader.missing()) is not None:
                raise StreamFailed(missing)  # it may come back, as what is mounted does
            reader.seed(self._folder(uid), positions[uid])
        self._ended = {uid for uid in self._frames if is_at_end(positions[uid])}
        for uid, frame in self._frames.items():
            if uid not in self._ended:
                self._queries[uid] = query = self._start(uid, frame, handler)
                self._signs[uid] = QuerySigns(query, int(self._setup.settings["headgate.trigger-interval"]))
        self._forget_earlier_queries()
        self._watches = [SourceWatch(each, self._halting, self._setup.say) for each in self._readers.values()]

    def _forget_earlier_queries(self) -> None:
        """Each has the names of all files ever, and this life has what it needs of them."""
        for number in range(self._forgotten, self._lives):
            shutil.rmtree(self._setup.directory / f"query-{number}", ignore_errors=True)
        self._forgotten = self._lives

    def _start(self, uid: VertexUid, frame: DataFrame, handler: Callable[[MicroBatch], None]) -> StreamingQuery:
        halting, reader, folder = self._halting, self._readers[uid], self._folder(uid)
        handed_over = self._handed_over

        def on_batch(frame: DataFrame, number: int) -> None:
            self._micro_batches[uid] += 1
            handed_over.add(uid)
            try:
                handler(MicroBatch(number, frame, uid, reader.origin(folder, number), reader.until(folder, number)))
            except StreamEnding:
                halting.wait()  # Spark waits for this callback when it stops: hold it, but no longer
            finally:
                handed_over.discard(uid)

        location = f"file://{folder}"  # as it is: Spark does not decode a URI
        writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", location)
        if reader.bounded:
            return writer.trigger(availableNow=True).start()
        pace = self._setup.settings["headgate.trigger-interval"]
        return writer.trigger(processingTime=f"{int(pace)} milliseconds").start()

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        """The frame that Spark hands over, unless it would hold some records twice, or none of some files."""
        return run_step(self._frame(batch), task)

    def _frame(self, batch: MicroBatch) -> DataFrame:
        assert self._session is not None
        own = self._readers[batch.source].own_frame(self._session, batch.origin)
        if own is None:
            content: DataFrame = batch.content
            return content
        task, way = self._setup.plan.reader(batch.source)
        return self._at_step(task, way, own)

    def find(self, batch: MicroBatch, task: StepTask, error: BaseException) -> str:
        """Reads the micro-batch once more for it."""
        return self._found(batch.source, batch.origin, task, partial(self._frame, batch), error)

    def find_behind(self, origin: Place, task: Task, way: TaskInput, step: StepTask, error: BaseException) -> str:
        """Only where there is nothing but DataFrame code between the source and the step."""
        source = next((uid for uid in self._readers if uid == origin.source), None)
        if source is None:
            return ""  # what was in flight in a snapshot may have come from a source of another name
        reading, read_by = self._setup.plan.reader(source)
        end = next((end for end in reading.channels if end.producer == way.producer), None)
        if reading.step is not None or end is None or end.functions:
            return ""

        def frame() -> DataFrame | None:
            assert self._session is not None
            read = self._readers[source].frame_of(self._session, origin.parts)
            return None if read is None else self._at_step(task, way, self._at_step(reading, read_by, read))

        return self._found(source, origin.parts, step, frame, error)

    def _found(
        self,
        source: VertexUid,
        origin: tuple[str, ...],
        task: StepTask,
        frame: Callable[[], DataFrame | None],
        error: BaseException,
    ) -> str:
        """What cannot be found is not worth another failure."""
        assert self._session is not None
        keyed = (task.keyed.keys, frame) if task.keyed is not None else None
        try:
            return find_failed(self._session, self._readers[source], origin, keyed, error)
        except Exception as trouble:  # noqa: BLE001 - Spark's and py4j's of all kinds
            log.info("the record that has failed was not found: %s", first_line(trouble))
            return ""

    def run_written(self, batch: Written, task: Task, way: TaskInput, step: StepTask) -> list[StepAck]:
        assert self._session is not None
        return run_step(self._at_step(task, way, from_channel(self._session, batch.directory, batch.names)), step)

    def _at_step(self, task: Task, way: TaskInput, frame: DataFrame) -> DataFrame:
        """What is wrong with its columns is the micro-batch's failure, not the job's: they are what came out before."""
        try:
            return self._before_step(task, way, frame)[0]
        except JobInvalid as error:
            raise BatchFailed(error.what, hint=error.hint) from error.__cause__
        except HeadgateError:
            raise
        except Exception as error:
            raise BatchFailed(root_cause(error)) from error

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
        missing = next((watch.missing for watch in self._watches if watch.missing is not None), None)
        if missing is not None:
            return missing
        try:
            for uid, query in self._queries.items():
                if not query.isActive and not self._has_ended(uid, query):
                    error = query.exception()
                    if error is None:
                        return f"the streaming query of source {uid!r} ended by itself"
                    if is_of_the_folder(error):
                        self._blamed = uid
                    return f"source {uid!r}: {root_cause(error)}"
        except Exception as lost:  # noqa: BLE001 - py4j raises its own and the socket's
            return _lost(lost)
        return None

    def blamed(self) -> VertexUid | None:
        return self._blamed

    def _gone(self) -> str | None:
        """Why Spark itself is of no use any more, if it is."""
        try:
            if self._session is not None and self._session.sparkContext._jsc.sc().isStopped():
                return "the Spark context has stopped"
        except Exception as lost:  # noqa: BLE001 - py4j raises its own and the socket's
            return _lost(lost)
        return None

    def signs(self) -> Mapping[VertexUid, Hashable | None]:
        signs: dict[VertexUid, Hashable | None] = {}
        try:
            for uid, query in self._signs.items():
                signs[uid] = None if uid in self._handed_over else query.newest()
        except Exception as error:  # noqa: BLE001 - py4j raises its own and the socket's
            if self.failure() is None:
                log.warning("whether source %s moves cannot be told: %s", uid, error)
        return signs

    def looked_ms(self) -> Mapping[VertexUid, int]:
        """Bounded sources have read what there was when they began: until they have ended, nothing is said of them."""
        looked: dict[VertexUid, int] = {}
        try:
            for uid, query in self._signs.items():
                if uid in self._handed_over or self._readers[uid].bounded:
                    continue
                moment = query.looked_ms(lambda uid=uid: self._micro_batches[uid])  # type: ignore[misc]
                if moment is not None:
                    looked[uid] = moment
        except Exception as error:  # noqa: BLE001 - py4j raises its own and the socket's
            if self.failure() is None:
                log.warning("when source %s has looked for records cannot be told: %s", uid, error)
        return looked

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
        self._halting = Event()
        self._watches, self._blamed = [], None
        self._handed_over = set()
        self._signs = {}
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
            _within_patience("session", partial(stop_session, self._session))

    def folders(self) -> tuple[Path, ...]:
        return () if self._sockets is None else (self._sockets,)

    def facts(self) -> dict[str, str]:
        found: Any = self._session.sparkContext.uiWebUrl if self._session is not None else None
        return {"spark_ui": found} if found else {}


def _load(uid: VertexUid, reader: Reader, session: SparkSession) -> DataFrame:
    try:
        return reader.load(session)
    except Exception as error:
        if is_of_the_folder(error):
            raise JobInvalid(f"source {uid!r}: {root_cause(error)}") from error
        raise


def _lost(error: Exception) -> str:
    return f"Spark's JVM is gone: {type(error).__name__}"


def _within_patience(what: str, end: Callable[[], None]) -> bool:
    """Whether it ended, well or with an error, in the time that it has."""
    done = Thread(target=_quietly, args=(what, end), daemon=True)
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
