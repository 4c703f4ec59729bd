"""Runs a job's DataFrame code on empty frames of what is known to come there: wrong columns show before a start."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.job.graph import SourceVertex
from headgate.job.tasks import GraphPlan, Task, TaskInput
from headgate.source.base import Source
from headgate.source.files import FilesSource
from headgate.source.rate import RateSource
from headgate.source.socket import SocketSource
from headgate.spark.chain import AlikeColumns, before_step
from headgate.spark.session import start_session, stop_session
from headgate.step.operators import ProcessOperator
from headgate_contract.errors import JobInvalid, LaunchFailed
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings


def known_schema(source: Source) -> str | None:
    """The source's columns as DDL, or None where they are known only when it runs."""
    match source:
        case FilesSource():
            return source.schema or "value STRING"
        case SocketSource():
            return "value STRING"
        case RateSource():
            return "timestamp TIMESTAMP, value BIGINT"
    return None


def check_columns(plan: GraphPlan, schemas: Mapping[VertexUid, str], settings: Settings) -> None:
    """Raise JobInvalid, naming transform or column, if what is between these sources and the sinks cannot run on them.

    Of what comes by a channel the columns are known if no Arrow function and no aggregate made them. The session has
    what the stream's settings give Spark (catalogues, packages), and one thread of this process.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-check-", ignore_cleanup_errors=True) as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        spark = {key: value for key, value in settings.spark.items() if not key.startswith("spark.submit.")}
        session = _start(Settings({**spark, "spark.master": "local[1]"}), Path(folder) / "spark")
        try:
            for vertex in plan.sources:
                _check_readable(session, vertex, empty)
            alike, written = AlikeColumns(), dict[VertexUid, pa.Schema]()
            for task in plan.tasks:
                came: pa.Schema | None = None
                for way in task.inputs:
                    if way.producer in written:
                        came = _by_channel(session, task, way, written[way.producer], settings)
                    elif way.producer in schemas:
                        frame = _empty(session, way.producer, schemas[way.producer], empty)
                        came = before_step(task, way, frame, settings)[1]
                    else:
                        came = None
                    if came is not None:
                        alike.check(task, way, came)
                made = _made(task, came)
                if made is not None:
                    written.update({end.producer: made for end in task.channels if not end.functions})
        finally:
            stop_session(session)


def _made(task: Task, came: pa.Schema | None) -> pa.Schema | None:
    """What leaves the task's step, if that is known; without a step what came."""
    operator = task.operator
    if operator is None:
        return came
    return operator.output if isinstance(operator, ProcessOperator) else None


def _by_channel(
    session: SparkSession, task: Task, way: TaskInput, schema: pa.Schema, settings: Settings
) -> pa.Schema | None:
    """What reaches the task's step; None if its DataFrame code says nothing without records, which it may look at."""
    try:
        frame = session.createDataFrame([], from_arrow_schema(schema))
    except Exception as error:
        line = str(error).strip().splitlines()[0]
        raise JobInvalid(f"what {way.producer!r} gives cannot be read by Spark: {line}") from error
    try:
        return before_step(task, way, frame, settings)[1]
    except JobInvalid as error:
        if error.__cause__ is None or isinstance(error.__cause__, AnalysisException):
            raise
        return None


def _check_readable(session: SparkSession, vertex: SourceVertex, folder: Path) -> None:
    """Raise JobInvalid if files of this format cannot have these columns, or their options mean nothing to Spark."""
    source = vertex.source
    if not isinstance(source, FilesSource) or source.schema is None:
        return
    try:
        session.read.schema(source.schema).format(source.format).options(**source.options).load(folder.as_uri())
    except Exception as error:
        line = str(error).strip().splitlines()[0]
        raise JobInvalid(
            f"source {vertex.uid!r}: the schema {source.schema!r} is not valid: {line}",
            hint=f'a schema is DDL, like "id BIGINT, name STRING", of types that {source.format} files can hold',
        ) from error


def _empty(session: SparkSession, source: VertexUid, schema: str, folder: Path) -> DataFrame:
    try:
        return session.readStream.schema(schema).format("json").load(folder.as_uri())
    except Exception as error:
        line = str(error).strip().splitlines()[0]
        raise JobInvalid(f"source {source!r}: the schema {schema!r} is not valid: {line}") from error


def _start(settings: Settings, directory: Path) -> SparkSession:
    try:
        return start_session("headgate check", settings, directory, lasting=False)
    except Exception as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LaunchFailed(
            f"Spark does not start here, so the columns cannot be checked: {line}",
            hint="it needs Java 17 or newer on the PATH or in JAVA_HOME; stderr says more",
        ) from error
