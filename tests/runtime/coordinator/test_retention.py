"""Which older checkpoints a new one retires."""

from __future__ import annotations

import pytest

from headgate.coordinator.messages import BatchFailed, Cancel, Reply, WriteStopped
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.retention import subsumed
from headgate.testing.coordinator_books import checkpoint_ref, savepoint_ref
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import RequestId
from headgate_contract.settings import Settings
from headgate_contract.snapshot import ExternalizedCheckpointRetention, SnapshotKind, SnapshotRef


def retaining(number: int, retained: list[SnapshotRef] | None = None) -> World:
    return World(CheckpointOptions(interval_ms=None, retained=number), retained=retained or [])


def take(world: World, *names: str) -> None:
    """Complete snapshots: `cp...` are checkpoints, all others savepoints of that name."""
    for name in names:
        world.request(name, None if name.startswith("cp") else name)
        world.complete(world.pending[-1])


def test_f48_savepoints_never_push_out_the_last_checkpoint() -> None:
    world = retaining(1)
    take(world, "cp1", "cp2", "sp1", "sp2", "sp3")
    assert [slot.retires for slot in world.completed] == [(), (1,), (), (), ()]
    assert world.kept_checkpoints == [2]
    assert [ref.name for ref in world.coordinator.store.snapshots] == [None, "sp1", "sp2", "sp3"]


def test_no_checkpoint_ever_retires_a_savepoint() -> None:
    world = retaining(1)
    take(world, "cp1", "sp1", "cp2", "cp3")
    assert [slot.retires for slot in world.completed] == [(), (), (1,), (3,)]
    assert [ref.name for ref in world.coordinator.store.snapshots] == ["sp1", None]


def test_f50_a_stop_is_retained() -> None:
    world = retaining(1)
    take(world, "cp1", "sp1")
    world.request("stop", "last", stop=True)
    world.complete(3)
    assert world.ended
    assert [ref.id for ref in world.coordinator.store.snapshots] == [1, 2, 3]


def test_f51_none_is_retired_before_there_are_too_many() -> None:
    world = retaining(3)
    take(world, "cp1", "cp2", "cp3")
    assert [slot.retires for slot in world.completed] == [(), (), ()]


def test_f56_the_oldest_is_retired_first_in_order() -> None:
    world = retaining(2)
    take(world, "cp1", "cp2", "cp3", "cp4")
    assert [slot.retires for slot in world.completed] == [(), (), (1,), (2,)]


def test_a_smaller_number_to_retain_retires_all_that_are_too_many_at_once() -> None:
    world = retaining(1, [checkpoint_ref(1), savepoint_ref(2, "kept"), checkpoint_ref(3), checkpoint_ref(4)])
    take(world, "cp5")
    assert world.completed[0].retires == (1, 3, 4)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_ones_stay_whatever_is_there(keep: int) -> None:
    refs = [checkpoint_ref(number) for number in (4, 2, 9, 7)]
    retired = subsumed(refs, SnapshotKind.CHECKPOINT, keep)
    assert list(retired) == [2, 4, 7, 9][: 5 - keep]
    assert subsumed(refs, SnapshotKind.SAVEPOINT, keep) == ()


def test_what_is_to_be_restored_after_a_stop_is_not_retired_by_its_last_checkpoint() -> None:
    world = retaining(1, [checkpoint_ref(3), checkpoint_ref(4)])
    world.request("stop", stop=True, keep=3)
    world.complete(5)
    assert world.ended
    assert world.completed[-1].retires == (4,)
    assert world.kept_checkpoints == [3, 5]


def refusal_of(world: World, id: str) -> str:
    world.settle()
    reply = world.replies[RequestId(id)]
    assert isinstance(reply, Reply)
    assert not reply.done
    return reply.why


def test_what_a_second_stop_wants_to_keep_is_kept_by_the_first() -> None:
    world = retaining(1, [checkpoint_ref(3), checkpoint_ref(4)])
    world.request("stop", stop=True)
    world.request("restore", stop=True, keep=3)
    world.complete(5)
    assert world.completed[-1].retires == (4,)
    reply = world.replies[RequestId("restore")]
    assert isinstance(reply, Reply)
    assert reply.done


@pytest.mark.parametrize("stopping", [True, False], ids=["by a stop", "by a checkpoint"])
def test_a_stop_that_is_to_keep_what_is_being_retired_stops_nothing(stopping: bool) -> None:
    world = retaining(1, [checkpoint_ref(4)])
    world.request("before", stop=stopping)
    world.ack(5)
    world.request("restore", stop=True, keep=4)
    assert refusal_of(world, "restore") == "snapshot 4, which was to be kept, is not retained any more"
    assert world.ended is stopping
    world.request("again", stop=True, keep=4)
    assert refusal_of(world, "again")


def test_a_stop_that_is_to_keep_what_is_retired_stops_nothing() -> None:
    world = retaining(1)
    take(world, "cp1", "cp2")
    world.request("restore", stop=True, keep=1)
    assert refusal_of(world, "restore") == "snapshot 1, which was to be kept, is not retained any more"
    assert world.coordinator.may_begin


# ---- the end of the stream

Retention = ExternalizedCheckpointRetention
EVERY = pytest.mark.parametrize("policy", list(Retention), ids=lambda policy: policy.name)


def ending(policy: Retention, *names: str) -> World:
    """A stream with some snapshots: `cp...` are checkpoints, all others savepoints."""
    world = World(CheckpointOptions(interval_ms=None, retained=9, retention=policy))
    take(world, *names)
    return world


@EVERY
def test_f25_the_retention_that_is_configured_is_stamped_on_a_checkpoint(policy: Retention) -> None:
    world = ending(policy, "cp1", "sp1")
    assert [slot.retention for slot in world.completed] == [policy, None], "a savepoint stays at every end"


def test_by_default_nothing_is_deleted_at_any_end() -> None:
    assert CheckpointOptions.of(Settings({})).retention is Retention.RETAIN_ON_CANCELLATION


@EVERY
def test_f54_f57_a_cancel_retires_the_checkpoints_if_they_are_not_to_be_retained(policy: Retention) -> None:
    world = ending(policy, "cp1", "sp1", "cp2")
    world.tell(Cancel())
    world.settle()
    stopped = world.slots[-1]
    assert isinstance(stopped, WriteStopped)
    assert stopped.retires == (() if policy is Retention.RETAIN_ON_CANCELLATION else (1, 3)), "never a savepoint"


@EVERY
@pytest.mark.parametrize("name", ["last", None], ids=["with a savepoint", "with a checkpoint"])
def test_f54_f57_a_stop_retires_nothing_at_the_end(policy: Retention, name: str | None) -> None:
    world = ending(policy, "cp1", "sp1")
    world.request("stop", name, stop=True)
    world.complete(3)
    stopped = world.slots[-1]
    assert isinstance(stopped, WriteStopped)
    assert stopped.retires == ()
    assert [ref.id for ref in world.coordinator.store.snapshots] == [1, 2, 3]


@EVERY
def test_f54_a_failure_retires_nothing(policy: Retention) -> None:
    """It is followed by a restart, which restores the newest one."""
    world = ending(policy, "cp1")
    world.begin()
    world.busy = False
    world.tell(BatchFailed(cause="?"))
    world.settle()
    assert len(world.failures) == 1
    assert world.kept_checkpoints == [1]


def test_what_is_to_be_restored_next_is_not_retired_by_a_cancel_either() -> None:
    world = World(CheckpointOptions(interval_ms=None, retained=9, retention=Retention.DELETE_ON_CANCELLATION))
    take(world, "cp1", "cp2")
    world.request("stop", stop=True, keep=1)
    world.tell(Cancel())
    world.settle()
    stopped = world.slots[-1]
    assert isinstance(stopped, WriteStopped)
    assert stopped.retires == (2,)


@pytest.mark.parametrize("storing", [True, False], ids=["being stored", "stored"])
def test_a_cancel_does_not_retire_the_last_checkpoint_that_is_promised_to_who_asked_for_the_stop(storing: bool) -> None:
    world = World(CheckpointOptions(interval_ms=None, retained=9, retention=Retention.DELETE_ON_CANCELLATION))
    take(world, "cp1")
    world.request("stop", stop=True)
    world.ack(2)
    if not storing:
        world.carry_out()
        world.deliver()
    world.tell(Cancel())
    world.settle()
    stopped = world.slots[-1]
    assert isinstance(stopped, WriteStopped)
    assert stopped.retires == (1,)
    reply = world.replies[RequestId("stop")]
    assert isinstance(reply, Reply)
    assert reply.result["snapshot"] == 2
