"""A job with channels: what its newest checkpoint holds, and when another one would hold the same."""

from __future__ import annotations

from headgate.coordinator.messages import Looked, NotifyComplete, NotifyCurrent, StoreSnapshot, TakeSnapshot
from headgate.testing.coordinator_books import checkpoint_ref
from headgate_contract.ids import CheckpointId
from tests.runtime.gate.graph_coordinating import A_TO_B, S0, S1, A, B, Job

EVERY = 1000


def idle(**options: object) -> Job:
    """It has run dry, and had its checkpoint; what that has committed is noted by another one."""
    job = Job(interval_ms=EVERY, retained=9, **options)
    job.hand_over(S0)
    job.hand_over(S1)
    job.run_dry()
    for _ in range(2):
        take(job)
    return job


def take(job: Job) -> None:
    """The next one is due, and taken."""
    before = len(job.all(StoreSnapshot))
    job.wait(EVERY)
    job.acknowledge_all()
    assert len(job.all(StoreSnapshot)) == before + 1
    job.complete()


def current(job: Job) -> list[int]:
    """What is said when the next one is due: of which it would be a repetition."""
    actions = job.wait(EVERY)
    assert not (any(isinstance(each, NotifyCurrent) for each in actions) and any_taken(actions))
    return [int(each.checkpoint) for each in actions if isinstance(each, NotifyCurrent)]


def moments(job: Job, *, taken: bool = False) -> list[int | None]:
    """What is said when the next one is due: as of when."""
    actions = job.wait(EVERY)
    assert any_taken(actions) == taken
    return [each.as_of_ms for each in actions if isinstance(each, NotifyCurrent)]


def any_taken(actions: object) -> bool:
    return any(isinstance(each, TakeSnapshot) for each in actions)  # type: ignore[attr-defined]


def test_an_idle_job_takes_none_and_with_the_next_record_one() -> None:
    for aligned in (None, 0, 5000):
        job = idle(overtakes_after_ms=aligned)
        assert [current(job) for _ in range(3)] == [[2], [2], [2]]
        job.hand_over(S1)
        job.run_dry()
        take(job)


def test_aligned_what_is_on_its_way_has_still_to_turn_out() -> None:
    """As it stands the newest checkpoint is as good; but that is not what the barriers will find."""
    job = idle()
    job.hand_over(S0)
    assert current(job) == []
    assert list(job.coordinator.pending) == [3]
    job.run_dry()
    assert job.parts(3)


def test_overtaking_what_has_been_in_flight_and_is_still_there_is_no_news() -> None:
    job = idle(overtakes_after_ms=0)
    job.hand_over(S0)
    assert current(job) == [2], "not in the state: it is read again"
    job.hand_over(S0)
    assert current(job) == [2], "nor is what waits behind it"
    job.finish(A)
    take(job)
    assert job.take_of(3, lambda take: "inputs b" in take.parts).in_flight[str(A_TO_B)], "b is at the record"
    job.finish(A)
    take(job)
    take(job)  # notes the output
    assert current(job) == [5], "b is at it, and more waits: all of it is in flight there"
    job.finish(B)
    assert current(job) == [], "and now it is in the state"


def test_of_what_a_source_has_handed_over_and_no_task_has_done_nothing_is_said_to_be_in_it() -> None:
    """Where barriers overtake it is read again behind a restore, and not in the checkpoint."""
    job = idle(overtakes_after_ms=0)
    job.tell(Looked(began_ms=job.now))
    looked_ms = job.now
    assert moments(job) == [looked_ms]
    job.hand_over(S0)
    job.wait(500)
    job.tell(Looked(began_ms=job.now))
    assert moments(job) == [None], "the second one is repeated, and of what it has nothing new is known"
    job.run_dry()
    take(job)
    assert [each.as_of_ms for each in job.all(NotifyComplete)][-1] == looked_ms + EVERY + 500
    assert moments(job, taken=True) == []


def test_a_checkpoint_that_overtakes_says_nothing_of_what_it_leaves_out() -> None:
    for overtakes, expected in ((0, None), (5000, None), (None, 7)):
        job = Job(interval_ms=EVERY, retained=9, overtakes_after_ms=overtakes)
        job.hand_over(S0)
        job.tell(Looked(began_ms=7))
        job.wait(EVERY)
        job.run_dry()
        job.acknowledge_all()
        job.complete()
        assert [each.as_of_ms for each in job.all(NotifyComplete)] == [expected]


def test_at_least_once_nothing_overtakes_whatever_is_set() -> None:
    job = idle(overtakes_after_ms=0, exactly_once=False)
    assert current(job) == [2]
    job.hand_over(S0)
    assert current(job) == []


def test_the_end_of_one_source_is_worth_a_checkpoint_though_no_record_has_come() -> None:
    job = idle()
    job.end(S0)
    take(job)
    assert job.all(StoreSnapshot)[-1].cut.positions[S0]["ended"]
    assert current(job) == [3]


def test_an_input_that_becomes_idle_is_worth_one() -> None:
    job = idle(idle_after_ms=5000)
    assert current(job) == [2]
    job.wait(5000)
    job.acknowledge_all()
    job.complete()
    assert job.all(StoreSnapshot)[-1].checkpoint == 3
    assert current(job) == [3]


def test_event_time_that_moves_is_worth_one() -> None:
    job = idle()
    job.silent = True
    job.hand_over(S0)
    job.finish(A, watermark_ms=7)
    job.hand_over(S1)
    job.finish(A, watermark_ms=9)
    take(job)
    take(job)
    assert current(job) == [4]


def test_a_life_that_has_restored_its_newest_checkpoint_does_not_repeat_it() -> None:
    job = Job(interval_ms=EVERY, retained=9, begins_as=checkpoint_ref(7))
    assert current(job) == [7]
    job.hand_over(S0)
    job.run_dry()
    job.wait(EVERY)
    assert list(job.coordinator.pending) == [CheckpointId(8)]
