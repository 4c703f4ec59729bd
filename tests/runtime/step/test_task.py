"""One attempt at one subtask's share of a micro-batch: what it refuses, what it acknowledges, what it leaves."""

from __future__ import annotations

import datetime as dt
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate
from headgate.sink.files import FilesSink
from headgate.state.errors import ForeignKeyGroup
from headgate.step.moments import in_utc
from headgate.step.operators import HASH, AggregateOperator, Keyed, ProcessOperator
from headgate.step.task import SinkStage, StepAck, StepTask, run
from headgate_contract.errors import BatchFailed
from headgate_contract.ids import Generation, VertexUid
from tests.runtime.step.vertex import OUT, STREAM, RowsSink, Vertex, hashed, scratch, staged, written

COUNT = AggregateOperator.of("counts", ("user",), {"n": headgate.count()})
KEYS = ("user",)
BACKENDS = ("hashmap", "rocksdb")
OTHER = VertexUid("other")


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture
def nothing_staged() -> Iterator[None]:
    before = staged()
    yield
    assert staged() == before, "an attempt that failed has left something in a sink"


def users(*names: str | None) -> pa.Table:
    return pa.table({"user": pa.array(names, pa.string())})


def counting(directory: Path, backend: str = "hashmap", **more: Any) -> Vertex:
    return Vertex(COUNT, KEYS, backend, directory, **more)


def number(out: list[dict[str, Any]]) -> dict[str, int]:
    return {row["user"]: row["n"] for row in out}


# ---- what it refuses


@pytest.mark.parametrize("backend", BACKENDS)
def test_records_without_a_key_are_refused(directory: Path, backend: str, nothing_staged: None) -> None:
    vertex = counting(directory, backend, parallelism=1)
    with pytest.raises(BatchFailed, match="step 'counts': 2 records have no value in the key column 'user'; filter or"):
        vertex.run(users("ann", None, None))
    assert vertex.files() == []


def ignore_state(rows: pa.Table, keyed: Keyed) -> pa.Table:
    return rows


@pytest.mark.parametrize(
    "operator",
    [COUNT, ProcessOperator.of("pass", ignore_state, pa.schema({"user": pa.string()}), {})],
    ids=["with state", "without state"],
)
def test_a_record_of_another_subtasks_key_group_is_refused(operator: Any, directory: Path) -> None:
    vertex = Vertex(operator, KEYS, "hashmap", directory, parallelism=2, hash_of=lambda key: 2**62)
    rows = hashed(users("ann"), KEYS, vertex.hash_of)
    before = staged()
    message = r"step 'counts': subtask 0 owns the key groups 0\.\.7 and was given a record of 12"
    with pytest.raises(ForeignKeyGroup, match=message):
        run(vertex.task(), 0, 0, iter(rows.to_batches()))
    assert staged() == before
    assert vertex.files() == []
    assert run(vertex.task(), 1, 0, iter(rows.to_batches())).rows_in == 1


def test_a_missing_parent_file_fails_the_batch_and_is_not_taken_for_empty(directory: Path) -> None:
    vertex = counting(directory, parallelism=1)
    vertex.batch(users("ann"))
    for path in (directory / "0").iterdir():
        path.unlink()
    with pytest.raises(Exception, match=r"state file .* is missing"):
        vertex.run(users("ann"))


def first_seen(rows: pa.Table, keyed: Keyed) -> pa.Table:
    keyed.put("seen", pa.table({"times": pa.array([1] * len(keyed.keys), pa.int64())}))
    return pa.Table.from_batches([keyed.keys.keys])


def a_float(word: str) -> float:
    return struct.unpack("<d", bytes.fromhex(word))[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_zeros_are_one_key_and_so_are_all_nans(directory: Path, backend: str) -> None:
    zeros, nans = [0.0, -0.0], [a_float("000000000000f87f"), a_float("010000000000f8ff")]
    for name in ("count", "process"):
        (directory / name).mkdir()
    key = {"user": pa.array([*zeros, *nans, 1.5], pa.float64())}
    count = Vertex(COUNT, KEYS, backend, directory / "count", hash_of=lambda key: 0)
    out = count.batch(pa.table(key))
    assert sorted((str(row["user"]), row["n"]) for row in out) == [("0.0", 2), ("1.5", 1), ("nan", 2)]
    seen = {"seen": pa.schema({"times": pa.int64()})}
    operator = ProcessOperator.of("first", first_seen, pa.schema({"user": pa.float64()}), seen)
    process = Vertex(operator, KEYS, backend, directory / "process", hash_of=lambda key: 0)
    assert len(process.batch(pa.table(key))) == 3


# ---- what it acknowledges


def test_a_subtask_without_records_keeps_its_version(directory: Path) -> None:
    vertex = counting(directory, hash_of=lambda key: 0)
    acks = vertex.run(users("ann", "bob"))
    assert [(ack.subtask, ack.rows_in, ack.rows_out) for ack in acks] == [(0, 0, 0), (1, 2, 2)]
    assert acks[0].version is None
    assert acks[0].sinks == {OUT: []}
    assert acks[1].version is not None


def test_an_ack_survives_the_wire(directory: Path) -> None:
    ack = counting(directory, parallelism=1).run(users("ann", "bob"))[0]
    assert StepAck.decode(ack.encode()) == ack
    assert ack.version is not None
    assert ack.version["identity"] == "g1.r0.e1.a1.s0.t0"


def test_a_task_can_travel_to_a_worker(directory: Path) -> None:
    task = counting(directory).task()
    assert pickle.loads(pickle.dumps(task)) == task


def test_a_stateless_step_passes_its_records_on(directory: Path) -> None:
    keyed_task = counting(directory).task()
    task = StepTask(identity=keyed_task.identity, keyed=None, sinks=keyed_task.sinks, clock=keyed_task.clock)
    ack = run(task, 3, 0, iter([*users("ann").to_batches(), *users("bob", "cyd").to_batches()]))
    assert (ack.subtask, ack.rows_in, ack.rows_out, ack.version) == (3, 3, 3, None)
    assert [row["user"] for row in written(ack.sinks[OUT])] == ["ann", "bob", "cyd"]


# ---- hashes


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_that_share_a_hash_do_not_share_their_state(directory: Path, backend: str) -> None:
    vertex = counting(directory, backend, hash_of=lambda key: -5)
    vertex.batch(users("ann", "bob", "ann"))
    assert number(vertex.batch(users("bob", "cyd"))) == {"bob": 2, "cyd": 1}
    assert number(vertex.batch(users("ann", "bob", "cyd"))) == {"ann": 3, "bob": 3, "cyd": 2}


# ---- what it leaves behind


def boom(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("boom")


def fail(rows: pa.Table, keyed: Keyed) -> pa.Table:
    keyed.put("count", pa.table({"n": [1] * len(keyed.keys)}))
    raise ValueError("boom")


FAILING = ProcessOperator.of("fails", fail, pa.schema({"user": pa.string()}), {"count": pa.schema({"n": pa.int64()})})
GOOD = SinkStage(uid=OUT, sink=RowsSink())
FAILURES: dict[str, tuple[Any, tuple[SinkStage, ...], str]] = {
    "the author's function": (FAILING, (GOOD,), "process 'fails' failed with ValueError: boom"),
    "an Arrow function": (
        COUNT,
        (GOOD, SinkStage(uid=OTHER, sink=RowsSink(), functions=(boom,))),
        r"an Arrow function before sink 'other' failed with ValueError: boom \(test_task.py, line \d+\)",
    ),
    "an Arrow function that returns no batch": (
        COUNT,
        (GOOD, SinkStage(uid=OTHER, sink=RowsSink(), functions=(lambda batch: 5,))),  # type: ignore[arg-type,return-value]
        "an Arrow function before sink 'other' returned int, not a RecordBatch",
    ),
    "the write to a sink": (COUNT, (GOOD, SinkStage(uid=OTHER, sink=RowsSink("write"))), "the sink fails at write"),
    "the end of a sink": (COUNT, (GOOD, SinkStage(uid=OTHER, sink=RowsSink("finish"))), "the sink fails at finish"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", FAILURES)
def test_whatever_fails_leaves_no_file_and_nothing_staged(
    what: str, backend: str, directory: Path, nothing_staged: None
) -> None:
    operator, sinks, message = FAILURES[what]
    vertex = Vertex(operator, KEYS, backend, directory, parallelism=1, sinks=sinks)
    with pytest.raises(Exception, match=message):
        vertex.run(users("ann", "bob"))
    assert vertex.files() == []


@pytest.mark.parametrize("what", ["the author's function", "an Arrow function"])
def test_why_a_batch_failed_is_told_also_when_the_storage_does_not_let_its_sinks_clean_up(
    what: str, directory: Path, nothing_staged: None
) -> None:
    operator, sinks, message = FAILURES[what]
    broken = SinkStage(uid=VertexUid("broken"), sink=RowsSink("abort"))
    vertex = Vertex(operator, KEYS, "hashmap", directory, parallelism=1, sinks=(broken, *sinks))
    with pytest.raises(BatchFailed, match=message):
        vertex.run(users("ann", "bob"))


def test_whatever_fails_leaves_no_staged_file_on_the_target(directory: Path, tmp_path: Path) -> None:
    target = FilesSink(str(tmp_path / "out"))
    target.check()
    committer = target.committer(STREAM, OUT, Generation(1), "history")
    committer.begin(frozenset(), [], [], frozenset())
    files = SinkStage(uid=OUT, sink=target)
    vertex = counting(directory, parallelism=1, sinks=(files, FAILURES["the end of a sink"][1][1]))
    with pytest.raises(OSError, match="the sink fails at finish"):
        vertex.run(users("ann"))
    assert [path for path in (tmp_path / "out").rglob("staged/*") if path.is_file()] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_attempt_after_a_failed_one_starts_from_the_same_parents(directory: Path, backend: str) -> None:
    vertex = counting(directory, backend)
    vertex.batch(users("ann", "bob", "cyd", "dan"))
    before = vertex.files()
    vertex.sinks = FAILURES["the end of a sink"][1]
    with pytest.raises(OSError, match="the sink fails"):
        vertex.run(users("ann", "bob"))
    assert vertex.files() == before
    vertex.sinks = (GOOD,)
    assert number(vertex.batch(users("ann", "bob"))) == {"ann": 2, "bob": 2}


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_attempts_from_one_parent_share_no_file_and_either_may_win(directory: Path, backend: str) -> None:
    vertex = counting(directory, backend, parallelism=1)
    vertex.batch(users("ann"))
    parent = {file["name"] for file in (vertex.versions[0]["files"])}
    first, second = vertex.run(users("ann"))[0], vertex.run(users("ann"))[0]
    assert first.version is not None
    assert second.version is not None
    names = [{file["name"] for file in version["files"]} - parent for version in (first.version, second.version)]
    assert not names[0] & names[1]
    for winner in (first.version, second.version):
        vertex.versions = {0: winner}
        assert number(vertex.batch(users("ann"))) == {"ann": 3}


# ---- moments

TOKYO = pa.timestamp("us", "Asia/Tokyo")
UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_state_does_not_depend_on_the_time_zone_of_the_session(directory: Path) -> None:
    operator = AggregateOperator.of("counts", ("at",), {"last": headgate.max("seen")})
    vertex = Vertex(operator, ("at",), "hashmap", directory, parallelism=1, hash_of=lambda key: 0)

    def rows(kind: pa.DataType, seen: dt.datetime) -> pa.Table:
        return pa.table({"at": pa.array([NOON], UTC).cast(kind), "seen": pa.array([seen], UTC).cast(kind)})

    vertex.batch(rows(TOKYO, NOON))
    later = NOON + dt.timedelta(hours=1)
    assert vertex.batch(rows(UTC, later)) == [{"at": NOON, "last": later}]
    assert vertex.batch(rows(pa.timestamp("us", "America/New_York"), NOON)) == [{"at": NOON, "last": later}]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (TOKYO, UTC),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.list_(TOKYO), pa.list_(UTC)),
        (pa.struct([("a", TOKYO), ("b", pa.int64())]), pa.struct([("a", UTC), ("b", pa.int64())])),
        (pa.map_(pa.string(), pa.list_(TOKYO)), pa.map_(pa.string(), pa.list_(UTC))),
        (pa.int64(), pa.int64()),
    ],
)
def test_moments_are_in_utc_wherever_they_stand(kind: pa.DataType, expected: pa.DataType) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, kind)], names=["x"])
    assert in_utc(batch).schema.field("x").type == expected
    assert in_utc(in_utc(batch)) == in_utc(batch)


# ---- Arrow functions


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.multiply(batch.column("n"), 2))


def only_large(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater(batch.column("n"), 2))


def test_each_sink_gets_the_output_through_its_own_functions_in_their_order(directory: Path) -> None:
    sinks = (
        GOOD,
        SinkStage(uid=OTHER, sink=RowsSink(), functions=(double, only_large)),
        SinkStage(uid=VertexUid("third"), sink=RowsSink(), functions=(only_large, double)),
    )
    vertex = counting(directory, parallelism=1, sinks=sinks)
    (ack,) = vertex.run(users("ann", "bob", "bob"))
    assert number(written(ack.sinks["out"])) == {"ann": 1, "bob": 2}
    assert number(written(ack.sinks["other"])) == {"bob": 4}
    assert number(written(ack.sinks["third"])) == {}
    assert ack.rows_out == 2, "what leaves the step is counted, not what a sink was given"


def test_the_hash_does_not_leave_the_step(directory: Path) -> None:
    (ack,) = counting(directory, parallelism=1).run(users("ann"))
    assert HASH not in written(ack.sinks[OUT])[0]
