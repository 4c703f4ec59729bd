"""What the logs of a stream add up to: generations, snapshots, lineage. Pure: slots in, answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headgate_contract.ids import CheckpointId, Generation, SavepointName, SlotNumber, StreamName, VertexUid
from headgate_contract.laws import check_decisions, check_slots
from headgate_contract.log import Slot
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Restarted,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
    decision_log,
    slot_log,
)
from headgate_contract.restore import ClaimMode, RestoreFrom
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_contract.store import ObjectStore


@dataclass(frozen=True)
class Catalogue:
    """A stream's logs, read at one moment. Raises LogDamaged if they break their laws."""

    stream: StreamName
    slots: tuple[Slot[SlotRecord], ...]
    decisions: tuple[Slot[DecisionRecord], ...]

    def __post_init__(self) -> None:
        check_slots(self.stream, self.slots)
        check_decisions(self.stream, self.decisions)

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
    def restarts(self) -> tuple[Restarted, ...]:
        """How often the newest generation has gone on after a failure, and why, oldest first."""
        newest = self.newest_generation
        return tuple(
            slot.record
            for slot in self.slots
            if isinstance(slot.record, Restarted) and newest is not None and slot.record.generation == newest.generation
        )

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
        """The snapshots of which the log tells that they are retired."""
        by_drivers = {
            id
            for slot in self.slots
            if isinstance(slot.record, (SnapshotCompleted, Stopped))
            for id in slot.record.retires
        }
        by_control = {id for slot in self.decisions if isinstance(slot.record, Retired) for id in slot.record.snapshots}
        return frozenset(by_drivers | by_control)

    @cached_property
    def restored(self) -> tuple[SnapshotRef, ...]:
        """What the generations were started from, oldest first, retired ones too."""
        found = [start.decision.snapshot for start in self.generations if isinstance(start.decision, RestoreFrom)]
        return tuple(dict.fromkeys(found))

    @cached_property
    def claims(self) -> tuple[SnapshotRef, ...]:
        """The savepoints that became the stream's when they were restored, retired ones too."""
        found = [start.decision for start in self.generations if isinstance(start.decision, RestoreFrom)]
        refs = [each.snapshot for each in found if each.claim_mode is ClaimMode.CLAIM]
        return tuple({ref.id: ref for ref in refs if ref.kind is SnapshotKind.SAVEPOINT}.values())

    @cached_property
    def claimed(self) -> tuple[SnapshotRef, ...]:
        """Of these, those that are not retired: newer checkpoints retire them, as if they were checkpoints."""
        return tuple(ref for ref in self.claims if ref.id not in self.retired)

    @cached_property
    def snapshots(self) -> tuple[SnapshotRef, ...]:
        """Every snapshot that can be asked for, newest first."""
        kept = [ref for ref in self.completed if ref.id not in self.retired]
        return tuple(sorted(kept, key=lambda ref: ref.id, reverse=True))

    def is_retained(self, ref: SnapshotRef) -> bool:
        """Whether it can be asked for. Of a retired one the log may tell nothing more, not even that it is retired.

        What lies elsewhere than where this log had it completed was put there by somebody, whose it is.
        """
        if ref.foreign:
            return ref.id not in self.retired
        own = next((own for own in self.completed if own.id == ref.id), None)
        return ref.id in self._retained or (own is not None and own.where != ref.where)

    @cached_property
    def _retained(self) -> frozenset[CheckpointId]:
        return frozenset(ref.id for ref in self.snapshots)

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

    def stops_wanted(self, generation: Generation) -> tuple[StopWanted, ...]:
        """The wishes to stop `generation` that were not taken back, newest first."""
        standing: list[StopWanted] = []
        for slot in self.decisions:
            if isinstance(slot.record, StopWanted) and slot.record.generation == generation:
                standing.insert(0, slot.record)
            elif isinstance(slot.record, StopWithdrawn) and slot.record.generation == generation:
                standing.clear()
        return tuple(standing)

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
        return base if self.is_retained(base) else None

    def find(self, name: CheckpointId | SavepointName) -> SnapshotRef | None:
        """The retained snapshot with this id or savepoint name."""
        for ref in self.snapshots:
            if name in (ref.id, ref.name):
                return ref
        return None

    @cached_property
    def history(self) -> tuple[SnapshotRef, ...]:
        """What the newest generation stands on, newest first, retired ones too.

        Its own snapshots, the one that it was started from, what that one's generation had completed until then, and
        so on. A restore to an older snapshot or a fresh start leaves what it goes back behind out of it, for good.
        """
        found: list[SnapshotRef] = []
        limit: SnapshotRef | None = None
        for start in reversed(self.generations):
            if limit is not None and start.generation != limit.generation:
                continue  # nothing of this generation is under what was restored
            own = [ref for ref in self.completed if ref.generation == start.generation]
            kept = {ref.id: ref for ref in own if limit is None or ref.id <= limit.id}
            if limit is not None:
                kept[limit.id] = limit
            found += (kept[id] for id in sorted(kept, reverse=True))
            if not isinstance(start.decision, RestoreFrom):
                break
            limit = start.decision.snapshot
            if limit.foreign:
                found.append(limit)
                break  # what it stands on itself is in another log
        return tuple(found)

    def lineage(self, ref: SnapshotRef | None) -> frozenset[CheckpointId]:
        """The ids of all snapshots that `ref` stands on, itself included: whose groups belong to its history.

        Where retention has deleted slots, every id that may have completed in them is among them.
        """
        ids: set[CheckpointId] = set()
        while ref is not None and not ref.foreign:
            ids |= {id for id in self._ids_of(ref.generation) if id <= ref.id} | {ref.id}
            start = self.generation(ref.generation)
            ref = start.decision.snapshot if start is not None and isinstance(start.decision, RestoreFrom) else None
        return frozenset(ids)

    @cached_property
    def exposed(self) -> frozenset[CheckpointId]:
        """The groups that sinks may show.

        A driver goes back behind groups before it completes anything. So these are the groups that the newest
        generation stands on, its own, and until it has completed a snapshot also what was there before: whether it came
        to take that back, the log does not tell.
        """
        shown: set[CheckpointId] = set()
        for start in reversed(self.generations):
            own = self._ids_of(start.generation)
            base = start.decision.snapshot if isinstance(start.decision, RestoreFrom) else None
            shown.update(own, self.lineage(base))
            if own:
                break
        return frozenset(shown)

    def abandoned_by(self, ref: SnapshotRef | None) -> tuple[CheckpointId, ...]:
        """The groups that sinks may show and a restore from `ref` (None: a fresh start) goes back behind, in order."""
        return tuple(sorted(self.exposed - self.lineage(ref)))

    def accepted_duplicates(self, sink: VertexUid) -> frozenset[CheckpointId]:
        """The groups of which somebody has accepted, at a start since the last completion, that `sink` repeats them."""
        accepted: set[CheckpointId] = set()
        for start in reversed(self.generations):
            if self._ids_of(start.generation):
                break
            if start.accept_duplicates:
                accepted.update(
                    group for rollback in start.decision.rollbacks if rollback.sink == sink for group in rollback.groups
                )
        return frozenset(accepted)

    def forgettable(self) -> tuple[SlotNumber, ...]:
        """The slots that retention may delete, in the order in which it must; it may be broken off anywhere.

        None from the newest generation start on, never a generation start, and no completion of a retained snapshot.
        Oldest first: a completion goes before the one that retires it, or it would be a candidate again.
        """
        newest = max((slot.number for slot in self.slots if isinstance(slot.record, GenerationStarted)), default=0)
        below = [slot for slot in self.slots if slot.number < newest]
        return tuple(
            slot.number
            for slot in below
            if isinstance(slot.record, (Stopped, Restarted))
            or (isinstance(slot.record, SnapshotCompleted) and not self.is_retained(slot.record.snapshot))
        )

    def _ids_of(self, generation: Generation) -> Sequence[CheckpointId]:
        """The ids under which `generation` completed snapshots; all that it may have, where its slots were deleted."""
        return self._ids.get(generation, ())

    @cached_property
    def _ids(self) -> Mapping[Generation, Sequence[CheckpointId]]:
        starts = [slot for slot in self.slots if isinstance(slot.record, GenerationStarted)]
        ends = [*(slot.number for slot in starts[1:]), self.slots[-1].number + 1] if starts else []
        found: dict[Generation, Sequence[CheckpointId]] = {}
        position = 0
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            position += 1
            own = []
            while position < len(self.slots) and self.slots[position].number < end:
                own.append(self.slots[position].record)
                position += 1
            record = self.generations[index]
            if len(own) == end - start.number - 1:
                found[record.generation] = [each.snapshot.id for each in own if isinstance(each, SnapshotCompleted)]
            else:
                limit = self.generations[index + 1].first_checkpoint
                found[record.generation] = [CheckpointId(id) for id in range(record.first_checkpoint, limit)]
        return found


def read_catalogue(store: ObjectStore, stream: StreamName) -> Catalogue:
    """Read both logs of `stream`.

    The slots are read before the decisions: a slot that was written in view of a decision (a start, of what was
    deployed) is then never without it. The other way round does no harm: who acts on less than there is loses the race
    for the next slot.
    """
    slots = slot_log(store, stream).read()
    return Catalogue(stream, slots, decision_log(store, stream).read())


def savepoints(catalogue: Catalogue) -> tuple[SnapshotRef, ...]:
    return tuple(ref for ref in catalogue.snapshots if ref.kind is SnapshotKind.SAVEPOINT)
