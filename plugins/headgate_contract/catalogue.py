"""What the logs of a stream add up to: generations, snapshots, lineage. Pure: slots in, answers out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from headgate_contract.id_ranges import IdRanges, Span
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber, StreamName, VertexUid
from headgate_contract.laws import check_decisions, check_slots
from headgate_contract.log import Slot
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Hole,
    Repaired,
    Restarted,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
)
from headgate_contract.restore import ClaimMode, RestoreFrom
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_contract.store import ObjectStore
from headgate_contract.stream_logs import Entries, StreamLogs
from headgate_contract.summary import Summary


@dataclass(frozen=True)
class Catalogue:
    """A stream's logs, read at one moment. Raises LogDamaged if they break their laws."""

    stream: StreamName
    slots: tuple[Slot[SlotRecord], ...]
    decisions: tuple[Slot[DecisionRecord], ...]
    summary: Summary | None = None
    """What else older entries add up to: of those that it covers, `slots` and `decisions` hold only what it keeps."""

    def __post_init__(self) -> None:
        check_slots(self.stream, self.slots, self.summary)
        check_decisions(self.stream, self.decisions, self.summary)

    @property
    def entries(self) -> Entries:
        """What this was read from."""
        return Entries(self.summary, self.slots, self.decisions)

    @property
    def newest_slot(self) -> SlotNumber | None:
        return self.slots[-1].number if self.slots else None

    @cached_property
    def generations(self) -> tuple[GenerationStarted, ...]:
        return tuple(slot.record for slot in self.slots if isinstance(slot.record, GenerationStarted))

    @property
    def newest_generation(self) -> GenerationStarted | None:
        return self.generations[-1] if self.generations else None

    @property
    def newest_writer(self) -> GenerationStarted | None:
        """The generation that completed the newest snapshot of which the log tells, and so wrote the newest output."""
        return self.generation(self.completed[-1].generation) if self.completed else None

    @cached_property
    def last_restart(self) -> Restarted | None:
        """The last time that the newest generation has gone on after a failure; its number says how often it has."""
        for slot in reversed(self.slots):
            if isinstance(slot.record, Restarted):
                return slot.record
            if isinstance(slot.record, GenerationStarted):
                break
        return None

    @cached_property
    def stopped(self) -> Stopped | None:
        """How the newest generation ended in good order, or None while it has not."""
        last = self.slots[-1].record if self.slots else None
        return last if isinstance(last, Stopped) else None

    @property
    def repaired(self) -> Repaired | None:
        """The repair with which the newest generation ended, or None if it did not: nothing was started since."""
        last = self.slots[-1].record if self.slots else None
        return last if isinstance(last, Repaired) else None

    @property
    def next_generation(self) -> Generation:
        """The one that the next start begins."""
        if self.repaired is not None:
            return self.repaired.next_generation
        newest = self.newest_generation
        return newest.generation.next() if newest is not None else Generation(1)

    @property
    def behind_a_repair(self) -> bool:
        """Whether nothing has completed since a repair: the first generation behind it may not have come that far."""
        since: list[GenerationStarted] | None = None
        for slot in self.slots:
            if isinstance(slot.record, Repaired):
                since = []
            elif isinstance(slot.record, GenerationStarted) and since is not None:
                since.append(slot.record)
        return bool(since) and not any(self.ids_of(start.generation) for start in since or ())

    @cached_property
    def completed(self) -> tuple[SnapshotRef, ...]:
        """Every completed snapshot that the log still tells of, retired ones too, in the order of completion."""
        return tuple(slot.record.snapshot for slot in self.slots if isinstance(slot.record, SnapshotCompleted))

    @cached_property
    def retired(self) -> IdRanges:
        """The snapshots of which the log tells that they are retired."""
        told: list[int] = []
        for slot in self.slots:
            if isinstance(slot.record, (SnapshotCompleted, Stopped, Repaired)):
                told += slot.record.retires
        for decision in self.decisions:
            if isinstance(decision.record, Retired):
                told += decision.record.snapshots
        if self.summary is None:
            return IdRanges.of(told)
        dropped = self.summary.ids - IdRanges.of(ref.id for ref in self.completed)
        return dropped | IdRanges(self.summary.retired) | IdRanges.of(told)

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
        repaired = [slot.record.next_checkpoint for slot in self.slots if isinstance(slot.record, Repaired)]
        folded = CheckpointId(self.summary.ids.highest + 1 if self.summary is not None else 1)
        return max([folded, *firsts, *above, *repaired])

    @cached_property
    def committed(self) -> IdRanges:
        """Groups of which the log says that every sink has committed them."""
        told: list[int] = []
        for slot in self.slots:
            if isinstance(slot.record, (SnapshotCompleted, Stopped)):
                told += slot.record.committed
        if self.summary is None:
            return IdRanges.of(told)
        return (self.summary.ids - IdRanges(self.summary.uncommitted)) | IdRanges.of(told)

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

    @property
    def requests(self) -> frozenset[RequestId]:
        """Those of which the log tells: that they were carried out, or that they want a stop."""
        records = [*(slot.record for slot in self.slots), *(slot.record for slot in self.decisions)]
        told = (each.request for each in records if isinstance(each, (SnapshotCompleted, Stopped, StopWanted)))
        return frozenset(request for request in told if request is not None)

    def generation(self, generation: Generation) -> GenerationStarted | None:
        return self._by_number.get(generation)

    @cached_property
    def _by_number(self) -> Mapping[Generation, GenerationStarted]:
        return {start.generation: start for start in self.generations}

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
        so on. A restore to an older snapshot or a fresh start leaves what it goes back behind out of it, for good. Of
        what was folded it has those that can be asked for, and the newest one.
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

    def lineage(self, ref: SnapshotRef | None) -> IdRanges:
        """The ids of all snapshots that `ref` stands on, itself included: whose groups belong to its history.

        Where slots were lost, every id that may have completed in them is among them; where they were folded, of a
        generation that is over, it may be so.
        """
        spans: list[Span] = []
        while ref is not None and not ref.foreign:
            spans += [*self.ids_of(ref.generation).up_to(ref.id).spans, Span(ref.id, ref.id)]
            start = self.generation(ref.generation)
            base = start.decision.snapshot if start is not None and isinstance(start.decision, RestoreFrom) else None
            if (
                start is not None
                and base is not None
                and start.repair is not None
                and self._is_newest_left(base, start)
            ):
                spans.append(Span(base.id, ref.id))
            ref = base
        return IdRanges(spans)

    def _is_newest_left(self, base: SnapshotRef, start: GenerationStarted) -> bool:
        """Whether a repair assumed `base` of a start that is lost, because nothing between the two is known any more.

        What may have completed there belongs to whoever goes on from that start, as far as anybody knows.
        """
        between = (ref for ref in self.completed if ref.id > base.id and ref.generation < start.generation)
        return not base.foreign and next(between, None) is None

    @cached_property
    def exposed(self) -> IdRanges:
        """The groups that sinks may show.

        A driver goes back behind groups before it completes anything. So these are the groups that the newest
        generation stands on, its own, and until it has completed a snapshot also what was there before: whether it came
        to take that back, the log does not tell.
        """
        shown = IdRanges()
        for start in reversed(self.generations):
            own = self.ids_of(start.generation)
            base = start.decision.snapshot if isinstance(start.decision, RestoreFrom) else None
            shown = shown | own | self.lineage(base)
            if own:
                break
        return shown

    def abandoned_by(self, ref: SnapshotRef | None) -> IdRanges:
        """The groups that sinks may show and a restore from `ref` (None: a fresh start) goes back behind."""
        return self.exposed - self.lineage(ref)

    def accepted_duplicates(self, sink: VertexUid) -> IdRanges:
        """The groups of which somebody has accepted, at a start since the last completion, that `sink` repeats them."""
        accepted = IdRanges()
        for start in reversed(self.generations):
            if self.ids_of(start.generation):
                break
            if start.accept_duplicates:
                for rollback in start.decision.rollbacks:
                    accepted = accepted | rollback.ids if rollback.sink == sink else accepted
        return accepted

    def tells_of(self, id: CheckpointId) -> bool:
        """Whether a snapshot of this id has completed, or may have where slots are gone."""
        return any(id in ids for ids in self._ids.values())

    @cached_property
    def settled(self) -> CheckpointId:
        """Below this id a repair has dealt with whatever others published."""
        floors = [slot.record.next_checkpoint for slot in self.slots if isinstance(slot.record, Repaired)]
        return max([CheckpointId(1), *floors])

    def ids_of(self, generation: Generation) -> IdRanges:
        """The ids under which `generation` completed snapshots; all that it may have, where its slots are lost."""
        return self._ids.get(generation, IdRanges())

    @cached_property
    def _ids(self) -> Mapping[Generation, IdRanges]:
        own: dict[Generation, list[Span]] = {}
        for each in self.summary.completed if self.summary is not None else ():
            own.setdefault(each.generation, []).extend(each.ids)
        for ref in self.completed:
            own.setdefault(ref.generation, []).append(Span(ref.id, ref.id))
        for start, limit in self._with_holes():
            if limit > start.first_checkpoint:
                own.setdefault(start.generation, []).append(Span(start.first_checkpoint, limit - 1))
        return {generation: IdRanges(spans) for generation, spans in own.items()}

    def _with_holes(self) -> Iterator[tuple[GenerationStarted, CheckpointId]]:
        """The generations of which slots are lost, and the lowest id that is above all of theirs."""
        places = [index for index, slot in enumerate(self.slots) if isinstance(slot.record, GenerationStarted)]
        for start, place, end in zip(self.generations, places, [*places[1:], len(self.slots)], strict=True):
            if any(isinstance(slot.record, Hole) for slot in self.slots[place + 1 : end]):
                after = self.slots[end].record if end < len(self.slots) else None
                yield start, after.first_checkpoint if isinstance(after, GenerationStarted) else self.next_checkpoint


def read_catalogue(store: ObjectStore, stream: StreamName) -> Catalogue:
    """Read both logs of `stream`: the newest summary, and the entries since."""
    return catalogue_of(stream, StreamLogs(store, stream).read())


def catalogue_of(stream: StreamName, entries: Entries) -> Catalogue:
    return Catalogue(stream, entries.slots, entries.decisions, entries.summary)


def savepoints(catalogue: Catalogue) -> tuple[SnapshotRef, ...]:
    return tuple(ref for ref in catalogue.snapshots if ref.kind is SnapshotKind.SAVEPOINT)
