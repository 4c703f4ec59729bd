"""Plans how a damaged log is made whole: what is kept, what is given up, what is written in its place. Pure.

Numbers stay taken: whoever knew any part of the log as it was finds the slot after it written, before and after. What
cannot be read, is gone or contradicts what was there before it becomes a hole; what others prove is written again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.laws import SlotWalk
from headgate_contract.log import Slot
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.proofs import bases, proven_by_others
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Hole,
    Repaired,
    SlotRecord,
    SnapshotCompleted,
    StreamCopy,
)
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.summary import Summary

R = TypeVar("R")
_FAR = 1000
"""No entry that cannot be read lies so far behind all others: it is a file that somebody has put there."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[R]):
    """What lies at one number of a log."""

    number: SlotNumber
    record: R | None
    """What it says, or None if that is not known."""
    fault: str | None = None
    """Why it cannot be read as it is. With a record: its own bytes are proven by their checksum all the same."""


class Was(enum.Enum):
    """What a repair finds at a number."""

    DAMAGED = "damaged"
    MISSING = "missing"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True, slots=True)
class Change(Generic[R]):
    """One number at which something else is written than lies there."""

    number: SlotNumber
    was: Was
    why: str
    record: R
    """What is written: a hole, or what the entry is proven or assumed to have said."""
    mended: bool = False
    """It is the entry's own bytes again."""

    @property
    def is_lost(self) -> bool:
        return isinstance(self.record, Hole)


@dataclass(frozen=True, kw_only=True)
class RepairFacts:
    """Everything that the plan rests on."""

    stream: StreamName
    slots: Sequence[Entry[SlotRecord]]
    """By number; what is not there is missing, but for what a summary covers."""
    summary: Summary | None
    """The newest that can be read: what it covers needs no repair."""
    decisions: Sequence[Entry[DecisionRecord]]
    copy: StreamCopy | None = None
    """The copy of the newest deployment that lies beside the logs."""
    highest_generation: int = 0
    """That heartbeats, folders or sinks tell of."""
    highest_checkpoint: int = 0
    """Under which anything lies in a folder or a sink."""
    highest_slot: int = 0
    """Of which history tells: what is lost up to there was written."""
    whole: Sequence[SnapshotRef] = ()
    """Snapshots of this stream that lie whole in their folders and that no entry tells of."""
    history: str = ""
    """The launch of generation 1, as sinks remember it."""
    gone: Mapping[SnapshotRef, str] = field(default_factory=dict)
    """Completed snapshots of which the files are gone, and which."""
    wanted: str = ""
    """Why a log that is whole is repaired all the same: what a sink holds is not of this log."""
    repair: str
    by: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """What a repair would do; `after` is what the logs add up to then."""

    stream: StreamName
    slots: tuple[Change[SlotRecord], ...]
    decisions: tuple[Change[DecisionRecord], ...]
    closing: Slot[Repaired] | None
    """Written first, and the end of the log then; None if nothing is to be repaired."""
    strangers: tuple[str, ...]
    """Files that are called as entries are, and can be none: they are moved aside."""
    given_up: tuple[SnapshotRef, ...]
    """Snapshots that entries tell of which contradict what was there before them."""
    after: Catalogue

    @property
    def needed(self) -> bool:
        return self.closing is not None


def plan_repair(facts: RepairFacts) -> RepairPlan:
    """The plan that keeps every entry which can follow those before it, and fills all other places."""
    paths = StreamPaths(facts.stream)
    slots, strange_slots = _entries(facts.slots, paths.slots)
    decisions, strange_decisions = _entries(facts.decisions, paths.decisions)
    strangers = (*strange_slots, *strange_decisions)
    return _plan(replace(facts, slots=slots, decisions=decisions), strangers)


def _entries(found: Sequence[Entry[R]], folder: str) -> tuple[list[Entry[R]], list[str]]:
    """What may be entries, and the files that can be none."""
    end = max((entry.number for entry in found if entry.record is not None), default=0) + _FAR
    far = [entry for entry in found if entry.number > end]
    return [entry for entry in found if entry not in far], [numbered(folder, entry.number) for entry in far]


def _plan(facts: RepairFacts, strangers: tuple[str, ...]) -> RepairPlan:
    decisions, decided = _mend_decisions(facts)
    mending = _Mending(facts, decided)
    covered = facts.summary.slot if facts.summary is not None else 0
    last = max([facts.highest_slot, *(entry.number for entry in facts.slots)])
    for number in range(covered + 1, last + 1):
        mending.look(SlotNumber(number))
    mending.end()
    slots: tuple[Slot[SlotRecord], ...] = tuple(mending.kept)
    closing = None
    if mending.changes or decisions or strangers or facts.wanted or (facts.highest_generation and not facts.slots):
        closing = mending.closing(len(decisions), len(strangers))
        slots = (*slots, Slot(closing.number, closing.record))
    return RepairPlan(
        stream=facts.stream,
        slots=tuple(sorted(mending.changes, key=lambda change: change.number)),
        decisions=decisions,
        closing=closing,
        strangers=strangers,
        given_up=tuple(mending.given_up),
        after=Catalogue(facts.stream, slots, decided, facts.summary),
    )


def _mend_decisions(facts: RepairFacts) -> tuple[tuple[Change[DecisionRecord], ...], tuple[Slot[DecisionRecord], ...]]:
    """What is written into the log of decisions, and all of it then."""
    found = {entry.number: entry for entry in facts.decisions}
    covered = (facts.summary.decision if facts.summary is not None else None) or 0
    kept = {each.number: each.record for each in facts.summary.decisions} if facts.summary is not None else {}
    runs = [entry.record.deployed for entry in facts.slots if isinstance(entry.record, GenerationStarted)]
    newest = max([covered, *found, *runs, *([facts.copy.number] if facts.copy is not None else [])])
    changes: list[Change[DecisionRecord]] = []
    slots: list[Slot[DecisionRecord]] = []
    for number in map(SlotNumber, range(1, newest + 1)):
        entry = found.get(number)
        record = entry.record if entry is not None else None
        if entry is None or record is None or entry.fault is not None:
            was, why = _fault(entry)
            mended = record is not None
            if record is None and facts.copy is not None and facts.copy.number == number:
                record = facts.copy.deployed
            record = record or kept.get(number) or Hole(repair=facts.repair, why=why)
            changes.append(Change(number, was, why, record, mended))
        slots.append(Slot(number, record))
    return tuple(changes), tuple(slots)


def _fault(entry: Entry[R] | None) -> tuple[Was, str]:
    return (Was.DAMAGED, entry.fault or "") if entry is not None else (Was.MISSING, "it is missing")


@dataclass
class _Open:
    """A number whose entry is lost, and that may still be needed for what others prove."""

    number: SlotNumber
    was: Was
    why: str


class _Mending:
    """Goes through the slots, oldest first."""

    def __init__(self, facts: RepairFacts, decided: tuple[Slot[DecisionRecord], ...]) -> None:
        self._facts = facts
        summary = facts.summary
        slots = [entry for entry in facts.slots if summary is None or entry.number > summary.slot]
        self._entries = {entry.number: entry for entry in slots}
        self._walk = SlotWalk() if summary is None else SlotWalk.behind(summary)
        self._open: list[_Open] = []
        deployed = [slot.number for slot in decided if isinstance(slot.record, Deployed)]
        self._deployed = int(deployed[-1]) if deployed else 0
        self._proven = proven_by_others([entry.record for entry in slots])
        self._whole = sorted(facts.whole, key=lambda ref: ref.id)
        self._bases = bases([entry.record for entry in slots])
        kept = [Slot(each.number, each.record) for each in summary.slots] if summary is not None else []
        told = [each.record.snapshot for each in kept if isinstance(each.record, SnapshotCompleted)]
        self._refs = {ref.id: ref for ref in told}
        self.kept: list[Slot[SlotRecord]] = kept
        there = {entry.number for entry in facts.slots}
        self.changes: list[Change[SlotRecord]] = [  # readers begin with the newest slot that the summary covers
            Change(slot.number, *_fault(None), slot.record) for slot in kept[-1:] if slot.number not in there
        ]
        self.given_up: list[SnapshotRef] = []

    def look(self, number: SlotNumber) -> None:
        """Keep what lies at `number`, if it can follow what is kept; else its place is open."""
        entry = self._entries.get(number)
        if entry is None or entry.record is None:
            self._open.append(_Open(number, *_fault(entry)))
            return
        filled = self._filled(self._lost_before(entry.record))
        walk = self._walk.copy() if filled else self._walk
        for slot in filled:
            walk.take(slot)
        why = walk.fault(Slot(number, entry.record))
        if why is not None:
            self._open.append(_Open(number, Was.CONTRADICTS, why))
            if isinstance(entry.record, SnapshotCompleted):
                self.given_up.append(entry.record.snapshot)
            return
        self._fill(filled)
        if entry.fault is not None:
            self.changes.append(Change(number, Was.DAMAGED, entry.fault, entry.record, mended=True))
        self._keep(Slot(number, entry.record))

    def end(self) -> None:
        """No slot follows: the places that are open become holes."""
        if self._facts.highest_generation > 0 and not self.kept and not self._open:
            self._open.append(_Open(SlotNumber(1), Was.MISSING, "it is missing"))
        if self._walk.newest is None and self._open:
            first, *others = self._open
            self._open = [first]
            self._fill(self._filled([self._assumed_start]))
            self._open = others
        self._fill(self._filled([]))

    def closing(self, decisions: int, strangers: int) -> Slot[Repaired]:
        """The record of the repair itself."""
        lost = sum(change.is_lost for change in self.changes)
        unknown = any(not change.mended for change in self.changes)
        told = [f"{_count(n, noun)}" for n, noun in ((len(self.changes), "slot"), (decisions, "decision")) if n]
        told += [f"{_count(strangers, 'file')} that can be no entry"] if strangers else []
        reason = f"damaged, missing or contradictory: {', '.join(told)}" if told else ""
        firsts = [slot.record.first_checkpoint for slot in self.kept if isinstance(slot.record, GenerationStarted)]
        known = max([0, self._walk.taken + lost, self._facts.highest_checkpoint, *firsts])
        number = self.kept[-1].number.next() if self.kept else SlotNumber(1)
        refs = {ref.id for ref in self._facts.gone} if unknown else set()
        record = Repaired(
            repair=self._facts.repair,
            next_generation=Generation(max(self._walk.next_generation, self._facts.highest_generation + 1)),
            next_checkpoint=CheckpointId(known + 1),
            retires=tuple(sorted(refs & set(self._refs))),
            by=self._facts.by,
            reason="; ".join(filter(None, (reason, self._facts.wanted))) or "the log is gone",
            at_ms=self._facts.at_ms,
        )
        return Slot(number, record)

    # ------------------------------------------------------------------ what is lost

    def _lost_before(self, record: SlotRecord) -> list[Callable[[SlotWalk], SlotRecord]]:
        """What must have been at the last open places, for `record` to be what it is."""
        if isinstance(record, (Hole, Repaired)) or not self._open:
            return []
        newest = self._walk.newest.generation if self._walk.newest is not None else 0
        if record.generation <= newest:
            return []
        start = isinstance(record, GenerationStarted)
        missing = record.generation - self._walk.next_generation + (not start)
        if missing <= len(self._open):
            return [self._assumed_start] * missing
        lost = record.first_checkpoint if isinstance(record, GenerationStarted) else None
        jump = partial(self._assumed_repair, record.generation, lost)  # generations were left out: by a repair
        return [jump] if start else [jump, self._assumed_start]

    def _filled(self, lost: list[Callable[[SlotWalk], SlotRecord]]) -> list[Slot[SlotRecord]]:
        """What the open places hold then: at the last ones what is `lost`, at others what is proven, or holes."""
        walk, slots = self._walk.copy(), []
        makers = [self._proven_or_hole] * (len(self._open) - len(lost)) + lost[: len(self._open)]
        for place, make in zip(self._open, makers, strict=True):
            slot = Slot(place.number, make(walk))
            if walk.fault(slot) is not None:
                slot = Slot(place.number, self._hole)
            walk.take(slot)
            slots.append(slot)
        return slots

    @property
    def _hole(self) -> SlotRecord:
        return Hole(repair=self._facts.repair, why="")

    def _proven_or_hole(self, walk: SlotWalk) -> SlotRecord:
        """A completion of the newest generation that is lost: one of which a later start tells, or that lies there.

        Whether what lies there had completed is not known, and need not be: it is a cut through the whole stream, and
        what others may have published behind it is taken back.
        """
        newest = walk.newest
        if newest is None:
            return self._hole
        for ref in [*self._proven.get(newest.generation, []), *self._lying_there(newest.generation)]:
            told = ref.id in walk.ids or ref.id in walk.folded
            if not told and ref.id >= newest.first_checkpoint:
                return SnapshotCompleted(generation=newest.generation, snapshot=ref)
        return self._hole

    def _lying_there(self, generation: Generation) -> list[SnapshotRef]:
        """Those of `generation`, lowest ids first, above all that entries tell of; none where entries contradict."""
        if any(place.was is Was.CONTRADICTS for place in self._open):
            return []
        told = [entry.record for entry in self._entries.values()]
        highest = max([0, *self._refs, *(each.snapshot.id for each in told if isinstance(each, SnapshotCompleted))])
        return [ref for ref in self._whole if ref.generation == generation and ref.id > highest]

    def _assumed_repair(self, generation: Generation, first: CheckpointId | None, walk: SlotWalk) -> Repaired:
        return Repaired(
            repair=self._facts.repair,
            next_generation=generation,
            next_checkpoint=first or CheckpointId(walk.taken + 1),
            by=self._facts.by,
            reason="an earlier repair, of which the entry is lost",
            at_ms=self._facts.at_ms,
        )

    def _assumed_start(self, walk: SlotWalk) -> GenerationStarted:
        generation = Generation(walk.next_generation)
        base = self._refs.get(self._bases.get(generation) or CheckpointId(max(self._refs, default=1)))
        unknown = f"repaired: what generation {generation} was started from is lost"
        return GenerationStarted(
            generation=generation,
            decision=RestoreFrom(base, f"{unknown}, {base} is assumed") if base is not None else StartFresh(unknown),
            first_checkpoint=CheckpointId(walk.taken + 1),
            deployed=self._deployed,
            by=self._facts.by,
            host="",
            at_ms=self._facts.at_ms,
            launch=self._facts.history if generation == 1 and self._facts.history else self._facts.repair,
            log="",
            repair=self._facts.repair,
        )

    def _fill(self, filled: list[Slot[SlotRecord]]) -> None:
        for place, slot in zip(self._open, filled, strict=True):
            record = replace(slot.record, why=place.why) if isinstance(slot.record, Hole) else slot.record
            self.changes.append(Change(place.number, place.was, place.why, record))
            self._keep(Slot(place.number, record))
        self._open = []

    def _keep(self, slot: Slot[SlotRecord]) -> None:
        self._walk.take(slot)
        self.kept.append(slot)
        if isinstance(slot.record, SnapshotCompleted):
            self._refs[slot.record.snapshot.id] = slot.record.snapshot


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
