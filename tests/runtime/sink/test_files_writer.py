"""What one attempt stages: one file, of any format, that no reader takes for data; and what it says when it cannot."""

from __future__ import annotations

import csv
import os
import random
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headgate.sink.base import Handle, SinkWriter
from headgate.sink.files import FilesSink, files
from headgate.sink.files_formats import ROW_GROUP
from headgate_contract.errors import RecordFailed, SinkFailed, StorageError
from headgate_contract.ids import CheckpointId, Generation
from tests.runtime.sink.world import SINK, STREAM, batch, begun, task, visible_ids

FORMATS = ("parquet", "json", "csv")


def publish(sink: FilesSink, *batches: pa.RecordBatch) -> None:
    writer = begun(sink).writer(task())
    for rows in batches:
        writer.write(rows)
    handles = writer.finish()
    committer = sink.committer(STREAM, SINK, Generation(1), "history")
    committer.begin(frozenset(), [], [(CheckpointId(9), handles)], frozenset())
    committer.begin(frozenset({CheckpointId(9)}), [(CheckpointId(9), handles)], [], frozenset())


def stage(writer: SinkWriter, rows: pa.RecordBatch) -> tuple[Handle, ...]:
    writer.write(rows)
    return writer.finish()


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_appears_at_the_commit_and_not_before(tmp_path: Path, format: str) -> None:
    sink = FilesSink(str(tmp_path / "out"), format)
    writer = begun(sink).writer(task())
    writer.write(batch([1, 2]))
    writer.write(batch([]))
    writer.write(batch([3]))
    (handle,) = writer.finish()
    assert handle["rows"] == 3
    assert handle["bytes"] == (tmp_path / "out" / handle["staged"]).stat().st_size
    assert visible_ids((tmp_path / "out").as_uri(), format) == []
    sink.committer(STREAM, SINK, Generation(1), "history").commit(CheckpointId(5), (handle,))
    assert visible_ids((tmp_path / "out").as_uri(), format) == [1, 2, 3]
    (visible,) = [path.name for path in (tmp_path / "out").iterdir() if path.is_file()]
    assert visible == f"part-00000005-g1-0-{handle['unique']}.{format}"


@pytest.mark.parametrize("format", FORMATS)
def test_off_local_disks_a_file_is_written_here_and_uploaded(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sink = FilesSink(f"memory://writer-{format}", format)
    writer = begun(sink).writer(task())
    writer.write(batch([1, 2]))
    assert len(list(tmp_path.iterdir())) == 1
    handles = writer.finish()
    assert list(tmp_path.iterdir()) == []
    sink.committer(STREAM, SINK, Generation(1), "history").commit(CheckpointId(5), handles)
    assert visible_ids(sink.path, format) == [1, 2]


def test_in_a_worker_of_sparks_the_local_file_is_in_the_lifes_own_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'engine' / 'blocks'},{tmp_path / 'other'}")
    writer = begun(files("memory://in-spark")).writer(task())
    writer.write(batch([1]))
    assert len(list((tmp_path / "engine" / "blocks").iterdir())) == 1
    assert len(writer.finish()) == 1


@pytest.mark.parametrize("root", ["local", "memory://aborted"])
@pytest.mark.parametrize("finished", [False, True])
def test_an_aborted_attempt_leaves_nothing(
    tmp_path: Path, root: str, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    sink = files(tmp_path / "out" if root == "local" else root)
    writer = begun(sink).writer(task())
    writer.write(batch([1]))
    if finished:
        writer.finish()
    writer.abort()
    writer.abort()
    assert sink._store().list("") == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_attempt_without_rows_stages_nothing(tmp_path: Path) -> None:
    writer = files(tmp_path).writer(task())
    writer.write(batch([]))
    assert writer.finish() == ()
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_wrote_nothing_has_nothing_to_ask_of_a_storage_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(store: object, path: str) -> bool:
        raise StorageError("the storage is gone")

    sink = files("memory://gone")
    monkeypatch.setattr(type(sink._store()), "delete", refuse)
    sink.writer(task()).abort()
    writer = sink.writer(task())
    writer.write(batch([1]))
    with pytest.raises(StorageError):
        writer.abort()


def test_no_two_attempts_share_a_staged_name(tmp_path: Path) -> None:
    names = set()
    for attempt in [task(), task(), task(generation=2), task(restart=1), task(epoch=2), task(subtask=1)]:
        writer = begun(files(tmp_path)).writer(attempt)
        writer.write(batch([1]))
        names.add(writer.finish()[0]["staged"].rsplit("/", 1)[-1])
    assert len(names) == 6
    assert {name.rsplit("-", 1)[0] for name in names} == {
        "g1-r0-a0-e1-s0-t0",
        "g2-r0-a0-e1-s0-t0",
        "g1-r1-a0-e1-s0-t0",
        "g1-r0-a0-e2-s0-t0",
        "g1-r0-a0-e1-s1-t0",
    }


def test_a_writer_does_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise AssertionError("a sync in the task")

    sink = begun(files(tmp_path))
    monkeypatch.setattr(os, "fsync", refuse)
    writer = sink.writer(task())
    writer.write(batch([1]))
    assert len(writer.finish()) == 1


def test_small_batches_become_one_row_group_and_large_ones_several(tmp_path: Path) -> None:
    writer = begun(files(tmp_path, compression="zstd")).writer(task())
    for _ in range(10):
        writer.write(batch([1, 2, 3]))
    small = pq.ParquetFile(tmp_path / writer.finish()[0]["staged"])
    assert small.metadata.num_row_groups == 1
    assert small.metadata.row_group(0).column(0).compression == "ZSTD"
    small.close()
    writer = begun(files(tmp_path)).writer(task())
    for _ in range(3):
        writer.write(batch(range(ROW_GROUP)))
    large = pq.ParquetFile(tmp_path / writer.finish()[0]["staged"])
    assert large.metadata.num_row_groups == 3
    large.close()


def test_csv_has_a_header_in_each_file_and_tells_null_from_empty(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "text": ['a "b", c', ""], "amount": [Decimal("1.10"), None]})
    publish(files(tmp_path, "csv"), rows)
    (path,) = tmp_path.glob("*.csv")
    assert path.read_text() == '"id","text","amount"\n1,"a ""b"", c",1.10\n2,"",\n'
    with path.open(newline="") as file:
        assert next(csv.DictReader(file))["text"] == 'a "b", c'


def test_json_is_read_back_by_a_plain_reader(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "text": ['a\n"b"', None], "tags": [["x"], []]})
    publish(files(tmp_path, "json"), rows)
    assert ds.dataset(tmp_path, format="json").to_table().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "column", [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"x"]), pa.array(["x"], pa.string_view())], ids=str
)
def test_a_column_that_csv_cannot_hold_is_named(tmp_path: Path, column: pa.Array) -> None:
    writer = begun(files(tmp_path, "csv")).writer(task())
    with pytest.raises(SinkFailed, match=r"sink out of stream orders cannot stage .*(column 'odd'|string_view)"):
        stage(writer, pa.RecordBatch.from_pydict({"odd": column}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    writer = begun(files(tmp_path)).writer(task())
    writer.write(batch([1]))
    with pytest.raises(SinkFailed, match="all rows of a sink have one schema"):
        stage(writer, pa.RecordBatch.from_pydict({"other": ["x"]}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@contextmanager
def small_files() -> Iterator[None]:
    """The system refuses to let a file of this process grow above 64 kB: what a full disk looks like to a writer.

    Only while the writer is at work: the report of the test run may be a larger file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("root", ["local", "memory://full"])
def test_a_disk_that_takes_no_more_is_named(
    tmp_path: Path, root: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    writer = begun(FilesSink(str(tmp_path) if root == "local" else root, format)).writer(task())
    named = r"sink out of stream orders cannot stage .*File too large; is there space"
    with small_files(), pytest.raises(SinkFailed, match=named):
        stage(writer, batch(random.Random(1).sample(range(2**60), 50_000)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_target_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("I was here first")
    writer = files(tmp_path / "out").writer(task())
    with pytest.raises(SinkFailed, match=r"sink out of stream orders cannot stage .*Not a directory"):
        writer.write(batch([1]))


def test_a_task_makes_no_folder_where_the_target_was(tmp_path: Path) -> None:
    """A mount that dropped leaves an empty folder, and a rename none."""
    sink = begun(files(tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    for _ in ("renamed", "dropped"):
        with pytest.raises(SinkFailed, match=r"its folder is not there; is the target.s storage mounted"):
            stage(sink.writer(task()), batch([1]))
        assert not (tmp_path / "out" / "_headgate").exists()
        (tmp_path / "out").mkdir(exist_ok=True)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_text_that_is_no_utf8_fails_by_its_column_and_nothing_is_staged(
    tmp_path: Path, format: str, large: bool
) -> None:
    """Spark reads any bytes as text, and hands them over as they are."""
    binary, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    column = pa.array([b"good", None, b"caf\xe9"], binary).view(text)
    writer = begun(FilesSink(str(tmp_path / "out"), format)).writer(task())
    writer.write(pa.record_batch({"id": [0], "drink": pa.array(["caf\u00e9"], text)}))
    with pytest.raises(
        RecordFailed, match=rf"sink out: column 'drink' has text that is no UTF-8.* {format.upper()}.*make_valid"
    ):
        writer.write(pa.record_batch({"id": [1, 2, 3], "drink": column}))
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.suffix == f".{format}"]
