"""Operator state over whole lives, without Spark: rescaled, killed in a batch, refused; the contents are the truth."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate.step.operators import Keyed
from headgate_contract.errors import RestoreRefused, StreamFailed
from headgate_contract.ids import VertexUid
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.operator_state import OperatorState
from headgate_contract.records import Restarted
from jobs.running_number import number
from tests.crash.keeping_job import OPERATOR_STATE, keep, wrong
from tests.runtime.driver.life_world import LifeWorld, Running
from tests.runtime.driver.waiting import PATIENCE_S, until


class KeepingWorld(LifeWorld):
    """A stream of the keeping job."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, keep)
        self.operator_state = dict(OPERATOR_STATE)

    def states(self) -> Mapping[str, OperatorState]:
        """What the newest snapshot holds."""
        files = SnapshotFiles(self.store, self.catalogue.snapshots[0])
        return files.metadata().vertices[VertexUid("number")].operator_states

    def check(self, parallelism: int) -> None:
        """The newest snapshot holds exactly what the records make of it, in as many parts as there were subtasks."""
        self.check_output()
        states = self.states()
        ids = range(self.written)
        assert wrong(dict(states), ids, [id % 7 for id in ids]) == []
        assert {name: len(state.parts) for name, state in states.items()} == {
            "hundreds": parallelism,
            "records": parallelism,
            "counts": 1,
        }


@pytest.fixture
def world(tmp_path: Path) -> KeepingWorld:
    return KeepingWorld(tmp_path)


def test_f156_operator_state_goes_over_two_three_and_one_subtasks_as_it_should(world: KeepingWorld) -> None:
    for parallelism in (2, 3, 1, 4):
        world.write(6)
        life = world.begin(settings={"parallelism.default": parallelism})
        life.read_all()
        assert life.stop() is None
        world.check(parallelism)


def test_f156_it_is_restored_from_a_savepoint_too_and_what_came_behind_it_is_gone(world: KeepingWorld) -> None:
    world.write(6)
    life = world.begin()
    life.read_all()
    life.ask("early", RequestKind.SAVEPOINT, name="early")
    assert life.answer("early").outcome is Outcome.DONE
    world.write(6)
    life.read_all()
    assert life.stop() is None
    world.check(2)
    back = world.begin("early", {"parallelism.default": 3})
    back.read_all()
    assert back.stop() is None
    world.check(3)


def test_a_snapshot_of_an_idle_life_holds_what_was_restored_and_nothing_twice(world: KeepingWorld) -> None:
    world.write(6)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    for parallelism in (3, 2, 5):
        before = len(world.catalogue.completed)
        idle = world.begin(settings={"parallelism.default": parallelism})
        idle.until_completed(before + 1)
        assert idle.stop() is None
        world.check(parallelism)


class FailingTwice:
    """Keeps what the job keeps, and then fails, twice."""

    def __init__(self) -> None:
        self.left = 2

    def __call__(self, rows: pa.Table, keyed: Keyed) -> pa.Table:
        kept = keep(rows, keyed)
        if self.left and 147 in rows.column("id").to_pylist():
            self.left -= 1
            raise ValueError("147 is not good")
        return kept


def test_a_batch_that_fails_leaves_no_operator_state_and_the_next_life_goes_on_from_the_snapshot(
    world: KeepingWorld,
) -> None:
    world.step = FailingTwice()
    world.write(12)
    for parallelism in (2, 3):
        error = world.begin(settings={"parallelism.default": parallelism}).wait()
        assert isinstance(error, StreamFailed)
        assert "147 is not good" in str(error)
    last = world.begin(settings={"parallelism.default": 1})
    last.read_all()
    assert last.stop() is None
    world.check(1)


def test_a_restart_in_the_driver_brings_it_back_too(world: KeepingWorld) -> None:
    world.step = FailingTwice()
    world.settings |= {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "0 s"}
    world.settings["restart-strategy.fixed-delay.attempts"] = "2"
    world.write(12)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    assert [record.restart for record in world.records if isinstance(record, Restarted)] == [1, 2]
    world.check(2)


def test_subtasks_that_disagree_about_a_broadcast_entry_fail_the_batch_by_name(world: KeepingWorld) -> None:
    def quarrel(rows: pa.Table, keyed: Keyed) -> pa.Table:
        keyed.operator_state("counts").put("who", rows.column("key")[0].as_py())
        return number(rows, keyed)

    world.step = quarrel
    world.write(1)
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert "would change the entry 'who' of the broadcast state 'counts', each to something else" in str(error)
    assert world.output() == []


# ---- mutations behind a barrier


def test_f104_what_is_written_while_a_snapshot_is_taken_is_not_in_it(world: KeepingWorld) -> None:
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(4)
    life = world.begin()
    life.read_all()
    reached, go_on = threading.Event(), threading.Event()

    def hold(call: str) -> None:
        if call.startswith("upload"):
            reached.set()
            go_on.wait(PATIENCE_S)

    world.faults.act = hold
    life.ask("held", RequestKind.SAVEPOINT, name="held")
    until(reached.is_set, "the snapshot is under way")
    world.write(4)
    life.read_all()
    go_on.set()
    assert life.answer("held").outcome is Outcome.DONE
    states = world.states()
    ids = range(80)
    assert wrong(dict(states), ids, [id % 7 for id in ids]) == []
    assert life.stop() is None
    world.check(2)


# ---- what does not fit


def refused(life: Running) -> str:
    error = life.wait()
    assert isinstance(error, RestoreRefused)
    return str(error)


def test_f155_state_that_cannot_be_split_refuses_the_rescale_by_name(world: KeepingWorld) -> None:
    def sum_up(rows: pa.Table, keyed: Keyed) -> pa.Table:
        total = keyed.operator_state("total")
        total.update((total.value() or 0) + rows.num_rows)
        return number(rows, keyed)

    world.step, world.operator_state = sum_up, {"total": "single"}
    world.write(4)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    for parallelism in (1, 3):
        told = refused(world.begin(settings={"parallelism.default": parallelism}))
        assert "its step number has the operator state 'total' of 2 subtasks" in told
        assert f"which cannot be split over {parallelism}: it is of kind single" in told
        assert "set parallelism.default back to 2" in told
    world.write(2)
    again = world.begin()
    again.read_all()
    assert again.stop() is None
    world.check_output()
    assert sum(world.states()["total"].parts) == world.written


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"hundreds": "list", "records": "union"}, "has the operator state 'counts', which the job no longer declares"),
        ({**OPERATOR_STATE, "hundreds": "union"}, "state 'hundreds' as list, the job declares it as union"),
    ],
)
def test_operator_state_that_is_declared_otherwise_is_refused_before_anything_is_read(
    world: KeepingWorld, declared: dict[str, Any], why: str
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.operator_state = declared
    assert why in refused(world.begin())
    world.operator_state = {**OPERATOR_STATE, "new": "list"}
    again = world.begin()
    again.read_all()
    assert again.stop() is None
    assert world.states()["new"].parts == ([], [])
