"""The files source on Spark: every file once, from any position on, whatever Spark's own log looks like by then."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.source.files import FilesSource, files
from headgate.spark.files_reader import FilesReader
from tests.spark.sources.queries import Lives, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING"
FORMATS = ("text", "json", "csv", "parquet")


def write(
    folder: Path, number: int, format: str = "parquet", *, rows: int = 3, name: str = ""
) -> list[tuple[Any, ...]]:
    """Write file `number`, whole at once, an hour ago plus so many seconds; its rows."""
    folder.mkdir(exist_ok=True)
    made = [(number * 1000 + row, f"ä{number}") for row in range(rows)]
    path = folder / (name or f"f{number:05d}.{format}")
    temp = folder.parent / "half-written"
    if format == "parquet":
        pq.write_table(pa.table({"id": [row[0] for row in made], "name": [row[1] for row in made]}), temp)
    elif format == "json":
        temp.write_text("".join(json.dumps({"id": id, "name": name}) + "\n" for id, name in made))
    elif format == "csv":
        temp.write_text("".join(f"{id},{name}\n" for id, name in made))
    else:
        temp.write_text("".join(f"{id} {name}\n" for id, name in made))
    os.utime(temp, (1_700_000_000 + number, 1_700_000_000 + number))
    temp.rename(path)
    return [(f"{id} {name}",) for id, name in made] if format == "text" else made


def source_of(folder: Path, format: str = "parquet", *, at_once: int = 1) -> FilesSource:
    schema = None if format == "text" else SCHEMA
    return files(str(folder), format=format, schema=schema, max_files_per_trigger=at_once)


def reader_of(folder: Path, format: str = "parquet", *, at_once: int = 1) -> FilesReader:
    return FilesReader(source_of(folder, format, at_once=at_once), "records")


@pytest.mark.parametrize("format", FORMATS)
def test_a_life_goes_on_right_behind_the_position_it_is_given(lives: Lives, tmp_path: Path, format: str):
    folder = tmp_path / "in"
    made = [write(folder, number, format) for number in range(4)]
    with lives.life(reader_of(folder, format)) as query:
        taken = query.take(3)
    assert [batch.rows for batch in taken] == made[:3]
    with lives.life(reader_of(folder, format, at_once=10), taken[1].snapshot) as query:
        assert rows_of(query.take_rows(6)) == sorted(made[2] + made[3])


def test_every_position_is_one_to_go_on_from_also_when_spark_has_compacted_its_log(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    made = [write(folder, number) for number in range(24)]
    with lives.life(reader_of(folder)) as query:
        taken = query.take(24)
    assert [batch.rows for batch in taken] == made
    for done in (1, 9, 10, 11, 20, 23):
        with lives.life(reader_of(folder, at_once=7), taken[done - 1].snapshot) as query:
            rest = query.take_rows(3 * (24 - done))
        assert rows_of(rest) == sorted(row for rows in made[done:] for row in rows)


def test_a_restored_life_compacts_too_and_is_restored_itself(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    made = [write(folder, number) for number in range(30)]
    with lives.life(reader_of(folder)) as query:
        first = query.take(1)[-1]
    with lives.life(reader_of(folder), first.snapshot) as query:
        second = query.take(22)
    assert [batch.rows for batch in second] == made[1:23]
    with lives.life(reader_of(folder, at_once=3), second[-2].snapshot) as query:
        third = query.take(2)
    with lives.life(reader_of(folder, at_once=10), third[0].snapshot) as query:
        assert rows_of(query.take_rows(15)) == sorted(row for rows in made[25:] for row in rows)


def test_many_files_of_one_moment_with_odd_names(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in #1 %20ü"
    made = []
    for number in range(450):
        made += write(folder, number, "text", rows=1, name=f"part {number}%2F+ü.txt")
        os.utime(folder / f"part {number}%2F+ü.txt", (1_700_000_000, 1_700_000_000))
    with lives.life(reader_of(folder, "text", at_once=300)) as query:
        first = query.take(1)[0]
    assert len(first.rows) == 300
    assert len(first.snapshot.files) == 1
    made += write(folder, 450, "text", rows=1)
    with lives.life(reader_of(folder, "text", at_once=1000), first.snapshot) as query:
        rest = query.take_rows(151)
    assert sorted(first.rows + rows_of(rest)) == sorted(made)


def test_a_file_that_is_gone_before_it_was_read_is_named(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    write(folder, 0)
    write(folder, 1)
    with lives.life(reader_of(folder)) as query:
        query.take(1)
        query.before_rows = lambda frame: (folder / "f00001.parquet").unlink()
        assert "f00001.parquet" in query.wait_for_failure()


def test_files_that_a_snapshot_has_behind_it_may_go(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    made = [write(folder, number) for number in range(3)]
    with lives.life(reader_of(folder)) as query:
        first = query.take(1)[0]
    (folder / "f00000.parquet").unlink()
    with lives.life(reader_of(folder), first.snapshot) as query:
        assert rows_of(query.take(2)) == sorted(made[1] + made[2])


def test_what_a_task_hands_to_its_step_comes_in_pieces_that_fit_into_memory(session: SparkSession):
    def lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"bytes": [batch.nbytes for batch in batches]})

    rows = session.range(0, 180_000, 1, 1).select(F.repeat(F.lit("x"), 1000).alias("text"))
    found = [row[0] for row in rows.mapInArrow(lengths, "bytes bigint").collect()]
    assert sum(found) > 180_000_000
    assert max(found) < 80 << 20


def test_a_micro_batch_is_limited_in_bytes_and_takes_one_file_at_least(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    made = [write(folder, number, "text") for number in range(1, 5)]
    length = (folder / "f00001.text").stat().st_size
    for limit, expected in ((2 * length, [made[0] + made[1], made[2] + made[3]]), (1, made)):
        reader = FilesReader(files(str(folder), max_bytes_per_trigger=limit), "records")
        with lives.life(reader) as query:
            assert [sorted(batch.rows) for batch in query.take(len(expected))] == expected


@pytest.mark.parametrize(("format", "torn"), [("json", '{"id": 2, "na'), ("csv", "2")])
def test_a_torn_line_fails_the_stream_and_becomes_nulls_only_when_asked_for(
    lives: Lives, tmp_path: Path, format: str, torn: str
):
    folder = tmp_path / "in"
    made = write(folder, 0, format, rows=1)
    with (folder / f"f00000.{format}").open("a") as file:
        file.write(torn)
    with lives.life(reader_of(folder, format)) as query:
        assert "FAILFAST" in query.wait_for_failure()
    source = files(str(folder), format=format, schema=SCHEMA, options={"mode": "PERMISSIVE"})
    with lives.life(FilesReader(source, "records")) as query:
        (batch,) = query.take(1)
    assert (len(batch.rows), batch.rows[0]) == (2, made[0])


def test_a_file_dated_far_ahead_makes_no_other_too_old(lives: Lives, tmp_path: Path):
    """By Spark's own rule all that is older than the newest file by more than an age is dropped, for good."""
    folder = tmp_path / "in"
    ahead = write(folder, 0)
    os.utime(folder / "f00000.parquet", (7_258_118_400, 7_258_118_400))
    with lives.life(reader_of(folder)) as query:
        (first,) = query.take(1)
        assert first.rows == ahead
        behind = write(folder, 1)
        assert query.take(1)[0].rows == behind
    old = write(folder, 2)
    os.utime(folder / "f00002.parquet", (86_400, 86_400))
    with lives.life(reader_of(folder, at_once=5), first.snapshot) as query:
        assert rows_of(query.take_rows(6)) == sorted(behind + old)
