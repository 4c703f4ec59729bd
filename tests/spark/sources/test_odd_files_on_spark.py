"""The files source on Spark, where the names of files or of their folder are patterns to Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.source.files import files
from headgate.spark.files_reader import FilesReader
from headgate_contract.errors import JobInvalid
from tests.spark.sources.odd_names import PATTERNS, READ, put
from tests.spark.sources.queries import Lives, rows_of
from tests.spark.sources.test_files_on_spark import FORMATS, reader_of, write

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_once_where_a_name_is_a_pattern(lives: Lives, tmp_path: Path, format: str):
    folder = tmp_path / "in"
    names = ("plain", "b[1]", "b1", "c{a,b}", "12:30", "12:30*")
    made = [row for number, name in enumerate(names) for row in write(folder, number, format, name=f"{name}.{format}")]
    with lives.life(reader_of(folder, format, at_once=10)) as query:
        assert rows_of(query.take(1)) == sorted(made)


@pytest.mark.parametrize("name", ["in[1] {a,b}* #%20?", "back\\slash", "in 12:00"])
def test_a_folder_of_any_name_is_read(lives: Lives, tmp_path: Path, name: str):
    folder = tmp_path / name
    (tmp_path / "in1").mkdir()
    (tmp_path / "in1" / "not this one").write_text("no\n")
    folder.mkdir()
    odd = READ if ":" in name else READ + PATTERNS
    for number, each in enumerate(odd):
        put(folder, each, f"{number}\n")
    with lives.life(reader_of(folder, "text", at_once=30)) as query:
        first = query.take(1)[0]
        query.take_rows(len(odd) - len(first.rows))
    with lives.life(reader_of(folder, "text", at_once=1000), first.snapshot) as query:
        rest = query.take_rows(len(odd) - len(first.rows))
    assert sorted(int(row[0]) for row in first.rows + rows_of(rest)) == list(range(len(odd)))


@pytest.mark.parametrize("name", ["in", "in [1]"])
def test_subfolders_that_name_a_column_give_it(lives: Lives, tmp_path: Path, name: str):
    folder = tmp_path / name
    for day, hour in (("mon", "1"), ("tue", "[2]"), ("we*", "3")):
        place = folder / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [ord(day[0])]}), place / f"{hour}.parquet")
    source = files(str(folder), format="parquet", schema="id BIGINT, day STRING", max_files_per_trigger=10)
    with lives.life(FilesReader(source, "records")) as query:
        assert rows_of(query.take(1)) == [(ord(day[0]), day) for day in ("mon", "tue", "we*")]


def test_a_link_is_a_file_of_its_own_and_one_in_a_circle_harms_nobody(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    write(folder, 0, "text", rows=1)
    (folder / "link").symlink_to(folder / "f00000.text")
    (folder / "nowhere").symlink_to(tmp_path / "nowhere")
    (folder / "circle").symlink_to(folder)
    with lives.life(reader_of(folder, "text", at_once=10)) as query:
        assert rows_of(query.take(1)) == [("0 ä0",)] * 2


@pytest.mark.parametrize("beside", [True, False])
def test_a_named_pipe_is_no_file_to_read(lives: Lives, tmp_path: Path, beside: bool):
    folder = tmp_path / "in"
    made = write(folder, 0, "json", name="b[1]") + write(folder, 1, "json") if beside else []
    folder.mkdir(exist_ok=True)
    os.mkfifo(folder / "pipe")
    reader = reader_of(folder, "json", at_once=10)
    with lives.life(reader) as query:
        assert rows_of(query.take(1)) == sorted(made)
    assert f"in the source folder {folder} are never read: 'pipe' (a named pipe)" in (reader.unread() or "")


def test_subfolders_that_name_other_columns_are_told_by_name(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    write(folder, 0, "text")
    (folder / "f00000.text").rename(tmp_path / "moved")
    (folder / "day=1").mkdir()
    (tmp_path / "moved").rename(folder / "day=1" / "a")
    reader = reader_of(folder, "text")
    with lives.life(reader) as query:
        query.take(1)
        (folder / "hour=2").mkdir()
        (folder / "hour=2" / "b").write_text("1\n")
        query.wait_for_failure()
        told = query.failure() or ""
    assert told.startswith("subfolders that do not all name the same columns"), told
    assert f"{folder}/day=1" in told
    assert f"{folder}/hour=2" in told


def test_a_file_with_an_odd_name_that_is_gone_before_it_was_read_is_named(lives: Lives, tmp_path: Path):
    folder = tmp_path / "in"
    for number, name in enumerate(("plain", "b[1]", "b[2]")):
        write(folder, number, "text", name=name)
    with lives.life(reader_of(folder, "text", at_once=10)) as query:
        query.before_rows = lambda frame: (folder / "b[1]").unlink()
        assert "b\\[1\\]" in query.wait_for_failure()


@pytest.mark.parametrize("name", ["12:00[1]", os.fsdecode(b"\xff")])
def test_a_folder_that_spark_cannot_name_is_refused(lives: Lives, tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(JobInvalid, match="rename it"):
        reader_of(tmp_path / name, "text").load(lives.session)


def test_a_url_is_no_pattern(lives: Lives):
    with pytest.raises(JobInvalid, match="takes for a pattern"):
        FilesReader(files("file:///tmp/in*"), "records").load(lives.session)
