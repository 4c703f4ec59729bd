"""A stream is drained: its operators finish once, and the last savepoint and the output hold what they did."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate
from headgate.driver.points import KillPoints
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.recovery.fetch import SnapshotFiles
from headgate.step.operators import Keyed
from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import StreamFailed
from headgate_contract.ids import VertexUid
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.records import Restarted, Stopped
from headgate_contract.snapshot import SnapshotKind
from tests.runtime.driver.life_world import LifeWorld, Running
from tests.runtime.driver.waiting import PATIENCE_S, until

BACKENDS = ("hashmap", "rocksdb")
BY_HAND = {"execution.checkpointing.interval": "1 h"}
RESTARTING = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "0 s",
}
FAR = 1000
"""What the finishing adds to the count of an even key; it forgets the odd ones."""


def say_goodbye(keyed: Keyed) -> pa.Table:
    """A last row of each key with its count; then another state, and a note in the operator state."""
    keys, counts = keyed.keys.keys.column("key"), keyed.get("count").column("n")
    even = pc.equal(pc.bit_wise_and(keys, 1), 0)
    keyed.put("count", pa.table({"n": pc.if_else(even, pc.add(counts, FAR), pa.scalar(None, pa.int64()))}))
    keyed.operator_state("goodbyes").add(len(keys))
    return pa.table({"id": pc.subtract(-1, keys), "key": keys, "number": counts})


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    world = LifeWorld(tmp_path)
    world.finish = say_goodbye
    world.operator_state = {"goodbyes": "list"}
    world.settings |= BY_HAND
    return world


def drain(life: Running, name: str = "last", id: str = "drain") -> None:
    life.ask(id, RequestKind.STOP, savepoint=name, drain=True)


def check_records(world: LifeWorld, records: int) -> None:
    """Every record is there once."""
    assert sorted(row["id"] for row in world.output() if row["id"] >= 0) == list(range(records))


def goodbyes(world: LifeWorld) -> list[tuple[int, int]]:
    return sorted((row["key"], row["number"]) for row in world.output() if row["id"] < 0)


def counts(records: int) -> list[tuple[int, int]]:
    return sorted(Counter(id % 7 for id in range(records)).items())


def noted(world: LifeWorld) -> list[int]:
    """What the newest snapshot has of the goodbyes."""
    files = SnapshotFiles(world.store, world.catalogue.snapshots[0])
    state = files.metadata().vertices[VertexUid("number")].operator_states["goodbyes"]
    return [keys for part in state.parts for keys in part]


@pytest.mark.parametrize("backend", BACKENDS)
def test_f149_a_drain_publishes_what_the_operators_finish_and_its_savepoint_holds_their_state(
    world: LifeWorld, backend: str
) -> None:
    world.settings["state.backend.type"] = backend
    world.write(5)
    life = world.begin()
    life.read_all()
    drain(life)
    answer = life.answer("drain")
    assert life.wait() is None
    assert (answer.outcome, answer.result["name"]) == (Outcome.DONE, "last")
    assert goodbyes(world) == counts(100), "once, of every key"
    check_records(world, 100)
    assert sum(noted(world)) == 7
    assert len(noted(world)) == 2, "each subtask has finished once"
    (newest,) = world.catalogue.snapshots
    assert newest.kind is SnapshotKind.SAVEPOINT
    assert [record.reason for record in world.records if isinstance(record, Stopped)] == ["drain was asked for by ann"]

    world.write(1)
    again = world.begin(settings={"parallelism.default": 3})
    again.read_all()
    assert again.stop() is None
    check_records(world, 120)  # the sources had stayed where they were
    firsts = {
        key: min(row["number"] for row in world.output() if row["id"] >= 100 and row["key"] == key) for key in range(7)
    }
    assert firsts == {key: FAR + n + 1 if key % 2 == 0 else 1 for key, n in counts(100)}
    assert goodbyes(world) == counts(100)


def test_f149_who_only_stops_lets_no_operator_finish(world: LifeWorld) -> None:
    world.write(2)
    for how in ("checkpoint", "savepoint", "signal"):
        life = world.begin()
        life.read_all()
        if how == "signal":
            life.stop()
        else:
            life.ask(how, RequestKind.STOP, savepoint="plain" if how == "savepoint" else None, drain=False)
        assert life.wait() is None
    assert goodbyes(world) == []
    assert noted(world) == []


class Foreseeing(StandInEngine):
    """Knows the columns before there is a record, as Spark does."""

    def schema(self, task: VertexUid) -> pa.Schema:
        return pa.schema({"id": pa.int64(), "key": pa.int64()})


@pytest.mark.parametrize("engine", [Foreseeing, StandInEngine])
def test_a_stream_that_never_had_a_micro_batch_is_drained_too(world: LifeWorld, engine: type[StandInEngine]) -> None:
    """Each subtask finishes, also where not even the type of a key is known."""
    told: list[int] = []
    world.finish = lambda keyed: told.append(len(keyed.keys) + keyed.get("count").num_rows)
    world.engine_class = engine
    life = world.begin()
    drain(life)
    assert life.wait() is None
    assert life.answer("drain").outcome is Outcome.DONE
    assert told == [0, 0]
    assert world.output() == []


def test_a_life_that_is_idle_finishes_what_it_has_restored(world: LifeWorld) -> None:
    world.write(3)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    idle = world.begin(settings={"parallelism.default": 3})
    drain(idle)
    assert idle.wait() is None
    assert goodbyes(world) == counts(60)
    check_records(world, 60)


def test_the_operators_of_subtasks_without_state_finish_as_well_and_without_keys(world: LifeWorld) -> None:
    told: list[int] = []

    def tell(keyed: Keyed) -> None:
        told.append(len(keyed.keys))
        assert keyed.get("count").num_rows == len(keyed.keys)

    world.finish = tell
    world.write(1, rows=1)
    life = world.begin(settings={"parallelism.default": 4})
    life.read_all()
    drain(life)
    assert life.wait() is None
    assert sorted(told) == [0, 0, 0, 1]
    check_records(world, 1)


class Stateless(LifeWorld):
    """Hands its records on."""

    def plan(self) -> GraphPlan:
        job = headgate.Job("copies")
        source = headgate.sources.files(str(self.inputs), format="parquet", schema="id BIGINT, key BIGINT")
        job.source("records", source).sink("out", headgate.sinks.files(self.base / "out"))
        return graph_plan(job)


class Counted(LifeWorld):
    """Ready aggregates: they have nothing to finish."""

    def plan(self) -> GraphPlan:
        job = headgate.Job("counts")
        source = headgate.sources.files(str(self.inputs), format="parquet", schema="id BIGINT, key BIGINT")
        counted = job.source("records", source).key_by("key").aggregate("counts", n=headgate.count())
        counted.sink("out", headgate.sinks.files(self.base / "out"))
        return graph_plan(job)


@pytest.mark.parametrize("kind", [Stateless, Counted])
def test_a_job_in_which_nothing_has_to_finish_is_drained_like_any_other(tmp_path: Path, kind: type[LifeWorld]) -> None:
    world = kind(tmp_path)
    world.settings |= BY_HAND
    world.write(2)
    life = world.begin()
    life.read_all()
    drain(life)
    assert life.wait() is None
    rows = world.output()
    assert len(rows) == (7 if kind is Counted else 40)
    world.write(1)
    again = world.begin()
    again.read_all()
    assert again.stop() is None
    new = world.output()[len(rows) :] if kind is Stateless else world.output()
    assert max(row.get("n", 0) for row in world.output()) == (9 if kind is Counted else 0), new


# ---- what goes wrong


class FailingOnce:
    """Finishes as it should, the second time."""

    def __init__(self) -> None:
        self.failed = threading.Event()

    def __call__(self, keyed: Keyed) -> Any:
        said = say_goodbye(keyed)
        if not self.failed.is_set():
            self.failed.set()
            raise ValueError("not yet")
        return said


def test_a_finishing_that_fails_fails_the_stream_which_goes_on_from_its_last_snapshot(world: LifeWorld) -> None:
    world.settings |= RESTARTING
    world.finish = FailingOnce()
    world.write(3)
    life = world.begin()
    life.read_all()
    drain(life)
    answer = life.answer("drain")
    assert answer.outcome is Outcome.FAILED
    assert "the operators could not finish" in answer.why
    assert "finish of process 'number' failed with ValueError: not yet (test_draining.py, line" in answer.why
    world.write(1)
    life.read_all()
    until(lambda: any(isinstance(record, Restarted) for record in world.records), "it has restarted")
    life.ask("again", RequestKind.STOP, savepoint="last", drain=True)
    assert life.wait() is None
    assert goodbyes(world) == counts(80)
    check_records(world, 80)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_drain_whose_savepoint_fails_takes_the_finishing_back_by_a_restart(world: LifeWorld, backend: str) -> None:
    world.settings |= {**RESTARTING, "state.backend.type": backend}
    world.write(3)
    life = world.begin()
    life.read_all()
    life.ask("early", RequestKind.CHECKPOINT)
    assert life.answer("early").outcome is Outcome.DONE
    world.faults.refused, world.faults.times = ["create streams/numbers/savepoints"], 1
    drain(life)
    answer = life.answer("drain")
    assert answer.outcome is Outcome.FAILED
    assert "no space left on device" in answer.why
    world.write(1)
    life.read_all()
    (restarted,) = [record for record in world.records if isinstance(record, Restarted)]
    assert "no snapshot holds what the operators have finished" in restarted.cause
    assert goodbyes(world) == []
    assert life.stop() is None
    check_records(world, 80)
    world.check_output()
    assert noted(world) == []


def test_a_driver_that_ends_between_the_finishing_and_the_slot_leaves_nothing_of_it(world: LifeWorld) -> None:
    world.write(3)
    life = world.begin()
    life.read_all()
    life.ask("early", RequestKind.CHECKPOINT)
    assert life.answer("early").outcome is Outcome.DONE
    world.faults.refused = ["create streams/numbers/slots"]
    drain(life)
    assert life.wait() is not None
    world.faults.refused = []
    assert goodbyes(world) == []
    again = world.begin()
    again.read_all()
    assert noted(world) == []
    drain(again, "later", "again")
    assert again.wait() is None
    assert goodbyes(world) == counts(60)
    check_records(world, 60)
    assert not list((world.base / "out").glob("_headgate/*/*/staged/*"))


def test_a_life_that_finds_its_drain_done_ends_without_finishing_again(world: LifeWorld) -> None:
    world.settings |= RESTARTING
    world.write(3)
    life = world.begin()
    life.read_all()
    world.faults.act = lambda call: fail_the_commit(world, call)
    drain(life)
    assert life.wait() is None
    assert [record for record in world.records if isinstance(record, Restarted)], "it had to go on after the savepoint"
    assert goodbyes(world) == counts(60)
    assert len(noted(world)) == 2
    check_records(world, 60)


def fail_the_commit(world: LifeWorld, call: str) -> None:
    """The savepoint is complete; the next slot, which says that the stream has stopped, fails once."""
    if call.startswith("create streams/numbers/slots") and world.catalogue.snapshots:
        world.faults.act = lambda call: None
        world.faults.refused, world.faults.times = ["create streams/numbers/slots"], 5


def test_a_cancel_ends_a_finishing_that_takes_long(world: LifeWorld) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def linger(keyed: Keyed) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    world.finish = linger
    world.write(1)
    life = world.begin()
    life.read_all()
    drain(life)
    until(begun.is_set, "the operators finish")
    life.ask("cancel", RequestKind.CANCEL)
    assert life.answer("cancel").outcome is Outcome.DONE
    go_on.set()
    assert life.wait() is None
    assert life.answer("drain").outcome is Outcome.FAILED
    assert goodbyes(world) == []


def test_what_a_finish_returns_must_be_what_was_declared(world: LifeWorld) -> None:
    world.finish = lambda keyed: pa.table({"word": ["bye"]})
    world.write(1)
    life = world.begin()
    life.read_all()
    drain(life)
    error = life.wait()
    assert isinstance(error, StreamFailed)
    assert "finish of process 'number' returned the columns word; its output was declared as id, key, number" in str(
        error
    )


class DyingSource(StandInEngine):
    """Its source ends by itself when it is told to; a new life has a new one."""

    is_dead = threading.Event()

    def failure(self) -> str | None:
        return "the streaming query ended by itself" if self.is_dead.is_set() else super().failure()

    def halt(self) -> bool:
        self.is_dead.clear()
        return super().halt()


class DiesAtCommit(KillPoints):
    """The source ends while the output of a snapshot is being committed, once."""

    life: Running | None = None

    def reach(self, point: str, checkpoint: int | None = None) -> None:
        if point == "before-commit" and self.life is not None:
            alive, self.life = self.life.life._alive, None
            DyingSource.is_dead.set()
            until(lambda: alive is not None and alive._coordinator._doom, "the driver has noticed")
        super().reach(point, checkpoint)


def test_f149_a_source_that_ends_while_the_output_of_a_drain_is_committed_lets_nothing_more_in(
    world: LifeWorld,
) -> None:
    world.settings |= RESTARTING
    world.engine_class, points = DyingSource, DiesAtCommit()
    world.points = points
    world.write(3)
    life = world.begin()
    life.read_all()
    points.life = life
    drain(life)
    until(lambda: any(isinstance(record, Restarted) for record in world.records), "the restart")
    world.write(2)
    assert life.wait() is None
    check_ended_by_drain(world, life, records=60)


def test_f149_who_asked_for_a_drain_is_heard_before_anything_is_taken_in_on_top_of_it(world: LifeWorld) -> None:
    world.settings |= RESTARTING | {"heartbeat.interval": "1 s"}
    world.write(3)
    life = world.begin()
    life.read_all()
    tries = []

    def act(call: str) -> None:
        slot = world.base / "root/streams/numbers/slots/00000002.json"
        if call.startswith("create streams/numbers/slots") and slot.exists():
            tries.append(call)
            if len(tries) == 1:  # *stopped* cannot be written, so the life fails
                world.faults.refused, world.faults.times = ["create streams/numbers/slots"], 5
            elif len(tries) == 6:  # the restart can, but the mailbox does not answer
                world.faults.refused, world.faults.times = ["list streams/numbers/requests"], 4
                world.write(2)

    world.faults.act = act
    drain(life)
    assert life.wait() is None
    check_ended_by_drain(world, life, records=60)


def check_ended_by_drain(world: LifeWorld, life: Running, *, records: int) -> None:
    assert isinstance(world.records[-1], Stopped)
    answer = life.answer("drain")
    assert (answer.outcome, answer.result["name"]) == (Outcome.DONE, "last")
    assert len([row for row in world.output() if row["id"] >= 0]) == records, "what came later waits for another start"
    assert goodbyes(world) == counts(records)
