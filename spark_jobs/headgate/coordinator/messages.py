"""What the coordinator is told (events) and what it wants done (actions). Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.cut import BatchResult, Cut, Group, Json, Staged
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate_contract.ids import CheckpointId, RequestId, SavepointName, SlotNumber, VertexUid
from headgate_contract.snapshot import (
    ExternalizedCheckpointRetention,
    SavepointOrigin,
    SnapshotKind,
    SnapshotRef,
    SourceState,
    TaskState,
    VertexState,
)

# ---- events


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Somebody wants a snapshot. Periodic ones come from the coordinator itself."""

    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    name: SavepointName | None = None
    origin: SavepointOrigin | None = None
    request: RequestId | None = None
    target: str | None = None
    """The URL of the directory for a savepoint; None: below the storage root."""
    stop: bool = False
    """The stream ends with this snapshot."""
    drain: bool = False
    """Before the last barrier the operators finish: the stream is not to go on from there."""
    keep: CheckpointId | None = None
    """A checkpoint that is to be restored next: from now on it is not retired."""
    already: SnapshotRef | None = None
    """What an earlier life has completed for this request: who asked is told of that."""
    at_its_end: bool = False
    """That is what this life has restored: nothing has come behind it, and the stream ends with it as it stands."""
    reason: str = ""
    due_ms: int = 0
    """From when on it could be carried out; the coordinator's own entry."""

    @property
    def end(self) -> SnapshotRef | None:
        """What the stream is to end with, if that is there."""
        return self.already if self.at_its_end else None

    @property
    def is_savepoint(self) -> bool:
        return self.name is not None

    @property
    def is_periodic(self) -> bool:
        """Nobody asked for it: nobody is told when it fails, but the stream may fail for it."""
        return self.request is None and not self.is_savepoint and not self.stop


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The sources have looked for records and found none: whatever had come by then was handed over, and told of."""

    began_ms: int
    """When the earliest of these looks began, on the coordinator's clock."""


@dataclass(frozen=True, kw_only=True)
class BatchBegun:
    """A source hands over a micro-batch."""


@dataclass(frozen=True, kw_only=True)
class BatchDone:
    result: BatchResult


@dataclass(frozen=True, kw_only=True)
class SourceEnded:
    """A bounded source has handed over all that it has."""

    source: VertexUid


@dataclass(frozen=True, kw_only=True)
class BatchFailed:
    cause: str


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """A participant's part of a snapshot is durable."""

    checkpoint: CheckpointId
    participant: str
    vertices: Mapping[VertexUid, VertexState] = field(default_factory=dict)
    sources: Mapping[VertexUid, SourceState] = field(default_factory=dict)
    tasks: Mapping[VertexUid, TaskState] = field(default_factory=dict)
    staged: Staged = field(default_factory=dict)
    """What stands from now on for what its sink was to prepare."""


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A participant cannot give its part."""

    checkpoint: CheckpointId
    participant: str
    cause: str
    reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_DECLINED


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The completion slot exists."""

    checkpoint: CheckpointId
    snapshot: SnapshotRef
    slot: SlotNumber


@dataclass(frozen=True, kw_only=True)
class StoreFailed:
    """The metadata or the slot could not be written, and certainly has not been."""

    checkpoint: CheckpointId
    cause: str


@dataclass(frozen=True, kw_only=True)
class Committed:
    """All sinks have made these groups visible."""

    groups: tuple[CheckpointId, ...]


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """Nothing more is deleted of this retired checkpoint."""

    checkpoint: CheckpointId


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """The stream ends now, without a snapshot."""

    request: RequestId | None = None
    reason: str = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """What happens between the tasks of a job with channels: see headgate.gate.messages."""


Event = (
    Trigger
    | Looked
    | BatchBegun
    | BatchDone
    | SourceEnded
    | BatchFailed
    | Acknowledged
    | Declined
    | Stored
    | StoreFailed
    | Committed
    | Cleaned
    | Cancel
    | Tick
    | TaskEvent
)

# ---- actions


@dataclass(frozen=True, kw_only=True)
class TakeSnapshot:
    """The barrier has passed: make the cut durable and acknowledge, participant by participant."""

    checkpoint: CheckpointId
    kind: SnapshotKind
    name: SavepointName | None
    cut: Cut
    staged: Staged
    joinable: bool = False
    """No earlier attempt is under way that could complete with a part of `staged` alone."""
    target: str | None = None
    due_ms: int = 0
    """From when on its barrier could have passed, but for the running step."""
    parts: frozenset[str]
    """Whose parts these are: of a job with channels a barrier passes each task at its own moment."""
    in_flight: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """What barriers have overtaken in the channels of a task."""
    watermarks: Json = field(default_factory=dict)
    """How far each input of the task has come."""


@dataclass(frozen=True, kw_only=True)
class FinishOperators:
    """Run the step once more, without records, for each operator to finish; then tell as of any micro-batch."""

    cut: Cut


@dataclass(frozen=True, kw_only=True)
class StoreSnapshot:
    """All parts are there: write the metadata, then the completion slot."""

    checkpoint: CheckpointId
    kind: SnapshotKind
    name: SavepointName | None
    origin: SavepointOrigin | None
    request: RequestId | None
    cut: Cut
    vertices: Mapping[VertexUid, VertexState]
    sources: Mapping[VertexUid, SourceState]
    tasks: Mapping[VertexUid, TaskState] = field(default_factory=dict)
    groups: tuple[Group, ...]
    committed: tuple[CheckpointId, ...]
    retires: tuple[CheckpointId, ...]
    retention: ExternalizedCheckpointRetention | None = None
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommitGroups:
    """Make these groups visible, in order, after reading the log once more."""

    groups: tuple[Group, ...]


@dataclass(frozen=True, kw_only=True)
class NotifyComplete:
    checkpoint: CheckpointId
    snapshot: SnapshotRef
    cut: Cut
    retired: tuple[CheckpointId, ...]
    as_of_ms: int | None = None
    """All that had come to the sources by then is in it, on the coordinator's clock; None if that is not known."""


@dataclass(frozen=True, kw_only=True)
class NotifyCurrent:
    """A periodic checkpoint was due, and would have repeated this one: it is not taken, and this one is as good."""

    checkpoint: CheckpointId
    as_of_ms: int | None
    """As in NotifyComplete."""


@dataclass(frozen=True, kw_only=True)
class NotifyAborted:
    """The attempt came to nothing: what it alone uploaded may go."""

    checkpoint: CheckpointId
    reason: CheckpointFailureReason
    cause: str
    latest_completed: CheckpointId | None
    held_up_ms: int = 0
    """For how long its barrier had been due, if it never passed."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    request: RequestId
    done: bool
    why: str = ""
    result: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WriteStopped:
    """Everything is committed: say in the log that this generation has ended, then end."""

    reason: str
    committed: tuple[CheckpointId, ...]
    snapshot: CheckpointId | None
    request: RequestId | None
    result: Json = field(default_factory=dict)
    """What the one who asked is told of the snapshot."""
    also: tuple[Reply, ...] = ()
    """What others are told, once the log says so."""
    retires: tuple[CheckpointId, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FailStream:
    cause: str


@dataclass(frozen=True, kw_only=True)
class TaskAction:
    """What a task of a job with channels is to do: see headgate.gate.messages."""


Action = (
    TakeSnapshot
    | FinishOperators
    | StoreSnapshot
    | CommitGroups
    | NotifyComplete
    | NotifyCurrent
    | NotifyAborted
    | Reply
    | WriteStopped
    | FailStream
    | TaskAction
)


def refusal(request: RequestId | None, why: str) -> list[Action]:
    """What whoever asked is told, if somebody did."""
    return [Reply(request=request, done=False, why=why)] if request is not None else []


def result_of(snapshot: SnapshotRef) -> Json:
    """What whoever asked is told of a completed snapshot."""
    return {"snapshot": int(snapshot.id), "name": snapshot.name, "folder": snapshot.where, "kind": snapshot.kind.value}
