"""When a barrier passes: the interval, the pause, how many at once, and what people ask for meanwhile."""

from __future__ import annotations

import pytest

from headgate.coordinator.messages import Action, NotifyAborted, Reply, TakeSnapshot
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinator_books import SOURCE, STATE, checkpoint_ref, savepoint_ref
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.errors import BadConfiguration
from headgate_contract.ids import CheckpointId, RequestId
from headgate_contract.settings import Settings
from headgate_contract.snapshot import ExternalizedCheckpointRetention

EVERY_SECOND = CheckpointOptions(interval_ms=1000)
OFF = CheckpointOptions(interval_ms=None)


def barriers(actions: list[Action]) -> list[int]:
    """The ids of the snapshots that are to be taken; nothing else is to be done."""
    assert all(isinstance(action, TakeSnapshot) for action in actions)
    return [action.checkpoint for action in actions if isinstance(action, TakeSnapshot)]


def test_f1_a_trigger_makes_one_pending_checkpoint_that_counts_its_acks_down() -> None:
    world = World(EVERY_SECOND)
    assert barriers(world.pass_time(1000)) == [1]
    assert world.pending == [1]
    world.coordinator.scheduler.stop()
    assert world.coordinator.next_deadline() == world.now_ms + EVERY_SECOND.timeout_ms, "one timer is left: its own"
    waiting = world.coordinator.pending[CheckpointId(1)].waiting
    world.ack(1, STATE)
    assert STATE not in waiting
    assert len(waiting) == 2
    world.ack(1)
    world.settle()
    assert world.pending == []
    assert world.kept_checkpoints == [1]


def test_f26_periodic_checkpoints_come_at_the_interval_and_end_with_the_stream() -> None:
    world = World(EVERY_SECOND, flowing=True)
    taken = []
    for _ in range(30):
        taken += [(world.now_ms, id) for id in barriers(world.pass_time(100))]
        if world.pending:
            world.complete(world.pending[0])
    assert taken == [(2000, 1), (3000, 2), (4000, 3)]
    world.request("stop", stop=True)
    world.complete(4)
    assert world.ended
    assert world.coordinator.next_deadline() is None
    assert world.pass_time(10_000) == []


def test_checkpointing_is_off_until_an_interval_is_set() -> None:
    world = World(OFF)
    assert world.coordinator.next_deadline() is None
    assert world.pass_time(10_000_000) == []


@pytest.mark.parametrize("options", [OFF, EVERY_SECOND], ids=["periodic ones off", "periodic ones on"])
def test_f161_a_person_can_trigger_a_checkpoint(options: CheckpointOptions) -> None:
    world = World(options)
    world.request("now")
    assert world.pending == [1]
    world.complete(1)
    answer = world.replies[RequestId("now")]
    assert isinstance(answer, Reply)
    assert answer.done
    assert answer.result == {"snapshot": 1, "name": None, "folder": "chk-1", "kind": "checkpoint"}


def test_a_barrier_waits_for_the_running_step_and_the_cut_is_what_the_step_made() -> None:
    world = World(EVERY_SECOND)
    world.begin()
    assert world.pass_time(5000) == []
    assert world.request("now") == []
    world.finish()
    assert [attempt.take.cut.epoch for attempt in world.open_attempts] == [1]


def test_nobody_waits_for_a_deadline_at_which_nothing_can_happen() -> None:
    """A due checkpoint behind a running step: its end is an event of its own, there is no need to look at the clock."""
    world = World(EVERY_SECOND)
    world.begin()
    assert world.coordinator.next_deadline() == 2000, "then it is asked for, and waits"
    world.pass_time(1000)
    assert world.coordinator.next_deadline() == 2000 + EVERY_SECOND.timeout_ms, "by then it will have expired"
    world.finish()
    assert world.coordinator.next_deadline() == 3000
    world.pass_time(1000)
    assert world.pending == [1]
    assert world.coordinator.next_deadline() == 2000 + EVERY_SECOND.timeout_ms, "the next waits for the one under way"


def test_a_step_that_lets_no_barrier_pass_is_a_checkpoint_that_expires() -> None:
    options = CheckpointOptions(interval_ms=1000, timeout_ms=5000, tolerable_failures=1)
    world = World(options)
    world.begin()
    world.pass_time(1000)
    assert world.pass_time(4999) == []
    assert world.coordinator.next_deadline() == world.now_ms + 1
    world.pass_time(1)
    world.settle()
    assert world.aborted() == {1: "it expired after 5000 ms: the running micro-batch let no barrier pass"}
    assert [notice.held_up_ms for notice in world.notices if isinstance(notice, NotifyAborted)] == [5000]
    assert world.failures == [], "one may fail"
    world.pass_time(5000)
    world.settle()
    [failure] = world.failures
    assert failure.cause == (
        "checkpoint 2 failed (it expired after 5000 ms: the running micro-batch let no barrier pass), and no more than "
        "1 may fail in a row (execution.checkpointing.tolerable-failed-checkpoints)"
    )
    assert world.ended


@pytest.mark.parametrize("name", ["mine", None], ids=["a savepoint", "a checkpoint"])
def test_what_a_person_asked_for_expires_behind_a_long_step_for_them_and_not_for_the_stream(name: str | None) -> None:
    world = World(CheckpointOptions(interval_ms=60_000, timeout_ms=5000, tolerable_failures=0))
    world.begin()
    world.request("asked", name)
    world.pass_time(5000)
    world.settle()
    why = "it expired after 5000 ms: the running micro-batch let no barrier pass"
    reply = world.replies[RequestId("asked")]
    assert isinstance(reply, Reply)
    assert (reply.done, reply.why) == (False, why)
    assert world.aborted() == {1: why}
    assert world.failures == []
    world.finish()
    assert world.pending == [], "it is not taken behind the refusal"


def test_a_stop_behind_a_long_step_is_refused_and_the_stream_goes_on() -> None:
    world = World(CheckpointOptions(interval_ms=6000, timeout_ms=5000, tolerable_failures=0))
    world.begin()
    world.request("stop", stop=True)
    world.request("me-too", stop=True)
    world.pass_time(5000)
    world.settle()
    assert {id for id, reply in world.replies.items() if isinstance(reply, Reply) and not reply.done} == {
        "stop",
        "me-too",
    }
    assert world.failures == []
    world.finish()
    assert world.coordinator.may_begin
    world.pass_time(6000)
    assert world.pending == [2], "with periodic checkpoints"


def test_a_savepoint_that_comes_later_has_a_time_of_its_own_and_gives_the_stream_none() -> None:
    world = World(CheckpointOptions(interval_ms=1000, timeout_ms=5000, tolerable_failures=1))
    world.begin()
    world.pass_time(1000)
    world.pass_time(4000)
    world.request("late", "late")
    world.pass_time(1000)
    world.settle()
    assert list(world.aborted()) == [1]
    assert world.replies == {}, "what has expired is the periodic one"
    world.finish()
    assert world.attempts[world.open_attempts[0].take.checkpoint].take.name == "late"


def test_a_long_step_that_ends_in_time_is_no_failure_and_neither_is_one_without_checkpointing() -> None:
    world = World(CheckpointOptions(interval_ms=1000, timeout_ms=5000))
    for _ in range(3):
        world.begin()
        world.pass_time(5900)
        world.finish()
        world.complete(world.pending[0])
    assert world.aborted() == {}
    world = World(OFF)
    world.begin()
    assert world.coordinator.next_deadline() is None
    assert world.pass_time(10_000_000) == []


def test_each_barrier_says_since_when_it_was_due() -> None:
    """What the running step kept it waiting for, and not what an older checkpoint did."""
    world = World(CheckpointOptions(interval_ms=1000, max_concurrent=2))
    world.begin()
    world.pass_time(1000)  # due at 2000
    world.pass_time(400)
    world.request("now")  # at 2400
    world.pass_time(300)
    world.finish()
    by_hand, periodic = (attempt.take for attempt in world.open_attempts)
    assert (by_hand.due_ms, periodic.due_ms) == (2400, 2000)
    world.pass_time(1600)
    world.complete(1)
    assert [attempt.take.due_ms for attempt in world.open_attempts] == [2000, world.now_ms], "it could not pass before"


def test_f10_the_pause_after_a_checkpoint_is_kept_and_then_the_next_one_starts() -> None:
    world = World(CheckpointOptions(interval_ms=100, min_pause_ms=500), flowing=True)
    world.pass_time(100)
    world.pass_time(300)
    assert world.pending == [1], "it is due, but one is running"
    assert world.ack(1) != []
    world.settle()
    assert world.pending == [], "not in the middle of the completion of the one before"
    ended = world.now_ms
    assert world.coordinator.next_deadline() == ended + 500
    assert world.pass_time(499) == []
    assert barriers(world.pass_time(1)) == [2]


def test_f32_periodic_checkpoints_keep_the_pause_also_after_one_that_failed() -> None:
    world = World(CheckpointOptions(interval_ms=100, min_pause_ms=500, tolerable_failures=10), flowing=True)
    world.pass_time(100)
    for number, end in ((1, world.complete), (2, world.decline), (3, world.complete)):
        assert world.pending == [number]
        end(number)
        assert world.pass_time(499) == []
        assert barriers(world.pass_time(1)) == [number + 1]


def test_a_pause_between_checkpoints_means_that_one_runs_at_a_time() -> None:
    world = World(CheckpointOptions(interval_ms=100, min_pause_ms=500, max_concurrent=3))
    for _ in range(20):
        world.pass_time(100)
    assert world.pending == [1]


def test_f36_within_the_pause_a_savepoint_and_a_checkpoint_by_hand_run_at_once() -> None:
    world = World(CheckpointOptions(interval_ms=1000, min_pause_ms=5000))
    world.pass_time(1000)
    world.complete(1)
    assert world.pass_time(1000) == []
    world.request("savepoint", "upgrade")
    world.request("now")
    assert world.pending == [2, 3]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_f11_never_more_at_once_than_allowed_and_each_completion_lets_one_more_start(most: int) -> None:
    world = World(CheckpointOptions(interval_ms=100, max_concurrent=most), flowing=True)
    for _ in range(10):
        world.pass_time(100)
    assert world.pending == list(range(1, most + 1))
    for completed in range(1, 4):
        world.complete(completed)
        world.pass_time(100)
        assert world.pending == list(range(completed + 1, completed + most + 1))


def test_f13_savepoints_run_at_once_whatever_the_limit_and_all_complete() -> None:
    world = World(CheckpointOptions(interval_ms=1000, max_concurrent=1))
    world.pass_time(1000)
    for name in ("a", "b", "c"):
        world.request(name, name)
    assert world.pending == [1, 2, 3, 4]
    for number in (3, 1, 4, 2):
        world.ack(number)
    world.settle()
    assert [slot.name for slot in world.completed] == [None, "a", "b", "c"]


def test_f14_there_is_no_pause_between_savepoints() -> None:
    world = World(CheckpointOptions(interval_ms=None, min_pause_ms=10_000))
    world.request("a", "a")
    world.complete(1)
    world.request("b", "b")
    assert world.pending == [2]


def test_what_people_ask_for_does_not_put_off_the_periodic_checkpoints() -> None:
    """Else a savepoint a minute would be the end of checkpoints every two minutes."""
    world = World(EVERY_SECOND)
    for number in range(1, 4):
        world.pass_time(300)
        world.request(f"savepoint-{number}", f"s{number}")
        world.complete(number)
    world.pass_time(100)
    assert world.pending == [4]


@pytest.mark.parametrize("fails", ["while it waits", "at its barrier"])
def test_f30_the_first_of_three_queued_requests_fails_and_the_other_two_run(fails: str) -> None:
    world = World(CheckpointOptions(interval_ms=100_000, timeout_ms=5000))
    world.begin()
    for request in ("one", "two", "three"):
        world.request(request)
    assert [waiting.request for waiting in world.coordinator.requests.waiting] == ["one", "two", "three"]
    if fails == "while it waits":
        world.pass_time(5000)
        world.finish()
    else:
        world.finish()
        assert world.pending == [1]
        world.decline(1)
    assert set(world.replies) <= {"one"}
    for number in (2, 3):
        assert world.pending == [number]
        world.complete(number)
    assert {id: answer.done for id, answer in world.replies.items() if isinstance(answer, Reply)} == {
        "one": False,
        "two": True,
        "three": True,
    }


def test_a_request_that_is_refused_keeps_no_other_from_running() -> None:
    world = World(OFF, retained=[savepoint_ref(1, "old")])
    world.begin()
    world.request("one", "old")
    world.request("two", "new")
    world.request("three")
    world.finish()
    assert world.pending == [2, 3]
    world.complete(2)
    world.complete(3)
    assert {id: answer.done for id, answer in world.replies.items() if isinstance(answer, Reply)} == {
        "one": False,
        "two": True,
        "three": True,
    }


@pytest.mark.parametrize("where", ["in the catalogue", "under way", "in the queue"])
def test_a_savepoint_whose_name_is_taken_is_refused(where: str) -> None:
    world = World(OFF, retained=[savepoint_ref(1, "upgrade")] if where == "in the catalogue" else [])
    if where != "in the catalogue":
        if where == "in the queue":
            world.begin()
        world.request("first", "upgrade")
    world.request("second", "upgrade")
    world.settle()
    answer = world.replies[RequestId("second")]
    assert isinstance(answer, Reply)
    assert not answer.done
    assert answer.why == "there is a savepoint upgrade already, or one is being taken"


def test_the_name_of_a_savepoint_that_failed_is_free_again() -> None:
    world = World(OFF)
    world.request("first", "upgrade")
    world.decline(1)
    world.request("second", "upgrade")
    world.complete(2)
    assert [slot.name for slot in world.completed] == ["upgrade"]


def test_f47_ids_grow_by_one_and_go_on_from_the_restored_value() -> None:
    assert barriers(World(OFF).request("first")) == [1]
    world = World(OFF, retained=[checkpoint_ref(41)])
    for expected in (42, 43, 44):
        assert barriers(world.request(f"request-{expected}")) == [expected]
        world.decline(expected, SOURCE)  # an id that came to nothing is not used again


def test_f55_to_retain_no_checkpoint_is_a_configuration_error() -> None:
    with pytest.raises(BadConfiguration, match="num-retained: 0 is not allowed"):
        CheckpointOptions.of(Settings({"execution.checkpointing.num-retained": "0"}))


def test_the_options_are_flinks_settings() -> None:
    given = {
        "interval": "10 s",
        "timeout": "1 min",
        "min-pause": "500 ms",
        "max-concurrent-checkpoints": "2",
        "num-retained": "3",
        "tolerable-failed-checkpoints": "4",
        "externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    }
    settings = Settings({f"execution.checkpointing.{key}": value for key, value in given.items()})
    assert CheckpointOptions.of(settings) == CheckpointOptions(
        interval_ms=10_000,
        timeout_ms=60_000,
        min_pause_ms=500,
        max_concurrent=2,
        retained=3,
        tolerable_failures=4,
        retention=ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION,
    )
    assert CheckpointOptions.of(Settings({})) == OFF


def test_a_checkpoint_that_expires_says_after_how_many_milliseconds() -> None:
    world = World(CheckpointOptions.of(Settings({"execution.checkpointing.timeout": "1 min"})))
    world.request("now")
    world.pass_time(60_000)
    world.settle()
    assert world.aborted()[1].startswith("it expired after 60000 ms, still waiting for ")
