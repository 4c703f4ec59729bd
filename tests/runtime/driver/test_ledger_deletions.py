"""What the ledger deletes: what a slot says is retired, never earlier, and never what somebody needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.coordinator.messages import (
    Cleaned,
    NotifyComplete,
    Stored,
    WriteStopped,
)
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.ids import CheckpointId
from headgate_contract.paths import METADATA
from headgate_contract.records import SnapshotCompleted
from headgate_contract.snapshot import ExternalizedCheckpointRetention
from tests.runtime.driver.ledger_world import CHECKPOINT_1, LedgerWorld, handle, snapshot


@pytest.fixture
def world() -> Iterator[LedgerWorld]:
    world = LedgerWorld()
    yield world
    world.ledger.close()


# ---- what a retired checkpoint leaves


def retire_one_of_two(world: LedgerWorld) -> NotifyComplete:
    """Checkpoints 1 (files a, b) and 2 (files b, c); 2 retires 1."""
    for path in ("shared/a", "shared/b", "shared/c"):
        world.plain.create(path, path.encode())
    world.do(snapshot(1, files=[handle("shared/a"), handle("shared/b")]))
    world.event()
    action = snapshot(2, files=[handle("shared/b"), handle("shared/c")], retires=[1])
    world.do(action)
    event = world.event()
    return NotifyComplete(
        checkpoint=action.checkpoint, snapshot=event.snapshot, cut=action.cut, retired=(CheckpointId(1),)
    )


def shared_files(world: LedgerWorld) -> list[str]:
    return [info.path for info in world.plain.list("shared")]


def test_what_the_last_action_retires_is_deleted_before_the_end(world: LedgerWorld) -> None:
    notice = retire_one_of_two(world)
    slow = threading.Event()
    world.faults.act = lambda call: slow.wait(0.3) if "history" in call else None
    world.ledger.perform(notice)
    assert world.ledger.close()
    assert shared_files(world) == ["shared/b", "shared/c"]
    assert world.ends == []


def test_f57_f70_a_retired_checkpoints_own_files_go_with_its_folder_and_shared_ones_with_the_last(
    world: LedgerWorld,
) -> None:
    world.do(retire_one_of_two(world))
    assert shared_files(world) == ["shared/b", "shared/c"]
    assert list(world.plain.list(CHECKPOINT_1.removesuffix(f"/{METADATA}"))) == []
    action = snapshot(3, files=[handle("shared/c")], retires=[2])
    world.do(action)
    [event] = [event for event in world.told() if isinstance(event, Stored)]
    world.do(
        NotifyComplete(checkpoint=action.checkpoint, snapshot=event.snapshot, cut=action.cut, retired=action.retires)
    )
    assert shared_files(world) == ["shared/c"]


def test_f69_a_restored_checkpoint_is_retired_although_files_of_it_are_still_in_use(world: LedgerWorld) -> None:
    for path in ("shared/a", "shared/b", "shared/c"):
        world.plain.create(path, path.encode())
    restored, folder = CheckpointId(1), CHECKPOINT_1.removesuffix(f"/{METADATA}")
    world.plain.create(CHECKPOINT_1, b"metadata")
    world.shared.register(restored, [handle("shared/a"), handle("shared/b")])
    world.folders[restored] = folder
    action = snapshot(2, files=[handle("shared/b"), handle("shared/c")], retires=[restored])
    world.do(action)
    stored = world.event()
    world.do(
        NotifyComplete(checkpoint=action.checkpoint, snapshot=stored.snapshot, cut=action.cut, retired=action.retires)
    )
    assert world.plain.stat(CHECKPOINT_1) is None, "that a later one uses its files does not keep it"
    assert shared_files(world) == ["shared/b", "shared/c"]


def test_f25_f66_the_metadata_of_a_checkpoint_say_what_becomes_of_it_at_the_end(world: LedgerWorld) -> None:
    retention = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    world.do(replace(snapshot(1), retention=retention))
    record = world.records[1]
    assert isinstance(record, SnapshotCompleted)
    assert SnapshotFiles(world.plain, record.snapshot).metadata().retention is retention


def test_f54_f57_what_a_cancel_retires_is_deleted_after_its_slot_says_so(world: LedgerWorld) -> None:
    for path in ("shared/a", "shared/b"):
        world.plain.create(path, path.encode())
    world.do(snapshot(1, files=[handle("shared/a")]), snapshot(2, files=[handle("shared/b")]))
    at_the_slot: list[str] = []
    world.faults.act = lambda call: at_the_slot.extend(shared_files(world)) if "slots/00000004" in call else None
    cancelled = WriteStopped(
        reason="cancelled", committed=(), snapshot=None, request=None, retires=(CheckpointId(1), CheckpointId(2))
    )
    world.do(cancelled)
    assert {"shared/a", "shared/b"} <= set(at_the_slot)
    assert world.catalogue.snapshots == ()
    assert shared_files(world) == []
    assert world.plain.stat(CHECKPOINT_1) is None
    assert world.ends == [None]


def cleaned(world: LedgerWorld) -> list[int]:
    """The checkpoints of which the coordinator is told that they are cleaned."""
    return [event.checkpoint for event in world.told() if isinstance(event, Cleaned)]


@pytest.mark.parametrize("refused", [[], ["delete"]], ids=["deleted", "could not be deleted"])
def test_f38_the_coordinator_is_told_when_a_retired_checkpoint_is_cleaned(
    refused: list[str], world: LedgerWorld
) -> None:
    notice = retire_one_of_two(world)
    assert cleaned(world) == []
    world.faults.refused = refused
    world.do(notice)
    assert cleaned(world) == [1]


def test_f58_nothing_is_deleted_before_the_slot_says_that_it_is_retired(world: LedgerWorld) -> None:
    retire_one_of_two(world)
    assert shared_files(world) == ["shared/a", "shared/b", "shared/c"]
    record = world.records[2]
    assert isinstance(record, SnapshotCompleted)
    assert record.retires == (1,)


def test_a_deletion_that_fails_leaves_the_folder_for_the_next_life_and_does_not_fail_the_stream(
    world: LedgerWorld,
) -> None:
    notice = retire_one_of_two(world)
    world.faults.refused = ["delete"]
    world.do(notice)
    assert world.ends == []
    assert world.plain.stat(CHECKPOINT_1) is not None
    world.faults.refused = []
    world.shared.register(CheckpointId(1), [handle("shared/a"), handle("shared/b")])
    world.folders[CheckpointId(1)] = CHECKPOINT_1.removesuffix(f"/{METADATA}")
    world.ledger.cleaner.dispose([CheckpointId(1)])
    world.do()
    assert shared_files(world) == ["shared/b", "shared/c"]
    assert world.plain.stat(CHECKPOINT_1) is None


def test_an_error_that_nobody_expects_is_told(world: LedgerWorld, caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: str) -> None:
        if call.startswith("delete"):
            raise RuntimeError("what no storage should raise")

    notice = retire_one_of_two(world)
    world.faults.act = fail
    world.ledger.perform(notice)
    assert world.ledger.close()
    assert "what no storage should raise" in caplog.text


def test_a_life_ends_whatever_its_actions_and_the_look_at_the_log_fail_with(world: LedgerWorld) -> None:
    def fail(call: str) -> None:
        raise RuntimeError(call)

    world.faults.act = fail
    world.ledger.perform(snapshot(1))
    assert world.ledger.close()
    assert [type(end) for end in world.ends] == [RuntimeError]
