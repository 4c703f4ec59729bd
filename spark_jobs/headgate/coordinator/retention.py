"""Which snapshots are retained, which of them the next one retires, and which are still being deleted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from headgate_contract.ids import CheckpointId, SavepointName
from headgate_contract.snapshot import ExternalizedCheckpointRetention, SnapshotKind, SnapshotRef


@dataclass
class CompletedCheckpointStore:
    """The completed snapshots of the log, less those that a slot has retired."""

    snapshots: list[SnapshotRef]
    keep: int
    """How many checkpoints."""
    claimed: frozenset[CheckpointId] = frozenset()
    """Savepoints that are retired as if they were checkpoints."""
    spared: set[CheckpointId] = field(default_factory=set)
    """Checkpoints that whoever asked for a stop will restore."""
    retiring: tuple[CheckpointId, ...] = ()
    """Those that the slot which is being written retires."""
    cleaning: set[CheckpointId] = field(default_factory=set)
    """Retired ones whose files are being deleted."""

    @property
    def latest(self) -> CheckpointId | None:
        return max((ref.id for ref in self.snapshots), default=None)

    def names(self) -> list[SavepointName]:
        return [ref.name for ref in self.snapshots if ref.name is not None]

    def stays(self, checkpoint: CheckpointId) -> bool:
        """Whether it is retained, also by the slot that is being written."""
        return checkpoint not in self.retiring and any(ref.id == checkpoint for ref in self.snapshots)

    def retire_for(self, completing: SnapshotKind, repeats: CheckpointId | None = None) -> tuple[CheckpointId, ...]:
        """A slot is about to be written: what it retires. Whatever checkpoint it `repeats`, it takes the place of."""
        replaced = tuple(ref.id for ref in self.snapshots if ref.id == repeats and ref.id not in self.spared)
        others = [ref for ref in self.snapshots if ref.id not in replaced]
        retired = subsumed(others, completing, self.keep, self.spared, self.claimed)
        self.retiring = tuple(sorted((*retired, *replaced)))
        return self.retiring

    def retire_at_cancel(self, policy: ExternalizedCheckpointRetention) -> tuple[CheckpointId, ...]:
        """The slot that says that the stream was cancelled is about to be written: what it retires."""
        return given_up_at_cancel(self.snapshots, policy, self.spared, self.claimed)

    def not_completed(self) -> None:
        """That slot was not written."""
        self.retiring = ()

    def complete(self, snapshot: SnapshotRef) -> tuple[CheckpointId, ...]:
        """That slot is there: what it has retired, which may be deleted now."""
        retired, self.retiring = self.retiring, ()
        self.snapshots = [ref for ref in self.snapshots if ref.id not in retired] + [snapshot]
        self.cleaning.update(retired)
        return retired

    def cleaned(self, checkpoint: CheckpointId) -> None:
        self.cleaning.discard(checkpoint)


def given_up_at_cancel(
    retained: Sequence[SnapshotRef],
    policy: ExternalizedCheckpointRetention,
    spared: Collection[CheckpointId] = frozenset(),
    claimed: Collection[CheckpointId] = frozenset(),
) -> tuple[CheckpointId, ...]:
    """The checkpoints that the cancelling of the stream retires, and the savepoints that it has `claimed`.

    Any other savepoint belongs to the one who asked for it.
    """
    if not policy.deletes:
        return ()
    ids = (ref.id for ref in retained if ref.kind is SnapshotKind.CHECKPOINT or ref.id in claimed)
    return tuple(sorted(id for id in ids if id not in spared))


def subsumed(
    retained: Sequence[SnapshotRef],
    completing: SnapshotKind,
    keep: int,
    spared: Collection[CheckpointId] = frozenset(),
    claimed: Collection[CheckpointId] = frozenset(),
) -> tuple[CheckpointId, ...]:
    """The checkpoints that one more of kind `completing` retires: all but the newest `keep`, the new one counted.

    Savepoints are never retired here, and never push out a checkpoint; those that are `spared` stay beyond `keep`. A
    savepoint that was `claimed` counts as a checkpoint.
    """
    if completing is SnapshotKind.SAVEPOINT:
        return ()
    checkpoints = sorted(ref.id for ref in retained if ref.kind is SnapshotKind.CHECKPOINT or ref.id in claimed)
    too_many = checkpoints[: max(0, len(checkpoints) + 1 - keep)]
    return tuple(id for id in too_many if id not in spared)
