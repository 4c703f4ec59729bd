"""What the logs of a stream add up to: generations, snapshots, lineage. Pure: slots in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headgate_contract.errors import LogDamaged
from headgate_contract.ids import CheckpointId, Generation, SavepointName, SlotNumber, StreamName
from headgate_contract.log import Slot
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
    decision_log,
    slot_log,
)
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_contract.store import ObjectStore


@dataclass(frozen=True)
class Catalogue:
    """A stream's logs, read at one moment."""

    stream: StreamName
    slots: tuple[Slot[SlotRecord], ...]
    decisions: tuple[Slot[DecisionRecord], ...]

    def __post_init__(self) -> None:
        check_slots(self.stream, self.slots)

    @property
    def newest_slot(self) -> SlotNumber | None:
        return self.slots[-1].number if self.slots else None

    @cached_property
    def generations(self) -> tuple[GenerationStarted, ...]:
        return tuple(slot.record for slot in self.slots if isinstance(slot.record, GenerationStarted))

    @property
    def newest_generation(self) -> GenerationStarted | None:
        return self.generations[-1] if self.generations else None

    @cached_property
    def stopped(self) -> Stopped | None:
        """How the newest generation ended in good order, or None while it has not."""
        last = self.slots[-1].record if self.slots else None
        return last if isinstance(last, Stopped) else None

    @cached_property
    def completed(self) -> tuple[SnapshotRef, ...]:
        """Every completed snapshot that the log still tells of, retired ones too, in the order of completion."""
        return tuple(slot.record.snapshot for slot in self.slots if isinstance(slot.record, SnapshotCompleted))

    @cached_property
    def retired(self) -> frozenset[CheckpointId]:
        by_drivers = {
            id for slot in self.slots if isinstance(slot.record, SnapshotCompleted) for id in slot.record.retires
        }
        by_control = {id for slot in self.decisions if isinstance(slot.record, Retired) for id in slot.record.snapshots}
        return frozenset(by_drivers | by_control)

    @cached_property
    def snapshots(self) -> tuple[SnapshotRef, ...]:
        """Every snapshot that can be asked for, newest first."""
        kept = [ref for ref in self.completed if ref.id not in self.retired]
        return tuple(sorted(kept, key=lambda ref: ref.id, reverse=True))

    @property
    def next_checkpoint(self) -> CheckpointId:
        """The lowest id that no snapshot has completed under."""
        firsts = [start.first_checkpoint for start in self.generations]
        above = [ref.id.next() for ref in self.completed]
        return max([CheckpointId(1), *firsts, *above])

    @cached_property
    def committed(self) -> frozenset[CheckpointId]:
        """Groups of which the log says that every sink has committed them."""
        return frozenset(
            id
            for slot in self.slots
            if isinstance(slot.record, (SnapshotCompleted, Stopped))
            for id in slot.record.committed
        )

    @cached_property
    def deployed(self) -> Deployed | None:
        found = [slot.record for slot in self.decisions if isinstance(slot.record, Deployed)]
        return found[-1] if found else None

    @cached_property
    def deployed_number(self) -> SlotNumber | None:
        found = [slot.number for slot in self.decisions if isinstance(slot.record, Deployed)]
        return found[-1] if found else None

    def deployed_at(self, number: int) -> Deployed | None:
        """The *deployed* decision `number`."""
        for slot in self.decisions:
            if slot.number == number and isinstance(slot.record, Deployed):
                return slot.record
        return None

    @cached_property
    def stop_wanted(self) -> StopWanted | None:
        """The wish to stop the newest generation, if somebody has it."""
        newest = self.newest_generation
        if newest is None:
            return None
        wishes = (slot.record for slot in self.decisions if isinstance(slot.record, (StopWanted, StopWithdrawn)))
        last = next((wish for wish in reversed(list(wishes)) if wish.generation == newest.generation), None)
        return last if isinstance(last, StopWanted) else None

    def generation(self, generation: Generation) -> GenerationStarted | None:
        return next((start for start in self.generations if start.generation == generation), None)

    def completed_by(self, generation: Generation) -> tuple[SnapshotRef, ...]:
        """The snapshots that `generation` completed and that are not retired."""
        return tuple(ref for ref in self.snapshots if ref.generation == generation)

    def base_of(self, generation: Generation) -> SnapshotRef | None:
        """The snapshot that `generation` was started from, unless it is retired or there was none."""
        start = self.generation(generation)
        if start is None or not isinstance(start.decision, RestoreFrom):
            return None
        base = start.decision.snapshot
        return None if base.id in self.retired else base

    def find(self, name: CheckpointId | SavepointName) -> SnapshotRef | None:
        """The retained snapshot with this id or savepoint name."""
        for ref in self.snapshots:
            if name in (ref.id, ref.name):
                return ref
        return None

    def lineage(self, ref: SnapshotRef | None) -> frozenset[CheckpointId]:
        """The ids of all snapshots that `ref` stands on, itself included: whose groups belong to its history."""
        ids: set[CheckpointId] = set()
        while ref is not None:
            newest = ref
            ids.update(
                other.id for other in self.completed if other.generation == newest.generation and other.id <= newest.id
            )
            ids.add(newest.id)
            start = self.generation(newest.generation)
            ref = start.decision.snapshot if start is not None and isinstance(start.decision, RestoreFrom) else None
        return frozenset(ids)

    def abandoned_by(self, ref: SnapshotRef | None) -> tuple[CheckpointId, ...]:
        """The groups that a restore from `ref` (None: a fresh start) goes back behind, oldest first.

        Those that an earlier restore had gone back behind already are among them only if they belong to no other history
        than the newest: they are retracted, and stay so.
        """
        newest = self.newest_generation
        if newest is None:
            return ()
        current = self.lineage(self._head(newest))
        return tuple(sorted(current - self.lineage(ref)))

    def _head(self, newest: GenerationStarted) -> SnapshotRef | None:
        """The last snapshot of the newest history, retired or not."""
        own = [ref for ref in self.completed if ref.generation == newest.generation]
        if own:
            return own[-1]
        return newest.decision.snapshot if isinstance(newest.decision, RestoreFrom) else None


def check_slots(stream: StreamName, slots: Sequence[Slot[SlotRecord]]) -> None:
    """Hold the log's laws: no hole from the newest generation start on, generations count up, ids are unique.

    Below the newest generation start retention may have deleted slots, but never a generation start.
    """
    starts = [slot for slot in slots if isinstance(slot.record, GenerationStarted)]
    for expected, slot in enumerate(starts, start=1):
        assert isinstance(slot.record, GenerationStarted)
        if slot.record.generation != expected:
            raise LogDamaged(
                f"stream {stream}: slot {slot.number} starts generation {slot.record.generation}, not {expected}"
            )
    if slots and not starts:
        raise LogDamaged(f"stream {stream}: the log has {len(slots)} slots but no generation start")
    tail = [slot for slot in slots if starts and slot.number >= starts[-1].number]
    for before, after in zip(tail, tail[1:], strict=False):
        if after.number != before.number + 1:
            raise LogDamaged(f"stream {stream}: slot {before.number + 1} is missing, {after.number} is there")
        if isinstance(before.record, Stopped):
            raise LogDamaged(f"stream {stream}: slot {after.number} follows a stop but starts no generation")
    seen: set[CheckpointId] = set()
    for slot in slots:
        if isinstance(slot.record, SnapshotCompleted):
            if slot.record.snapshot.id in seen:
                raise LogDamaged(f"stream {stream}: slot {slot.number} completes {slot.record.snapshot.id} again")
            seen.add(slot.record.snapshot.id)


def read_catalogue(store: ObjectStore, stream: StreamName) -> Catalogue:
    """Read both logs of `stream`.

    The slots are read before the decisions: a decision that was taken in view of a slot is then never without it.
    """
    slots = slot_log(store, stream).read()
    return Catalogue(stream, slots, decision_log(store, stream).read())


def savepoints(catalogue: Catalogue) -> tuple[SnapshotRef, ...]:
    return tuple(ref for ref in catalogue.snapshots if ref.kind is SnapshotKind.SAVEPOINT)
