"""The coordinator of a job with channels: whose part of a checkpoint is asked for when, and what it consists of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.coordinator.messages import (
    BatchFailed,
    Declined,
    FailStream,
    NotifyAborted,
    StoreSnapshot,
    TakeSnapshot,
    WriteStopped,
)
from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.gate.elements import Barrier
from headgate.gate.flow import Flow, Told
from headgate.gate.messages import BatchTaken, FinishTask, SourcesRun
from headgate_contract.ids import CheckpointId, SavepointName, VertexUid
from tests.runtime.gate.graph_coordinating import A_TO_B, FROM_S0, OUT_A, OUT_B, PARTS, S0, S1, A, B, Job

AT_A = {"state a", "sink out-a", "source s0", "source s1", "inputs a"}
AT_B = {"state b", "sink out-b", "inputs b"}


def test_each_task_is_given_one_element_at_a_time_and_hands_it_on() -> None:
    job = Job()
    assert job.hand_over(S0)
    assert job.hand_over(S1)
    assert set(job.running) == {A}
    job.finish(A)
    assert set(job.running) == {A, B}
    job.run_dry()
    assert job.coordinator.is_dry


def test_a_source_is_held_up_while_its_channel_is_full_and_let_go_when_there_is_room() -> None:
    job = Job()
    taken = [job.hand_over(S0) for _ in range(10)]  # eight wait, the first one runs
    assert taken == [True] * 9 + [False]
    assert BatchTaken(source=S0) in job.finish(A)


def test_an_idle_job_takes_its_checkpoint_at_once() -> None:
    job = Job()
    job.trigger()
    assert job.parts(1) == AT_A | AT_B
    job.acknowledge_all()
    (store,) = job.all(StoreSnapshot)
    assert (set(store.vertices), set(store.sources), set(store.tasks)) == ({A, B}, {S0, S1}, {A, B})


def test_an_aligned_barrier_passes_a_task_when_all_before_it_is_done_and_goes_on_behind_what_it_has_made() -> None:
    job = Job()
    job.hand_over(S0)
    job.trigger()
    assert job.parts(1) == set()
    job.finish(A)
    assert job.parts(1) == AT_A
    job.finish(B)
    assert job.parts(1) == AT_A | AT_B
    state = job.take_of(1, lambda take: "state b" in take.parts)
    assert state.cut.versions == {B: {0: {"epoch": 1}}}
    assert state.staged == {OUT_B: job.all(TakeSnapshot)[-2].staged[OUT_B]}
    assert set(job.take_of(1, lambda take: "state a" in take.parts).staged) == {OUT_A}


def test_an_unaligned_barrier_overtakes_and_what_runs_counts_as_in_flight() -> None:
    job = Job(overtakes_after_ms=0)
    for _ in range(3):
        job.hand_over(S0)
    job.finish(A)  # b is at the first, a at the second, the third waits
    job.finish(A)  # and one waits before b
    job.trigger()
    assert job.parts(1) == AT_A | AT_B
    at_a = job.take_of(1, lambda take: "inputs a" in take.parts)
    assert at_a.cut.positions == {S0: {"next": 2}, S1: {"next": 0}}, "the third is read again"
    at_b = job.take_of(1, lambda take: "inputs b" in take.parts)
    assert [len(elements) for elements in at_b.in_flight.values()] == [2]
    assert job.coordinator.pinned_files() == {
        handle["name"] for e in at_b.in_flight[str(A_TO_B)] for handle in e["files"]
    }
    assert job.take_of(1, lambda take: "state b" in take.parts).cut.versions == {}, "its parent"


def test_f134_f143_a_savepoint_overtakes_nothing_whatever_is_set() -> None:
    job = Job(overtakes_after_ms=0)
    job.hand_over(S0)
    job.trigger(name=SavepointName("sp"))
    assert job.parts(1) == set()
    job.run_dry()
    assert job.parts(1) == AT_A | AT_B
    assert not any(take.in_flight for take in job.all(TakeSnapshot))


def test_with_a_timeout_a_barrier_begins_to_overtake_when_it_has_waited_long_enough() -> None:
    job = Job(overtakes_after_ms=50)
    job.hand_over(S0)
    job.trigger()
    assert job.coordinator.next_deadline() == 50
    job.wait(49)
    assert job.parts(1) == set()
    job.wait(1)
    assert job.parts(1) == AT_A | AT_B


def test_an_abort_lets_the_inputs_that_were_held_back_go_on() -> None:
    job = Job()
    job.hand_over(S0)
    job.trigger()
    job.hand_over(S1)  # behind its barrier: held back
    job.finish(A)
    job.run_dry()
    assert job.parts(1) == AT_A | AT_B
    job = Job()
    job.hand_over(S0)
    job.hand_over(S0)
    job.trigger()
    job.finish(A)
    job.hand_over(S1)
    declined = Declined(checkpoint=CheckpointId(1), participant="source s0", cause="no", reason=Reason.IO_EXCEPTION)
    assert any(isinstance(action, NotifyAborted) for action in job.tell(declined))
    job.run_dry()
    assert job.coordinator.is_dry
    assert job.parts(1) == set()


class OneBarrierIsLate(Flow):
    """As a source of a broker of its own would: its barrier comes later than the other's."""

    def inject(self, barrier: Barrier, now_ms: int) -> list[Told]:
        return self._put([(FROM_S0, barrier)], now_ms)


def test_what_a_task_has_told_of_a_checkpoint_is_forgotten_with_it() -> None:
    """Its barrier has overtaken on one input, and not come by the other: only the watermarks are known."""
    job = Job(overtakes_after_ms=0, flow_class=OneBarrierIsLate)
    job.hand_over(S0)
    job.trigger()
    assert "state a" in job.parts(1)
    assert "inputs a" not in job.parts(1)
    assert {task for _, task in job.coordinator._known} == {A}
    job.tell(Declined(checkpoint=CheckpointId(1), participant="state a", cause="?"))
    assert job.coordinator._known == {}
    job.trigger()
    assert {checkpoint for checkpoint, _ in job.coordinator._known} == {2}


def test_what_a_failed_attempt_has_staged_goes_with_the_next_one() -> None:
    job = Job()
    job.hand_over(S0)
    job.run_dry()
    job.trigger()
    job.tell(Declined(checkpoint=CheckpointId(1), participant="state a", cause="no"))
    job.hand_over(S1)
    job.run_dry()
    job.trigger()
    staged = job.take_of(2, lambda take: "sink out-a" in take.parts).staged
    assert [handle["staged"] for handle in staged[OUT_A]] == ["['s0.0']", "['s1.0']"]


def test_a_stop_holds_the_sources_lets_the_tasks_run_dry_and_ends_behind_its_commit() -> None:
    job = Job(overtakes_after_ms=0)
    for _ in range(2):
        job.hand_over(S0)
    job.trigger(stop=True, reason="enough")
    assert not job.hand_over(S1), "nothing more is taken in"
    assert job.parts(1) == set()
    job.run_dry()
    assert job.parts(1) == AT_A | AT_B
    assert job.take_of(1, lambda take: "inputs a" in take.parts).cut.positions == {S0: {"next": 2}, S1: {"next": 0}}
    job.acknowledge_all()
    job.complete()
    assert job.coordinator.ended
    assert len(job.all(WriteStopped)) == 1


def test_in_a_drain_each_task_finishes_when_everything_has_come_to_it() -> None:
    job = Job()
    job.hand_over(S0)
    job.trigger(stop=True, drain=True)
    assert job.all(FinishTask) == []
    job.finish(A)
    job.finish(B)
    assert [action.task for action in job.all(FinishTask)] == [A]
    job.finish(A)
    assert [action.task for action in job.all(FinishTask)] == [A, B]
    assert job.parts(1) == set()
    job.finish(B)
    assert job.parts(1) == AT_A | AT_B


def test_a_task_that_fails_fails_the_stream_and_nobody_is_given_anything_more() -> None:
    job = Job()
    job.hand_over(S0)
    job.hand_over(S1)
    job.finish(A)
    before = len(job.done)
    actions = job.tell(BatchFailed(cause="task b failed: no"))
    assert [type(action) for action in actions] == [FailStream]
    job.tell(BatchFailed(cause="again"))
    assert len(job.done) == before + 1


@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_are_those_that_the_sources_have_handed_over(exactly_once: bool) -> None:
    job = Job(exactly_once=exactly_once)
    for source in (S0, S0, S1):
        job.hand_over(source)
    job.run_dry()
    job.trigger()
    job.acknowledge_all()
    (store,) = job.all(StoreSnapshot)
    assert store.cut.records == 3


def event_time(job: Job, task: VertexUid) -> int | None:
    return job.running[task].cut.watermark_ms


def test_what_a_source_tells_of_event_time_counts_from_the_next_element_on_also_behind_the_next_task() -> None:
    job = Job()
    for _ in range(2):
        job.hand_over(S0)
        job.hand_over(S1)
    for watermark in (10, 7):  # of s0, and of s1
        assert event_time(job, A) is None
        job.finish(A, watermark)
    assert event_time(job, A) == 7
    for _ in range(2):
        assert event_time(job, B) is None, "what a had made before it knew"
        job.finish(B)
    job.finish(A, 20)
    assert event_time(job, B) == 7
    job.finish(A, 15)
    job.run_dry()
    assert job.coordinator.watermark_ms == 15


def test_a_checkpoint_has_of_event_time_what_its_tasks_had_been_told() -> None:
    job = Job(overtakes_after_ms=0)
    for source, watermark in ((S0, 10), (S1, 7)):
        job.hand_over(source)
        job.finish(A, watermark)
    job.trigger()
    at_a = job.take_of(1, lambda take: "inputs a" in take.parts)
    assert at_a.watermarks == {
        "passed": 7,
        "inputs": {"s0->a": {"ms": 10, "idle": False}, "s1->a": {"ms": 7, "idle": False}},
    }
    at_b = job.take_of(1, lambda take: "inputs b" in take.parts)
    assert at_b.watermarks == {"passed": None, "inputs": {"a->b": {"ms": None, "idle": False}}}
    assert at_b.in_flight["a->b"][-1] == {"watermark_ms": 7}, "told behind the two micro-batches"


def test_a_silent_source_holds_up_nobody_and_is_waited_for_again_when_it_speaks() -> None:
    job = Job(idle_after_ms=100)
    job.hand_over(S0)
    job.hand_over(S1)
    job.finish(A, 10)
    job.wait(500)  # a is at the record of s1, which is not silent therefore
    job.finish(A, 3)
    job.run_dry()
    assert job.coordinator.watermark_ms == 3
    job.hand_over(S0)
    job.wait(99)
    job.finish(A, 12)
    job.run_dry()
    assert job.coordinator.watermark_ms == 3
    assert job.coordinator.next_deadline() == job.now + 1
    job.wait(1)
    job.run_dry()
    assert job.coordinator.watermark_ms == 12
    job.hand_over(S1)
    job.finish(A, 12)
    job.hand_over(S0)
    job.finish(A, 30)
    job.run_dry()
    assert job.coordinator.watermark_ms == 12


def test_a_drain_of_tasks_that_have_nothing_to_finish_takes_its_savepoint_in_the_same_turn() -> None:
    job = Job()
    job.coordinator.tasks = {task: replace(parts, state=None) for task, parts in PARTS.items()}
    job.trigger(stop=True, drain=True)
    assert job.all(FinishTask) == []
    assert [take.checkpoint for take in job.all(TakeSnapshot)] == [1, 1, 1, 1]


def test_nobody_is_idle_before_the_sources_run() -> None:
    job = Job(idle_after_ms=100, sources_run=False)
    job.wait(1000)
    assert job.coordinator.next_deadline() is None
    job.tell(SourcesRun())
    assert job.coordinator.next_deadline() == job.now + 100
