"""The only writer of a generation's slots: completion, commit, the end, and what storage may do to each."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.coordinator.messages import (
    CommitGroups,
    Committed,
    FailStream,
    Stored,
    StoreFailed,
    WriteStopped,
)
from headgate.driver.ledger import Action
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.errors import Fenced, SinkFailed, SlotTaken, StorageError, StreamFailed
from headgate_contract.ids import CheckpointId, Generation, RequestId
from headgate_contract.mailbox import Outcome
from headgate_contract.paths import METADATA
from headgate_contract.records import Hole, Repaired, SlotRecord, SnapshotCompleted, Stopped
from headgate_contract.snapshot import SnapshotKind
from tests.runtime.driver.ledger_world import (
    CHECKPOINT_1,
    STREAM,
    LedgerWorld,
    aborted,
    complete,
    group,
    handle,
    reply,
    snapshot,
)

UPGRADE = f"streams/{STREAM}/savepoints/upgrade-1-g1/{METADATA}"


@pytest.fixture
def world() -> Iterator[LedgerWorld]:
    world = LedgerWorld()
    yield world
    world.ledger.close()


def stopped(request: str | None = None) -> WriteStopped:
    return WriteStopped(
        reason="enough",
        committed=(CheckpointId(1),),
        snapshot=CheckpointId(1),
        request=RequestId(request) if request else None,
        result={"snapshot": 1, "name": "last"},
    )


def commit(*numbers: int) -> CommitGroups:
    return CommitGroups(groups=tuple(group(number) for number in numbers))


# ---- completion


def test_a_snapshot_is_metadata_and_then_a_slot_that_pins_its_bytes(world: LedgerWorld) -> None:
    calls: list[str] = []
    world.faults.act = calls.append
    world.do(snapshot(1, groups=[1], committed=[], retires=[]))
    event = world.event()
    assert isinstance(event, Stored)
    creates = [call for call in calls if call.startswith("create")]
    assert creates == [f"create {CHECKPOINT_1}", f"create streams/{STREAM}/slots/00000002.json"]
    record = world.records[1]
    assert isinstance(record, SnapshotCompleted)
    assert record.snapshot == event.snapshot
    metadata = SnapshotFiles(world.plain, record.snapshot).metadata()
    assert (metadata.id, metadata.records, metadata.watermark_ms, metadata.max_parallelism) == (1, 10, 7, 16)
    assert [group.id for group in metadata.committables] == [1]


def test_the_slot_says_what_is_committed_and_what_is_retired(world: LedgerWorld) -> None:
    complete(world, 1)
    world.do(snapshot(2, committed=[1], retires=[1], request="now"))
    record = world.records[2]
    assert isinstance(record, SnapshotCompleted)
    assert (record.committed, record.retires, record.request) == ((1,), (1,), "now")
    assert world.catalogue.snapshots[0].id == 2


def test_a_savepoint_lies_in_a_folder_of_its_own_attempt(world: LedgerWorld) -> None:
    world.do(snapshot(1, "upgrade"))
    event = world.event()
    assert event.snapshot.folder == f"streams/{STREAM}/savepoints/upgrade-1-g1"
    assert event.snapshot.kind is SnapshotKind.SAVEPOINT
    assert world.plain.stat(UPGRADE) is not None


def test_f85_metadata_that_somebody_else_wrote_is_not_overwritten(world: LedgerWorld) -> None:
    world.plain.create(UPGRADE, b"somebody else's")
    world.do(snapshot(1, "upgrade"))
    event = world.event()
    assert isinstance(event, StoreFailed)
    assert event.cause == f"{UPGRADE} exists already"
    assert world.plain.read(UPGRADE) == b"somebody else's"
    assert len(world.records) == 1
    assert world.ends == []


def test_a_frozen_driver_that_wakes_over_a_savepoint_of_its_successor_touches_nothing_of_it(world: LedgerWorld) -> None:
    """Its own attempt under the same name had not got to its metadata when it froze."""
    world.start(2)
    theirs = f"streams/{STREAM}/savepoints/upgrade-1-g2/{METADATA}"
    world.plain.create(theirs, b"complete")
    world.do(snapshot(1, "upgrade"))
    assert [type(error) for error in world.ends] == [Fenced]
    assert world.plain.read(theirs) == b"complete"


def test_metadata_that_cannot_be_written_fails_the_checkpoint_and_not_the_stream(world: LedgerWorld) -> None:
    world.faults.refused = ["create"]
    world.do(snapshot(1))
    event = world.event()
    assert isinstance(event, StoreFailed)
    assert event.cause == f"cannot create {CHECKPOINT_1}: no space left on device"
    assert (len(world.records), world.ends) == (1, [])
    world.faults.refused = []
    complete(world, 2)


def test_a_storage_that_fails_altogether_fails_the_checkpoint_and_not_the_stream(world: LedgerWorld) -> None:
    world.faults.refused = ["create", "read", "delete"]
    world.do(snapshot(1))
    assert isinstance(world.event(), StoreFailed)
    assert world.ends == []


def test_metadata_whose_fate_is_unknown_does_not_keep_its_name_from_a_second_try(world: LedgerWorld) -> None:
    """The write was answered with an error, and had happened."""
    world.store.lost = (UPGRADE,)
    world.do(snapshot(1, "upgrade"))
    assert isinstance(world.event(), StoreFailed)
    assert world.plain.stat(UPGRADE) is None, "its files go: nobody is to find it"
    world.do(snapshot(2, "upgrade"))
    assert isinstance(world.event(), Stored)


def test_f34_a_slot_whose_fate_is_unknown_fails_the_stream_and_nothing_is_discarded(world: LedgerWorld) -> None:
    world.faults.refused = [f"create streams/{STREAM}/slots"]
    world.do(snapshot(1))
    (error,) = world.ends
    assert isinstance(error, StorageError)
    with pytest.raises(queue.Empty):
        world.events.get_nowait()
    assert world.plain.stat(CHECKPOINT_1) is not None, "it may be complete: the next generation reads whether it is"


# ---- fencing: a successor's start is in the next slot

STEPS: dict[str, Action] = {
    "completion": snapshot(2),
    "commit": commit(1),
    "stop": stopped("stop"),
    "failure": FailStream(cause="the step failed"),
}


@pytest.mark.parametrize("step", STEPS)
def test_who_finds_a_successor_ends_as_fenced_and_changes_nothing(step: str, world: LedgerWorld) -> None:
    complete(world, 1)
    world.start(2)
    world.do(STEPS[step], reply("late", "the stream was fenced"))
    (error,) = world.ends
    assert isinstance(error, Fenced)
    assert "generation 1 of stream orders is fenced: generation 2 was started by ann on elsewhere" in str(error)
    assert len(world.records) == 3
    assert world.commits == {"out": [], "copy": []}
    assert [text for what, text in world.history() if what == "fenced"] == [str(error)]
    assert world.answer("late") is not None, "who asked is told all the same"


@pytest.mark.parametrize(
    "record",
    [
        Repaired(
            repair="r", next_generation=Generation(2), next_checkpoint=CheckpointId(9), by="ann", reason="", at_ms=0
        ),
        Hole(repair="r", why="it is missing"),
    ],
)
def test_who_finds_that_its_log_was_repaired_ends_as_fenced(record: SlotRecord, world: LedgerWorld) -> None:
    world.append(record)
    world.do(snapshot(1))
    (error,) = world.ends
    assert isinstance(error, Fenced)
    assert "generation 1 of stream orders is fenced: its log was repaired" in str(error)


def test_a_driver_that_was_fenced_does_nothing_more(world: LedgerWorld) -> None:
    world.shared.register(CheckpointId(1), [handle("shared/a")])
    world.plain.create("shared/a", b"a")
    notice = complete(world, 1)
    world.start(2)
    world.do(snapshot(2), commit(1), notice, aborted(3), FailStream(cause="?"))
    assert [type(error) for error in world.ends] == [Fenced]
    assert world.commits == {"out": [], "copy": []}
    assert [what for what, _ in world.history()] == ["fenced"]


def test_metadata_that_cannot_be_written_by_a_fenced_driver_is_not_its_checkpoints_failure(world: LedgerWorld) -> None:
    world.start(2)
    world.faults.refused = ["create streams/orders/checkpoints"]
    world.do(snapshot(1))
    assert [type(error) for error in world.ends] == [Fenced]
    with pytest.raises(queue.Empty):
        world.events.get_nowait()


def test_a_slot_that_fails_when_a_successor_is_there_is_told_as_fenced(world: LedgerWorld) -> None:
    world.start(2)
    world.faults.refused = [f"create streams/{STREAM}/slots"]
    world.do(snapshot(1))
    assert [type(error) for error in world.ends] == [Fenced]


def test_the_log_is_read_before_each_single_commit(world: LedgerWorld) -> None:
    complete(world, 1)
    out = next(iter(world.sinks.values()))
    out.before = lambda group: world.start(2) if group == 1 else None
    world.do(commit(1, 2))
    assert world.commits == {"out": [1], "copy": []}, "the successor came while the first sink committed"
    assert [type(error) for error in world.ends] == [Fenced]


def test_a_slot_of_somebody_who_is_no_successor_is_named(world: LedgerWorld) -> None:
    world.append(Stopped(generation=Generation(1), reason="by whom?"))
    world.do(snapshot(1))
    (error,) = world.ends
    assert isinstance(error, SlotTaken)
    assert str(error) == "slot 2 of stream orders holds a Stopped that is not ours"


def test_looking_at_the_log_finds_a_successor(world: LedgerWorld) -> None:
    world.ledger.look()
    world.do()
    assert world.ends == []
    world.faults.refused = ["read"]
    world.ledger.look()
    world.do()
    assert world.ends == [], "a log that cannot be read now is no reason to end"
    world.faults.refused = []
    world.start(2)
    world.ledger.look()
    world.ledger.look()
    world.do()
    assert [what for what, _ in world.history()] == ["fenced"]


# ---- commit


def test_each_sink_commits_each_group_in_order_and_then_the_coordinator_knows(world: LedgerWorld) -> None:
    world.do(commit(1, 2))
    assert world.commits == {"out": [1, 2], "copy": [1, 2]}
    assert world.event() == Committed(groups=(CheckpointId(1), CheckpointId(2)))


def test_a_commit_that_storage_refuses_is_tried_again(world: LedgerWorld) -> None:
    out, copy = world.sinks.values()
    out.failures = [StorageError("no answer"), StorageError("no answer")]
    copy.failures = [StorageError("no answer")]
    world.do(commit(1))
    assert world.commits == {"out": [1], "copy": [1]}
    assert isinstance(world.event(), Committed)


def test_a_commit_that_storage_refuses_for_good_fails_the_stream(world: LedgerWorld) -> None:
    next(iter(world.sinks.values())).failures = [StorageError(f"no answer {number}") for number in range(1, 9)]
    world.do(commit(1))
    assert [str(error) for error in world.ends] == ["no answer 5"]
    with pytest.raises(queue.Empty):
        world.events.get_nowait()


def test_a_sink_that_failed_for_good_is_not_asked_again(world: LedgerWorld) -> None:
    out = next(iter(world.sinks.values()))
    out.failures = [SinkFailed("a staged file is gone")]
    world.do(commit(1))
    assert [type(error) for error in world.ends] == [SinkFailed]
    assert world.commits == {"out": [], "copy": []}


# ---- the end


def test_a_stop_is_a_slot_and_an_answer(world: LedgerWorld) -> None:
    complete(world, 1)
    world.do(stopped("stop"))
    assert world.catalogue.stopped is not None
    assert world.catalogue.committed == {1}
    answer = world.answer("stop")
    assert answer is not None
    assert (answer.outcome, answer.result) == (Outcome.DONE, {"snapshot": 1, "name": "last"})
    assert world.ends == [None]


@pytest.mark.parametrize("fault", ["none", "fenced", "refused"])
def test_whoever_joined_a_stop_is_told_that_it_is_done_once_the_log_says_so(fault: str, world: LedgerWorld) -> None:
    complete(world, 1)
    if fault == "fenced":
        world.start(2)
    if fault == "refused":
        world.faults.refused = [f"create streams/{STREAM}/slots"]
    world.do(replace(stopped("stop"), also=(reply("me-too"),)))
    answers = [world.answer(id) for id in ("stop", "me-too")]
    assert [answer is not None and answer.outcome is Outcome.DONE for answer in answers] == [fault == "none"] * 2


def test_after_its_end_a_driver_only_answers(world: LedgerWorld) -> None:
    world.do(stopped(), snapshot(2), commit(1), reply("also-stopping"))
    assert len(world.records) == 2
    assert world.commits == {"out": [], "copy": []}
    assert world.answer("also-stopping") is not None


def test_a_stop_whose_answer_cannot_be_written_has_stopped_all_the_same(world: LedgerWorld) -> None:
    world.faults.refused = [f"create streams/{STREAM}/answers"]
    world.do(stopped("stop"))
    assert world.catalogue.stopped is not None
    assert world.ends == [None]


def test_a_failure_keeps_its_cause_also_when_the_log_cannot_be_read(world: LedgerWorld) -> None:
    world.faults.refused = ["read", "create"]
    world.do(FailStream(cause="micro-batch 7 failed"))
    (error,) = world.ends
    assert isinstance(error, StreamFailed)
    assert str(error) == "micro-batch 7 failed"
