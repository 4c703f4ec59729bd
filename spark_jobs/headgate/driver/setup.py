"""Everything that a life begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.driver.engine import Engine
from headgate.driver.ledger import Ledger
from headgate.driver.points import KillPoints
from headgate.job.plan import LinearPlan
from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import StreamName
from headgate_contract.records import GenerationStarted, SlotLog
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
