"""A drain: the operators finish, once, behind everything else and before the last barrier."""

from __future__ import annotations

import pytest

from headgate.coordinator.messages import (
    BatchFailed,
    FailStream,
    FinishOperators,
    Reply,
    WriteStopped,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId

EVERY_SECOND = CheckpointOptions(interval_ms=1000, timeout_ms=5000, tolerable_failures=5)


def answer(world: World, id: str) -> Reply | WriteStopped:
    return world.replies[RequestId(id)]


def refusals(world: World) -> dict[str, str]:
    return {id: reply.why for id, reply in world.replies.items() if isinstance(reply, Reply) and not reply.done}


def test_f149_a_drain_lets_the_operators_finish_before_its_barrier_and_the_savepoint_holds_it() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    assert world.request("drain", "last", drain=True) == []
    world.finish()
    assert list(world.ledger) == [FinishOperators(cut=world.cut)]
    assert world.pending == []
    assert not world.coordinator.may_begin
    world.finish(staged=2)
    assert world.pending == [1]
    taken = world.attempts[CheckpointId(1)].take
    assert taken.cut.epoch == 2, "behind the step without records"
    world.complete(1)
    assert world.groups() == {1: [0, 1, 2]}
    assert isinstance(answer(world, "drain"), WriteStopped)


def test_f149_the_operators_finish_when_all_before_is_complete_and_committed() -> None:
    world = World(EVERY_SECOND)
    world.batch()
    world.request("before", "before")
    assert world.request("drain", "last", drain=True) == []
    world.ack(1)
    world.carry_out()
    world.deliver()
    assert not world.finishing
    world.settle()
    assert world.finishing
    world.finish()
    world.complete(2)
    assert world.groups() == {1: [0], 2: [1]}
    assert world.ended


def test_without_a_drain_no_operator_finishes() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", "last", stop=True)
    world.complete(1)
    assert not world.finishing


def how_it_fails(world: World, how: str) -> None:
    if how == "a part is declined":
        world.decline(1, cause="the disk is full")
    elif how == "it expires":
        world.pass_time(EVERY_SECOND.timeout_ms)
    else:
        world.ack(1)
    world.settle(fail=True)


@pytest.mark.parametrize("how", ["a part is declined", "it expires", "it cannot be stored"])
def test_a_drain_that_fails_behind_the_finishing_fails_the_stream_and_tells_everybody(how: str) -> None:
    """The state is that of a finished job: only the restart brings back that of the last completed snapshot."""
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.request("me-too", stop=True)
    world.finish()
    how_it_fails(world, how)
    (failure,) = world.failures
    why = world.aborted()[1]
    assert failure.cause == f"no snapshot holds what the operators have finished: {why}"
    assert refusals(world) == dict.fromkeys(("drain", "me-too"), why)
    assert world.groups() == {}


def test_a_drain_whose_finishing_fails_fails_the_stream_with_the_cause() -> None:
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.fail_batch("process 'numbers' failed")
    world.settle()
    assert world.failures == [FailStream(cause="process 'numbers' failed")]
    assert refusals(world) == {"drain": "process 'numbers' failed"}


def test_a_drain_whose_finishing_takes_too_long_expires_and_fails_the_stream() -> None:
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.pass_time(EVERY_SECOND.timeout_ms - 1)
    assert not world.ended
    world.pass_time(1)
    world.settle()
    why = "it expired after 5000 ms: the operators had not finished"
    assert refusals(world) == {"drain": why}
    assert world.failures == [FailStream(cause=f"no snapshot holds what the operators have finished: {why}")]


def test_the_finishing_has_the_whole_time_however_long_the_batch_before_it_took() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    world.request("drain", "last", drain=True)
    world.pass_time(EVERY_SECOND.timeout_ms - 1)
    world.finish()
    world.pass_time(EVERY_SECOND.timeout_ms - 1)
    assert world.finishing
    assert not world.ended
    world.finish()
    world.complete(1)
    assert isinstance(answer(world, "drain"), WriteStopped)


@pytest.mark.parametrize("when", ["while it is stored", "while its output is committed"])
def test_a_failure_behind_the_savepoint_of_a_drain_leaves_who_asked_to_the_next_life(when: str) -> None:
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.finish(staged=1)
    world.request("stop", stop=True)
    world.ack(1)
    if when == "while its output is committed":
        while not world.inbox:
            world.carry_out()
        world.deliver()
    world.tell(BatchFailed(cause="the source is gone"))
    world.settle()
    assert world.ended
    assert world.failures == [FailStream(cause="the source is gone")]
    assert world.replies == {}, "an answer would end the wish to stop, and the stream would go on"


def test_a_drain_that_fails_before_the_finishing_lets_the_stream_go_on() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    world.request("drain", "last", drain=True)
    world.pass_time(EVERY_SECOND.timeout_ms)
    world.settle()
    assert set(refusals(world)) == {"drain"}
    world.finish()
    assert world.coordinator.may_begin
    assert not world.finishing


def test_a_stop_joins_a_drain_and_a_drain_no_stop() -> None:
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.request("stop", stop=True)
    world.finish()
    world.complete(1)
    done = answer(world, "stop")
    assert isinstance(done, Reply)
    assert done.done
    other = World(EVERY_SECOND)
    other.begin()
    other.request("stop", stop=True)
    other.request("drain", "last", drain=True)
    other.request("bare", drain=True)
    other.settle()
    why = "the stream is stopping: stop"
    assert refusals(other) == {"drain": why, "bare": why}
    other.finish()
    other.complete(1)
    assert not other.finishing


def test_a_cancel_ends_a_drain_at_once() -> None:
    world = World(EVERY_SECOND)
    world.request("drain", "last", drain=True)
    world.cancel("cancel")
    world.settle()
    assert world.ended
    assert refusals(world) == {"drain": "the stream was cancelled"}
