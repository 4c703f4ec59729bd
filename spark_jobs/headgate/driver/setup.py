"""Everything that a life begins with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headgate.driver.engine import Engine
from headgate.driver.ledger import Ledger
from headgate.driver.points import KillPoints
from headgate.driver.under_way import UnderWay
from headgate.job.tasks import GraphPlan
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import Conflict, Fenced
from headgate_contract.ids import CheckpointId, Generation, RequestId, StreamName
from headgate_contract.records import GenerationStarted, SlotLog, SnapshotCompleted
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore


@dataclass(frozen=True, kw_only=True)
class LifeSetup:
    """Everything that a life begins with."""

    store: ObjectStore
    stream: StreamName
    started: GenerationStarted
    catalogue: Catalogue
    slots: SlotLog
    settings: Settings
    plan: GraphPlan
    work: Path
    engine: Engine
    points: KillPoints
    ledger_class: type[Ledger] = Ledger
    restart: int = 0
    """0 for a generation's first life, else the number of its restart."""
    again: RestoreFrom | StartFresh | None = None
    """What a restart goes on from."""
    above: CheckpointId | None = None
    """The lowest id that no life before has used, not even for an attempt."""

    under_way: UnderWay = field(default_factory=UnderWay)
    """Where the parts of a life tell what they have under way."""
    failed_s: float = 0.0
    """When the life before failed, by the steady clock."""

    @property
    def decision(self) -> RestoreFrom | StartFresh:
        """What this life restores."""
        return self.again or self.started.decision

    @property
    def restored(self) -> SnapshotRef | None:
        """The snapshot that this life goes on from."""
        return self.decision.snapshot if isinstance(self.decision, RestoreFrom) else None

    @property
    def next_checkpoint(self) -> CheckpointId:
        """The id of its first attempt at a snapshot."""
        return max(self.started.first_checkpoint, self.above or self.started.first_checkpoint)

    def done_before(self) -> dict[RequestId, SnapshotRef]:
        """What earlier lives have carried out, and perhaps not answered."""
        return {
            slot.record.request: slot.record.snapshot
            for slot in self.catalogue.slots
            if isinstance(slot.record, SnapshotCompleted) and slot.record.request is not None
        }


def own_launch(catalogue: Catalogue, generation: Generation, launch: str) -> GenerationStarted:
    """This driver's own generation start. A driver that nobody launched, or that was overtaken, does not run."""
    newest = catalogue.newest_generation
    own = catalogue.generation(generation)
    if own is None or own.launch != launch:
        raise Conflict(f"no launch {launch} of generation {generation} is in the log of stream {catalogue.stream}")
    if newest is not None and newest.generation > generation:
        raise Fenced(
            f"generation {generation} of stream {catalogue.stream} came too late: {newest.generation} has started"
        )
    if catalogue.newest_slot is None or catalogue.slots[-1].record != own:
        raise Conflict(f"generation {generation} of stream {catalogue.stream} has run already", hint="start a new one")
    return own
