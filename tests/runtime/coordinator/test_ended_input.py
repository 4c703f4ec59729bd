"""A chain whose source has ended: the operators finish, a last checkpoint holds it, and the stream stops by itself."""

from __future__ import annotations

import pytest

from headgate.coordinator.coordinator import INPUT_ENDED
from headgate.coordinator.cut import Cut, is_at_end, without_end
from headgate.coordinator.messages import FinishOperators, Reply, WriteStopped
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinator_books import LINES
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId, VertexUid

EVERY_SECOND = CheckpointOptions(interval_ms=1000, timeout_ms=5000, tolerable_failures=5)


def stops(world: World) -> list[WriteStopped]:
    return [slot for slot in world.slots if isinstance(slot, WriteStopped)]


def test_the_stream_waits_for_a_last_checkpoint_so_that_its_last_output_is_committed() -> None:
    world = World(EVERY_SECOND)
    world.batch()
    assert world.end_source() == [FinishOperators(cut=world.cut)]
    assert not world.coordinator.may_begin
    world.finish(staged=2)
    assert world.pending == [1]
    assert not world.ended
    world.complete(1)
    assert world.groups() == {1: [0, 1, 2]}
    (stopped,) = stops(world)
    assert (stopped.reason, stopped.snapshot, stopped.committed) == (INPUT_ENDED, 1, (1,))


def test_the_last_checkpoint_says_that_the_source_has_ended_and_the_operators_have_finished() -> None:
    world = World(EVERY_SECOND)
    world.end_source()
    world.finish()
    taken = world.attempts[CheckpointId(1)].take.cut
    assert is_at_end(dict(taken.positions[LINES]))
    assert taken.finished


def test_a_life_restored_from_there_ends_without_finishing_again() -> None:
    world = World(EVERY_SECOND)
    world.coordinator.cut = world.cut = Cut(
        epoch=3, positions={LINES: {"batch": 3}}, finished=frozenset({VertexUid("counts")})
    )
    world.end_source()
    assert not world.finishing
    assert world.pending == [1]
    world.complete(1)
    assert world.ended


def test_what_comes_behind_a_finishing_makes_it_due_again() -> None:
    finished = Cut(epoch=3, positions={LINES: {"batch": 3}}, finished=frozenset({VertexUid("counts")}))
    world = World(EVERY_SECOND)
    world.coordinator.cut = world.cut = finished
    world.batch()
    world.end_source()
    assert world.finishing


def test_a_checkpoint_under_way_completes_before_the_end() -> None:
    world = World(EVERY_SECOND)
    world.batch()
    world.request("before", "before")
    world.end_source()
    assert not world.finishing
    world.complete(1)
    assert world.finishing
    world.finish()
    world.complete(2)
    assert [stop.snapshot for stop in stops(world)] == [2]


@pytest.mark.parametrize("how", ["declined", "expired"])
def test_a_last_checkpoint_that_fails_fails_the_stream_which_its_strategy_may_restart(how: str) -> None:
    world = World(EVERY_SECOND)
    world.end_source()
    world.finish()
    if how == "declined":
        world.decline(1)
    else:
        world.pass_time(EVERY_SECOND.timeout_ms)
    world.settle()
    (failure,) = world.failures
    assert failure.cause.startswith("no snapshot holds what the operators have finished")
    assert stops(world) == []


def test_a_stop_that_was_asked_for_before_goes_on_and_if_it_fails_the_end_comes_all_the_same() -> None:
    world = World(EVERY_SECOND)
    world.batch()
    world.request("stop", "last", stop=True)
    world.end_source()
    assert not world.finishing
    world.decline(1)
    world.settle()
    reply = world.replies[RequestId("stop")]
    assert isinstance(reply, Reply)
    assert not reply.done
    assert world.finishing
    world.finish()
    world.complete(2)
    assert [stop.reason for stop in stops(world)] == [INPUT_ENDED]


def test_who_asks_for_a_stop_meanwhile_is_answered_by_the_end() -> None:
    world = World(EVERY_SECOND)
    world.end_source()
    world.request("stop", stop=True)
    world.finish()
    world.complete(1)
    assert world.replies[RequestId("stop")].done  # type: ignore[union-attr]


def test_an_end_can_be_taken_back() -> None:
    position = {"batch": 3, "count": 7}
    ended = Cut(epoch=1, positions={LINES: position}).at_end_of(LINES).positions[LINES]
    assert is_at_end(ended)
    assert without_end(ended) == position
