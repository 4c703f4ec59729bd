"""What a checkpoint cost and how long a recovery took, term by term; part of the event that tells of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from headgate_contract.ids import CheckpointId, Generation, SavepointName
from headgate_contract.snapshot import SnapshotKind


@dataclass(frozen=True, kw_only=True)
class CheckpointCost:
    """One attempt at a snapshot, from being due to its end. The terms follow one another and add up to its duration.

    An attempt that came to nothing has the terms that it got to.
    """

    TYPE: ClassVar[str] = "checkpoint-cost"
    checkpoint: CheckpointId
    kind: SnapshotKind
    due_ms: int
    """When it was due, or asked for, by the driver's clock."""
    barrier_ms: float
    """From being due to the barrier's passing: the running micro-batch has to end first."""
    snapshot_ms: float = 0.0
    """The time in which no micro-batch may run because of it."""
    persist_ms: float = 0.0
    """Until all participants had acknowledged, uploads included."""
    coordination_ms: float = 0.0
    """Metadata, slot, commit and notification; waiting for an older snapshot that has to complete first, too."""
    uploaded_bytes: int = 0
    uploaded_files: int = 0
    full_bytes: int | None = None
    """The bytes of all files that the snapshot needs; None if it came to nothing."""
    name: SavepointName | None = None

    @property
    def total_ms(self) -> float:
        return self.barrier_ms + self.snapshot_ms + self.persist_ms + self.coordination_ms


class RecoveryKind(enum.Enum):
    """Who brought a stream up."""

    START = "start"
    """A person; nothing was lost, as far as the log says."""
    RECOVERY = "recovery"
    """The control plane, in place of a lost generation."""
    RESTART = "restart"
    """The driver itself, after a failure, in the same generation."""


@dataclass(frozen=True, kw_only=True)
class RecoveryTime:
    """The way of a stream from its last sign of life to running. The terms add up to the whole."""

    TYPE: ClassVar[str] = "recovery-time"
    kind: RecoveryKind
    generation: Generation
    snapshot: CheckpointId | None = None
    """What was restored; None: nothing."""
    detect_ms: float | None = None
    """From the last sign of life to the claim of the next generation, by the storage's clock; None: nobody was lost."""
    redeploy_ms: float
    """All that is in no other term: the process, Spark's start, the books of shared storage."""
    load_state_ms: float
    """Fetching, verifying and cutting the state."""
    reset_source_ms: float
    """Reading the positions, and until the source has been started behind them."""
    reset_sink_ms: float
    """Committing what the snapshot carries, taking back what lies beyond it."""
    loaded_bytes: int = 0

    @property
    def total_ms(self) -> float:
        restored = self.redeploy_ms + self.load_state_ms + self.reset_source_ms + self.reset_sink_ms
        return (self.detect_ms or 0.0) + restored


Measures = CheckpointCost | RecoveryTime
