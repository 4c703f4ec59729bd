"""A stream's logs, written by hand: what the tests of catalogue and restore look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import CheckpointId, Generation, SavepointName, SlotNumber, StreamName, VertexUid
from headgate_contract.log import Slot
from headgate_contract.paths import StreamPaths
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
)
from headgate_contract.restore import RestoreFrom, SinkRollback, StartFresh
from headgate_contract.snapshot import SavepointOrigin, SnapshotKind, SnapshotRef
from headgate_contract.summarising import summarise
from headgate_contract.summary import Summary

STREAM = StreamName("orders")
OUT = VertexUid("out")


def started(
    generation: int,
    decision: RestoreFrom | StartFresh | None = None,
    *,
    first_checkpoint: int = 1,
    launch: str = "launch",
    accept_duplicates: bool = False,
    deployed: int = 1,
) -> GenerationStarted:
    return GenerationStarted(
        generation=Generation(generation),
        decision=decision or StartFresh("the stream has never run"),
        first_checkpoint=CheckpointId(first_checkpoint),
        deployed=deployed,
        by="anna",
        host="host",
        at_ms=1,
        launch=launch,
        log="/log",
        accept_duplicates=accept_duplicates,
    )


def snapshot(id: int, generation: int = 1, name: str | None = None) -> SnapshotRef:
    paths = StreamPaths(STREAM)
    folder = (
        paths.checkpoint(CheckpointId(id), Generation(generation))
        if name is None
        else paths.savepoint(SavepointName(name), CheckpointId(id), Generation(generation))
    )
    return SnapshotRef(
        CheckpointId(id),
        SnapshotKind.CHECKPOINT if name is None else SnapshotKind.SAVEPOINT,
        Generation(generation),
        folder,
        100 + id,
        f"{id:064x}",
        None if name is None else SavepointName(name),
        None if name is None else SavepointOrigin.PERSON,
    )


@dataclass
class Lives:
    """Writes what drivers and launches would write, each verb one slot or decision, without a store."""

    slots: list[Slot[SlotRecord]] = field(default_factory=list)
    decisions: list[Slot[DecisionRecord]] = field(default_factory=list)
    summary: Summary | None = None
    every_slot: list[Slot[SlotRecord]] = field(default_factory=list)
    """Those that were folded too."""
    every_decision: list[Slot[DecisionRecord]] = field(default_factory=list)

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(STREAM, tuple(self.slots), tuple(self.decisions), self.summary)

    @property
    def unfolded(self) -> Catalogue:
        """As if nothing had ever been folded."""
        return Catalogue(STREAM, tuple(self.every_slot), tuple(self.every_decision))

    @property
    def generation(self) -> Generation:
        newest = self.catalogue.newest_generation
        assert newest is not None
        return newest.generation

    def start(
        self,
        base: SnapshotRef | None = None,
        *,
        accept_duplicates: bool = False,
        rollbacks: tuple[SinkRollback, ...] = (),
    ) -> GenerationStarted:
        catalogue = self.catalogue
        newest = catalogue.newest_generation
        decision = StartFresh("fresh", (), rollbacks) if base is None else RestoreFrom(base, "named", (), rollbacks)
        record = started(
            1 if newest is None else newest.generation + 1,
            decision,
            first_checkpoint=catalogue.next_checkpoint,
            accept_duplicates=accept_duplicates,
            deployed=catalogue.deployed_number or 1,
        )
        self.append(record)
        return record

    def checkpoint(self, *, retires: Iterable[SnapshotRef] = (), name: str | None = None, skip: int = 0) -> SnapshotRef:
        """Complete the next snapshot; `skip` ids before it were tried and failed."""
        ref = snapshot(self.catalogue.next_checkpoint + skip, self.generation, name)
        retired = tuple(old.id for old in retires)
        self.append(SnapshotCompleted(generation=self.generation, snapshot=ref, retires=retired))
        return ref

    def savepoint(self, name: str) -> SnapshotRef:
        return self.checkpoint(name=name)

    def stop(self, taken: SnapshotRef | None = None) -> None:
        self.append(
            Stopped(generation=self.generation, reason="asked for", snapshot=None if taken is None else taken.id)
        )

    def restart(self) -> None:
        """The driver goes on after a failure."""
        catalogue = self.catalogue
        head = catalogue.history[0].id if catalogue.history else None
        last = catalogue.last_restart
        self.append(
            Restarted(
                generation=self.generation,
                restart=last.restart + 1 if last is not None else 1,
                cause="it failed",
                snapshot=head,
                at_ms=1,
            )
        )

    def append(self, record: SlotRecord) -> None:
        slot = Slot(SlotNumber(self.slots[-1].number + 1 if self.slots else 1), record)
        self.slots.append(slot)
        self.every_slot.append(slot)

    # ---- decisions

    def deploy(self, job: str = "job.py") -> None:
        self.decide(Deployed(job=job, job_sha256="0" * 64, directory="/d", settings={}, plan={}, by="anna", at_ms=1))

    def retire(self, *refs: SnapshotRef) -> None:
        self.decide(Retired(snapshots=tuple(ref.id for ref in refs), by="anna", reason="old", at_ms=1))

    def want_stop(self, generation: Generation) -> None:
        self.decide(StopWanted(generation=generation, by="anna", reason="enough", at_ms=1))

    def withdraw_stop(self, generation: Generation) -> None:
        self.decide(StopWithdrawn(generation=generation, by="anna", reason="it failed", at_ms=1))

    def decide(self, record: DecisionRecord) -> None:
        slot = Slot(SlotNumber(len(self.every_decision) + 1), record)
        self.decisions.append(slot)
        self.every_decision.append(slot)

    # ---- folding

    def fold(self) -> Summary:
        """From now on this is read from a summary."""
        self.summary = summarise(self.catalogue)
        self.slots = [Slot(kept.number, kept.record) for kept in self.summary.slots]
        self.decisions = [Slot(kept.number, kept.record) for kept in self.summary.decisions]
        return self.summary

    def lose(self, *numbers: SlotNumber) -> None:
        """Somebody deletes slots: that is damage."""
        self.slots = [slot for slot in self.slots if slot.number not in numbers]
