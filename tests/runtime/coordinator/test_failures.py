"""What a failed checkpoint means for the stream, and what a failed stream means for those who wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.coordinator.messages import BatchFailed, Declined, FailStream, NotifyAborted, Reply, Tick
from headgate.coordinator.policy import CheckpointOptions, FailureManager
from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.testing.coordinator_books import SOURCE, savepoint_ref
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId

STRICT = CheckpointOptions(interval_ms=1000, timeout_ms=5000)
STRICT_MESSAGE = (
    "checkpoint 1 failed ({}), and no more than 0 may fail in a row "
    "(execution.checkpointing.tolerable-failed-checkpoints)"
)


def failure(checkpoint: int, reason: Reason = Reason.CHECKPOINT_DECLINED) -> NotifyAborted:
    return NotifyAborted(checkpoint=CheckpointId(checkpoint), reason=reason, cause="?", latest_completed=None)


def test_f6_an_expired_checkpoint_counts_and_with_none_tolerated_fails_the_stream() -> None:
    world = World(STRICT)
    world.pass_time(1000)
    world.ack(1, SOURCE)
    world.pass_time(5000)
    world.settle()
    cause = "it expired after 5000 ms, still waiting for sink out, state counts"
    assert world.failures == [FailStream(cause=STRICT_MESSAGE.format(cause))]


def test_f19_f163_a_checkpoint_that_cannot_be_stored_counts_once_and_can_fail_the_stream() -> None:
    world = World(STRICT)
    world.pass_time(1000)
    world.ack(1)
    world.settle(fail=True)
    cause = "it could not be stored: no space left"
    assert world.failures == [FailStream(cause=STRICT_MESSAGE.format(cause))]
    assert (len(world.completed), world.coordinator.failed) == (0, 1)
    assert world.aborted() == {1: cause}
    assert world.reasons() == {1: Reason.FINALIZE_CHECKPOINT_FAILURE}


def test_f40_failures_in_a_row_beyond_the_tolerated_number_fail_the_stream_once() -> None:
    world = World(CheckpointOptions(interval_ms=1000, tolerable_failures=2))
    for number in (1, 2):
        world.pass_time(1000)
        world.decline(number)
        assert not world.ended
    world.pass_time(1000)
    world.decline(3)
    world.settle()
    assert len(world.failures) == 1


def test_f40_a_success_in_between_begins_the_count_anew() -> None:
    world = World(CheckpointOptions(interval_ms=1000, tolerable_failures=1), flowing=True)
    for number in range(1, 10, 2):
        world.pass_time(1000)
        world.decline(number)
        assert not world.ended
        world.pass_time(1000)
        world.complete(number + 1)


def test_one_that_failed_while_a_newer_one_was_being_stored_counts_once() -> None:
    manager = FailureManager(tolerable=2)
    assert manager.failed(failure(1), storing=CheckpointId(2)) is None
    assert manager.in_a_row == 0, "not before it is known how that turns out"
    assert manager.not_stored() is None
    assert manager.in_a_row == 1
    assert manager.not_stored() is None
    assert manager.in_a_row == 1, "it was counted"


def test_f43_exactly_the_reasons_that_count_can_fail_the_stream() -> None:
    counted = {reason.name for reason in Reason if FailureManager(tolerable=0).failed(failure(1, reason))}
    assert counted == {
        "IO_EXCEPTION",
        "CHECKPOINT_DECLINED",
        "FINALIZE_CHECKPOINT_FAILURE",
        "CHECKPOINT_EXPIRED",
        "CHECKPOINT_ASYNC_EXCEPTION",
    }
    manager = FailureManager(tolerable=1)
    reasons = (Reason.IO_EXCEPTION, Reason.CHECKPOINT_SUBSUMED, Reason.CHECKPOINT_EXPIRED)
    found = [manager.failed(failure(number, reason)) is not None for number, reason in enumerate(reasons, start=1)]
    assert found == [False, False, True], "the second one does not count"


def test_f42_a_failure_that_is_older_than_the_newest_success_does_not_count() -> None:
    manager = FailureManager(tolerable=2)
    assert [manager.failed(failure(number)) for number in (1, 2)] == [None, None]
    manager.succeeded(CheckpointId(4))
    assert manager.failed(failure(3)) is None
    assert [manager.failed(failure(number)) is None for number in (5, 6, 7)] == [True, True, False]


def declines(world: World) -> None:
    world.decline(1)


def expires(world: World) -> None:
    world.pass_time(4000)


@pytest.mark.parametrize("fails", [declines, expires])
def test_f42_an_older_checkpoint_that_fails_while_a_newer_one_is_being_stored_does_not_count(
    fails: Callable[[World], None],
) -> None:
    world = World(CheckpointOptions(interval_ms=1000, timeout_ms=5000, max_concurrent=2))
    world.pass_time(1000)
    world.pass_time(1000)
    world.ack(2)
    fails(world)
    world.settle()
    assert not world.ended
    assert [slot.checkpoint for slot in world.completed] == [2]
    assert 1 in world.aborted()
    assert world.coordinator.may_begin


def test_f42_it_counts_if_the_newer_one_cannot_be_stored() -> None:
    world = World(CheckpointOptions(interval_ms=1000, max_concurrent=2, tolerable_failures=1))
    world.pass_time(1000)
    world.pass_time(1000)
    world.ack(2)
    world.decline(1)
    assert not world.ended
    world.settle(fail=True)
    [failed] = world.failures
    assert failed.cause.startswith("checkpoint 2 failed (it could not be stored: no space left), and no more than 1 ")
    # what a person asked for counts for nothing, and the older periodic one does
    world = World(STRICT)
    world.pass_time(1000)
    world.request("now", "mine")
    world.ack(2)
    world.decline(1)
    assert not world.ended
    world.settle(fail=True)
    assert world.failures == [FailStream(cause=STRICT_MESSAGE.format("state counts declined: the disk is full"))]


def test_f42_a_newer_checkpoint_that_fails_meanwhile_counts_at_once() -> None:
    world = World(CheckpointOptions(interval_ms=1000, max_concurrent=3))
    for _ in range(2):
        world.pass_time(1000)
    world.ack(1)
    world.decline(2)
    world.settle()
    assert world.ended


def test_two_that_expire_in_one_tick_fail_the_stream_once_and_are_answered_once() -> None:
    world = World(CheckpointOptions(interval_ms=1000, timeout_ms=5000, max_concurrent=2))
    world.pass_time(1000)
    world.request("now")
    world.pass_time(100_000)
    world.settle()
    assert len(world.failures) == 1
    assert set(world.replies) == {"now"}


def test_f43_a_checkpoint_that_was_subsumed_is_no_failure() -> None:
    world = World(CheckpointOptions(interval_ms=100, max_concurrent=2))
    world.pass_time(100)
    world.pass_time(100)
    world.complete(2)
    assert world.aborted() == {1: "subsumed by 2"}
    assert world.reasons() == {1: Reason.CHECKPOINT_SUBSUMED}
    assert not world.ended
    assert world.coordinator.failed == 0


@pytest.mark.parametrize("reason", [reason for reason in Reason if not reason.counts], ids=lambda reason: reason.name)
def test_f43_a_checkpoint_that_is_declined_for_what_does_not_count_fails_nobody(reason: Reason) -> None:
    world = World(STRICT)
    world.pass_time(1000)
    world.tell(Declined(checkpoint=CheckpointId(1), participant=SOURCE, cause="?", reason=reason))
    world.settle()
    assert world.reasons() == {1: reason}
    assert not world.ended


@pytest.mark.parametrize("name", [None, "upgrade"], ids=["a checkpoint by hand", "a savepoint"])
def test_what_a_person_asked_for_fails_for_them_and_not_for_the_stream(name: str | None) -> None:
    world = World(STRICT)
    world.request("wanted", name)
    world.decline(1, cause="the disk is full")
    world.settle()
    answer = world.replies[RequestId("wanted")]
    assert isinstance(answer, Reply)
    assert (answer.done, answer.why) == (False, "state counts declined: the disk is full")
    assert not world.ended
    world.pass_time(1000)
    assert world.pending == [2]


def test_f52_a_checkpoint_that_cannot_be_stored_retires_nothing() -> None:
    world = World(CheckpointOptions(interval_ms=1000, retained=1, tolerable_failures=9), flowing=True)
    world.pass_time(1000)
    world.complete(1)
    world.pass_time(1000)
    world.ack(2)
    world.settle(fail=True)
    assert world.kept_checkpoints == [1]
    world.pass_time(1000)
    world.complete(3)
    assert world.completed[-1].retires == (1,)


def test_a_failed_step_fails_the_stream_and_answers_everybody() -> None:
    world = World(STRICT, retained=[savepoint_ref(1, "old")])
    world.request("pending", "new")
    world.begin()
    world.request("queued")
    world.busy = False
    world.tell(BatchFailed(cause="micro-batch 7 failed: division by zero"))
    world.settle()
    assert world.failures == [FailStream(cause="micro-batch 7 failed: division by zero")]
    assert {id: answer.why for id, answer in world.replies.items() if isinstance(answer, Reply)} == dict.fromkeys(
        ("pending", "queued"), "micro-batch 7 failed: division by zero"
    )
    assert world.reasons() == {2: Reason.JOB_FAILURE}, "what it has uploaded is not left behind"


def test_a_stream_that_fails_while_a_snapshot_is_being_stored_waits_for_how_that_ends() -> None:
    """Else its asker would be told that it failed, and it would be in the log."""
    world = World(STRICT)
    world.request("wanted", "upgrade")
    world.ack(1)
    world.begin()
    world.busy = False
    assert world.tell(BatchFailed(cause="broken")) == []
    assert not world.coordinator.may_begin
    assert world.tell(Tick()) == []
    world.request("too-late")
    world.settle()
    assert [slot.name for slot in world.completed] == ["upgrade"]
    assert world.failures == [FailStream(cause="broken")]
    answers = {id: answer.done for id, answer in world.replies.items() if isinstance(answer, Reply)}
    assert answers == {"wanted": True, "too-late": False}
