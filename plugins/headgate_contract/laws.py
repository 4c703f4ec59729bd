"""The laws of a stream's two logs: what can never be in them, however writers race, freeze and die. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from headgate_contract.errors import LogDamaged
from headgate_contract.ids import CheckpointId, SlotNumber, StreamName
from headgate_contract.log import Slot
from headgate_contract.records import (
    DecisionRecord,
    GenerationStarted,
    Restarted,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
)
from headgate_contract.restore import RestoreFrom

FOLLOWS: Mapping[type[SlotRecord], tuple[type[SlotRecord], ...]] = {
    GenerationStarted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped),
    SnapshotCompleted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped),
    Restarted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped),
    Stopped: (GenerationStarted,),
}
"""Which kinds of slots may follow each kind; the first is a generation start."""


def check_slots(stream: StreamName, slots: Sequence[Slot[SlotRecord]]) -> None:
    """Raise LogDamaged, naming the slot, if the slot log breaks one of its laws.

    - Slot 1 starts generation 1, and generations count up: retention never deletes a generation start.
    - From the newest generation start on there is no hole; below it retention may have deleted slots.
    - A slot is written by the generation that was started last before it: a fenced one can complete nothing.
    - Each kind follows only kinds that it may follow: nothing but a start follows a stop.
    - The restarts of a generation count up, and each goes on from what it stands on.
    - Snapshot ids are unique, and no generation completes one below its `first_checkpoint`, which is above all ids
      before it. What a generation restores from was completed by an earlier one, or was
      brought from elsewhere.
    """
    if not slots:
        return
    if slots[0].number != 1:
        raise _damaged(stream, "slot 1 is missing, which starts generation 1 and is never deleted")
    starts = [slot.number for slot in slots if isinstance(slot.record, GenerationStarted)]
    last_start = max(starts, default=SlotNumber(1))
    _check_holes(stream, slots, last_start)
    newest: GenerationStarted | None = None
    ids: set[CheckpointId] = set()
    head: CheckpointId | None = None
    restarts = 0
    for slot in slots:
        if isinstance(slot.record, GenerationStarted):
            _check_start(stream, slot.number, slot.record, newest, ids)
            newest, restarts = slot.record, 0
            head = newest.decision.snapshot.id if isinstance(newest.decision, RestoreFrom) else None
        elif newest is None:
            raise _damaged(stream, f"slot {slot.number} starts no generation, and there is none before it")
        elif slot.record.generation != newest.generation:
            what = f"slot {slot.number} was written by generation {slot.record.generation}"
            raise _damaged(stream, f"{what}, generation {newest.generation} had been started")
        elif isinstance(slot.record, SnapshotCompleted):
            _check_completion(stream, slot.number, slot.record, newest, ids)
            head = slot.record.snapshot.id if head is None else max(head, slot.record.snapshot.id)
        elif isinstance(slot.record, Restarted):
            _check_restart(stream, slot.number, slot.record, head, restarts, slot.number > last_start)
            restarts = slot.record.restart


def check_decisions(stream: StreamName, decisions: Sequence[Slot[DecisionRecord]]) -> None:
    """Raise LogDamaged if a decision is missing: none is ever deleted."""
    for expected, slot in enumerate(decisions, start=1):
        if slot.number != expected:
            raise _damaged(stream, f"decision {expected} is missing, {slot.number} is there")


def _check_holes(stream: StreamName, slots: Sequence[Slot[SlotRecord]], last_start: SlotNumber) -> None:
    for before, after in itertools.pairwise(slots):
        if after.number != before.number + 1:
            if after.number > last_start:
                raise _damaged(stream, f"slot {before.number + 1} is missing, {after.number} is there")
        elif type(after.record) not in FOLLOWS[type(before.record)]:
            what = f"slot {after.number} is {after.record.TYPE}"
            raise _damaged(stream, f"{what}, which cannot follow {before.record.TYPE}")


def _check_start(
    stream: StreamName,
    number: SlotNumber,
    start: GenerationStarted,
    before: GenerationStarted | None,
    ids: set[CheckpointId],
) -> None:
    expected = 1 if before is None else before.generation + 1
    if start.generation != expected:
        raise _damaged(stream, f"slot {number} starts generation {start.generation}, not {expected}")
    base = start.decision.snapshot if isinstance(start.decision, RestoreFrom) else None
    if base is not None and not base.foreign and base.generation >= start.generation:
        raise _damaged(
            stream, f"slot {number} restores {base} of generation {base.generation}, which is no earlier one"
        )
    taken = max([*ids, *([base.id] if base else []), *([before.first_checkpoint - 1] if before else [])], default=0)
    if start.first_checkpoint <= taken:
        raise _damaged(
            stream, f"slot {number} lets generation {start.generation} begin at a taken id, {taken} or lower"
        )


def _check_completion(
    stream: StreamName,
    number: SlotNumber,
    completion: SnapshotCompleted,
    start: GenerationStarted,
    ids: set[CheckpointId],
) -> None:
    snapshot = completion.snapshot
    if snapshot.generation != completion.generation:
        raise _damaged(stream, f"slot {number} completes {snapshot} for generation {snapshot.generation}, not its own")
    if snapshot.id in ids:
        raise _damaged(stream, f"slot {number} completes {snapshot.id} again")
    if snapshot.id < start.first_checkpoint:
        raise _damaged(stream, f"slot {number} completes {snapshot.id}, its ids begin at {start.first_checkpoint}")
    ids.add(snapshot.id)


def _check_restart(
    stream: StreamName,
    number: SlotNumber,
    restart: Restarted,
    head: CheckpointId | None,
    before: int,
    whole: bool,
) -> None:
    if restart.restart <= before or (whole and restart.restart != before + 1):
        raise _damaged(stream, f"slot {number} is restart {restart.restart} after restart {before}")
    if whole and restart.snapshot != head:
        raise _damaged(stream, f"slot {number} goes on from {restart.snapshot}, its generation stands on {head}")


def _damaged(stream: StreamName, what: str) -> LogDamaged:
    return LogDamaged(
        f"the log of stream {stream} is damaged: {what}", hint="put the slot's own bytes back; nothing is guessed"
    )
