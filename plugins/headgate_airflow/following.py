"""What a look at a stream means for a task that waits: is it as wanted, gone wrong, or still under way. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotRef
from headgate_control import Condition, StreamStatus

RUNS = "running"
ENDED = "ended"
SUPERSEDED = "superseded"
ANSWERED = "answered"
COMPLETED = "completed"
GONE_WRONG = "failed"
TIMED_OUT = "timeout"

_DOWN = (Condition.LOST, Condition.FAILED, Condition.UNREADABLE)


def outcome_of(status: StreamStatus, generation: int | None) -> str | None:
    """What became of the wait for `generation` to run, or None while it is under way.

    RUNS, ENDED (it ran to its good end, or somebody stopped it), SUPERSEDED by a newer generation, or GONE_WRONG.
    With no generation any will do, and a stream that is down is only waited for.
    """
    if generation is not None and status.generation is not None and status.generation > generation:
        return SUPERSEDED
    if status.condition is Condition.RUNNING:
        return RUNS
    if generation is None:
        return None
    if status.condition in (Condition.STOPPING, Condition.STOPPED):
        return ENDED
    return GONE_WRONG if status.condition in _DOWN else None


def own_generation(catalogue: Catalogue, by: str) -> Generation | None:
    """The newest generation, if `by` started it, or if it replaces, lost after lost, one that `by` started."""
    newest = start = catalogue.newest_generation
    while start is not None and start.by != by and start.replaces is not None:
        start = catalogue.generation(start.replaces)
    return newest.generation if newest is not None and start is not None and start.by == by else None


def newest_above(snapshots: Iterable[SnapshotRef], newer_than: int, kind: str | None) -> SnapshotRef | None:
    """The newest of `snapshots` of `kind` (None: any) with an id above `newer_than`."""
    found = [ref for ref in snapshots if ref.id > newer_than and kind in (None, ref.kind.value)]
    return max(found, key=lambda ref: ref.id, default=None)


def current_since(status: StreamStatus, as_of: float, now: float) -> CheckpointId | None:
    """The newest checkpoint, if it has all that had come by the moment `as_of`; `now` is by the same clock as that.

    How long ago it had everything is known by the storage's clock: the driver's does not matter.
    """
    current = status.progress.current if status.progress is not None else None
    if current is None or status.current_age_s is None or now - status.current_age_s < as_of:
        return None
    return current.checkpoint


def described_launch(status: StreamStatus) -> dict[str, Any]:
    """What a task that waited for a stream to run returns."""
    decision = status.decision
    return {
        "stream": str(status.stream),
        "generation": int(status.generation) if status.generation is not None else None,
        "condition": status.condition.value,
        "restored_from": int(decision.snapshot.id) if isinstance(decision, RestoreFrom) else None,
        "reason": decision.reason if decision is not None else "",
        "host": status.host,
        "log": status.log,
    }


def described_snapshot(stream: str, taken: SnapshotRef) -> dict[str, Any]:
    """How a task tells of a snapshot."""
    return {
        "stream": str(stream),
        "snapshot": int(taken.id),
        "name": str(taken.name) if taken.name is not None else None,
        "generation": int(taken.generation),
        "folder": taken.where,
    }
