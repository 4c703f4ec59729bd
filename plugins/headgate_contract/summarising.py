"""Makes a summary of what a catalogue was read from: answers stay as they were. Pure.

What it drops: completions that are retired, restarts before the last, decisions that are over. What it keeps word by
word is bounded by what is retained, and by how often the stream was started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import LogDamaged
from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, SlotNumber
from headgate_contract.log import Slot
from headgate_contract.records import (
    Deployed,
    GenerationStarted,
    Hole,
    Repaired,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
)
from headgate_contract.summary import CompletedBy, KeptDecision, KeptSlot, Summary

REQUESTS_KEPT = 50
"""So many of the newest slots that carry out a request are kept: whoever asked may still look for his answer."""
MOST_SPANS = 16
"""Of a generation that is over, this many gaps in its ids are remembered; else none."""


def summarise(catalogue: Catalogue) -> Summary:
    """What `catalogue` was read from, in one. Raises LogDamaged if it would not answer as that does."""
    assert catalogue.newest_slot is not None
    before = catalogue.summary
    kept = tuple(KeptSlot(slot.number, slot.record) for slot in _kept(catalogue))
    newest = catalogue.newest_generation
    completed = {start.generation: catalogue.ids_of(start.generation) for start in catalogue.generations}
    over = {
        generation: ids if newest is not None and generation == newest.generation else ids.within(MOST_SPANS)
        for generation, ids in completed.items()
        if ids
    }
    dropped = IdRanges(span for ids in over.values() for span in ids.spans) - IdRanges.of(
        each.record.snapshot.id for each in kept if isinstance(each.record, SnapshotCompleted)
    )
    every = IdRanges(span for ids in completed.values() for span in ids.spans)
    found = Summary(
        stream=catalogue.stream,
        slot=catalogue.newest_slot,
        decision=catalogue.entries.newest_decision,
        slots=kept,
        decisions=tuple(_decisions(catalogue)),
        completed=tuple(CompletedBy(generation, ids.spans) for generation, ids in over.items()),
        retired=(catalogue.retired - dropped).spans,
        uncommitted=(every - catalogue.committed).spans,
        cleared=before.cleared if before is not None else 0,
        taken=(*(before.taken if before is not None else ()), *_taken(catalogue)),
    )
    _check(catalogue, found)
    return found


def folded(catalogue: Catalogue, summary: Summary) -> Catalogue:
    """`catalogue` as it is read from its summary alone."""
    slots = tuple(Slot(each.number, each.record) for each in summary.slots)
    decisions = tuple(Slot(each.number, each.record) for each in summary.decisions)
    return Catalogue(catalogue.stream, slots, decisions, summary)


def _kept(catalogue: Catalogue) -> Iterator[Slot[SlotRecord]]:
    needed = _needed(catalogue)
    told = [start.generation for start in catalogue.generations if catalogue.ids_of(start.generation)]
    newest = catalogue.generations[-1].generation if catalogue.generations else 0
    for slot in catalogue.slots:
        if isinstance(slot.record, GenerationStarted):
            start = slot.record
            if start.generation < newest:
                start = _slim(start, rollbacks=bool(told) and start.generation < told[-1])
            yield Slot(slot.number, start)
        elif slot.number in needed:
            yield slot


def _needed(catalogue: Catalogue) -> frozenset[SlotNumber]:
    """The slots that are kept, besides generation starts."""
    last_restart = catalogue.last_restart
    heads = {_head(catalogue), *(ref.id for ref in catalogue.completed[-1:])}
    begun = max((slot.number for slot in catalogue.slots if isinstance(slot.record, GenerationStarted)), default=0)
    places: dict[CheckpointId, set[str]] = {}
    for ref in catalogue.restored:
        places.setdefault(ref.id, set()).add(ref.where)
    asked = [slot.number for slot in catalogue.slots if _request(slot.record) is not None]
    needed = {catalogue.slots[-1].number, *asked[-REQUESTS_KEPT:]}
    for slot in catalogue.slots:
        record = slot.record
        if record is last_restart or isinstance(record, Repaired):
            needed.add(slot.number)
        if isinstance(record, Hole) and slot.number > begun:
            needed.add(slot.number)
        if isinstance(record, SnapshotCompleted):
            ref = record.snapshot
            moved = bool(places.get(ref.id, set()) - {ref.where})
            if ref.id not in catalogue.retired or ref.id in heads or moved:
                needed.add(slot.number)
    return frozenset(needed)


def _head(catalogue: Catalogue) -> CheckpointId | None:
    """The newest snapshot that the newest generation completed, retired or not."""
    newest = catalogue.newest_generation
    ids = catalogue.ids_of(newest.generation) if newest is not None else IdRanges()
    return CheckpointId(ids.highest) if ids else None


def _request(record: SlotRecord) -> object:
    return record.request if isinstance(record, (SnapshotCompleted, Stopped)) else None


def _slim(start: GenerationStarted, *, rollbacks: bool) -> GenerationStarted:
    """Without what only its own start needed: why it did not take others, and what it took back."""
    decision = replace(start.decision, rejected=())
    return replace(start, decision=replace(decision, rollbacks=()) if rollbacks else decision)


def _decisions(catalogue: Catalogue) -> Iterator[KeptDecision]:
    """What tells of the newest generation, and of the one before: a restore that fails is taken back to that."""
    kept, ran = catalogue.generations[-2:], _ran(catalogue)
    for slot in catalogue.decisions:
        match slot.record:
            case Deployed():
                needed = slot.number in ran
            case StopWanted(generation=generation) | StopWithdrawn(generation=generation):
                needed = not kept or generation >= kept[0].generation
            case Retired() | Hole():
                needed = False
        if needed:
            yield KeptDecision(slot.number, slot.record)


def _ran(catalogue: Catalogue) -> set[int | None]:
    """Which deployments are asked for yet: what is deployed, and where it read and wrote since the oldest snapshot."""
    taken_by = {ref.generation for ref in catalogue.snapshots if not ref.foreign}
    oldest = min(taken_by, default=None)
    since = {
        start.deployed
        for start in catalogue.generations
        if oldest is not None and start.generation >= oldest and catalogue.ids_of(start.generation)
    }
    deployed = [slot.number for slot in catalogue.decisions if isinstance(slot.record, Deployed)]
    starts = (*catalogue.generations[-2:], catalogue.newest_writer)
    return {*since, *deployed[-2:], *(start.deployed for start in starts if start is not None)}


def _taken(catalogue: Catalogue) -> Iterator[int]:
    """The numbers that somebody who was frozen may still try for: whoever was there before such a slot.

    A fenced driver's next one is its successor's start; that of a life that failed inside it is the restart after it;
    that of a driver whose launch was taken back is its end. Behind a completion there is nobody but who wrote it.
    """
    covered = catalogue.summary.slot if catalogue.summary is not None else 0
    for slot in catalogue.slots:
        if slot.number > covered and not isinstance(slot.record, SnapshotCompleted):
            yield int(slot.number)


def _names(catalogue: Catalogue) -> list[tuple[object, ...]]:
    return [(start.generation, start.launch, start.first_checkpoint) for start in catalogue.generations]


def _check(before: Catalogue, summary: Summary) -> None:
    """Nothing is written, and so nothing deleted, that would make a stream answer otherwise."""
    after, newest = folded(before, summary), before.newest_generation
    head = before.history[0] if before.history else None
    same = {
        "what can be restored": (before.snapshots, after.snapshots),
        "what it stands on": (head, after.history[0] if after.history else None),
        "what is claimed": (before.claimed, after.claimed),
        "who has run it": (_names(before), _names(after)),
        "what runs": (before.newest_generation, after.newest_generation),
        "how it ended": (before.stopped, after.stopped),
        "which comes next": (before.next_generation, after.next_generation),
        "the next id": (before.next_checkpoint, after.next_checkpoint),
        "what is retired": (before.retired - after.retired, IdRanges()),
        "what sinks may show": (before.exposed - after.exposed, IdRanges()),
        "the restarts": (before.last_restart, after.last_restart),
        "what is deployed": (before.deployed_number, after.deployed_number),
        "what is wanted": (
            before.stops_wanted(newest.generation) if newest is not None else (),
            after.stops_wanted(newest.generation) if newest is not None else (),
        ),
    }
    for what, (was, would_be) in same.items():
        if was != would_be:
            raise LogDamaged(
                f"the summary of stream {before.stream} up to slot {summary.slot} would change {what}, and is not "
                f"written: {was} became {would_be}"
            )
