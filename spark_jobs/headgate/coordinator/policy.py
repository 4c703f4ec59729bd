"""When a checkpoint is due, what its failure means, and which older ones it retires. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headgate_contract.ids import CheckpointId
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotKind, SnapshotRef


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """The coordinator's settings, in milliseconds."""

    interval_ms: int | None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    retained: int = 1
    tolerable_failures: int = 0

    @property
    def concurrent(self) -> int:
        """How many checkpoints may run beside a periodic one, itself included: a pause between two allows only one."""
        return 1 if self.min_pause_ms else self.max_concurrent

    @classmethod
    def of(cls, settings: Settings) -> CheckpointOptions:
        prefix = "execution.checkpointing."
        return cls(
            interval_ms=settings[prefix + "interval"],
            timeout_ms=settings[prefix + "timeout"],
            min_pause_ms=settings[prefix + "min-pause"],
            max_concurrent=settings[prefix + "max-concurrent-checkpoints"],
            retained=settings[prefix + "num-retained"],
            tolerable_failures=settings[prefix + "tolerable-failed-checkpoints"],
        )


@dataclass
class PeriodicTrigger:
    """Says when the next periodic checkpoint is due."""

    options: CheckpointOptions
    started_ms: int
    last_trigger_ms: int | None = None
    last_end_ms: int | None = None

    def due_at(self) -> int | None:
        """The moment from which a checkpoint may be triggered; None when checkpointing is off.

        What a person asks for keeps its own time: it moves the interval of the periodic ones not at all.
        """
        if self.options.interval_ms is None:
            return None
        due = (self.started_ms if self.last_trigger_ms is None else self.last_trigger_ms) + self.options.interval_ms
        if self.last_end_ms is not None:
            due = max(due, self.last_end_ms + self.options.min_pause_ms)
        return due

    def triggered(self, now_ms: int) -> None:
        self.last_trigger_ms = now_ms

    def ended(self, now_ms: int) -> None:
        self.last_end_ms = now_ms


@dataclass
class FailureManager:
    """Counts checkpoints that failed in a row."""

    tolerable: int
    in_a_row: int = 0

    def succeeded(self) -> None:
        self.in_a_row = 0

    def failed(self) -> bool:
        """Count one more; True if the stream must fail for it."""
        self.in_a_row += 1
        return self.in_a_row > self.tolerable


def subsumed(
    retained: Sequence[SnapshotRef],
    completing: SnapshotKind,
    keep: int,
    spared: Collection[CheckpointId] = frozenset(),
) -> tuple[CheckpointId, ...]:
    """The checkpoints that one more of kind `completing` retires: all but the newest `keep`, the new one counted.

    Savepoints are never retired here, and never push out a checkpoint; those that are `spared` stay beyond `keep`.
    """
    if completing is SnapshotKind.SAVEPOINT:
        return ()
    checkpoints = sorted(ref.id for ref in retained if ref.kind is SnapshotKind.CHECKPOINT)
    too_many = checkpoints[: max(0, len(checkpoints) + 1 - keep)]
    return tuple(id for id in too_many if id not in spared)
