"""The laws of a stream's two logs: what can never be in them, however writers race, freeze and die. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate_contract.errors import LogDamaged
from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, SlotNumber, StreamName
from headgate_contract.log import Slot
from headgate_contract.records import (
    DecisionRecord,
    GenerationStarted,
    Hole,
    Repaired,
    Restarted,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
)
from headgate_contract.restore import RestoreFrom
from headgate_contract.summary import Summary

FOLLOWS: Mapping[type[SlotRecord], tuple[type[SlotRecord], ...]] = {
    GenerationStarted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped, Repaired),
    SnapshotCompleted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped, Repaired),
    Restarted: (GenerationStarted, SnapshotCompleted, Restarted, Stopped, Repaired),
    Stopped: (GenerationStarted, Repaired),
    Repaired: (GenerationStarted, Repaired),
}
"""Which kinds of slots may follow each kind; the first is a generation start. A hole may stand anywhere."""


def check_slots(stream: StreamName, slots: Sequence[Slot[SlotRecord]], summary: Summary | None = None) -> None:
    """Raise LogDamaged, naming the slot, if the slot log breaks one of its laws.

    - Slot 1 starts generation 1, and generations count up. Behind a repair they go on where that says, and the ids of
      snapshots too.
    - No slot is missing behind those that a summary covers. Of these only what it keeps is among `slots`, and whoever
      wrote it has found them good. A hole that a repair has filled is none, and what it held may be missed.
    - A slot is written by the generation that was started last before it: a fenced one can complete nothing.
    - Each kind follows only kinds that it may follow: nothing but a start follows a stop.
    - The restarts of a generation count up, and each goes on from what it stands on.
    - Snapshot ids are unique, and no generation completes one below its `first_checkpoint`, which is above all ids
      before it. What a generation restores from was completed by an earlier one, or was
      brought from elsewhere.
    """
    walk = SlotWalk() if summary is None else SlotWalk.behind(summary)
    covered = summary.slot if summary is not None else 0
    for expected, slot in enumerate((slot for slot in slots if slot.number > covered), start=covered + 1):
        if expected == 1 and slot.number != 1:
            raise _damaged(stream, "slot 1 is missing, which starts generation 1 and is never deleted")
        if slot.number != expected:
            raise _damaged(stream, f"slot {expected} is missing, {slot.number} is there")
        why = walk.fault(slot)
        if why is not None:
            raise _damaged(stream, why)
        walk.take(slot)


@dataclass
class SlotWalk:
    """What the slots up to here add up to, and whether the next one can follow them."""

    last: Slot[SlotRecord] | None = None
    newest: GenerationStarted | None = None
    ids: set[CheckpointId] = field(default_factory=set)
    highest: int = 0
    """The highest of `ids`."""
    head: CheckpointId | None = None
    restarts: int = 0
    repaired: Repaired | None = None
    """Behind which no generation was started yet."""
    unsure: bool = False
    """Whether something of the newest generation may be missing, since a repair has filled its place."""
    folded: IdRanges = field(default_factory=IdRanges)
    """The ids that completed in slots which a summary covers."""

    @classmethod
    def behind(cls, summary: Summary) -> SlotWalk:
        """Go on behind the slots that `summary` covers."""
        walk = cls()
        for kept in summary.slots:
            walk.take(Slot(kept.number, kept.record))
        return replace(walk, folded=summary.ids, highest=max(walk.highest, summary.ids.highest))

    @property
    def next_generation(self) -> int:
        if self.repaired is not None:
            return self.repaired.next_generation
        return 1 if self.newest is None else self.newest.generation + 1

    @property
    def taken(self) -> int:
        """The highest id that nothing may be completed under any more."""
        firsts = [self.newest.first_checkpoint - 1] if self.newest is not None else []
        repaired = [self.repaired.next_checkpoint - 1] if self.repaired is not None else []
        return max([*firsts, *repaired, self.highest], default=0)

    def fault(self, slot: Slot[SlotRecord], *, whole: bool = True) -> str | None:
        """Which law `slot` would break; `whole`: nothing that it must be judged by is lost."""
        number, record = slot.number, slot.record
        if isinstance(record, Hole):
            return None
        if (
            self.last is not None
            and number == self.last.number + 1
            and not isinstance(self.last.record, Hole)
            and type(record) not in FOLLOWS[type(self.last.record)]
        ):
            return f"slot {number} is {record.TYPE}, which cannot follow {self.last.record.TYPE}"
        if isinstance(record, GenerationStarted):
            return self._start(number, record)
        return self._repair(number, record) if isinstance(record, Repaired) else self._own(number, record, whole)

    def _own(self, number: SlotNumber, record: SnapshotCompleted | Restarted | Stopped, whole: bool) -> str | None:
        if self.newest is None:
            return f"slot {number} starts no generation, and there is none before it"
        if record.generation != self.newest.generation:
            what = f"slot {number} was written by generation {record.generation}"
            return f"{what}, generation {self.newest.generation} had been started"
        if isinstance(record, SnapshotCompleted):
            return self._completion(number, record, self.newest)
        if isinstance(record, Restarted):
            return self._restart(number, record, whole and not self.unsure)
        return None

    def take(self, slot: Slot[SlotRecord]) -> None:
        """Go on behind `slot`."""
        record = slot.record
        if isinstance(record, Hole):
            self.unsure = True
        elif isinstance(record, GenerationStarted):
            base = record.decision.snapshot if isinstance(record.decision, RestoreFrom) else None
            self.newest, self.restarts, self.repaired = record, 0, None
            self.head = base.id if base is not None else None
            self.unsure = record.repair is not None
        elif isinstance(record, SnapshotCompleted):
            id = record.snapshot.id
            self.ids.add(id)
            self.highest = max(self.highest, id)
            self.head = id if self.head is None else max(self.head, id)
        elif isinstance(record, Restarted):
            self.restarts = record.restart
        elif isinstance(record, Repaired):
            self.repaired = record
        self.last = slot

    def copy(self) -> SlotWalk:
        return replace(self, ids=set(self.ids))

    def _start(self, number: SlotNumber, start: GenerationStarted) -> str | None:
        if start.generation != self.next_generation:
            return f"slot {number} starts generation {start.generation}, not {self.next_generation}"
        base = start.decision.snapshot if isinstance(start.decision, RestoreFrom) else None
        if base is not None and not base.foreign and base.generation >= start.generation:
            return f"slot {number} restores {base} of generation {base.generation}, which is no earlier one"
        taken = max(self.taken, base.id if base is not None else 0)
        if start.first_checkpoint <= taken:
            return f"slot {number} lets generation {start.generation} begin at a taken id, {taken} or lower"
        return None

    def _repair(self, number: SlotNumber, repaired: Repaired) -> str | None:
        if repaired.next_generation < self.next_generation:
            return f"slot {number} has generation {repaired.next_generation} follow, which was started before"
        if repaired.next_checkpoint <= self.taken:
            return f"slot {number} has ids go on at a taken one, {self.taken} or lower"
        return None

    def _completion(self, number: SlotNumber, completion: SnapshotCompleted, start: GenerationStarted) -> str | None:
        snapshot = completion.snapshot
        if snapshot.generation != completion.generation:
            return f"slot {number} completes {snapshot} for generation {snapshot.generation}, not its own"
        if snapshot.id in self.ids or snapshot.id in self.folded:
            return f"slot {number} completes {snapshot.id} again"
        if snapshot.id < start.first_checkpoint:
            return f"slot {number} completes {snapshot.id}, its ids begin at {start.first_checkpoint}"
        return None

    def _restart(self, number: SlotNumber, restart: Restarted, whole: bool) -> str | None:
        before = self.restarts
        if restart.restart <= before or (whole and restart.restart != before + 1):
            return f"slot {number} is restart {restart.restart} after restart {before}"
        if whole and restart.snapshot != self.head:
            return f"slot {number} goes on from {restart.snapshot}, its generation stands on {self.head}"
        return None


def check_decisions(
    stream: StreamName, decisions: Sequence[Slot[DecisionRecord]], summary: Summary | None = None
) -> None:
    """Raise LogDamaged if a decision is missing: none is ever deleted, and only what a summary covers is not read."""
    covered = (summary.decision if summary is not None else None) or 0
    behind = [slot for slot in decisions if slot.number > covered]
    for expected, slot in enumerate(behind, start=covered + 1):
        if slot.number != expected:
            raise _damaged(stream, f"decision {expected} is missing, {slot.number} is there")


def check_deployed(stream: StreamName, slots: Sequence[Slot[SlotRecord]], newest: SlotNumber | None) -> None:
    """Raise LogDamaged if a generation runs what was decided behind the `newest` decision: that is lost."""
    starts = [slot.record for slot in slots if isinstance(slot.record, GenerationStarted)]
    last = max(starts, key=lambda start: start.deployed, default=None)
    if last is not None and last.deployed > (newest or 0):
        there = f"{newest} is the newest one" if newest is not None else "there is none"
        raise _damaged(stream, f"decision {last.deployed} is missing, which generation {last.generation} runs; {there}")


def _damaged(stream: StreamName, what: str) -> LogDamaged:
    return LogDamaged(
        f"the log of stream {stream} is damaged: {what}",
        hint=f"`headgate repair {stream}` tells a way out; or put the slot's own bytes back",
    )
