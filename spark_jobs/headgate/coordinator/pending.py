"""A snapshot under way: who still has to acknowledge."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.cut import Cut, Group, Json, Staged
from headgate.coordinator.messages import Acknowledged, StoreSnapshot, TakeSnapshot, Trigger
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.snapshot import ExternalizedCheckpointRetention, SourceState, TaskState, VertexState


class AckResult(enum.Enum):
    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown participant"


class PendingState(enum.Enum):
    COLLECTING = "collecting acks"
    STORING = "storing metadata and slot"
    COMPLETED = "completed"
    DISCARDED = "discarded"


LEGAL = {
    PendingState.COLLECTING: {PendingState.STORING, PendingState.DISCARDED},
    PendingState.STORING: {PendingState.COMPLETED, PendingState.DISCARDED},
    PendingState.COMPLETED: set[PendingState](),
    PendingState.DISCARDED: set[PendingState](),
}


@dataclass
class PendingCheckpoint:
    """One attempt, from its barrier to its slot or its end."""

    id: CheckpointId
    trigger: Trigger
    cut: Cut
    started_ms: int
    waiting: set[str]
    as_of_ms: int | None = None
    """All that had come to the sources by then is in it, if that is known."""
    state: PendingState = PendingState.COLLECTING
    acknowledged: set[str] = field(default_factory=set)
    vertices: dict[VertexUid, VertexState] = field(default_factory=dict)
    sources: dict[VertexUid, SourceState] = field(default_factory=dict)
    tasks: dict[VertexUid, TaskState] = field(default_factory=dict)
    in_flight: dict[str, tuple[Json, ...]] = field(default_factory=dict)
    """What its barriers have overtaken in channels."""
    watermarks: dict[VertexUid, Json] = field(default_factory=dict)
    """Of a job with channels: how far the inputs of each task had come."""
    staged: dict[VertexUid, tuple[Json, ...]] = field(default_factory=dict)
    """What each sink was given to prepare."""
    prepared: dict[VertexUid, tuple[Json, ...]] = field(default_factory=dict)
    """What each sink says stands for that."""

    @property
    def is_periodic(self) -> bool:
        return self.trigger.is_periodic

    @property
    def can_be_subsumed(self) -> bool:
        """Only a periodic checkpoint: nobody waits for it by name."""
        return self.is_periodic and self.state is PendingState.COLLECTING

    @property
    def missing(self) -> str:
        """Whose acks are, for people."""
        return ", ".join(sorted(self.waiting))

    def expires_ms(self, timeout_ms: int) -> int | None:
        """When it expires, if an ack is missing: a savepoint too, or one that hangs would hold up all after it."""
        return self.started_ms + timeout_ms if self.waiting else None

    def acknowledge(self, ack: Acknowledged) -> AckResult:
        if ack.participant in self.acknowledged:
            return AckResult.DUPLICATE
        if ack.participant not in self.waiting:
            return AckResult.UNKNOWN
        self.waiting.discard(ack.participant)
        self.acknowledged.add(ack.participant)
        self.vertices.update(ack.vertices)
        self.sources.update(ack.sources)
        self.tasks.update(ack.tasks)
        self.prepared.update(ack.staged)
        return AckResult.SUCCESS

    def take(
        self,
        cut: Cut,
        parts: frozenset[str],
        due_ms: int,
        *,
        staged: Staged | None = None,
        joinable: bool = False,
        in_flight: Mapping[str, tuple[Json, ...]] | None = None,
        watermarks: Json | None = None,
    ) -> TakeSnapshot:
        """Its barrier passes those whose `parts` these are."""
        self.staged.update(staged or {})
        return TakeSnapshot(
            checkpoint=self.id,
            kind=self.trigger.kind,
            name=self.trigger.name,
            cut=cut,
            staged=staged or {},
            joinable=joinable,
            target=self.trigger.target,
            due_ms=due_ms,
            parts=parts,
            in_flight=in_flight or {},
            watermarks=watermarks or {},
        )

    def store(
        self,
        *,
        groups: tuple[Group, ...],
        committed: tuple[CheckpointId, ...],
        retires: tuple[CheckpointId, ...],
        retention: ExternalizedCheckpointRetention,
    ) -> StoreSnapshot:
        """All of its parts are there."""
        return StoreSnapshot(
            checkpoint=self.id,
            kind=self.trigger.kind,
            name=self.trigger.name,
            origin=self.trigger.origin,
            request=self.trigger.request,
            cut=self.cut,
            vertices=self.vertices,
            sources=self.sources,
            tasks=self.tasks,
            groups=groups,
            committed=committed,
            retires=retires,
            retention=None if self.trigger.is_savepoint else retention,
            target=self.trigger.target,
        )

    def enter(self, state: PendingState) -> None:
        if state not in LEGAL[self.state]:
            raise AssertionError(f"checkpoint {self.id} cannot go from {self.state.value} to {state.value}")
        self.state = state
