"""The console prints a group's first rows when its checkpoint has completed; discard counts."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

from headgate.sink import console, discard
from headgate.sink.base import BeginReport
from headgate.sink.discard import DiscardCommitter
from headgate_contract.errors import BadConfiguration, SinkFailed
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.restore import Rollback
from tests.runtime.sink.world import SINK, STREAM, batch, task

ONE = CheckpointId(1)


def rows(ids: list[int], words: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": ids, "word": words})


def test_a_group_is_printed_at_its_commit_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console()
    writer = sink.writer(task(epoch=4))
    writer.write(rows([1, 20], ["a", None]))
    committer = sink.committer(STREAM, SINK, Generation(1), "history")
    handles = writer.finish()
    committer.prepare(handles)
    assert capsys.readouterr().out == ""
    committer.commit(ONE, handles)
    assert capsys.readouterr().out == (
        "-- out: checkpoint 1, epoch 4: 2 rows\n"
        "   id  word\n"
        "   1   a\n"
        "   20  NULL\n"
    )  # fmt: skip


def test_only_the_first_rows_are_kept_in_an_ack_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console(rows=3)
    handles = []
    for epoch in (4, 5):
        writer = sink.writer(task(epoch=epoch))
        writer.write(batch(range(2)))
        writer.write(batch(range(10, 1010)))
        handles += writer.finish()
    assert len(json.dumps(handles)) < 400
    sink.committer(STREAM, SINK, Generation(1), "history").commit(CheckpointId(7), handles)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "-- out: checkpoint 7, epochs 4 to 5: 2,004 rows, the first 3 of them"
    assert out[1:] == ["   id", "   0", "   1", "   10"]


def test_moments_that_python_cannot_hold_are_shown_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    writer = console().writer(task())
    far = pa.array([2_932_897, None], pa.int32()).cast(pa.date32())
    writer.write(pa.RecordBatch.from_pydict({"day": far, "days": pa.ListArray.from_arrays([0, 1, 2], far)}))
    console().committer(STREAM, SINK, Generation(1), "history").commit(ONE, writer.finish())
    assert capsys.readouterr().out.splitlines()[2:] == ["   10000-01-01  ['10000-01-01']", "   NULL         [None]"]


def test_values_are_shortened_and_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console()
    writer = sink.writer(task())
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    writer.write(pa.RecordBatch.from_pydict({"v": ["x" * 500, "a\nb\tc"], "b": [b"\x01\xff", None], "t": [moment] * 2}))
    handles = writer.finish()
    assert json.loads(json.dumps(handles)) == list(handles)
    sink.committer(STREAM, SINK, Generation(1), "history").commit(ONE, handles)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 4
    assert "x" * 59 + "…" in out[2]
    assert "01ff" in out[2]
    assert "a\\nb\\tc" in out[3]


def test_what_a_restart_carries_is_printed_again_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console()
    writer = sink.writer(task())
    writer.write(batch([1]))
    handles = writer.finish()
    committer = sink.committer(STREAM, SINK, Generation(2), "history")
    given_up = (CheckpointId(2), handles)
    report = committer.begin(frozenset({ONE}), [(ONE, handles)], [given_up], frozenset())
    assert report == BeginReport(committed=(ONE,))
    assert capsys.readouterr().out.startswith("-- out: checkpoint 1, epoch 1: 1 row (perhaps again, after a restart)\n")


def test_a_group_without_rows_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    writer = console().writer(task())
    writer.write(batch([]))
    assert writer.finish() == ()
    writer.write(batch([1]))
    writer.abort()
    assert writer.finish() == ()
    committer = console().committer(STREAM, SINK, Generation(1), "history")
    committer.commit(ONE, ())
    committer.discard(())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("wrong", [0, -1, 1001, True, "20", 2.5])
def test_a_number_of_rows_that_cannot_be_meant_is_refused(wrong: object) -> None:
    with pytest.raises(BadConfiguration, match="ask for 1 to 1000"):
        console(rows=wrong)  # type: ignore[arg-type]


def test_a_console_promises_at_least_once_and_never_hinders_a_restore() -> None:
    assert (console().guarantee, console().rollback) == ("at-least-once", Rollback.OVERWRITE)
    assert console(5).describe() == {"kind": "console", "rows": 5}
    console().check()


def test_discard_counts_and_drops() -> None:
    sink = discard()
    assert (sink.guarantee, sink.rollback, sink.describe()) == (
        "exactly-once",
        Rollback.OVERWRITE,
        {"kind": "discard"},
    )
    sink.check()
    writer = sink.writer(task())
    assert writer.finish() == ()
    writer.write(batch([1, 2]))
    handles = writer.finish()
    assert handles == ({"rows": 2},)
    writer.abort()
    assert writer.finish() == ()
    committer = sink.committer(STREAM, SINK, Generation(1), "history")
    assert isinstance(committer, DiscardCommitter)
    committer.prepare(handles)
    committer.discard(handles)
    committer.commit(ONE, (*handles, *handles))
    committer.commit(ONE, (*handles, *handles))
    two = CheckpointId(2)
    assert committer.begin(frozenset({two}), [(two, handles)], [], frozenset()).committed == (two,)
    assert committer.rows == {ONE: 4, two: 2}


@pytest.mark.parametrize("sink", [console(), discard()], ids=lambda sink: sink.kind)
def test_the_handles_of_another_kind_of_sink_are_refused(sink: object) -> None:
    committer = sink.committer(STREAM, SINK, Generation(1), "history")  # type: ignore[attr-defined]
    with pytest.raises(SinkFailed, match="the handles of sink out were made by another kind of sink"):
        committer.commit(ONE, ({"staged": "x", "rows": 1},))
