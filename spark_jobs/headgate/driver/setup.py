"""Everything that a life begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.driver.engine import Engine
from headgate.driver.ledger import Ledger
from headgate.driver.points import KillPoints
from headgate.job.plan import LinearPlan
from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import CheckpointId, StreamName
from headgate_contract.records import GenerationStarted, SlotLog
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.settings import Settings
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
    plan: LinearPlan
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

    failed_s: float = 0.0
    """When the life before failed, by the steady clock."""

    @property
    def decision(self) -> RestoreFrom | StartFresh:
        """What this life restores."""
        return self.again or self.started.decision

    @property
    def next_checkpoint(self) -> CheckpointId:
        """The id of its first attempt at a snapshot."""
        return max(self.started.first_checkpoint, self.above or self.started.first_checkpoint)
