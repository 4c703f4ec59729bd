"""Runs a job's DataFrame code on empty streams of its sources' schemas: wrong columns show before a start."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headgate.job.tasks import GraphPlan
from headgate.source.base import Source
from headgate.source.files import FilesSource
from headgate.source.rate import RateSource
from headgate.source.socket import SocketSource
from headgate.spark.chain import Inputs, before_step
from headgate.spark.session import start_session
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
    """Raise JobInvalid, naming transform or column, if what reads these sources cannot run on their schemas.

    The session has what the stream's settings give Spark (catalogues, packages), and one thread of this process.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-check-", ignore_cleanup_errors=True) as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        spark = {key: value for key, value in settings.spark.items() if not key.startswith("spark.submit.")}
        session = _start(Settings({**spark, "spark.master": "local[1]"}), Path(folder) / "spark")
        try:
            inputs = Inputs()
            for source, schema in schemas.items():
                task, way = plan.reader(source)
                inputs.add(task, way, before_step(task, way, _empty(session, source, schema, empty), settings)[1])
        finally:
            session.stop()


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
