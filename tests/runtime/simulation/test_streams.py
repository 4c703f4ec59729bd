"""The harness of whole drivers: each thing that a script may do does what its name says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.messages import Action
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.streams import StreamHarness, Verdict
from headgate_contract.errors import Fenced
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, RequestId, SavepointName
from headgate_contract.mailbox import Outcome, Request, RequestKind
from headgate_contract.restore import ClaimMode, Named


def test_f13_several_savepoints_run_at_once_and_all_complete() -> None:
    with StreamHarness() as stream:
        driver = stream.launch()
        driver.slow("state numbers of *")
        driver.batch()
        requests = [driver.trigger(name) for name in ("a", "b", "c")]
        stream.run()
        assert driver.pending == [1, 2, 3]
        driver.hurry()
        stream.run()
        assert stream.completed == [1, 2, 3]
        assert [answer.outcome for request in requests if (answer := stream.answer(request))] == [Outcome.DONE] * 3


def test_f48_savepoints_never_push_out_the_last_checkpoint() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=None, retained=1)) as stream:
        driver = stream.launch()
        for name in (None, None, "x", "y", "z"):
            driver.batch()
            driver.trigger(name)
            stream.run()
        assert stream.completed == [1, 2, 3, 4, 5]
        assert stream.retained == [2, 3, 4, 5]
        assert not [file for file in stream.files if file.startswith("checkpoints/chk-1-")]


def test_f2_f7_a_decline_ends_its_own_snapshot_and_late_and_foreign_acks_change_nothing() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=None, tolerable_failures=9)) as stream:
        driver = stream.launch()
        driver.slow("state numbers of *")
        driver.trigger()
        driver.trigger()
        stream.run()
        driver.decline(1, cause="the disk is full")
        driver.ack(2, "state of another job")
        stream.run()
        driver.ack(1, "state numbers")
        stream.run()
        assert driver.aborted == {1: "state numbers declined: the disk is full"}
        assert driver.pending == [2]
        driver.hurry()
        stream.run()
        assert stream.completed == [2]


def test_time_passes_by_hand_and_lets_barriers_pass_and_checkpoints_expire() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=1000, timeout_ms=500, tolerable_failures=9)) as stream:
        driver = stream.launch()
        driver.slow("sink out of 2")
        stream.pass_time(1000)
        assert stream.completed == [1]
        driver.batch()
        stream.run()
        stream.pass_time(1000)
        assert driver.pending == [2]
        stream.pass_time(500)
        assert driver.pending == []
        assert driver.aborted[2].startswith("it expired after 500 ms")


def test_an_idle_stream_writes_nothing_through_restarts_of_its_driver_and_a_launch_begins_with_a_checkpoint() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=1000), settings=RESTARTS) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        stream.pass_time(1000)
        stream.pass_time(1000)
        assert stream.retained == [2], "the second one notes what the first has committed, and takes its place"
        slots = len(stream.slots)
        for _ in range(10):
            stream.pass_time(1000)
        assert (stream.retained, len(stream.slots)) == ([2], slots)
        driver.fail_batch()
        driver.batch()
        stream.run()
        stream.pass_time(1000)
        assert driver.restarts == 1
        slots = len(stream.slots)
        for _ in range(10):
            stream.pass_time(1000)
        assert (stream.retained, len(stream.slots)) == ([2], slots), "it stands where its newest checkpoint does"
        driver.crash()
        second = stream.launch()
        stream.pass_time(1000)
        for _ in range(10):
            stream.pass_time(1000)
        assert stream.retained == [3]
        assert second.position == 5


def test_a_certain_snapshot_is_restored_and_what_came_after_it_is_taken_back() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=None, retained=3)) as stream:
        driver = stream.launch()
        for _ in range(2):
            driver.batch()
            stream.run()
            driver.trigger()
            stream.run()
        assert len(stream.committed) == 10
        driver.crash()
        assert stream.launch(Named(CheckpointId(1))).position == 5
        assert len(stream.committed) == 5


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.LOST_ANSWER, Verdict.TWICE, Verdict.LATE])
def test_storage_ends_a_call_as_it_was_told_to_once(verdict: Verdict) -> None:
    with StreamHarness(CheckpointOptions(interval_ms=None, tolerable_failures=9)) as stream:
        driver = stream.launch()
        stream.storage(verdict, "create */_metadata")
        driver.trigger()
        stream.run()
        assert stream.completed == ([1] if verdict in (Verdict.TWICE, Verdict.LATE) else [])
        driver.trigger()
        stream.run()
        assert 2 in stream.completed


def test_two_launches_race_and_the_later_slot_wins() -> None:
    with StreamHarness() as stream:
        first, second = stream.claim(), stream.claim()
        stream.run()
        assert first.state is StreamState.FENCED
        assert isinstance(first.error, Fenced)
        assert second.state is StreamState.RUNNING
        assert (first.generation, second.generation) == (1, 2)


def test_a_signal_ends_a_driver_in_good_order() -> None:
    with StreamHarness(batch=4) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.terminate()
        stream.run()
        assert driver.state is StreamState.STOPPED
        assert len(stream.committed) == 4


def test_cancelling_ends_at_once_without_a_snapshot() -> None:
    with StreamHarness() as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.cancel()
        stream.run()
        assert driver.state is StreamState.STOPPED
        assert stream.completed == []


def test_waiting_for_what_never_comes_fails_and_tells_the_last_turns() -> None:
    with StreamHarness() as stream, pytest.raises(AssertionError, match=r"(?s)has not come:\n.*generation 1, main"):
        stream.launch().run_to("sink: commit")


def test_what_breaks_a_law_fails_and_tells_the_last_turns() -> None:
    with StreamHarness() as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.trigger()
        stream.run()
        del stream.disk.objects["streams/simulated/checkpoints/chk-1-g1/_metadata"]
        stream.disk.changes += 1
        driver.trigger()
        with pytest.raises(AssertionError, match=r"(?s)is gone, which a completed snapshot needs\n.*Trigger"):
            stream.run()


RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 s"}


def test_a_failed_batch_restarts_the_driver_from_its_newest_checkpoint_after_the_delay() -> None:
    with StreamHarness(settings={**RESTARTS, "restart-strategy.fixed-delay.attempts": "1"}) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.trigger()
        stream.run()
        driver.fail_batch()
        driver.batch()
        stream.run()
        assert (driver.state, driver.restarts) == (StreamState.RESTORING, 0)
        stream.pass_time(1000)
        assert (driver.state, driver.restarts, driver.position) == (StreamState.RUNNING, 1, 5)
        assert stream.slots == ["generation-started", "snapshot-completed", "restarted"]
        driver.batch()
        stream.run()
        driver.stop()
        stream.run()
        assert len(stream.committed) == 10

        again = stream.launch()
        for _ in range(2):
            again.fail_batch()
            again.batch()
            stream.run()
            stream.pass_time(1000)
        assert again.state is StreamState.FAILED
        assert "not restarted: the stream was restarted 1 time already" in str(again.error)


def test_a_slot_that_arrives_after_its_failure_is_too_late_behind_the_restart() -> None:
    with StreamHarness(settings=RESTARTS) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        stream.storage(Verdict.STRAY, "create */slots/*", after_ms=2_000)
        driver.trigger()
        stream.run()
        stream.pass_time(1000)
        assert driver.restarts == 1
        stream.pass_time(1000)
        assert stream.slots == ["generation-started", "restarted"]
        assert stream.completed == []
        driver.batch()
        stream.run()
        driver.trigger()
        stream.run()
        assert len(stream.committed) == 5


def test_a_claimed_savepoint_is_deleted_when_newer_checkpoints_subsume_it_and_another_never() -> None:
    with StreamHarness(CheckpointOptions(interval_ms=None, retained=1)) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        for name in ("kept", "claimed"):
            driver.trigger(name)
            stream.run()
        driver.crash()
        driver = stream.launch(Named(SavepointName("claimed")), ClaimMode.CLAIM)
        driver.batch()
        driver.trigger()
        stream.run()
        assert stream.retained == [1, 3]
        assert [file for file in stream.files if file.startswith("savepoints/claimed")] == []
        assert [file for file in stream.files if file.startswith("savepoints/kept")] != []


def test_a_driver_whose_snapshot_a_successor_has_deleted_is_fenced_and_not_said_to_have_failed() -> None:
    with StreamHarness() as stream:
        first = stream.launch()
        first.trigger()
        stream.run()
        first.crash()
        old = stream.claim()
        old.run_to("read */chk-1-g1/_metadata")
        old.freeze()
        new = stream.launch()
        for _ in range(2):
            new.batch()
            new.trigger()
            stream.run()
        assert stream.retained == [3]
        old.wake()
        stream.run()
        assert (old.state, type(old.error)) == (StreamState.FENCED, Fenced)


def asked(id: str, kind: RequestKind, **args: str) -> Request:
    return Request(id=RequestId(id), kind=kind, generation=1, args=args, deadline_ms=1_000, by="somebody", at_ms=0)


def test_who_asked_a_driver_that_died_right_after_its_slot_is_told_the_truth_by_the_next() -> None:
    with StreamHarness() as stream:
        driver = stream.launch()
        stream.ask(asked("savepoint", RequestKind.SAVEPOINT, name="before"))
        stream.ask(asked("stop", RequestKind.STOP, savepoint="last"))
        stream.run()
        stream.pass_time(2_000)
        assert stream.completed == [1, 2]
        assert driver.state is StreamState.STOPPED

    with StreamHarness() as stream:
        driver = stream.launch()
        stream.ask(asked("savepoint", RequestKind.SAVEPOINT, name="before"))
        stream.now_ms += 2_000
        stream.storage(Verdict.LATE, "create */answers/*")
        stream.run(lambda: stream.completed == [1])
        driver.crash()
        stream.launch()
        stream.pass_time(2_000)
        answer = stream.answer(RequestId("savepoint"))
        assert answer is not None
        assert (answer.outcome, answer.result["snapshot"]) == (Outcome.DONE, 1)


def test_f149_a_drained_stream_has_said_its_last_words_once_and_may_be_started_again() -> None:
    with StreamHarness(keys=3, batch=5) as stream:
        driver = stream.launch()
        driver.batch(2)
        stream.run()
        drained = driver.drain("last")
        stream.run()
        assert driver.state is StreamState.STOPPED
        assert (answer := stream.answer(drained)) is not None
        assert answer.outcome is Outcome.DONE
        assert stream.last_words == {0: 4, 1: 3, 2: 3}
        again = stream.launch()
        assert again.position == 10
        again.batch()
        stream.run()
        again.stop()
        stream.run()
        assert len(stream.committed) == 15
        assert stream.last_words == {0: 4, 1: 3, 2: 3}


@pytest.mark.parametrize("before", ["create */_metadata", "create */slots/*"])
def test_a_drain_that_is_killed_before_its_slot_has_said_nothing_and_can_be_repeated(before: str) -> None:
    with StreamHarness(keys=3, batch=5) as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.trigger()
        stream.run()
        driver.batch()
        stream.run()
        driver.drain("last")
        driver.run_to(before)
        driver.crash()
        assert stream.last_words == {}
        again = stream.launch()
        assert again.position == 5, "at the last completed checkpoint"
        again.batch()
        stream.run()
        again.drain("last")
        stream.run()
        assert stream.last_words == {0: 4, 1: 3, 2: 3}
        assert len(stream.committed) == 10


def test_a_drain_whose_finishing_fails_fails_the_driver() -> None:
    with StreamHarness() as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.fail_batch()
        driver.drain("last")
        stream.run()
        assert driver.state is StreamState.FAILED
        assert "the operators could not finish" in str(driver.error)
        assert stream.completed == []


def test_a_driver_that_takes_in_records_behind_its_drain_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = Coordinator._committed

    def goes_on(self: Coordinator, groups: Sequence[CheckpointId]) -> list[Action]:
        if self.stop is not None and self.stop.snapshot is not None:
            self.stop = None
        return committed(self, groups)

    monkeypatch.setattr(Coordinator, "_committed", goes_on)
    with StreamHarness() as stream:
        driver = stream.launch()
        driver.batch()
        stream.run()
        driver.drain("last")
        stream.run()
        driver.batch()
        stream.run()
        driver.trigger()
        with pytest.raises(AssertionError, match="generation 1 has taken in records behind its drain"):
            stream.run()
