"""The coordinator's thread: leave for one batch at a time, parking while the stream stops, and nobody left waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    Cancel,
    Event,
    FailStream,
    NotifyAborted,
    NotifyCurrent,
    Stored,
    StoreFailed,
    StoreSnapshot,
    TakeSnapshot,
    Tick,
    Trigger,
    WriteStopped,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.driver import loop
from headgate.driver.loop import Afterwards, CoordinatorLoop, Grant, StreamEnding
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber
from headgate_contract.snapshot import SnapshotRef
from tests.runtime.driver.waiting import PATIENCE_S, until

ALONE = "source lines"


class CountingCoordinator(Coordinator):
    """Counts its ticks, and breaks when a test wants it to."""

    ticks = 0
    breaks_at: type[Event] | None = None
    granted_in = ""
    done_ms, done_in = 0, ""

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        if isinstance(event, BatchBegun):
            self.granted_in = threading.current_thread().name
        if isinstance(event, BatchDone):
            self.done_ms, self.done_in = now_ms, threading.current_thread().name
        if self.breaks_at is not None and isinstance(event, self.breaks_at):
            raise KeyError("a mistake")
        self.ticks += isinstance(event, Tick)
        return super().handle(event, now_ms)


class Stage:
    """A running loop, whose actions are kept; an engine's thread asks for leave."""

    def __init__(self, interval_ms: int | None = None, timeout_ms: int = 600_000, max_concurrent: int = 1) -> None:
        self.coordinator = CountingCoordinator(
            options=CheckpointOptions(
                interval_ms=interval_ms,
                timeout_ms=timeout_ms,
                tolerable_failures=1000,
                max_concurrent=max_concurrent,
            ),
            participants=frozenset([ALONE]),
            cut=Cut(epoch=0),
            next_id=CheckpointId(1),
            retained=[],
            groups=[],
            started_ms=CoordinatorLoop.now_ms(),
        )
        self.actions: list[Action] = []
        self.performing: Callable[[Action], Afterwards | None] = lambda action: None
        self.loop = CoordinatorLoop(self.coordinator, self.perform)
        self.loop.start()
        self.engine = ThreadPoolExecutor(max_workers=3, thread_name_prefix="engine")

    def perform(self, action: Action) -> Afterwards | None:
        self.actions.append(action)
        return self.performing(action)

    def ask(self) -> Future[Grant]:
        """Ask for leave, from the engine's thread."""
        return self.engine.submit(self.loop.begin_batch)

    def finish(self, grant: Grant, *, within_ms: int = 0) -> None:
        result = BatchResult(epoch=grant.cut.epoch + 1, versions={}, positions={}, staged={}, records=1)
        self.loop.post(BatchDone(result=result), within_ms=within_ms)

    def wait_parked(self) -> None:
        """Until somebody's question is with the coordinator, which is done with it for now."""
        until(lambda: self.loop._parked and self.loop._turn_of is None, "who asks is parked")

    def wait_for_request(self) -> None:
        """Until a request waits for the running batch, and the turn is free for that."""
        waiting = self.coordinator.requests
        until(lambda: waiting.waiting and self.loop._turn_of is None, "the request waits for the batch")

    def wait_for(self, kind: type[Action], number: int = 1) -> list[Any]:
        def found() -> list[Any]:
            return [action for action in list(self.actions) if isinstance(action, kind)]

        until(lambda: len(found()) >= number, f"{number} of {kind.__name__}")
        return found()

    def store(self, checkpoint: CheckpointId) -> None:
        """Acknowledge a snapshot, and say that its slot exists."""
        self.loop.post(Acknowledged(checkpoint=checkpoint, participant=ALONE))
        store = self.wait_for(StoreSnapshot)[-1]
        ref = SnapshotRef(store.checkpoint, store.kind, Generation(1), "chk", 1, "00", store.name)
        self.loop.post(Stored(checkpoint=checkpoint, snapshot=ref, slot=SlotNumber(2)))

    def close(self) -> None:
        self.loop.close()
        self.engine.shutdown(wait=True)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def test_leave_is_given_for_one_batch_at_a_time_each_on_top_of_the_last(stage: Stage) -> None:
    first = stage.ask().result(PATIENCE_S)
    second = stage.ask()
    stage.wait_parked()
    stage.loop.post(Tick())
    until(lambda: stage.coordinator.ticks, "the loop has seen a tick behind the question")
    assert not second.done()
    stage.finish(first)
    assert (first.cut.epoch, second.result(PATIENCE_S).cut.epoch) == (0, 1)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's thread wakes for nothing but what concerns it."""
    monkeypatch.setattr(loop, "_IDLE_MS", 3_600_000)


@pytest.mark.usefixtures("asleep")
def test_leave_is_given_in_the_thread_that_asks_if_nothing_waits_for_the_coordinators() -> None:
    stage = Stage()
    first = stage.ask().result(PATIENCE_S)
    assert stage.coordinator.granted_in.startswith("engine")
    second = stage.ask()
    stage.wait_parked()
    stage.finish(first)
    second.result(PATIENCE_S)
    assert stage.coordinator.granted_in == "coordinator"
    stage.close()


@pytest.mark.usefixtures("asleep")
def test_what_a_batch_has_made_is_taken_in_by_the_next_one_and_the_barrier_passes_there() -> None:
    stage = Stage()
    first = stage.ask().result(PATIENCE_S)
    stage.loop.post(Trigger(request=RequestId("one")))
    stage.wait_for_request()
    passed_in: list[str] = []

    def perform(action: Action) -> Afterwards:
        passed_in.append(f"{type(action).__name__} in {threading.current_thread().name[:6]}")
        return lambda: passed_in.append(f"and what is left in {threading.current_thread().name[:6]}")

    stage.performing = perform
    stage.finish(first, within_ms=3_600_000)
    assert stage.ask().result(PATIENCE_S).cut.epoch == 1
    assert stage.coordinator.done_in.startswith("engine")
    until(lambda: len(passed_in) == 2, "all is done")
    assert passed_in == ["TakeSnapshot in engine", "and what is left in coordi"]
    stage.close()


@pytest.mark.usefixtures("asleep")
def test_what_is_left_to_the_next_batch_is_taken_in_after_its_time_if_none_comes() -> None:
    stage = Stage()
    grant, began_ms = stage.ask().result(PATIENCE_S), CoordinatorLoop.now_ms()
    stage.finish(grant, within_ms=200)
    until(lambda: stage.coordinator.done_in, "the batch is done")
    assert stage.coordinator.done_in == "coordinator"
    assert stage.coordinator.done_ms - began_ms >= 200
    stage.close()


@pytest.mark.usefixtures("asleep")
def test_whatever_else_happens_is_taken_in_behind_what_was_left_and_at_once() -> None:
    stage = Stage()
    stage.finish(stage.ask().result(PATIENCE_S), within_ms=3_600_000)
    stage.loop.post(Tick())
    until(lambda: stage.coordinator.ticks, "it was heard")
    assert stage.coordinator.done_in == "coordinator"
    stage.close()


@pytest.mark.usefixtures("asleep")
def test_a_batch_that_takes_in_what_was_left_wakes_nobody_for_nothing() -> None:
    stage = Stage()
    for _ in range(10):
        stage.finish(stage.ask().result(PATIENCE_S), within_ms=1)
        until(lambda: stage.coordinator.done_in, "it is done")
        stage.coordinator.done_in = ""
    assert stage.coordinator.ticks == 0
    stage.close()


class Held:
    """An action that holds whoever performs it, until it is let go."""

    def __init__(self, stage: Stage) -> None:
        self.at_it, self.go_on = threading.Event(), threading.Event()
        stage.performing = self._hold

    def _hold(self, action: Action) -> None:
        self.at_it.set()
        assert self.go_on.wait(PATIENCE_S)


@pytest.mark.usefixtures("asleep")
def test_what_is_posted_while_a_batch_has_the_turn_is_taken_in_behind_it() -> None:
    stage = Stage()
    first = stage.ask().result(PATIENCE_S)
    stage.loop.post(Trigger(request=RequestId("one")))
    stage.wait_for_request()
    held = Held(stage)
    stage.finish(first, within_ms=3_600_000)
    second = stage.ask()
    assert held.at_it.wait(PATIENCE_S)
    stage.loop.post(Tick())
    until(lambda: stage.loop._turn_free._waiters, "the coordinator's thread waits for the turn")  # type: ignore[attr-defined]
    held.go_on.set()
    until(lambda: stage.coordinator.ticks, "it was heard")
    assert second.result(PATIENCE_S).cut.epoch == 1
    stage.close()


@pytest.mark.usefixtures("asleep")
def test_the_end_waits_for_a_batch_that_has_the_turn_and_says_if_it_did_so_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    first = stage.ask().result(PATIENCE_S)
    stage.loop.post(Trigger(request=RequestId("one")))
    stage.wait_for_request()
    held = Held(stage)
    stage.finish(first, within_ms=3_600_000)
    second = stage.ask()
    assert held.at_it.wait(PATIENCE_S)
    monkeypatch.setattr(loop, "_PATIENCE_S", 0.1)
    assert not stage.loop.close()
    held.go_on.set()
    monkeypatch.setattr(loop, "_PATIENCE_S", PATIENCE_S)
    assert stage.loop.close()
    with pytest.raises(StreamEnding):
        second.result(PATIENCE_S)
    stage.close()


def test_whoever_is_to_be_parked_behind_the_end_is_refused(stage: Stage) -> None:
    assert stage.loop.close()
    late: Future[Grant] = Future()
    stage.loop._step(BatchBegun(), late)
    with pytest.raises(StreamEnding):
        late.result(0)


def test_nobody_waits_for_ever_if_the_failure_cannot_be_told_either(stage: Stage) -> None:
    def refuse(action: Action) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    stage.performing = refuse
    stage.coordinator.breaks_at = BatchBegun
    with pytest.raises(StreamEnding):
        stage.ask().result(PATIENCE_S)
    assert stage.loop.close()
    with pytest.raises(StreamEnding):
        stage.loop.begin_batch()


def test_a_batch_overtakes_no_message_that_came_before_it(stage: Stage) -> None:
    """Not one that waits while the coordinator is at another, and not the one that it is at."""
    at_it, go_on = threading.Event(), threading.Event()

    def hold(action: Action) -> None:
        at_it.set()
        assert go_on.wait(PATIENCE_S)

    stage.performing = hold
    stage.loop.post(Trigger(request=RequestId("one")))
    assert at_it.wait(PATIENCE_S)
    before_the_stop = stage.ask()
    until(lambda: stage.loop._inbox, "it waits before what comes now")
    with pytest.raises(TimeoutError):
        before_the_stop.result(0.1)  # the barrier of `one` is passing
    stage.performing = lambda action: None
    stage.loop.post(Trigger(stop=True, request=RequestId("end")))
    behind_the_stop = stage.ask()
    stage.loop.post(Tick())
    go_on.set()
    stage.finish(before_the_stop.result(PATIENCE_S))
    until(lambda: stage.coordinator.ticks, "everything has been heard")
    with pytest.raises(TimeoutError):
        behind_the_stop.result(0.1)


def test_what_an_action_leaves_for_afterwards_is_done_when_micro_batches_may_run_again(stage: Stage) -> None:
    begun, done = threading.Event(), threading.Event()

    def long_phase() -> None:
        begun.set()
        assert done.wait(PATIENCE_S)

    stage.performing = lambda action: long_phase if isinstance(action, TakeSnapshot) else None
    stage.loop.post(Trigger(request=RequestId("one")))
    assert begun.wait(PATIENCE_S)
    assert stage.ask().result(PATIENCE_S).cut.epoch == 0
    done.set()


def test_a_mistake_in_what_is_left_for_afterwards_fails_the_stream(stage: Stage) -> None:
    def mistake() -> None:
        raise KeyError("a mistake")

    stage.performing = lambda action: mistake if isinstance(action, TakeSnapshot) else None
    stage.loop.post(Trigger(request=RequestId("one")))
    (failed,) = stage.wait_for(FailStream)
    assert failed.cause == "the coordinator failed: KeyError: 'a mistake'"


def test_a_mistake_while_leave_is_given_fails_the_stream_and_refuses_leave(stage: Stage) -> None:
    stage.coordinator.breaks_at = BatchBegun
    with pytest.raises(StreamEnding):
        stage.ask().result(PATIENCE_S)
    (failed,) = stage.wait_for(FailStream)
    assert failed.cause == "the coordinator failed: KeyError: 'a mistake'"


def test_a_batch_that_comes_while_the_stream_stops_is_parked_and_refused_at_the_end(stage: Stage) -> None:
    stage.loop.post(Trigger(stop=True))
    (take,) = stage.wait_for(TakeSnapshot)
    parked = stage.ask()
    stage.loop.post(Tick())
    until(lambda: stage.coordinator.ticks, "the loop has seen a tick behind the question")
    assert not parked.done()
    stage.store(take.checkpoint)
    stage.loop.post(Cancel())
    stage.wait_for(WriteStopped)
    with pytest.raises(StreamEnding):
        parked.result(PATIENCE_S)


def test_a_parked_batch_goes_on_when_the_stop_fails(stage: Stage) -> None:
    stage.loop.post(Trigger(stop=True))
    (take,) = stage.wait_for(TakeSnapshot)
    parked = stage.ask()
    stage.loop.post(Acknowledged(checkpoint=take.checkpoint, participant=ALONE))
    stage.wait_for(StoreSnapshot)
    stage.loop.post(StoreFailed(checkpoint=take.checkpoint, cause="no space"))
    assert parked.result(PATIENCE_S).cut.epoch == 0


def test_whoever_waits_when_the_loop_is_closed_is_refused_at_once(stage: Stage) -> None:
    stage.ask().result(PATIENCE_S)
    waiting = [stage.ask(), stage.ask()]
    stage.loop.post(Tick())
    until(lambda: stage.coordinator.ticks, "both are parked")
    stage.loop.close()
    for asked in waiting:
        with pytest.raises(StreamEnding):
            asked.result(PATIENCE_S)
    with pytest.raises(StreamEnding):
        stage.loop.begin_batch()


def test_it_can_be_closed_twice_and_before_it_has_started() -> None:
    stage = Stage()
    stage.close()
    stage.loop.close()
    never_started = CoordinatorLoop(stage.coordinator, stage.perform)
    never_started.close()
    never_started.close()
    with pytest.raises(StreamEnding):
        never_started.begin_batch()


def test_a_mistake_in_the_coordinator_fails_the_stream_and_leaves_nobody_waiting(stage: Stage) -> None:
    stage.ask().result(PATIENCE_S)
    waiting = stage.ask()
    stage.coordinator.breaks_at = Trigger
    stage.loop.post(Trigger(request=RequestId("now")))
    (failed,) = stage.wait_for(FailStream)
    assert failed.cause == "the coordinator failed: KeyError: 'a mistake'"
    with pytest.raises(StreamEnding):
        waiting.result(PATIENCE_S)
    until(lambda: isinstance(_refusal(stage), StreamEnding), "later ones are refused too")


def _refusal(stage: Stage) -> BaseException | None:
    return stage.ask().exception(PATIENCE_S)


def test_checkpoints_come_at_the_interval_while_nothing_else_happens() -> None:
    stage = Stage(interval_ms=30)
    [first] = stage.wait_for(TakeSnapshot)
    stage.store(first.checkpoint)
    told = stage.wait_for(NotifyCurrent, 3)
    stage.close()
    assert {each.checkpoint for each in told} == {1}, "the others would have repeated it"
    assert {each.as_of_ms for each in told} == {None}, "its source has not looked"
    assert len(stage.wait_for(TakeSnapshot)) == 1


@pytest.mark.usefixtures("asleep")
def test_what_the_thread_of_a_batch_has_made_due_wakes_the_coordinators() -> None:
    stage = Stage(timeout_ms=60)
    sleeps = stage.loop._changed._waiters  # type: ignore[attr-defined]
    first = stage.ask().result(PATIENCE_S)
    stage.loop.post(Trigger(request=RequestId("one")))
    stage.wait_for_request()
    until(lambda: sleeps, "it sleeps")
    rounds = stage.loop._rounds
    stage.finish(first, within_ms=3_600_000)
    until(lambda: stage.loop._rounds > rounds and sleeps, "it has heard of the batch, and sleeps for an hour")
    stage.ask().result(PATIENCE_S)
    stage.wait_for(NotifyAborted)  # 60 ms after the barrier
    stage.close()


def test_a_checkpoint_expires_while_nothing_else_happens() -> None:
    stage = Stage(interval_ms=10, timeout_ms=40)
    (aborted, *_) = stage.wait_for(NotifyAborted)
    stage.close()
    assert "expired after 40 ms" in aborted.cause


def test_the_loop_sleeps_while_a_step_runs_over_a_due_checkpoint() -> None:
    """It would otherwise eat a processor that the step needs, for as long as the step runs."""
    stage = Stage(interval_ms=10)
    stage.ask().result(PATIENCE_S)
    until(lambda: CoordinatorLoop.now_ms() > stage.coordinator.started_ms + 20, "a checkpoint is due")
    begun = stage.coordinator.ticks
    threading.Event().wait(0.3)
    stage.close()
    assert stage.coordinator.ticks - begun <= 3


def test_f47_ids_are_unique_however_many_threads_ask(stage: Stage) -> None:
    def ask(thread: int) -> None:
        for number in range(10):
            stage.loop.post(Trigger(name=SavepointName(f"s{thread}-{number}"), request=RequestId(f"{thread}-{number}")))

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(ask, range(8)))
    taken = stage.wait_for(TakeSnapshot, 80)
    assert [take.checkpoint for take in taken] == list(range(1, 81))


def test_the_cuts_of_snapshots_under_way_are_pinned(stage: Stage) -> None:
    assert stage.loop.pinned_cuts() == ()
    stage.finish(stage.ask().result(PATIENCE_S))
    stage.loop.post(Trigger(request=RequestId("one")))
    (take,) = stage.wait_for(TakeSnapshot)
    assert [cut.epoch for cut in stage.loop.pinned_cuts()] == [1]
    stage.store(take.checkpoint)
    until(lambda: stage.loop.pinned_cuts() == (), "the snapshot is stored")
