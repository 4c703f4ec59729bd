"""The description that a job's author makes: what it means, what it shows, and what it refuses."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import headgate.sink
from headgate.sink import console, discard, files
from headgate.sink.base import Sink, staged_names
from headgate_contract.errors import BadConfiguration, StorageUnreachable
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.restore import Rollback
from tests.runtime.sink.world import SINK, STREAM, batch, begun, task, visible_ids


def test_an_author_finds_the_sinks_by_name() -> None:
    assert headgate.sink.__all__ == ["console", "discard", "files"]


def test_a_relative_path_is_meant_from_where_the_driver_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = files("out/")
    monkeypatch.chdir(tmp_path / "driver")
    begun(sink)
    shipped = pickle.dumps(sink)
    monkeypatch.chdir(tmp_path / "worker")
    writer = pickle.loads(shipped).writer(task())
    writer.write(batch([1]))
    handles = writer.finish()
    monkeypatch.chdir(tmp_path / "driver")
    sink.committer(STREAM, SINK, Generation(1), "history").commit(CheckpointId(1), handles)
    assert visible_ids((tmp_path / "driver" / "out").as_uri()) == [1]
    assert os.listdir(tmp_path / "worker") == []


def test_making_and_shipping_a_sink_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = files("out")
    assert pickle.loads(pickle.dumps(sink)).path == str(tmp_path / "out")
    assert sink.describe()["path"] == "out"
    assert list(tmp_path.iterdir()) == []


def test_what_the_plan_shows_holds_no_secret() -> None:
    sink = files("s3://bucket/out", "json", {"secret": "hunter2", "key": "me"})
    assert sink.describe() == {
        "kind": "files",
        "path": "s3://bucket/out",
        "format": "json",
        "compression": "none",
        "storage_options": ["key", "secret"],
    }
    assert "hunter2" not in repr(sink)
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/out", "s3a://KEY:SE/CRET@bucket/out", "s3://SECRET@bucket"])
def test_a_url_with_credentials_is_refused_when_the_sink_is_made_and_does_not_show_them(url: str) -> None:
    with pytest.raises(BadConfiguration, match="carries credentials") as refused:
        files(url)
    assert "SE" not in str(refused.value)


def test_files_promise_exactly_once_and_take_back_what_they_published() -> None:
    assert (files("x").guarantee, files("x").rollback) == ("exactly-once", Rollback.RETRACT)


@pytest.mark.parametrize("sink", [files("/x"), console(), discard()], ids=lambda sink: sink.kind)
def test_a_sink_is_frozen_and_travels(sink: Sink) -> None:
    assert pickle.loads(pickle.dumps(sink)) == sink
    with pytest.raises(AttributeError):
        sink.rows = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "x", "format": "avro"}, "a files sink has no format 'avro'; choose one of parquet, json, csv"),
        ({"path": "x", "compression": "rar"}, "a files sink has no compression 'rar'; choose one of snappy, zstd"),
        ({"path": "gs://b/x"}, "'gs'"),
        ({"path": ""}, "names no folder"),
        ({"path": "x", "storage_options": {"anon": True}}, "takes no options, and has anon"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        files(**arguments)  # type: ignore[arg-type]


def test_a_target_that_cannot_be_written_is_said_before_the_first_batch(tmp_path: Path) -> None:
    files(tmp_path / "new").check()
    with pytest.raises(StorageUnreachable, match=r"mnt is not there"):
        files(tmp_path / "mnt" / "out").check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"], "nothing above it is made"
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StorageUnreachable, match=r"the sink's target .*taken.* another folder for the sink") as refused:
        files(tmp_path / "taken").check()
    assert "root" not in str(refused.value).replace(str(tmp_path), "")


def test_only_handles_that_name_something_staged_are_protected() -> None:
    assert staged_names([{"staged": "a"}, {"rows": 3}, {"staged": "b"}]) == {"a", "b"}


def test_a_process_opens_a_target_once_for_all_its_tasks(tmp_path: Path) -> None:
    sink = pickle.loads(pickle.dumps(files(tmp_path)))
    again = pickle.loads(pickle.dumps(files(tmp_path)))
    assert sink._store() is again._store()
    assert sink._store() is not files(tmp_path / "other")._store()
    keys = [files("s3://bucket/x", storage_options={"key": key, "secret": "s"})._store() for key in ("a", "b", "a")]
    assert keys[0] is keys[2]
    assert keys[0] is not keys[1]
