"""The files of written channels: what a task writes for others, and what they read."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.sink.base import SinkTask
from headgate.step.channel_files import ChannelFiles, read, schema_of
from headgate_contract.errors import BatchFailed, StreamFailed
from headgate_contract.ids import StreamName, VertexUid


def task(subtask: int = 0, attempt: int = 1) -> SinkTask:
    return SinkTask(
        stream=StreamName("s"),
        sink=VertexUid("pair"),
        generation=1,
        restart=0,
        attempt=attempt,
        epoch=1,
        subtask=subtask,
        task_attempt=0,
    )


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def test_what_is_written_is_read_in_its_order_with_its_columns(tmp_path: Path) -> None:
    writer = ChannelFiles(str(tmp_path)).writer(task())
    writer.write(rows(3, 1))
    writer.write(rows(2))
    (handle,) = writer.finish()
    assert re.fullmatch(r"g1\.r0\.e1\.a1\.s0\.t0\.[0-9a-f]{32}\.pair\.arrow", handle["name"])
    assert (handle["rows"], handle["bytes"]) == (3, (tmp_path / handle["name"]).stat().st_size)
    assert pa.Table.from_batches(read(tmp_path, [handle["name"]])).column("id").to_pylist() == [3, 1, 2]
    assert schema_of(tmp_path, [handle["name"]]) == rows().schema


def test_without_records_there_is_no_file(tmp_path: Path) -> None:
    writer = ChannelFiles(str(tmp_path)).writer(task())
    writer.write(rows())
    assert writer.finish() == ()
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = ChannelFiles(str(tmp_path)).writer(task())
    writer.write(rows(1))
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_never_share_a_file(tmp_path: Path) -> None:
    names = set()
    for each in (task(0), task(1), task(0, attempt=2)):
        writer = ChannelFiles(str(tmp_path)).writer(each)
        writer.write(rows(1))
        names |= {handle["name"] for handle in writer.finish()}
    assert len(names) == 3


def test_columns_that_change_are_told_with_both(tmp_path: Path) -> None:
    writer = ChannelFiles(str(tmp_path)).writer(task())
    writer.write(rows(1))
    with pytest.raises(BatchFailed, match="from id int64 to name string"):
        writer.write(pa.record_batch({"name": ["x"]}))
    writer.abort()


def test_columns_that_differ_between_subtasks_are_told(tmp_path: Path) -> None:
    names = []
    for subtask, batch in enumerate((rows(1), pa.record_batch({"id": ["x"]}))):
        writer = ChannelFiles(str(tmp_path)).writer(task(subtask))
        writer.write(batch)
        names += [handle["name"] for handle in writer.finish()]
    with pytest.raises(StreamFailed, match="have id int64 and id string"):
        schema_of(tmp_path, names)


@pytest.mark.parametrize("spoil", ["delete", "truncate"])
def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path, spoil: str) -> None:
    writer = ChannelFiles(str(tmp_path)).writer(task())
    writer.write(rows(1, 2))
    (handle,) = writer.finish()
    path = tmp_path / handle["name"]
    if spoil == "delete":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:40])
    for use in (lambda: list(read(tmp_path, [path.name])), lambda: schema_of(tmp_path, [path.name])):
        with pytest.raises(StreamFailed, match=f"channel file {path.name} cannot be read"):
            use()


def test_what_a_snapshot_of_another_stream_has_brought_is_not_written_over(tmp_path: Path) -> None:
    """Its lives are numbered as ours are."""
    names = set()
    for ids in ((1, 2), (3, 4)):
        writer = ChannelFiles(str(tmp_path)).writer(task())
        writer.write(rows(*ids))
        names.add(writer.finish()[0]["name"])
    assert len(names) == 2
