"""A periodic checkpoint that would repeat the newest one is not taken: that one is said to be current."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.coordinator.cut import BatchResult, Cut, Group
from headgate.coordinator.messages import BatchBegun, BatchDone, NotifyComplete, NotifyCurrent, Reply, StoreSnapshot
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinator_books import COUNTS, LINES, OUT, checkpoint_ref, savepoint_ref
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId
from headgate_contract.operator_state import OperatorState, OperatorStateKind

EVERY_SECOND = CheckpointOptions(interval_ms=1000)


def idle(checkpoints: int = 1, options: CheckpointOptions = EVERY_SECOND) -> World:
    """A stream that has had a micro-batch before each checkpoint; behind the last nothing has come."""
    world = World(options)
    for number in range(1, checkpoints + 1):
        world.batch(staged=0)
        world.pass_time(1000)
        world.complete(number)
    return world


def test_an_idle_stream_has_one_checkpoint_which_stays_current() -> None:
    world = idle()
    slots, told = len(world.slots), []
    for _ in range(60):
        world.look()
        told += world.pass_time(1000)
        world.settle()
    assert told == [NotifyCurrent(checkpoint=CheckpointId(1), as_of_ms=2000 + 1000 * each) for each in range(60)]
    assert len(world.slots) == slots
    assert world.pending == []
    assert world.coordinator.next_id == 2, "no number is used up"
    world.batch()
    world.pass_time(1000)
    assert world.pending == [2], "with the first record there is one again"


def test_one_that_is_taken_says_since_when_it_is_current() -> None:
    world = World(EVERY_SECOND)
    world.batch(staged=0)
    world.pass_time(400)
    world.look()
    world.pass_time(600)
    world.look()
    world.pass_time(300)
    world.complete(1)
    [told] = (notice for notice in world.notices if isinstance(notice, NotifyComplete))
    assert told.as_of_ms == 1400, "the last look before its barrier: what came between the two nobody knows"


def test_of_no_moment_anything_is_said_before_the_source_has_looked_in_this_life() -> None:
    """What an earlier life had handed over, and lost, is not in the checkpoint that this one has restored."""
    world = World(EVERY_SECOND, retained=[checkpoint_ref(3)], begins_as=3)
    assert world.pass_time(1000) == [NotifyCurrent(checkpoint=CheckpointId(3), as_of_ms=None)]
    world.batch()
    world.pass_time(1000)
    world.complete(4)
    [told] = (notice for notice in world.notices if isinstance(notice, NotifyComplete))
    assert told.as_of_ms is None


def test_while_a_source_does_not_look_the_moment_stands_still() -> None:
    world = idle()
    world.look()
    looked_ms = world.now_ms
    for _ in range(5):
        [told] = world.pass_time(1000)
        assert told == NotifyCurrent(checkpoint=CheckpointId(1), as_of_ms=looked_ms)


def test_a_stream_that_has_had_nothing_at_all_has_its_first_checkpoint() -> None:
    """What a launch has restored may be somebody else's: from the first checkpoint on nothing needs it any more."""
    for retained in ([], [checkpoint_ref(3)], [savepoint_ref(3, "mine")]):
        world = World(EVERY_SECOND, retained=retained)
        world.pass_time(1000)
        assert world.pending == ([4] if retained else [1])


def test_a_restart_of_the_driver_from_its_newest_checkpoint_repeats_it_neither() -> None:
    world = World(EVERY_SECOND, retained=[checkpoint_ref(3)], begins_as=3)
    world.look()
    assert world.pass_time(1000) == [NotifyCurrent(checkpoint=CheckpointId(3), as_of_ms=1000)]
    world.batch()
    world.pass_time(1000)
    assert world.pending == [4]


@pytest.mark.parametrize("name", [None, "upgrade"], ids=["a checkpoint", "a savepoint"])
def test_what_a_person_asks_for_is_always_taken(name: str | None) -> None:
    world = idle()
    world.request("please", name)
    world.complete(2)
    answer = world.replies[RequestId("please")]
    assert isinstance(answer, Reply)
    assert answer.done
    world.pass_time(1000)
    assert world.current == [1 if name else 2], "a savepoint belongs to who asked for it: no checkpoint rests on it"


def test_a_stop_has_a_snapshot_of_its_own() -> None:
    world = idle()
    world.request("stop", stop=True)
    world.complete(2)
    assert world.ended
    assert len(world.completed) == 2


def test_output_that_is_committed_is_noted_by_one_more_slot_and_then_it_is_quiet() -> None:
    world = World(EVERY_SECOND)
    world.batch(staged=2)
    world.pass_time(1000)
    world.complete(1)
    assert world.noted == []
    world.pass_time(1000)
    world.complete(2)
    assert world.noted == [1]
    for _ in range(3):
        world.pass_time(1000)
        world.settle()
    assert world.current == [2, 2, 2]
    assert len(world.completed) == 2


def test_one_that_only_notes_takes_the_place_of_the_one_that_it_repeats() -> None:
    """So those that are retained stay different: a damaged file does not take two that are the same."""
    world = World(CheckpointOptions(interval_ms=1000, retained=3))
    for number in range(1, 8, 2):
        world.batch(staged=1)
        world.pass_time(1000)
        world.complete(number)
        world.pass_time(1000)
        world.complete(number + 1)
    assert world.kept_checkpoints == [4, 6, 8]
    assert world.noted == [1, 2, 3, 4, 5, 6, 7]
    assert len({slot.cut.epoch for slot in world.completed if slot.checkpoint in world.kept_checkpoints}) == 3


def test_one_that_a_person_has_asked_for_is_never_replaced() -> None:
    """They were told that it is there, and have its number; it goes when `num-retained` says so."""
    world = World(CheckpointOptions(interval_ms=1000, retained=3))
    world.batch(staged=1)
    world.request("please")
    world.complete(1)
    assert world.replies[RequestId("please")].done
    world.pass_time(1000)
    world.complete(2)
    assert world.noted == [1]
    assert world.kept_checkpoints == [1, 2]
    world.batch(staged=1)
    world.pass_time(1000)
    world.complete(3)
    world.pass_time(1000)
    world.complete(4)
    assert world.kept_checkpoints == [1, 2, 4], "one that nobody has asked for is"


def test_nor_one_that_an_earlier_life_has_taken() -> None:
    """Whether somebody has asked for that is not known any more."""
    carried = Group(id=CheckpointId(3), sinks={OUT: ({"staged": 0},)})
    options = CheckpointOptions(interval_ms=1000, retained=3)
    world = World(options, retained=[checkpoint_ref(3)], carried=(carried,), begins_as=3)
    world.pass_time(1000)
    world.complete(4)
    assert world.kept_checkpoints == [3, 4]


def test_output_alone_is_worth_a_checkpoint() -> None:
    """No step that is known makes output and moves nothing; but what is staged must not be left out by this."""
    world = idle()
    world.staged.append(0)
    world.tell(BatchBegun())
    world.tell(BatchDone(result=replace(_result(world.cut, world.cut), staged={OUT: ({"staged": 0},)})))
    world.pass_time(1000)
    assert world.current == []
    assert world.pending == [2]


def test_one_that_is_to_be_restored_next_is_spared_by_that_too() -> None:
    world = World(CheckpointOptions(interval_ms=1000, timeout_ms=5000, retained=3))
    world.batch(staged=1)
    world.pass_time(1000)
    world.complete(1)
    world.begin()
    world.request("stop", stop=True, keep=1)
    world.pass_time(5000)  # the stop expires behind the running step, and the stream goes on
    world.busy = False
    world.tell(BatchDone(result=_result(world.cut, world.cut)))
    world.settle()
    assert "stop" in world.replies
    world.pass_time(1000)
    world.complete(world.pending[0])
    assert world.kept_checkpoints == [1, 3]


def test_what_the_restored_checkpoint_carries_is_noted_too() -> None:
    carried = Group(id=CheckpointId(3), sinks={OUT: ({"staged": 0},)})
    world = World(EVERY_SECOND, retained=[checkpoint_ref(3)], carried=(carried,), begins_as=3)
    world.pass_time(1000)
    assert world.pending == [4]


def test_while_output_is_being_committed_the_checkpoint_that_carries_it_is_current() -> None:
    world = World(EVERY_SECOND)
    world.batch(staged=1)
    world.pass_time(1000)
    world.ack(1)
    world.carry_out()
    world.deliver()
    assert world.pass_time(1000) == [NotifyCurrent(checkpoint=CheckpointId(1), as_of_ms=None)]


def test_beside_another_checkpoint_nothing_is_said() -> None:
    """That may retire the newest one."""
    world = idle(options=CheckpointOptions(interval_ms=1000, max_concurrent=2))
    world.request("please")
    world.pass_time(1000)
    assert world.current == []
    assert world.pending == [2, 3]


def test_beside_a_savepoint_it_is() -> None:
    world = idle()
    world.request("please", "slow")
    world.pass_time(1000)
    assert world.current == [1]
    world.complete(2)
    world.pass_time(1000)
    assert world.current == [1, 1]


def test_a_step_that_runs_holds_it_up_like_any_barrier() -> None:
    world = idle(options=CheckpointOptions(interval_ms=1000, timeout_ms=5000))
    world.begin()
    assert world.pass_time(1000) == []
    world.pass_time(5000)
    world.settle()
    assert world.aborted() == {2: "it expired after 5000 ms: the running micro-batch let no barrier pass"}
    assert world.current == []


def test_a_failure_in_between_is_not_forgotten_and_none_is_counted() -> None:
    world = idle(options=CheckpointOptions(interval_ms=1000, tolerable_failures=1))
    world.batch()
    world.pass_time(1000)
    world.decline(2)
    world.settle()
    world.pass_time(1000)
    assert world.pending == [3], "what it had has still to be secured"
    world.decline(3)
    assert world.ended


def test_the_pause_counts_from_what_was_taken() -> None:
    world = idle(options=CheckpointOptions(interval_ms=1000, min_pause_ms=5000))
    assert world.pass_time(4000) == []
    assert world.pass_time(1000) == [NotifyCurrent(checkpoint=CheckpointId(1), as_of_ms=None)]
    assert world.coordinator.next_deadline() == world.now_ms + 1000


def test_those_that_are_retained_are_different() -> None:
    world = idle(checkpoints=3, options=CheckpointOptions(interval_ms=1000, retained=3))
    for _ in range(10):
        world.pass_time(1000)
        world.settle()
    assert world.kept_checkpoints == [1, 2, 3]
    assert len({slot.cut.epoch for slot in world.completed}) == 3


CHANGES: dict[str, Any] = {
    "positions": {"positions": {LINES: {"batch": 1, "files": ["an empty one"]}}},
    "state": {"versions": {COUNTS: {0: {"epoch": 1, "other": True}}}},
    "operator state": {"operator_states": {COUNTS: {"rules": OperatorState(OperatorStateKind.UNION, ([1],))}}},
    "event time": {"watermark_ms": 17},
    "records": {"records": 11},
    "the operators have finished": {"finished": frozenset({COUNTS})},
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_moves_is_worth_a_checkpoint(what: str) -> None:
    """Each alone, in a micro-batch that changes nothing else."""
    world = idle()
    before = world.cut
    world.cut = after = replace(before, **CHANGES[what])
    world.tell(BatchBegun())
    world.tell(BatchDone(result=_result(before, after)))
    world.pass_time(1000)
    assert world.current == []
    assert world.pending == [2]
    assert world.open_attempts[0].take.cut == after


def test_a_micro_batch_that_has_changed_nothing_is_worth_none() -> None:
    world = idle()
    world.tell(BatchBegun())
    world.tell(BatchDone(result=_result(world.cut, world.cut)))
    world.pass_time(1000)
    assert world.current == [1]


def _result(before: Cut, after: Cut) -> BatchResult:
    return BatchResult(
        epoch=after.epoch,
        versions=after.versions,
        operator_states=after.operator_states,
        positions=after.positions,
        staged={},
        records=after.records - before.records,
        watermark_ms=after.watermark_ms,
        finished=after.finished,
    )


def test_nothing_is_stored_for_it() -> None:
    world = idle()
    actions = world.pass_time(1000)
    assert not any(isinstance(action, StoreSnapshot) for action in actions)
    assert not world.ledger
