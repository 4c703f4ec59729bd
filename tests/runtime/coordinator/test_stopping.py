"""How a stream ends: with a last snapshot that completes and commits, by a cancel, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.coordinator.messages import (
    BatchFailed,
    Cancel,
    Committed,
    FailStream,
    Reply,
    StoreSnapshot,
    TakeSnapshot,
    Trigger,
    WriteStopped,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName
from headgate_contract.snapshot import SnapshotKind, SnapshotRef

EVERY_SECOND = CheckpointOptions(interval_ms=1000, timeout_ms=5000, tolerable_failures=5)


def answer(world: World, id: str) -> Reply | WriteStopped:
    return world.replies[RequestId(id)]


def refusals(world: World) -> dict[str, str]:
    return {id: reply.why for id, reply in world.replies.items() if isinstance(reply, Reply) and not reply.done}


def test_a_stop_holds_the_next_batch_snapshots_commits_and_ends() -> None:
    world = World(EVERY_SECOND)
    world.batch()
    world.request("stop", "last", stop=True)
    assert not world.coordinator.may_begin
    world.ack(1)
    world.carry_out()
    world.deliver()
    assert not world.ended, "nothing is said before the sinks have committed"
    world.settle()
    assert world.commits == [1]
    assert world.slots[-1] == WriteStopped(
        reason="stop",
        committed=(CheckpointId(1),),
        snapshot=CheckpointId(1),
        request=RequestId("stop"),
        result={"snapshot": 1, "name": "last", "folder": "chk-1", "kind": "savepoint"},
    )


def test_a_stop_waits_for_the_running_step() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    assert world.request("stop", stop=True) == []
    world.finish()
    assert world.pending == [1]
    world.complete(1)
    assert world.groups() == {1: [0]}


def test_a_stop_lets_what_is_under_way_complete_first() -> None:
    world = World(EVERY_SECOND)
    world.request("before", "before")
    world.request("stop", stop=True)
    assert world.pending == [1]
    world.complete(1)
    assert world.pending == [2]
    world.complete(2)
    assert world.ended


def test_the_last_barrier_waits_until_what_has_completed_is_committed() -> None:
    world = World(EVERY_SECOND)
    world.request("before")
    world.ack(1)
    world.carry_out()
    world.deliver()
    assert world.request("stop", stop=True) == []
    world.settle()
    assert world.pending == [2]


def test_a_stream_ends_when_all_of_its_output_is_committed_and_not_before() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", stop=True)
    world.ack(1)
    world.carry_out()
    world.deliver()
    assert world.tell(Committed(groups=())) == []
    assert not world.ended
    world.settle()
    assert world.ended


def test_a_stop_goes_on_when_what_it_waited_for_expires() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.request("stop", stop=True)
    assert world.pending == [1]
    world.pass_time(5000)
    assert world.pending == [2]
    world.complete(2)
    assert world.ended


def test_no_periodic_checkpoint_begins_while_the_stream_stops() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", stop=True)
    assert world.coordinator.next_deadline() == 1000 + EVERY_SECOND.timeout_ms, "only its own snapshot can expire"
    assert world.pass_time(EVERY_SECOND.timeout_ms - 1) == []


def test_f148_f153_a_failed_stop_lets_the_stream_go_on_with_periodic_checkpoints_and_tells_the_asker() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", "last", stop=True)
    world.decline(1, cause="the disk is full")
    world.settle()
    assert refusals(world) == {"stop": "state counts declined: the disk is full"}
    assert world.coordinator.may_begin
    world.batch()
    assert [type(action) for action in world.pass_time(1000)] == [TakeSnapshot]
    world.complete(2)
    world.request("again", "last", stop=True)
    world.complete(3)
    assert world.ended


@pytest.mark.parametrize("name", ["last", None], ids=["with a savepoint", "without one"])
def test_f20_when_a_stop_is_discarded_its_asker_and_the_history_get_the_root_cause(name: str | None) -> None:
    world = World(EVERY_SECOND)
    world.request("stop", name, stop=True)
    world.decline(1, cause="the disk is full")
    world.settle()
    assert refusals(world) == {"stop": "state counts declined: the disk is full"}
    assert world.aborted() == {1: "state counts declined: the disk is full"}
    assert world.reasons() == {1: Reason.CHECKPOINT_DECLINED}


@pytest.mark.parametrize("stop", [False, True], ids=["a savepoint", "a stop"])
@pytest.mark.parametrize("good", [True, False], ids=["completes", "fails"])
def test_f23_nobody_is_answered_before_the_outcome_is_in_the_history(stop: bool, good: bool) -> None:
    world = World(EVERY_SECOND)
    world.request("asked", "last", stop=stop)
    if good:
        world.ack(1)
    else:
        world.decline(1)
    while not world.notices:
        assert world.replies == {}
        world.carry_out()
        while world.inbox:
            world.deliver()
    world.settle()
    assert set(world.replies) == {"asked"}


def test_a_second_stop_is_answered_by_the_end_of_the_first() -> None:
    """Refused, its asker would take back the wish to stop, and the stream might be started again."""
    world = World(EVERY_SECOND)
    world.tell(Trigger(stop=True, reason="SIGTERM"))
    world.request("stop", stop=True)
    world.settle()
    assert world.replies == {}
    world.complete(1)
    done = answer(world, "stop")
    assert isinstance(done, Reply)
    assert done.done
    assert done.result["snapshot"] == 1
    last = world.slots[-1]
    assert isinstance(last, WriteStopped)
    assert last.also == (done,), "if that slot cannot be written, nobody is told that it was"


def test_a_second_stop_fails_with_the_first() -> None:
    world = World(EVERY_SECOND)
    world.request("one", stop=True)
    world.request("two", stop=True)
    world.decline(1)
    world.settle()
    assert set(refusals(world)) == {"one", "two"}
    world.request("three", stop=True)
    world.complete(2)
    assert isinstance(answer(world, "three"), WriteStopped)


def test_what_is_asked_for_behind_the_last_barrier_is_refused() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", stop=True)
    world.request("late-checkpoint")
    world.request("late-savepoint", "late")
    world.request("late-stop", "other", stop=True)
    world.settle()
    why = "the stream is stopping: stop"
    assert refusals(world) == dict.fromkeys(("late-checkpoint", "late-savepoint", "late-stop"), why)
    world.complete(1)
    assert [slot.checkpoint for slot in world.completed] == [1]


def test_a_stop_whose_savepoint_has_a_taken_name_stops_nothing() -> None:
    world = World(EVERY_SECOND)
    world.request("first", "last")
    world.request("stop", "last", stop=True)
    world.settle()
    assert "there is a savepoint last already" in refusals(world)["stop"]
    assert world.coordinator.may_begin


def test_f147_a_stream_that_fails_between_its_last_snapshot_and_the_commit_names_cause_and_place() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", "last", stop=True)
    world.request("me-too", stop=True)
    world.ack(1)
    world.carry_out()
    world.deliver()
    world.tell(BatchFailed(cause="Spark is gone"))
    world.settle()
    assert world.failures == [FailStream(cause="Spark is gone")]
    assert refusals(world) == dict.fromkeys(
        ("stop", "me-too"), "Spark is gone; savepoint last (1) is complete, at chk-1"
    )


def test_a_cancel_ends_at_once_and_answers_everybody() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.request("savepoint", "a")
    world.request("stop", stop=True)
    world.request("me-too", stop=True)
    world.tell(Cancel(request=RequestId("cancel"), reason="enough"))
    assert not world.coordinator.may_begin
    world.settle()
    assert world.reasons() == dict.fromkeys((1, 2), Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)
    assert refusals(world) == dict.fromkeys(("savepoint", "stop", "me-too"), "the stream was cancelled")
    assert world.slots == [WriteStopped(reason="enough", committed=(), snapshot=None, request=RequestId("cancel"))]


def test_a_cancel_notes_what_is_committed() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.complete(1)
    world.tell(Cancel())
    world.settle()
    assert world.noted == [1]


def test_a_cancel_waits_for_how_the_storing_of_a_snapshot_ends() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.complete(1)
    world.request("savepoint", "a")
    world.ack(2)
    assert world.tell(Cancel(request=RequestId("cancel"))) == []
    world.tell(Cancel(request=RequestId("once-more")))
    world.settle()
    assert refusals(world) == {"once-more": "the stream is ending already: cancelled"}
    assert isinstance(answer(world, "savepoint"), Reply)
    assert [slot.checkpoint for slot in world.completed] == [1, 2]
    assert isinstance(world.slots[-1], WriteStopped)
    assert world.noted == [1], "noted once, by the slot of the savepoint"


def test_a_cancel_after_the_last_snapshot_does_not_take_it_back() -> None:
    world = World(EVERY_SECOND)
    world.request("stop", "last", stop=True)
    world.request("me-too", stop=True)
    world.ack(1)
    world.carry_out()
    world.deliver()
    world.tell(Cancel())
    world.settle()
    for id in ("stop", "me-too"):
        done = answer(world, id)
        assert isinstance(done, Reply)
        assert done.result["name"] == "last"


@pytest.mark.parametrize("cancelled", [False, True], ids=["stopped", "cancelled"])
def test_nobody_is_told_of_an_end_with_the_last_snapshot_before_the_log_says_that_it_has_ended(cancelled: bool) -> None:
    world = World(EVERY_SECOND)
    world.request("stop", "last", stop=True)
    world.request("me-too", stop=True)
    world.ack(1)
    world.carry_out()
    world.deliver()
    if cancelled:
        world.tell(Cancel())
    while not isinstance(world.slots[-1], WriteStopped):
        assert world.replies == {}
        world.carry_out()
        while world.inbox:
            world.deliver()
    world.settle()
    assert set(world.replies) == {"stop", "me-too"}


@pytest.mark.parametrize("event", [Trigger(request=RequestId("late")), Cancel(request=RequestId("late"))])
def test_f24_who_asks_after_the_end_is_told_so(event: Trigger | Cancel) -> None:
    world = World(EVERY_SECOND)
    world.request("stop", stop=True)
    world.complete(1)
    world.tell(event)
    world.settle()
    assert refusals(world) == {"late": "the stream has ended"}


LAST = SnapshotRef(
    CheckpointId(7), SnapshotKind.SAVEPOINT, Generation(1), "savepoints/last-7-g1", 1, "00", SavepointName("last")
)


def ask_for_what_is_done(world: World) -> None:
    """A life has completed the savepoint of a drain, and failed before it had ended; this one begins with that."""
    reason = "drain was asked for"
    asked = Trigger(request=RequestId("drain"), stop=True, already=LAST, at_its_end=True, reason=reason)
    world.tell(asked)


def test_f149_a_life_that_begins_with_what_a_drain_has_ended_with_ends_without_a_snapshot_that_could_fail() -> None:
    world = World(EVERY_SECOND, retained=[LAST])
    ask_for_what_is_done(world)
    assert world.pending == []
    world.settle()
    assert world.ended
    stopped = world.slots[-1]
    assert isinstance(stopped, WriteStopped)
    assert (stopped.snapshot, stopped.request, stopped.result["name"]) == (7, "drain", "last")


def test_whoever_asked_for_a_stop_before_is_answered_by_the_end_that_is_there() -> None:
    world = World(EVERY_SECOND, retained=[LAST])
    world.begin()
    world.request("stop", stop=True)
    ask_for_what_is_done(world)
    world.finish()
    world.settle()
    assert isinstance(answer(world, "drain"), WriteStopped)
    other = answer(world, "stop")
    assert isinstance(other, Reply)
    assert (other.done, other.result["name"]) == (True, "last")


def test_who_drained_is_told_of_no_failure_before_the_end_since_the_next_life_has_to_hear_of_it() -> None:
    world = World(EVERY_SECOND, retained=[LAST])
    world.begin()
    ask_for_what_is_done(world)
    actions = world.fail_batch()
    assert any(isinstance(action, FailStream) for action in actions)
    assert world.replies == {}


def test_a_cancel_before_the_end_tells_who_drained_that_the_savepoint_is_there() -> None:
    world = World(EVERY_SECOND, retained=[LAST])
    world.begin()
    ask_for_what_is_done(world)
    world.cancel("cancel")
    world.settle()
    told = answer(world, "drain")
    assert isinstance(told, Reply)
    assert (told.done, told.result["name"]) == (True, "last")


def test_what_the_stream_ends_with_is_not_retired_by_a_checkpoint_under_way_behind_which_it_stops() -> None:
    first = replace(LAST, kind=SnapshotKind.CHECKPOINT, name=None, folder="chk-7")
    world = World(replace(EVERY_SECOND, retained=1), retained=[first])
    world.pass_time(1000)
    assert world.pending == [8]
    reason = "stop was asked for"
    world.spared.add(CheckpointId(7))
    world.tell(Trigger(request=RequestId("stop"), stop=True, already=first, at_its_end=True, reason=reason))
    world.complete(8)
    stored = world.slots[0]
    assert isinstance(stored, StoreSnapshot)
    assert stored.retires == ()
    world.complete(9)
    world.settle()
    stopped = answer(world, "stop")
    assert isinstance(stopped, WriteStopped)
    assert (stopped.snapshot, stopped.result["snapshot"]) == (9, 7)


def test_who_joins_a_stop_is_told_of_what_an_earlier_life_has_completed_for_them() -> None:
    world = World(EVERY_SECOND, retained=[LAST])
    world.request("stop", stop=True)
    assert world.pending == [8], "its barrier has passed"
    ask_for_what_is_done(world)
    world.complete(8)
    world.settle()
    told = answer(world, "drain")
    assert isinstance(told, Reply)
    assert (told.done, told.result["name"]) == (True, "last")
