"""The engine on Spark: one streaming query, whose foreachBatch runs the step."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch
from headgate.driver.loop import StreamEnding
from headgate.source.positions import PositionBook
from headgate.spark.chain import add_key, apply_transforms, check_schema, finish_step, root_cause, run_step
from headgate.spark.readers import reader_of
from headgate.spark.session import start_session
from headgate.step.task import StepAck, StepTask

log = logging.getLogger(__name__)


_PATIENCE_S = 20.0


class SparkEngine(Engine):
    """Runs the plan's chain on Spark. Each life has a query and a checkpoint folder of its own, private scratch."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._reader = reader_of(setup.plan.source.source, setup.plan.source.uid, setup)
        self._session: SparkSession | None = None
        self._schema: pa.Schema | None = None
        self._frame: DataFrame | None = None
        self._query: StreamingQuery | None = None
        self._lives = 0
        self._halting = threading.Event()
        self._stopped = False

    @property
    def book(self) -> PositionBook:
        return self._reader.book

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    @property
    def _folder(self) -> Path:
        return self._setup.directory / f"query-{self._lives}"

    def open(self) -> None:
        if self._session is not None:
            return
        _ship_job_by_value()
        session = start_session(f"headgate {self._setup.stream}", self._setup.settings, self._setup.directory)
        plan = self._setup.plan
        frame = apply_transforms(plan, self._reader.load(session))
        self._schema = check_schema(plan, frame)
        settings = self._setup.settings
        self._frame = add_key(plan, frame, settings["parallelism.default"], settings["pipeline.max-parallelism"])
        self._session = session

    def begin(self, position: Json, handler: Callable[[MicroBatch], None]) -> None:
        assert self._frame is not None
        self._reader.seed(self._folder, position)
        halting = self._halting

        def on_batch(frame: DataFrame, number: int) -> None:
            try:
                handler(MicroBatch(number, frame))
            except StreamEnding:
                halting.wait()  # Spark waits for this callback when it stops: hold it, but no longer

        location = f"file://{self._folder}"  # as it is: Spark does not decode a URI
        writer = self._frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", location)
        pace = self._setup.settings["headgate.trigger-interval"]
        self._query = writer.trigger(processingTime=f"{int(pace)} milliseconds").start()

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        return run_step(batch.content, task)

    def finish(self, task: StepTask) -> list[StepAck]:
        assert self._session is not None
        assert self._schema is not None
        return finish_step(self._session, self._schema, task)

    def position_after(self, batch: MicroBatch) -> Json:
        return self._reader.position(self._folder, batch.number)

    def failure(self) -> str | None:
        if self._query is None or self._halting.is_set():
            return None
        gone = self._gone()
        if gone is not None:
            return gone
        try:
            if self._query.isActive:
                return None
            error = self._query.exception()
        except Exception as lost:  # noqa: BLE001 - py4j raises its own and the socket's
            return _lost(lost)
        return "the streaming query ended by itself" if error is None else root_cause(error)

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
        query, self._query = self._query, None
        if self._gone() is not None or (query is not None and not _within_patience("query", query.stop)):
            return False
        if self._session is not None and not _within_patience("jobs", self._session.sparkContext.cancelAllJobs):
            return False  # the last step of a drain is no query's
        reader = reader_of(self._setup.plan.source.source, self._setup.plan.source.uid, self._setup)
        if not reader.follow(self._reader):
            return False
        self._reader = reader
        self._lives += 1
        self._halting = threading.Event()
        return True

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._halting.set()
        _within_patience("reader", self._reader.close)
        if self._query is not None:
            _within_patience("query", self._query.stop)
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
