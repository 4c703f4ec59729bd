"""Which request for a snapshot is carried out next, put off or dropped, and what whoever asked is told."""

from __future__ import annotations

import pytest

from headgate.coordinator.messages import Reply, Trigger
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.coordinator.requests import CheckpointRequestDecider, Dropped, Load
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId, SavepointName
from headgate_contract.snapshot import SnapshotKind

EVERY_SECOND = CheckpointOptions(interval_ms=1000)
PERIODIC = Trigger(reason="interval")
BY_HAND = Trigger(request=RequestId("by-hand"))
SAVEPOINT = Trigger(kind=SnapshotKind.SAVEPOINT, name=SavepointName("upgrade"), request=RequestId("savepoint"))
IDLE = Load(running=0, cleaning=0, pause_until_ms=None)
KINDS = {"periodic": PERIODIC, "by hand": BY_HAND, "savepoint": SAVEPOINT}


def decider(*waiting: Trigger, limit: int = 1000, max_concurrent: int = 1) -> CheckpointRequestDecider:
    deciding = CheckpointRequestDecider(CheckpointOptions(interval_ms=1000, max_concurrent=max_concurrent), limit=limit)
    for request in waiting:
        assert deciding.submit(request) is None
    return deciding


def by_hand(number: int) -> Trigger:
    return Trigger(request=RequestId(f"request-{number}"))


# ---- the order


def test_f39_savepoints_go_first_then_what_a_person_asked_for_then_periodic_ones() -> None:
    deciding = decider(PERIODIC, BY_HAND, SAVEPOINT)
    taken = []
    while (chosen := deciding.look(IDLE, now_ms=0)) is not None:
        taken.append(chosen)
        deciding.take()
    assert taken == [SAVEPOINT, BY_HAND, PERIODIC]


def test_f39_of_one_kind_the_first_goes_first() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    world.pass_time(1000)
    for request, name in (("one", None), ("two", "two"), ("three", None), ("four", "four")):
        world.request(request, name)
    world.finish()
    taken = [attempt.trigger.request for attempt in world.attempts.values()]
    assert taken == ["two", "four", "one"], "one checkpoint at a time: the others wait"
    world.complete(1)
    world.complete(2)
    world.complete(3)
    assert [attempt.trigger.request for attempt in world.attempts.values()][3:] == ["three"]
    world.batch()
    world.complete(4)
    assert world.attempts[world.coordinator.next_id - 1].trigger.is_periodic


@pytest.mark.parametrize("overtakes_after_ms", [0, 100])
def test_f16_where_barriers_overtake_a_savepoint_waits_for_the_checkpoint_under_way(overtakes_after_ms: int) -> None:
    deciding = CheckpointRequestDecider(CheckpointOptions(interval_ms=1000, overtakes_after_ms=overtakes_after_ms))
    for request in (PERIODIC, SAVEPOINT):
        deciding.submit(request)
    assert deciding.look(Load(running=1, cleaning=0, pause_until_ms=None), now_ms=0) is None
    assert deciding.look(IDLE, now_ms=0) is SAVEPOINT, "before what is periodic"


# ---- the pause


@pytest.mark.parametrize("kind", KINDS)
def test_f36_within_the_pause_only_a_periodic_request_is_dropped(kind: str) -> None:
    deciding = decider(KINDS[kind])
    chosen = deciding.look(Load(running=0, cleaning=0, pause_until_ms=500), now_ms=499)
    if kind == "periodic":
        assert chosen == Dropped(request=PERIODIC, reason=Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)
    else:
        assert chosen is KINDS[kind]
    assert deciding.look(Load(running=0, cleaning=0, pause_until_ms=500), now_ms=500) is KINDS[kind]


def test_f36_a_periodic_request_that_came_too_early_comes_again_when_the_pause_is_over() -> None:
    world = World(CheckpointOptions(interval_ms=1000, min_pause_ms=5000), flowing=True)
    world.pass_time(1000)
    world.pass_time(500)
    world.complete(1)
    ended = world.now_ms
    assert world.pass_time(500) == []
    assert world.coordinator.requests.waiting == [], "it is dropped: nothing waits"
    assert world.coordinator.next_deadline() == ended + 5000
    world.pass_time(ended + 5000 - world.now_ms)
    assert world.pending == [2]


# ---- the limits


def test_f37_a_full_queue_drops_its_periodic_request_for_a_savepoint() -> None:
    deciding = decider(BY_HAND, PERIODIC, limit=2)
    assert deciding.submit(SAVEPOINT) == Dropped(request=PERIODIC, reason=Reason.TOO_MANY_CHECKPOINT_REQUESTS)
    assert deciding.waiting == [SAVEPOINT, BY_HAND]


@pytest.mark.parametrize("kind", KINDS)
def test_f37_a_queue_full_of_what_people_asked_for_takes_no_more(kind: str) -> None:
    deciding = decider(by_hand(1), by_hand(2), limit=2)
    assert deciding.submit(KINDS[kind]) == Dropped(request=KINDS[kind], reason=Reason.TOO_MANY_CHECKPOINT_REQUESTS)
    assert deciding.waiting == [by_hand(1), by_hand(2)]


def test_f37_whoever_is_not_let_in_is_told_why() -> None:
    world = World(EVERY_SECOND)
    world.coordinator.requests.limit = 2
    world.begin()
    for number in (1, 2, 3):
        world.request(f"request-{number}")
    world.settle()
    answer = world.replies[RequestId("request-3")]
    assert isinstance(answer, Reply)
    assert answer.why == "the maximum number of queued checkpoint requests is exceeded (TOO_MANY_CHECKPOINT_REQUESTS)"
    world.finish()
    world.complete(1)
    assert world.pending == [2]


def test_f37_a_periodic_checkpoint_that_had_to_go_is_asked_for_again() -> None:
    world = World(EVERY_SECOND)
    world.coordinator.requests.limit = 1
    world.begin()
    world.pass_time(1000)
    world.request("now")
    assert [request.request for request in world.coordinator.requests.waiting] == ["now"]
    world.finish()
    world.complete(1)
    world.pass_time(1000)
    assert world.attempts[world.coordinator.next_id - 1].trigger.is_periodic


@pytest.mark.parametrize("most", [1, 3])
def test_f38_too_many_under_way_put_off_all_but_savepoints(most: int) -> None:
    for kind, request in KINDS.items():
        deciding = decider(request, max_concurrent=most)
        full = Load(running=most, cleaning=0, pause_until_ms=None)
        assert deciding.look(full, now_ms=0) is (SAVEPOINT if kind == "savepoint" else None)
        assert deciding.waiting == [request], "put off, not failed"
        assert deciding.look(Load(running=most - 1, cleaning=0, pause_until_ms=None), now_ms=0) is request


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3])
def test_f38_too_many_that_are_still_being_cleaned_put_off_everything(kind: str, most: int) -> None:
    deciding = decider(KINDS[kind], max_concurrent=most)
    assert deciding.look(Load(running=0, cleaning=most + 1, pause_until_ms=None), now_ms=0) is None
    assert deciding.waiting == [KINDS[kind]], "put off, not failed"
    assert deciding.look(Load(running=0, cleaning=most, pause_until_ms=None), now_ms=0) is KINDS[kind]


def test_f38_a_checkpoint_by_hand_waits_for_the_one_under_way_and_then_runs() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.request("now")
    assert world.pending == [1]
    assert world.replies == {}
    world.complete(1)
    assert world.pending == [2]
    world.complete(2)
    answer = world.replies[RequestId("now")]
    assert isinstance(answer, Reply)
    assert answer.done


def test_f38_a_request_waits_until_the_cleaner_has_caught_up() -> None:
    world = World(CheckpointOptions(interval_ms=1000, retained=1), flowing=True)
    for number in (1, 2, 3):
        world.pass_time(1000)
        world.ack(number)
        world.settle(clean=False)
    assert list(world.disposal) == [1, 2], "a slow cleaner"
    world.pass_time(1000)
    world.request("savepoint", "upgrade")
    assert world.pending == []
    assert world.coordinator.failed == 0
    world.clean()
    world.deliver()
    assert world.pending == [4, 5], "put off, not failed"
    assert world.attempts[CheckpointId(4)].take.name == "upgrade"


def test_f31_a_checkpoint_that_is_discarded_right_behind_its_barrier_lets_the_next_request_run() -> None:
    world = World(CheckpointOptions(interval_ms=None))
    world.request("one")
    world.request("two")
    assert world.pending == [1]
    world.decline(1)
    assert world.pending == [2]
    world.complete(2)
    assert [slot.request for slot in world.completed] == ["two"]


# ---- the scheduler


def test_f27_without_the_scheduler_a_periodic_request_is_refused_and_one_by_hand_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(EVERY_SECOND)
    world.coordinator.scheduler.stop()
    caplog.set_level("INFO")
    assert world.tell(PERIODIC) == []
    assert "the periodic checkpoint scheduler is shut down (PERIODIC_SCHEDULER_SHUTDOWN)" in caplog.text
    assert world.pending == []
    world.request("now")
    assert world.pending == [1]


def test_f26_a_scheduler_that_was_stopped_asks_for_nothing_and_after_a_second_start_it_does() -> None:
    world = World(EVERY_SECOND, flowing=True)
    world.coordinator.scheduler.stop()
    assert world.coordinator.next_deadline() is None
    assert world.pass_time(10_000) == []
    world.coordinator.scheduler.start(world.now_ms)
    assert world.coordinator.next_deadline() == world.now_ms + 1000
    for number in (1, 2):
        world.pass_time(1000)
        assert world.pending == [number]
        world.complete(number)


def test_f24_a_periodic_request_that_waits_when_the_stream_is_asked_to_stop_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(EVERY_SECOND)
    world.begin()
    world.pass_time(1000)
    assert [request.is_periodic for request in world.coordinator.requests.waiting] == [True]
    caplog.set_level("INFO")
    world.request("stop", stop=True)
    assert "(PERIODIC_SCHEDULER_SHUTDOWN)" in caplog.text
    world.finish()
    assert [attempt.trigger.stop for attempt in world.open_attempts] == [True], "only the last barrier passes"


def test_what_a_person_asked_for_before_a_stop_is_taken_before_the_stream_ends() -> None:
    world = World(EVERY_SECOND)
    world.pass_time(1000)
    world.request("now")
    world.request("stop", stop=True)
    world.complete(1)
    assert [attempt.trigger.request for attempt in world.open_attempts] == ["now"]
    world.complete(2)
    world.complete(3)
    assert world.ended
    assert set(world.replies) == {"now", "stop"}
