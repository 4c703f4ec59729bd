"""Sources that end in a job with channels: who is through holds up nobody, and acknowledges at once."""

from __future__ import annotations

import pytest

from headgate.coordinator.coordinator import INPUT_ENDED
from headgate.coordinator.cut import is_at_end
from headgate.coordinator.messages import NotifyAborted, StoreSnapshot, TakeSnapshot, WriteStopped
from headgate.gate.messages import FinishTask
from headgate_contract.ids import RequestId, SavepointName, VertexUid
from tests.runtime.gate.graph_coordinating import S0, S1, A, B, Job

AT_A = {"state a", "sink out-a", "source s0", "source s1", "inputs a"}
AT_B = {"state b", "sink out-b", "inputs b"}


def finishing(job: Job) -> list[VertexUid]:
    return [action.task for action in job.all(FinishTask)]


def test_a_source_that_has_ended_is_waited_for_by_no_barrier() -> None:
    job = Job()
    job.hand_over(S0)
    job.end(S0)
    job.hand_over(S1)
    job.trigger()
    job.run_dry()
    assert job.parts(1) == AT_A | AT_B
    cut = job.take_of(1, lambda take: "inputs a" in take.parts).cut
    assert {source: is_at_end(dict(at)) for source, at in cut.positions.items()} == {S0: True, S1: False}
    assert finishing(job) == []


def test_a_task_finishes_when_all_of_its_inputs_have_ended_and_those_behind_it_then() -> None:
    job = Job()
    job.last_word = True
    job.hand_over(S0)
    job.end(S0)
    job.end(S1)
    assert finishing(job) == []
    job.finish(A)
    assert finishing(job) == [A]
    job.finish(B)
    assert finishing(job) == [A]
    job.finish(A)
    assert finishing(job) == [A], "it has still to be told what the task before it has said in the end"
    job.finish(B)
    assert finishing(job) == [A, B]


def test_f18_who_has_finished_acknowledges_at_once_the_others_when_the_barrier_comes_to_them() -> None:
    job = Job()
    job.last_word = True
    job.hand_over(S0)
    job.end(S0)
    job.end(S1)
    for task in (A, B, A):
        job.finish(task)
    job.trigger()  # a is through; b is at what it has said in the end
    assert job.parts(1) == AT_A
    assert job.take_of(1, lambda take: "state a" in take.parts).cut.finished == {A}
    job.finish(B)
    assert job.parts(1) == AT_A | AT_B
    assert not job.take_of(1, lambda take: "state b" in take.parts).cut.finished


def test_a_barrier_while_a_task_finishes_has_its_state_before_that_and_what_it_says_comes_behind() -> None:
    job = Job()
    job.last_word = True
    job.hand_over(S0)
    job.end(S0)
    job.end(S1)
    for task in (A, B):
        job.finish(task)
    job.trigger()
    assert job.parts(1) == AT_A | AT_B
    state = job.take_of(1, lambda take: "state a" in take.parts).cut
    assert (state.versions, state.finished) == ({A: {0: {"epoch": 1}}}, frozenset())
    assert job.take_of(1, lambda take: "inputs b" in take.parts).in_flight == {}
    job.finish(A)
    assert set(job.running) == {B}


@pytest.mark.parametrize("overtakes_after_ms", [None, 0])
def test_when_all_have_finished_the_stream_stops_with_a_last_checkpoint(overtakes_after_ms: int | None) -> None:
    job = Job(overtakes_after_ms=overtakes_after_ms)
    job.hand_over(S0)
    for source in (S0, S1):
        job.end(source)
    job.run_dry()
    assert finishing(job) == [A, B]
    assert job.parts(1) == AT_A | AT_B
    job.acknowledge_all()
    (stored,) = job.all(StoreSnapshot)
    assert stored.cut.finished == {A, B}
    job.complete()
    (stopped,) = job.all(WriteStopped)
    assert (stopped.reason, stopped.snapshot) == (INPUT_ENDED, 1)


def test_a_life_restored_from_there_ends_without_finishing_again() -> None:
    job = Job(finished=frozenset({A, B}))
    for source in (S0, S1):
        job.end(source)
    assert finishing(job) == []
    assert job.parts(1) == AT_A | AT_B
    job.acknowledge_all()
    job.complete()
    assert job.coordinator.ended


def test_what_comes_to_a_task_that_had_finished_makes_that_due_again() -> None:
    job = Job(finished=frozenset({A, B}))
    job.hand_over(S0)
    for source in (S0, S1):
        job.end(source)
    job.run_dry()
    assert finishing(job) == [A, B]


def test_in_a_drain_who_has_finished_does_not_again() -> None:
    job = Job(finished=frozenset({A}))
    job.trigger(stop=True, drain=True)
    assert finishing(job) == [B]


def test_in_a_drain_what_a_task_says_in_the_end_makes_the_finishing_of_the_next_due_again() -> None:
    job = Job(finished=frozenset({A, B}))
    job.last_word = job.silent = True
    job.hand_over(S0)
    job.run_dry()  # to `b` nothing has come
    job.trigger(stop=True, drain=True)
    job.run_dry()
    assert finishing(job) == [A, B]


def test_a_source_that_ends_in_a_drain_changes_nothing() -> None:
    job = Job()
    job.trigger(stop=True, drain=True)
    assert finishing(job) == [A]
    for source in (S0, S1):
        job.end(source)
    job.run_dry()
    assert finishing(job) == [A, B]
    assert len({take.checkpoint for take in job.all(TakeSnapshot)}) == 1
    job.acknowledge_all()
    job.complete()
    assert job.coordinator.ended


def test_what_was_overtaken_of_a_source_that_has_ended_is_read_again() -> None:
    job = Job(overtakes_after_ms=0)
    for _ in range(3):
        job.hand_over(S0)
    job.end(S0)
    job.trigger()
    position = job.take_of(1, lambda take: "inputs a" in take.parts).cut.positions[S0]
    assert position == {"next": 0}, "and it has not ended there"


@pytest.mark.parametrize("ends", [{S0}, {S0, S1}], ids=["one input", "both inputs"])
@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at least once"])
def test_a_savepoint_outlives_inputs_that_end_and_the_checkpoint_behind_it(mode: str, ends: set[VertexUid]) -> None:
    job = Job(
        exactly_once=mode != "at least once", overtakes_after_ms=0 if mode == "unaligned" else None, interval_ms=1000
    )
    for source, records in ((S0, 4), (S1, 2)):
        for _ in range(records):
            job.hand_over(source)
    job.end(S0)
    job.trigger(name=SavepointName("sp"), request=RequestId("save"))
    for source in ends - {S0}:
        job.end(source)
    job.wait(1000)
    job.run_dry()
    assert job.all(NotifyAborted) == []
    assert job.parts(1) == job.parts(2) == AT_A | AT_B
