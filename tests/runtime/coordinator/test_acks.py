"""Acks, declines and time-outs: which of them end an attempt, and that no other one is touched."""

from __future__ import annotations

import pytest

from headgate.coordinator.messages import (
    CommitGroups,
    Declined,
    NotifyAborted,
    NotifyComplete,
    Reply,
    StoreSnapshot,
    Tick,
    Trigger,
)
from headgate.coordinator.pending import AckResult, PendingCheckpoint, PendingState
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.testing.coordinator_books import COUNTS, LINES, PARTICIPANTS, SINK, SOURCE, STATE, ack_of
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId

TOLERANT = CheckpointOptions(interval_ms=1000, timeout_ms=5000, max_concurrent=3, tolerable_failures=100)


def with_pending(number: int) -> World:
    """A stream with so many checkpoints under way, a micro-batch before each."""
    world = World(TOLERANT)
    for _ in range(number):
        world.batch()
        world.pass_time(1000)
    assert world.pending == list(range(1, number + 1))
    return world


def test_f2_a_decline_discards_its_own_checkpoint_and_triggers_no_other() -> None:
    world = with_pending(2)
    (action,) = world.decline(1)
    assert isinstance(action, NotifyAborted)
    assert world.pending == [2]
    world.ack(2)
    world.settle()
    assert world.groups() == {2: [0, 1]}, "what was staged for the one that failed rolls into the next"


@pytest.mark.parametrize("participant", PARTICIPANTS)
def test_f3_whoever_declines_before_or_after_others_have_acked_ends_the_attempt(participant: str) -> None:
    for before in ([], [other for other in PARTICIPANTS if other != participant]):
        world = with_pending(1)
        for other in before:
            world.ack(1, other)
        world.decline(1, participant, "lost connection")
        world.settle()
        assert world.aborted() == {1: f"{participant} declined: lost connection"}
        assert world.completed == []


def test_f5_a_checkpoint_that_expires_is_disposed_and_completes_for_nobody() -> None:
    world = with_pending(1)
    world.ack(1, SOURCE, SINK)
    assert world.pass_time(4999 - 1000) != [], "a later one was begun"
    assert 1 in world.pending
    world.pass_time(1001)
    assert 1 not in world.pending
    world.settle()
    assert world.aborted()[1] == f"it expired after 5000 ms, still waiting for {STATE}"
    assert world.completed == []
    assert not [notice for notice in world.notices if isinstance(notice, NotifyComplete)]
    assert world.commits == []


def test_a_savepoint_that_hangs_holds_up_what_came_after_it_for_the_timeout_and_no_longer() -> None:
    world = World(TOLERANT)
    world.request("slow", "slow")
    world.pass_time(1000)
    world.ack(2)
    world.pass_time(3999)
    assert world.pending[:2] == [1, 2], "completion keeps the order of the barriers"
    world.pass_time(1)
    world.settle()
    assert world.aborted()[1].startswith("it expired after 5000 ms, still waiting for")
    answer = world.replies[RequestId("slow")]
    assert isinstance(answer, Reply)
    assert "expired after 5000 ms" in answer.why
    assert world.completed[0].checkpoint == 2
    assert not world.ended


def test_a_stop_whose_savepoint_expires_lets_the_stream_go_on_and_tells_the_asker() -> None:
    world = World(TOLERANT)
    world.request("end", "last", stop=True)
    world.ack(1, SOURCE)
    world.pass_time(5000)
    world.settle()
    answer = world.replies[RequestId("end")]
    assert isinstance(answer, Reply)
    assert "expired after 5000 ms" in answer.why
    assert world.coordinator.may_begin
    assert not world.ended


def test_a_checkpoint_that_a_person_asked_for_expires_and_they_are_told() -> None:
    world = World(CheckpointOptions(interval_ms=None, timeout_ms=5000))
    world.request("now")
    world.pass_time(5000)
    world.settle()
    answer = world.replies[RequestId("now")]
    assert isinstance(answer, Reply)
    assert "expired after 5000 ms" in answer.why
    assert not world.ended, "it fails for them, not for the stream"


def test_f7_late_and_unknown_acks_are_dropped() -> None:
    """What a late ack had uploaded is discarded by whoever uploaded it: see the snapshot taker's tests."""
    world = with_pending(1)
    world.decline(1)
    assert world.ack(1, STATE) == [], "late: the attempt is over"
    assert world.tell(ack_of(7, STATE)) == [], "no such checkpoint"
    world.pass_time(1000)
    assert world.tell(ack_of(2, "state of another job")) == []
    world.complete(2)
    assert set(world.completed[0].vertices) == {COUNTS}


def test_f8_messages_about_checkpoints_that_do_not_exist_never_raise() -> None:
    completed, under_way = World(TOLERANT), with_pending(1)
    completed.request("now")
    completed.complete(1)
    for world in (World(TOLERANT), completed, under_way):
        for checkpoint in (1, 99):
            strangers = ("a stranger", "state of another job")
            for participant in strangers if checkpoint in world.pending else (*PARTICIPANTS, *strangers):
                assert world.tell(ack_of(checkpoint, participant)) == []
                event = Declined(checkpoint=CheckpointId(checkpoint), participant=participant, cause="?")
                assert world.tell(event) == []
    assert under_way.pending == [1]


def test_a_stranger_cannot_decline() -> None:
    world = with_pending(1)
    assert world.decline(1, "a stranger") == []
    assert world.pending == [1]


def test_f46_a_second_ack_is_told_apart_from_the_first_and_from_a_strangers() -> None:
    attempt = with_pending(1).coordinator.pending[CheckpointId(1)]
    acks = [ack_of(1, STATE), ack_of(1, STATE, epoch=99), ack_of(1, "a stranger")]
    assert [attempt.acknowledge(ack) for ack in acks] == [AckResult.SUCCESS, AckResult.DUPLICATE, AckResult.UNKNOWN]
    assert attempt.vertices == ack_of(1, STATE).vertices
    assert attempt.waiting == {SOURCE, SINK}


def test_f46_a_second_ack_changes_nothing() -> None:
    world = with_pending(1)
    world.ack(1, STATE)
    first = dict(world.coordinator.pending[CheckpointId(1)].vertices)
    assert world.tell(ack_of(1, STATE, epoch=99)) == []
    assert world.coordinator.pending[CheckpointId(1)].vertices == first
    world.ack(1, SINK)
    world.ack(1, SINK)
    assert world.completed == []
    assert world.pending == [1], "two acks of one participant are not those of two"


def test_f12_the_completion_of_a_later_checkpoint_subsumes_the_one_before_and_lets_two_more_start() -> None:
    world = World(CheckpointOptions(interval_ms=100, max_concurrent=2))
    world.batch()
    world.pass_time(100)
    world.batch()
    world.pass_time(100)
    assert world.pending == [1, 2]
    world.ack(1, SOURCE)
    world.ack(2)
    assert world.pending == [1, 2], "the older one stands until the newer one is stored"
    world.settle()
    assert world.aborted() == {1: "subsumed by 2"}
    assert world.groups() == {2: [0, 1]}
    world.pass_time(100)
    world.pass_time(100)
    assert world.pending == [3, 4]


def test_a_later_checkpoint_that_cannot_be_stored_subsumes_nothing() -> None:
    world = with_pending(2)
    world.ack(2)
    world.settle(fail=True)
    assert world.pending == [1]
    world.complete(1)
    assert world.groups() == {1: [0]}


@pytest.mark.parametrize("name", ["upgrade", None], ids=["a savepoint", "a checkpoint by hand"])
def test_f45_what_somebody_waits_for_cannot_be_subsumed(name: str | None) -> None:
    world = World(TOLERANT)
    world.request("wanted", name)
    world.batch()
    world.pass_time(1000)
    world.ack(2)
    assert world.pending == [1, 2]
    assert all(pending.state is PendingState.COLLECTING for pending in world.coordinator.pending.values())
    assert not world.coordinator.pending[CheckpointId(1)].can_be_subsumed
    world.complete(1)
    assert world.groups() == {1: [], 2: [0]}


@pytest.mark.parametrize("name", ["last", None], ids=["with a savepoint", "with a checkpoint"])
def test_f45_nothing_gets_past_the_last_snapshot_of_a_stop(name: str | None) -> None:
    world = World(TOLERANT)
    world.request("stop", name, stop=True)
    world.request("late", "late")
    world.request("now")
    world.pass_time(4999)
    assert world.pending == [1], "no barrier passes behind the last one"
    later = PendingCheckpoint(CheckpointId(2), Trigger(), world.cut, world.now_ms, set())
    world.coordinator.pending[later.id] = later
    assert world.coordinator.handle(Tick(), world.now_ms) == [], "and if one had, with all of its acks, it would wait"
    assert world.pending == [1, 2]
    del world.coordinator.pending[later.id]
    world.complete(1)
    assert world.aborted() == {}
    assert world.ended


@pytest.mark.parametrize("way", ["declined", "expired", "not stored", "subsumed"])
def test_f44_each_way_to_come_to_nothing_is_made_known_once(way: str) -> None:
    """The notice is what makes the parts go: tests/runtime/driver/test_aborts.py."""
    world = with_pending(2)
    match way:
        case "declined":
            world.decline(1)
        case "expired":
            world.pass_time(4000)
        case "not stored":
            world.ack(1)
            world.settle(fail=True)
        case "subsumed":
            world.ack(2)
    world.settle()
    notices = [notice for notice in world.notices if isinstance(notice, NotifyAborted) and notice.checkpoint == 1]
    assert len(notices) == 1
    assert world.coordinator.pending.keys() <= {2, 3}


def test_f22_the_notice_of_an_abort_names_the_latest_completed_checkpoint() -> None:
    world = with_pending(2)
    world.complete(1)
    (action,) = world.decline(2)
    assert isinstance(action, NotifyAborted)
    assert action.latest_completed == 1
    assert action.reason is CheckpointFailureReason.CHECKPOINT_DECLINED


def test_nothing_is_committed_before_its_slot_is_known() -> None:
    world = with_pending(1)
    (store,) = world.ack(1)
    assert isinstance(store, StoreSnapshot)
    assert not [action for action in world.ledger if isinstance(action, CommitGroups)]
    world.carry_out()
    world.deliver()
    assert isinstance(world.ledger[0], CommitGroups)


def test_f185_a_commit_takes_every_earlier_group_along_oldest_first() -> None:
    world = with_pending(3)
    for number in (1, 2, 3):
        world.ack(number)
        world.carry_out()
        stored = world.deliver()
        commit = next(action for action in stored if isinstance(action, CommitGroups))
        assert [group.id for group in commit.groups] == list(range(1, number + 1)), "no commit has been confirmed yet"
        store = next((action for action in stored if isinstance(action, StoreSnapshot)), None)
        if store is not None:
            assert [group.id for group in store.groups] == list(range(1, number + 2)), "and the snapshot carries them"
        world.ledger.clear()
        if store is not None:
            world.ledger.append(store)


def test_a_snapshot_notes_what_was_committed_since_the_last_one_did() -> None:
    world = with_pending(3)
    for number in (1, 2, 3):
        world.complete(number)
    assert [slot.committed for slot in world.completed] == [(), (1,), (2,)]
    assert [[group.id for group in slot.groups] for slot in world.completed] == [[1], [2], [3]]


def test_the_parts_of_a_snapshot_are_those_of_its_acks() -> None:
    world = with_pending(1)
    world.complete(1)
    slot = world.completed[0]
    assert slot.vertices[COUNTS].epoch == 1
    assert slot.sources[LINES].position == {"batch": 1}
