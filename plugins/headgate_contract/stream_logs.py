"""Reads both logs of a stream: the newest summary, and the entries since; then only what is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headgate_contract.errors import LogDamaged, RootLost, SlotTaken
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.log import LogMoved, Slot
from headgate_contract.paths import numbered
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    SlotLog,
    SlotRecord,
    decision_log,
    slot_log,
)
from headgate_contract.store import ObjectStore
from headgate_contract.summary import Summary, newest_summary, summary_numbers

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Entries:
    """What both logs say: a summary, and the entries since."""

    summary: Summary | None
    slots: tuple[Slot[SlotRecord], ...]
    """What the summary keeps and what came since, oldest first."""
    decisions: tuple[Slot[DecisionRecord], ...]

    @property
    def newest_decision(self) -> SlotNumber | None:
        covered = [self.summary.decision] if self.summary is not None and self.summary.decision is not None else []
        return max([*covered, *(each.number for each in self.decisions[-1:])], default=None)

    @property
    def unfolded(self) -> int:
        """How many entries a reader has to read one by one."""
        slot = self.summary.slot if self.summary is not None else 0
        decision = (self.summary.decision if self.summary is not None else None) or 0
        return sum(each.number > slot for each in self.slots) + sum(each.number > decision for each in self.decisions)


class StreamLogs:
    """Both logs of one stream, with what is known of them. Not for use by several threads at once."""

    def __init__(self, store: ObjectStore, stream: StreamName) -> None:
        self._store = store
        self._stream = stream
        self.slots = slot_log(store, stream)
        self.decisions = decision_log(store, stream)
        self._summary: Summary | None = None
        self._begun = False

    def begin(self, entries: Entries) -> None:
        """Take these as read."""
        summary = entries.summary
        slot, decision = (summary.slot, summary.decision) if summary is not None else (None, None)
        self.slots.begin(slot, _behind(entries.slots, slot))
        self.decisions.begin(decision, _behind(entries.decisions, decision))
        self._summary, self._begun = summary, True

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._begun = False
        self.slots, self.decisions = slot_log(self._store, self._stream), decision_log(self._store, self._stream)

    def read(self) -> Entries:
        """The logs as they are now.

        The slots are read before the decisions: a slot that was written in view of a decision (a start, of what was
        deployed) is then never without it. The other way round does no harm: who acts on less than there is loses the
        race for the next slot.
        """
        fault: LogDamaged | None = None
        for attempt in range(_TRIES):
            if not self._begun:
                summary, fault = newest_summary(self._store, self._stream)
                self.begin(Entries(summary, (), ()))
            try:
                slots, decisions = self.slots.read(), self.decisions.read()
            except LogMoved as moved:
                if attempt == _TRIES - 1:
                    raise self._lacking(moved, fault) from None
            else:
                if self._is_whole(slots):
                    return self._entries(slots, decisions)
                if attempt == _TRIES - 1:
                    if fault is not None:
                        raise self._lacking(fault, fault)
                    return self._entries(slots, decisions)  # the laws say what is missing
            self.forget()  # it was folded meanwhile, or made anew: what is known is not to be gone on from
        raise AssertionError("not reached: the last attempt returns or raises")

    def _lacking(self, what: LogMoved | LogDamaged, fault: LogDamaged | None) -> LogDamaged:
        why = f"{fault.what}; and slots that it covers are deleted" if fault is not None else what.what
        return LogDamaged(
            f"the log of stream {self._stream} is damaged: {why}",
            hint=f"`headgate repair {self._stream}` tells a way out; or put the summary's own bytes back, and what is "
            "missing",
        )

    def _is_whole(self, slots: Sequence[Slot[SlotRecord]]) -> bool:
        base = self._summary.slot if self._summary is not None else 0
        return not slots or slots[-1].number - base == len(slots)

    def _entries(self, slots: tuple[Slot[SlotRecord], ...], decisions: tuple[Slot[DecisionRecord], ...]) -> Entries:
        summary = self._summary
        if summary is None:
            return Entries(None, slots, decisions)
        kept = tuple(Slot(each.number, each.record) for each in summary.slots)
        decided = tuple(Slot(each.number, each.record) for each in summary.decisions)
        return Entries(summary, kept + slots, self._with_own(kept + slots, decided + decisions))

    def _with_own(
        self, slots: tuple[Slot[SlotRecord], ...], decisions: tuple[Slot[DecisionRecord], ...]
    ) -> tuple[Slot[DecisionRecord], ...]:
        """With what the newest generation runs: whoever claimed it may have decided on that long before."""
        starts = [slot.record for slot in slots if isinstance(slot.record, GenerationStarted)]
        if not starts or any(each.number == starts[-1].deployed for each in decisions):
            return decisions
        found = decision_log(self._store, self._stream).peek(SlotNumber(starts[-1].deployed))
        if found is None or not isinstance(found.record, Deployed):
            return decisions
        return tuple(sorted((*decisions, found), key=lambda each: each.number))


def claim_slot(
    log: SlotLog, stream: StreamName, after: SlotNumber | None, record: GenerationStarted
) -> Slot[SlotRecord]:
    """Start a generation in the slot behind `after`. Raises SlotTaken if anybody else wrote there, however long ago.

    Of a completion that was folded the number is free again. Whoever was frozen since before that, and now finds it so,
    has overtaken nobody: what he writes is behind a summary, where nobody reads it. A driver's own next number is never
    free (`summarising._taken`).
    """
    try:
        slot = log.append(after, record)
    except RootLost as error:
        if after is None or not any(number > after for number in summary_numbers(log.store, stream)):
            raise
        raise SlotTaken(f"slot {after} of stream {stream} was folded since: others have written behind it") from error
    if any(number >= slot.number for number in summary_numbers(log.store, stream)):
        path = numbered(log.folder, slot.number)
        if _is_folded(log, stream, slot.number, record):  # he was frozen behind this very claim, which stays
            raise SlotTaken(f"{path} is ours, and others have gone on behind it since")
        log.store.delete(path)
        raise SlotTaken(f"{path} was written by somebody else, and folded since")
    return slot


def _is_folded(log: SlotLog, stream: StreamName, number: SlotNumber, start: GenerationStarted) -> bool:
    """Whether a summary tells of this start, at this number; also if none can be read."""
    summary, _ = newest_summary(log.store, stream)
    kept = [each.record for each in summary.slots if each.number == number] if summary is not None else [start]
    return any(isinstance(record, GenerationStarted) and record.launch == start.launch for record in kept)


def _behind(slots: Sequence[Slot[Any]], base: SlotNumber | None) -> tuple[Slot[Any], ...]:
    return tuple(slot for slot in slots if slot.number > (base or 0))
