"""Requests: who may be asked, what a repeat finds, and how a stream is stopped."""

from __future__ import annotations

import os
import signal

import pytest

from headgate_contract.errors import (
    Conflict,
    HeadgateError,
    InvalidName,
    RequestFailed,
    RequestTimedOut,
    StreamNotRunning,
)
from headgate_contract.heartbeats import StreamState
from headgate_contract.history import Event, record_event
from headgate_contract.ids import Generation, RequestId
from headgate_contract.mailbox import Answer, Mailbox, Outcome, RequestKind
from headgate_contract.records import Stopped
from headgate_control import Condition, Control
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of, wait_gone
from tests.control.world import STREAM, World, until

e2e = pytest.mark.e2e


@pytest.fixture
def running(world: World) -> Control:
    """The control of a stream that runs."""
    world.deployed()
    control = world.control()
    control.start(STREAM)
    return control


def crash(control: Control) -> None:
    process = control.status(STREAM).process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    assert wait_gone(process, 60)


class TestWithoutADriver:
    def test_a_stream_that_never_ran_cannot_be_asked(self, world: World) -> None:
        world.deployed()
        with pytest.raises(StreamNotRunning, match=r"does not run.*never started; `headgate start orders`"):
            world.control().checkpoint(STREAM)

    def test_f17_a_dead_one_says_since_when_and_what_was_last_heard_and_nothing_is_pending(self, world: World) -> None:
        world.deployed()
        world.started()
        world.beat(StreamState.FAILED, cause="SinkFailed: disk full", age_s=42)
        with pytest.raises(StreamNotRunning, match=r"last heartbeat 4\d s ago.*disk full"):
            world.control().savepoint(STREAM)
        assert Mailbox(world.store, STREAM).open_requests() == []

    def test_a_stopped_one_needs_no_stop(self, world: World) -> None:
        world.deployed()
        world.started()
        world.stopped()
        asked = world.control().stop(STREAM)
        assert asked.request is None
        assert "nothing to do" in asked.note
        with pytest.raises(StreamNotRunning):
            world.control().stop(STREAM, savepoint=True)

    def test_stopping_a_dead_one_says_so_and_nobody_restarts_it(self, world: World) -> None:
        world.deployed()
        world.started()
        world.beat(StreamState.FAILED, cause="SinkFailed: disk full")
        control = world.control()
        assert control.lost()
        asked = control.stop(STREAM)
        assert "it stays stopped" in asked.note
        assert control.lost() == []

    def test_stopping_a_dead_one_with_a_savepoint_names_the_newest_snapshot_instead(self, world: World) -> None:
        world.deployed()
        world.started()
        ref = world.snapshot()
        world.beat(StreamState.FAILED, cause="SinkFailed: disk full")
        with pytest.raises(StreamNotRunning, match=f"no savepoint was taken.*newest snapshot is {ref}"):
            world.control().stop(STREAM, savepoint=True)
        assert world.control().lost() == []

    def test_a_stream_that_never_ran_cannot_be_stopped(self, world: World) -> None:
        world.deployed()
        with pytest.raises(StreamNotRunning):
            world.control().stop(STREAM)
        with pytest.raises(StreamNotRunning):
            world.control().cancel(STREAM)

    def test_an_answer_that_only_the_log_tells_counts(self, world: World) -> None:
        world.deployed()
        world.started()
        ref = world.snapshot("final")
        stopped = Stopped(generation=Generation(1), reason="stop", request=RequestId("stop-1"), snapshot=ref.id)
        world.slot(stopped)
        answer = world.control().answer(STREAM, RequestId("stop-1"))
        assert answer is not None
        assert answer.outcome is Outcome.DONE
        assert answer.result == {"snapshot": 1, "name": "final", "folder": "streams/orders/savepoints/final-1-g1"}
        assert world.control().wait(STREAM, RequestId("stop-1"), 10).outcome is Outcome.DONE
        assert world.control().stop(STREAM, id=RequestId("stop-1")).answer == answer

    def test_a_request_that_nobody_answers_times_out_and_may_be_waited_for_again(self, world: World) -> None:
        world.deployed()
        world.started()
        world.beat()
        control = world.control()
        request = control.ask(STREAM, RequestKind.CHECKPOINT, id=RequestId("now"))
        with pytest.raises(RequestTimedOut, match=r"request now within 0\.2 s"):
            control.wait(STREAM, request.id, 0.2)
        assert control.ask(STREAM, RequestKind.CHECKPOINT, id=RequestId("now")) == request


@e2e
def test_a_checkpoint_and_a_savepoint_are_taken_and_named(running: Control) -> None:
    assert running.checkpoint(STREAM).snapshot == 1
    asked = running.savepoint(STREAM, "nightly")
    assert asked.snapshot == 2
    assert [str(ref) for ref in running.snapshots(STREAM)] == ["savepoint nightly (2)", "checkpoint 1"]
    told = [(event.what, event.outcome) for event in running.history(STREAM)]
    assert told[-4:] == [
        ("checkpoint", "ISSUED"),
        ("checkpoint", "EXECUTED"),
        ("savepoint", "ISSUED"),
        ("savepoint", "EXECUTED"),
    ]


@e2e
def test_a_request_that_is_repeated_gets_the_first_answer(running: Control) -> None:
    first = running.savepoint(STREAM, "one", id=RequestId("run-7"))
    again = running.savepoint(STREAM, "two", id=RequestId("run-7"))
    assert again.answer == first.answer
    assert len(running.snapshots(STREAM)) == 1
    crash(running)
    assert running.savepoint(STREAM, "three", id=RequestId("run-7")).answer == first.answer


@e2e
def test_a_request_that_failed_is_tried_anew_under_the_next_ordinal(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    control = world.control()
    control.start(STREAM)
    with pytest.raises(RequestFailed, match="could not carry out request run-7: a state file"):
        control.savepoint(STREAM, id=RequestId("run-7"))
    with pytest.raises(RequestFailed, match="request run-7~2"):
        control.savepoint(STREAM, id=RequestId("run-7"))


@pytest.mark.parametrize("digits", ["2", "007", "٣"])
def test_a_savepoint_is_not_called_by_what_names_an_id(world: World, digits: str) -> None:
    world.deployed()
    world.started()
    world.beat()
    with pytest.raises(InvalidName, match="add a letter"):
        world.control().savepoint(STREAM, digits)
    with pytest.raises(InvalidName, match="add a letter"):
        world.control().stop(STREAM, savepoint=digits)
    assert Mailbox(world.store, STREAM).open_requests() == []


@e2e
def test_a_name_that_is_taken_is_refused_at_once(running: Control) -> None:
    running.savepoint(STREAM, "nightly")
    with pytest.raises(Conflict, match="has a savepoint nightly already"):
        running.savepoint(STREAM, "nightly")


@e2e
def test_a_driver_that_dies_while_it_is_asked_fails_the_request(world: World) -> None:
    world.write_job("MODE = 'deaf'")
    world.deployed()
    control = world.control()
    control.start(STREAM)
    request = control.ask(STREAM, RequestKind.CHECKPOINT)
    crash(control)
    with pytest.raises(RequestFailed, match="was not answered: stream orders does not run"):
        control.wait(STREAM, request.id, 60)


@e2e
def test_stop_ends_the_driver_and_its_process(running: Control) -> None:
    process = running.status(STREAM).process
    asked = running.stop(STREAM)
    assert asked.answer is not None
    status = running.status(STREAM)
    assert (status.condition, sign_of(process)) == (Condition.STOPPED, ProcessSign.GONE)
    assert running.stop(STREAM).request is None


@e2e
def test_stop_with_a_savepoint_is_safe_to_repeat(running: Control) -> None:
    first = running.stop(STREAM, savepoint="final", id=RequestId("stop-1"))
    assert first.snapshot == 1
    again = running.stop(STREAM, savepoint="final", id=RequestId("stop-1"))
    assert again.answer == first.answer
    assert [ref.name for ref in running.snapshots(STREAM)] == ["final"]


@e2e
def test_a_drain_takes_a_savepoint_by_whatever_name_and_tells_the_driver(running: Control, world: World) -> None:
    asked = running.stop(STREAM, drain=True)
    assert asked.request is not None
    assert asked.answer is not None
    assert asked.request.args["drain"] is True
    assert asked.answer.result["name"] == asked.request.args["savepoint"]
    assert Mailbox(world.store, STREAM).request(asked.request.id) == asked.request
    with pytest.raises(StreamNotRunning):
        running.stop(STREAM, drain=True)


@e2e
def test_f147_a_stop_that_took_its_savepoint_and_never_ended_is_not_done_and_names_the_place(
    world: World,
) -> None:
    world.write_job("MODE = 'dies-at-stop'")
    world.deployed()
    control = world.control()
    control.start(STREAM)
    with pytest.raises(RequestFailed, match="was not answered") as unanswered:
        control.stop(STREAM, savepoint="final", id=RequestId("stop-1"))
    [taken] = control.snapshots(STREAM)
    assert taken.name == "final"
    assert unanswered.value.what.endswith(f"; savepoint final (1) is complete, at {taken.where}")
    assert control.lost() == []
    with pytest.raises(StreamNotRunning) as ended:
        control.stop(STREAM, savepoint="final", id=RequestId("stop-1"))
    assert ended.value.what.startswith("savepoint final (1) was taken by this very request, but its driver did not ")
    assert ended.value.what.endswith(f"; it is complete, at {taken.where}")


def test_f147_whoever_is_tired_of_waiting_for_a_stop_is_told_where_its_savepoint_is(world: World) -> None:
    world.deployed()
    world.started()
    world.beat()
    asked = world.control().stop(STREAM, savepoint="final", wait=False).request
    assert asked is not None
    taken = world.snapshot("final", request=asked.id)
    with pytest.raises(RequestTimedOut, match=r"within 0 s; savepoint final \(\d+\) is complete, at ") as late:
        world.control().wait(STREAM, asked.id, 0)
    assert taken.where in late.value.what


@e2e
def test_f148_a_stop_whose_savepoint_fails_leaves_the_stream_running_and_protected(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    control = world.control()
    control.start(STREAM)
    with pytest.raises(RequestFailed, match="a state file could not be written"):
        control.stop(STREAM, savepoint=True)
    assert control.status(STREAM).condition is Condition.RUNNING
    crash(control)
    assert [lost.stream for lost in control.lost()] == [STREAM]


@e2e
def test_nobody_has_to_wait_for_a_stop_that_fails_for_the_stream_to_stay_protected(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    control = world.control()
    driver = control.start(STREAM).process
    world.freeze(driver, silent=False)  # it answers when we have looked
    asked = control.stop(STREAM, savepoint=True, id=RequestId("stop-1"), wait=False)
    assert asked.request is not None
    assert control.status(STREAM).stop_wanted is not None
    os.kill(driver.pid, signal.SIGCONT)
    until(lambda: control.answer(STREAM, RequestId("stop-1")))
    until(lambda: control.status(STREAM).stop_wanted is None)  # an answer is asked after once for each heartbeat
    again = control.stop(STREAM, id=RequestId("stop-1"), wait=False)
    assert again.request is not None
    assert again.request.id == "stop-1~2"
    assert control.wait(STREAM, again.request.id, 60).outcome is Outcome.DONE
    assert control.stop(STREAM, id=RequestId("stop-1")).answer == control.answer(STREAM, again.request.id)


def test_a_driver_that_dies_long_after_its_stop_failed_is_lost(world: World) -> None:
    world.deployed()
    world.started()
    world.beat()
    control = world.control()
    asked = control.stop(STREAM, wait=False)
    assert asked.request is not None
    failed = Answer(id=asked.request.id, outcome=Outcome.FAILED, why="it expired", generation=1, at_ms=0)
    Mailbox(world.store, STREAM).reply(failed)
    world.beat(StreamState.FAILED, cause="SinkFailed: disk full")
    assert [lost.stream for lost in control.lost()] == [STREAM]
    world.control("boris").stop(STREAM)
    assert control.lost() == [], "another wish stands"


@e2e
def test_cancel_takes_no_snapshot(running: Control) -> None:
    running.cancel(STREAM)
    assert running.status(STREAM).condition is Condition.STOPPED
    assert running.snapshots(STREAM) == []


@e2e
def test_cancel_kills_a_driver_that_does_not_answer(world: World) -> None:
    world.write_job("MODE = 'deaf'")
    world.deployed()
    control = world.control()
    launched = control.start(STREAM)
    asked = control.cancel(STREAM, timeout_s=0.3)
    assert "was killed" in asked.note
    assert sign_of(launched.process) is ProcessSign.GONE
    assert control.status(STREAM).condition is Condition.STOPPED
    assert control.lost() == []


@e2e
def test_cancel_kills_a_frozen_driver(running: Control, world: World) -> None:
    process = running.status(STREAM).process
    assert process is not None
    world.freeze(process)
    until(running.lost)
    running.cancel(STREAM)
    assert sign_of(process) is ProcessSign.GONE
    assert running.lost() == []


@e2e
def test_a_frozen_driver_that_was_stopped_finds_the_request_when_it_wakes(running: Control, world: World) -> None:
    process = running.status(STREAM).process
    assert process is not None
    world.freeze(process)
    until(running.lost)
    assert "stays stopped" in running.stop(STREAM).note
    os.kill(process.pid, signal.SIGCONT)
    assert wait_gone(process, 60)
    assert "in good order" in running.status(STREAM).text


def test_history_is_in_the_order_of_the_log_though_a_callers_clock_is_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deployed()
    early = Event(at_ms=1_700_000_000_000, what="deploy", outcome="EXECUTED", by="anna")
    record_event(world.store, STREAM, early)
    world.started()
    monkeypatch.setattr("headgate_control.journal.now_ms", lambda: 5)
    with pytest.raises(HeadgateError):
        world.control().savepoint(STREAM, "nightly", timeout_s=0.1)
    told = world.control().history(STREAM)
    assert [(event.what, event.slot) for event in told] == [("deploy", 0), ("savepoint", 1), ("savepoint", 1)]
    assert [event.at_ms for event in told] == [1_700_000_000_000, 5, 5]
