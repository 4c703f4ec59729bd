"""What entries of a log prove of others that are lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_contract.ids import CheckpointId
from headgate_contract.records import GenerationStarted, Restarted, SlotRecord, SnapshotCompleted
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotRef


def proven_by_others(records: Sequence[SlotRecord | None]) -> dict[int, list[SnapshotRef]]:
    """By generation: the completed snapshots of which starts tell that looked at them, lowest ids first."""
    refs: dict[CheckpointId, SnapshotRef] = {}
    told: set[CheckpointId] = set()
    for record in records:
        if isinstance(record, SnapshotCompleted):
            told.add(record.snapshot.id)
        elif isinstance(record, GenerationStarted):
            decision = record.decision
            seen = [rejected.snapshot for rejected in decision.rejected]
            seen += [decision.snapshot] if isinstance(decision, RestoreFrom) else []
            refs.update({ref.id: ref for ref in seen if not ref.foreign})
    found: dict[int, list[SnapshotRef]] = {}
    for id in sorted(set(refs) - told):
        found.setdefault(refs[id].generation, []).append(refs[id])
    return found


def bases(records: Sequence[SlotRecord | None]) -> dict[int, CheckpointId]:
    """What a generation was started from, if it went on from there again before it had completed anything."""
    bases: dict[int, CheckpointId] = {}
    completed: set[int] = set()
    for record in records:
        if isinstance(record, SnapshotCompleted):
            completed.add(record.generation)
        elif isinstance(record, Restarted) and record.generation not in completed:
            bases.update({record.generation: record.snapshot} if record.snapshot is not None else {})
    return bases
