"""Which record has failed a micro-batch: of several that are bad, the one that failed it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headgate
from headgate.driver.engine import EngineSetup
from headgate.job.tasks import graph_plan
from headgate.source.files import files
from headgate.source.place import Place
from headgate.spark.engine import SparkEngine
from headgate.spark.files_reader import FilesReader
from headgate.spark.finding import find_failed
from headgate_contract.errors import RecordFailed
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.settings import Settings
from tests.spark.sources.queries import Lives

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, key BIGINT"


def found(lives: Lives, folder: Path, error: str) -> str:
    reader = FilesReader(files(str(folder), format="json", schema=SCHEMA, options={"mode": "DROPMALFORMED"}), "records")
    reader.load(lives.session)
    origin = tuple(path.as_uri() for path in sorted(folder.iterdir()))
    frame = lives.session.read.schema(SCHEMA).option("mode", "DROPMALFORMED").json([*origin])
    return find_failed(lives.session, reader, origin, (("key",), lambda: frame), RecordFailed(error))


def test_each_of_two_bad_records_is_told_with_its_own_place(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1, "key": 1}\n{"id": 8, "ke\n')
    (folder / "b.json").write_text('{"id": 2, "key": null}\n{"id"\n')
    for at, name in enumerate(("a.json", "b.json")):
        os.utime(folder / name, (at, at))
    without_key = "step 'totals': 1 records have no value in the key column 'key'"
    assert found(lives, folder, without_key) == f"the first without a key in {folder}/b.json"
    unparsed = "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected"
    assert found(lives, folder, unparsed) == f"the first that does not parse is line 2 in {folder}/a.json"
    unparsed = f"{folder}/b.json: Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input"
    assert found(lives, folder, unparsed) == f"the first that does not parse is line 2 in {folder}/b.json"
    assert found(lives, folder, "process 'totals' failed with ValueError: 1 is not good") == ""


def found_behind(lives: Lives, base: Path, transform: Callable[[DataFrame], DataFrame]) -> str:
    job = headgate.Job("twice")
    records = job.source("records", files(str(base / "in"), format="json", schema=SCHEMA)).transform(transform)
    for key in ("id", "key"):
        records.key_by(key).aggregate(f"by-{key}", n=headgate.count()).sink(f"out-{key}", headgate.sinks.discard())
    plan = graph_plan(job)
    setup = {"stream": StreamName("s"), "generation": Generation(1), "plan": plan, "settings": Settings({})}
    engine = SparkEngine(EngineSetup(**setup, directory=base / "engine"))  # type: ignore[arg-type]
    engine._session = lives.session
    engine._readers[VertexUid("records")].load(lives.session)
    task = next(task for task in plan.tasks if task.uid == "by-key")
    (way,) = task.inputs
    parts = tuple(path.as_uri() for path in sorted((base / "in").iterdir()))
    origin = Place(where="source 'records'", source="records", parts=parts)
    step: Any = SimpleNamespace(keyed=SimpleNamespace(keys=("key",)))  # all that is asked of it
    error = RecordFailed("step 'by-key': 1 records have no value in the key column 'key'")
    assert engine.find_behind(replace(origin, source="another"), task, way, step, error) == ""
    return engine.find_behind(origin, task, way, step, error)


def test_behind_a_channel_a_record_is_found_where_only_dataframe_code_lies_between(lives: Lives, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "key": 1}\n')
    (tmp_path / "in" / "b.json").write_text('{"id": 2, "key": 7}\n')

    def without_seven(frame: DataFrame) -> DataFrame:
        return frame.withColumn("key", F.when(F.col("key") != 7, F.col("key")))

    assert found_behind(lives, tmp_path, without_seven) == f"the first without a key in {tmp_path}/in/b.json"
    assert found_behind(lives, tmp_path, lambda frame: frame) == ""
