"""The engine on Spark: one streaming query, whose foreachBatch runs the step."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.driver.engine import Engine, EngineSetup, Json, MicroBatch
from headgate.driver.loop import StreamEnding
from headgate.source.positions import PositionBook
from headgate.spark.chain import add_key, apply_transforms, check_schema, root_cause, run_step
from headgate.spark.readers import reader_of
from headgate.spark.session import start_session
from headgate.step.task import StepAck, StepTask

log = logging.getLogger(__name__)


class SparkEngine(Engine):
    """Runs the plan's chain on Spark. Its checkpoint folder is private scratch, new in every life."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._folder = setup.directory / "query"
        self._reader = reader_of(setup.plan.source.source, setup.plan.source.uid, setup)
        self._session: SparkSession | None = None
        self._schema: pa.Schema | None = None
        self._frame: DataFrame | None = None
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()

    @property
    def book(self) -> PositionBook:
        return self._reader.book

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def open(self) -> None:
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

        def on_batch(frame: DataFrame, number: int) -> None:
            try:
                handler(MicroBatch(number, frame))
            except StreamEnding:
                self._stopping.wait()  # Spark waits for this callback when it stops: hold it, but no longer

        location = f"file://{self._folder}"  # as it is: Spark does not decode a URI
        writer = self._frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", location)
        pace = self._setup.settings["headgate.trigger-interval"]
        self._query = writer.trigger(processingTime=f"{int(pace)} milliseconds").start()

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        return run_step(batch.content, task)

    def position_after(self, batch: MicroBatch) -> Json:
        return self._reader.position(self._folder, batch.number)

    def failure(self) -> str | None:
        if self._query is None or self._stopping.is_set():
            return None
        try:
            if self._session is not None and self._session.sparkContext._jsc.sc().isStopped():
                return "the Spark context has stopped"
            if self._query.isActive:
                return None
            error = self._query.exception()
        except Exception as gone:  # noqa: BLE001 - py4j raises its own and the socket's
            return f"Spark's JVM is gone: {type(gone).__name__}"
        return "the streaming query ended by itself" if error is None else root_cause(error)

    def stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        ends: list[tuple[str, Callable[[], None]]] = [("reader", self._reader.close)]
        if self._query is not None:
            ends.append(("query", self._query.stop))
        if self._session is not None:
            ends.append(("session", self._session.stop))
        for what, stop in ends:
            done = threading.Thread(target=_quietly, args=(what, stop), daemon=True)
            done.start()
            done.join(timeout=20)

    def facts(self) -> dict[str, str]:
        found: Any = self._session.sparkContext.uiWebUrl if self._session is not None else None
        return {"spark_ui": found} if found else {}


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
