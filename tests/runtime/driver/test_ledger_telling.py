"""What the ledger tells: answers to those who asked, and history for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.coordinator.cut import Cut
from headgate.coordinator.messages import (
    TakeSnapshot,
    Tick,
)
from headgate_contract.history import read_history
from headgate_contract.ids import CheckpointId, RequestId, SavepointName
from headgate_contract.mailbox import Answer, Mailbox, Outcome
from headgate_contract.measures import CheckpointCost
from headgate_contract.snapshot import SnapshotKind
from tests.runtime.driver.ledger_world import (
    STREAM,
    LedgerWorld,
    aborted,
    complete,
    reply,
)


@pytest.fixture
def world() -> Iterator[LedgerWorld]:
    world = LedgerWorld()
    yield world
    world.ledger.close()


# ---- answers and history


def test_answers_say_what_was_done_or_why_not(world: LedgerWorld) -> None:
    world.do(reply("good"), reply("bad", "the disk is full"))
    good, bad = world.answer("good"), world.answer("bad")
    assert good is not None
    assert bad is not None
    assert (good.outcome, good.result, good.generation) == (Outcome.DONE, {"snapshot": 1}, 1)
    assert (bad.outcome, bad.why) == (Outcome.FAILED, "the disk is full")


def test_the_first_answer_stands(world: LedgerWorld) -> None:
    first = Answer(id=RequestId("asked"), outcome=Outcome.DONE, generation=1, at_ms=0)
    Mailbox(world.plain, STREAM).reply(first)
    world.do(reply("asked", "too late"))
    assert world.answer("asked") == first
    assert world.ends == []


def test_an_answer_that_storage_refuses_is_tried_again(world: LedgerWorld) -> None:
    world.faults.refused, world.faults.times = [f"create streams/{STREAM}/answers"], 3
    world.do(reply("asked"))
    assert world.answer("asked") is not None


def test_an_answer_that_cannot_be_written_does_not_fail_the_stream(world: LedgerWorld) -> None:
    world.faults.refused = [f"create streams/{STREAM}/answers"]
    world.do(reply("asked"))
    assert world.ends == []


def test_history_tells_of_completions_and_of_attempts_given_up(world: LedgerWorld) -> None:
    world.do(complete(world, 1), aborted(2, CheckpointId(1)))
    assert set(world.history()) == {
        ("checkpoint", "checkpoint 1 is complete and committed"),
        ("checkpoint", "checkpoint 2 was given up: it expired (CHECKPOINT_EXPIRED); the newest complete snapshot is 1"),
    }


def test_what_an_attempt_cost_is_told_with_its_end_whatever_that_was(world: LedgerWorld) -> None:
    take = TakeSnapshot(
        checkpoint=CheckpointId(1),
        kind=SnapshotKind.CHECKPOINT,
        name=None,
        cut=Cut(epoch=1),
        staged={},
        parts=frozenset(),
    )
    savepoint = replace(take, checkpoint=CheckpointId(2), kind=SnapshotKind.SAVEPOINT, name=SavepointName("weekly"))
    world.ledger.meter.saw(Tick(), [take, savepoint], 0.0)
    world.do(complete(world, 1), aborted(2), aborted(3))
    told = {event.text: event.measures for event in read_history(world.plain, STREAM)}
    assert [type(cost) for cost in told.values()] == [CheckpointCost] * 3
    assert "savepoint 2 was given up: it expired (CHECKPOINT_EXPIRED); none is complete yet" in told, (
        "also that it was a savepoint"
    )
    assert [cost.checkpoint for cost in told.values() if isinstance(cost, CheckpointCost)] == [1, 2, 3]


def test_f22_history_names_the_latest_completed_snapshot_when_a_checkpoint_is_given_up(world: LedgerWorld) -> None:
    world.do(aborted(7, CheckpointId(5)), aborted(8))
    assert [text.rpartition("; ")[2] for _, text in world.history()] == [
        "the newest complete snapshot is 5",
        "none is complete yet",
    ]


def test_a_history_that_cannot_be_written_stops_nobody(world: LedgerWorld) -> None:
    notice = complete(world, 1)
    world.faults.refused = [f"create streams/{STREAM}/history"]
    world.do(notice)
    assert world.ends == []
