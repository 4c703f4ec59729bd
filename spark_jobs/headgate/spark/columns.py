"""Runs a job's DataFrame code on an empty stream of its source's schema: wrong columns show before a start."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headgate.job.plan import LinearPlan
from headgate.source.base import Source
from headgate.source.files import FilesSource
from headgate.source.rate import RateSource
from headgate.source.socket import SocketSource
from headgate.spark.chain import apply_transforms, check_schema
from headgate.spark.session import start_session
from headgate_contract.errors import JobInvalid
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


def check_columns(plan: LinearPlan, schema: str) -> None:
    """Raise JobInvalid, naming transform or column, if the chain cannot run on `schema`."""
    with tempfile.TemporaryDirectory(prefix="headgate-check-", ignore_cleanup_errors=True) as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        session = start_session("headgate check", Settings({"spark.master": "local[1]"}), Path(folder) / "spark")
        try:
            try:
                frame = session.readStream.schema(schema).format("json").load(empty.as_uri())
            except Exception as error:
                line = str(error).strip().splitlines()[0]
                raise JobInvalid(f"source {plan.source.uid!r}: the schema {schema!r} is not valid: {line}") from error
            check_schema(plan, apply_transforms(plan, frame))
        finally:
            session.stop()
