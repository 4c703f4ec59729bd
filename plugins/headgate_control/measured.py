"""What the history tells of costs: checkpoints and recoveries as tables, and what a restore will take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from headgate_contract.history import Event, newest_first
from headgate_contract.ids import StreamName
from headgate_contract.measures import CheckpointCost, RecoveryKind, RecoveryTime
from headgate_contract.store import ObjectStore

CHECKPOINT_EVENTS = frozenset({"checkpoint", "savepoint"})
RECOVERY_EVENTS = frozenset({"start", "restart"})
RESTS_ON = 20
"""A prediction rests on so many of the newest launches, and on as many of the newest restarts, at most."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a measure is spread."""

    median: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None if nothing was measured; p95 is the smallest value that 95 of 100 do not exceed."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(median=statistics.median(ordered), p95=ordered[math.ceil(0.95 * len(ordered)) - 1], max=ordered[-1])


Summary = Mapping[str, Spread]


@dataclass(frozen=True, kw_only=True)
class MeasuredCheckpoint:
    """One attempt at a snapshot, from the history."""

    status: str
    """COMPLETED or FAILED."""
    generation: int | None
    duration_ms: float
    cost: CheckpointCost
    cause: str | None = None
    """Why it came to nothing."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The newest attempts at snapshots, newest first, and how the terms of those that completed are spread."""

    checkpoints: tuple[MeasuredCheckpoint, ...]
    summary: Summary = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeasuredRecovery:
    """One way to running, from the history."""

    at_ms: int
    """When the stream ran, by the driver's clock."""
    duration_ms: float
    time: RecoveryTime


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """The newest starts, newest first, and how their terms are spread."""

    recoveries: tuple[MeasuredRecovery, ...]
    summary: Summary = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a restore will take from the claim to running, by what earlier ones took.

    The model: redeployment and the resets take the median of what they took; loading state takes its bytes times the
    time that a byte has taken so far. Detection comes on top where the stream has to be found lost first.
    """

    expected_ms: float
    redeploy_ms: float
    load_state_ms: float
    reset_source_ms: float
    reset_sink_ms: float
    state_bytes: int
    rests_on: int
    """How many recoveries."""
    launches: int
    """How many of them launched a driver: redeployment rests on these alone."""


def checkpoints_of(store: ObjectStore, stream: StreamName, limit: int) -> Checkpoints:
    """The newest `limit` attempts that the history has measures of."""
    found = (_checkpoint(event) for event in newest_first(store, stream, CHECKPOINT_EVENTS.__contains__))
    rows = tuple(islice((row for row in found if row is not None), limit))
    done = [row.cost for row in rows if row.status == "COMPLETED"]
    measures: dict[str, Callable[[CheckpointCost], float]] = {
        "duration_ms": lambda cost: cost.total_ms,
        "barrier_ms": lambda cost: cost.barrier_ms,
        "snapshot_ms": lambda cost: cost.snapshot_ms,
        "persist_ms": lambda cost: cost.persist_ms,
        "coordination_ms": lambda cost: cost.coordination_ms,
        "uploaded_bytes": lambda cost: cost.uploaded_bytes,
        "full_bytes": lambda cost: cost.full_bytes or 0,
    }
    return Checkpoints(checkpoints=rows, summary=_summary(done, measures))


def recoveries_of(store: ObjectStore, stream: StreamName, limit: int) -> Recoveries:
    """The newest `limit` starts that the history has measures of."""
    rows = tuple(
        islice(
            (
                MeasuredRecovery(at_ms=event.at_ms, duration_ms=round(event.measures.total_ms, 3), time=event.measures)
                for event in newest_first(store, stream, RECOVERY_EVENTS.__contains__)
                if isinstance(event.measures, RecoveryTime)
            ),
            limit,
        )
    )
    measures: dict[str, Callable[[RecoveryTime], float | None]] = {
        "duration_ms": lambda time: time.total_ms,
        "detect_ms": lambda time: time.detect_ms,
        "redeploy_ms": lambda time: time.redeploy_ms,
        "load_state_ms": lambda time: time.load_state_ms,
        "reset_source_ms": lambda time: time.reset_source_ms,
        "reset_sink_ms": lambda time: time.reset_sink_ms,
    }
    return Recoveries(recoveries=rows, summary=_summary([row.time for row in rows], measures))


def comparable(store: ObjectStore, stream: StreamName) -> list[RecoveryTime]:
    """What tells how long a start will take: many restarts in a driver hide none of the launches before them."""
    found: dict[str, list[RecoveryTime]] = {what: [] for what in RECOVERY_EVENTS}

    def wanted(what: str | None) -> bool:
        return what in found and len(found[what]) < RESTS_ON

    for event in newest_first(store, stream, wanted):
        if isinstance(event.measures, RecoveryTime) and event.what in found:
            found[event.what].append(event.measures)
    return [time for times in found.values() for time in times]


def predict(times: Sequence[RecoveryTime], state_bytes: int) -> Prediction | None:
    """What a start that loads so much state will take; None if nothing was measured that tells."""
    launched = [time for time in times if time.kind is not RecoveryKind.RESTART]  # a restart starts no process
    loaded = [time for time in times if time.loaded_bytes]
    if not launched or (state_bytes and not loaded):
        return None
    per_byte = sum(time.load_state_ms for time in loaded) / sum(time.loaded_bytes for time in loaded) if loaded else 0.0
    redeploy = statistics.median(time.redeploy_ms for time in launched)
    source = statistics.median(time.reset_source_ms for time in times)
    sink = statistics.median(time.reset_sink_ms for time in times)
    load = per_byte * state_bytes
    return Prediction(
        expected_ms=round(redeploy + load + source + sink, 3),
        redeploy_ms=redeploy,
        load_state_ms=round(load, 3),
        reset_source_ms=source,
        reset_sink_ms=sink,
        state_bytes=state_bytes,
        rests_on=len(times),
        launches=len(launched),
    )


def _checkpoint(event: Event) -> MeasuredCheckpoint | None:
    cost = event.measures
    if not isinstance(cost, CheckpointCost):
        return None
    completed = event.outcome == "EXECUTED"
    return MeasuredCheckpoint(
        status="COMPLETED" if completed else "FAILED",
        generation=event.generation,
        duration_ms=round(cost.total_ms, 3),
        cost=cost,
        cause=None if completed else event.text,
    )


def _summary(rows: Sequence[T], measures: Mapping[str, Callable[[T], float | None]]) -> Summary:
    spreads = {
        name: Spread.of(value for row in rows if (value := measure(row)) is not None)
        for name, measure in measures.items()
    }
    return {name: spread for name, spread in spreads.items() if spread is not None}
