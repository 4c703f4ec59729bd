"""What a snapshot consists of, and its metadata file: source positions, state handles, committables."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate_contract import wire
from headgate_contract.errors import CorruptObject, NewerVersion, OlderVersion, SnapshotDamaged
from headgate_contract.ids import CheckpointId, Generation, SavepointName, StreamName, VertexUid
from headgate_contract.operator_state import OperatorState
from headgate_contract.store import ObjectStore

Json = dict[str, Any]


class SnapshotKind(enum.Enum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class SavepointOrigin(enum.Enum):
    """Who made a savepoint: only those of a schedule may ever be expired by policy."""

    PERSON = "person"
    SCHEDULE = "schedule"


class ExternalizedCheckpointRetention(enum.Enum):
    """What becomes of a stream's checkpoints when it is cancelled. No other end deletes any."""

    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"

    @property
    def deletes(self) -> bool:
        return self is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """Names a completed snapshot and pins its metadata's bytes."""

    id: CheckpointId
    kind: SnapshotKind
    generation: Generation
    folder: str
    """Relative to the storage root, or to `location`."""
    metadata_length: int
    metadata_sha256: str
    name: SavepointName | None = None
    origin: SavepointOrigin | None = None
    location: str | None = None
    """The URL of the folder that `folder` is in; None: the storage root."""
    foreign: bool = False
    """It was brought from elsewhere: no slot of this log completes it, and `id` is a number that it was given here."""

    @property
    def where(self) -> str:
        """Where it lies, for people."""
        return f"{self.location}/{self.folder}" if self.location is not None else self.folder

    @property
    def told(self) -> str:
        """That it is there, and where, for people who wait for something behind it."""
        return f"{self} is complete, at {self.where}"

    def store(self, root: ObjectStore) -> ObjectStore:
        """The store that `folder` is in, opened as the storage root `root` is."""
        return root if self.location is None else root.elsewhere(self.location)

    def path(self, handle: StateHandle) -> str:
        """Where a file of it lies in its store: a savepoint's files are named from its own folder."""
        return handle.path if self.kind is SnapshotKind.CHECKPOINT else f"{self.folder}/{handle.path}"

    def __str__(self) -> str:
        return f"savepoint {self.name} ({self.id})" if self.name else f"{self.kind.value} {self.id}"


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One immutable file of state on shared storage.

    `path` is relative to the storage root for a checkpoint (its files are shared), and to the snapshot's own folder
    for a savepoint (which can be moved).
    """

    name: str
    path: str
    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state of one subtask: its key groups, the backend's own description of the version, and its files."""

    subtask: int
    first_key_group: int
    last_key_group: int
    version: Json
    files: tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class VertexState:
    """The state of one stateful vertex over all of its subtasks."""

    name: str
    parallelism: int
    backend: str
    descriptors: tuple[Json, ...]
    subtasks: tuple[SubtaskState, ...]
    epoch: int = 0
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict)
    """By name: what belongs to no key."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """S_n of one source: where its replay begins."""

    name: str
    kind: str
    position: Json
    files: tuple[StateHandle, ...] = ()


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a barrier has overtaken in a channel: a micro-batch of these files, or a watermark."""

    rows: int = 0
    files: tuple[StateHandle, ...] = ()
    """None: a watermark."""
    watermark_ms: int | None = None
    """Without files: None is an idle producer."""


@dataclass(frozen=True, slots=True)
class InputState:
    """A channel into a task: how far it had come, and what was in flight in it, in order."""

    watermark_ms: int | None = None
    idle: bool = False
    in_flight: tuple[InFlight, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskState:
    """The inputs of one task of a job with channels."""

    inputs: Mapping[str, InputState]
    """By the channel's name, `producer->consumer`."""
    watermark_ms: int | None = None
    """What the task had been told."""


@dataclass(frozen=True, slots=True)
class CommittableGroup:
    """What the sinks staged between two barriers; its identity is (stream, id)."""

    id: CheckpointId
    sinks: Mapping[VertexUid, tuple[Json, ...]]


@dataclass(frozen=True, kw_only=True)
class SnapshotMetadata:
    """The content of `_metadata`."""

    stream: StreamName
    id: CheckpointId
    generation: Generation
    kind: SnapshotKind
    max_parallelism: int
    created_ms: int
    """Only for people; decides nothing."""
    sources: Mapping[VertexUid, SourceState] = field(default_factory=dict)
    vertices: Mapping[VertexUid, VertexState] = field(default_factory=dict)
    tasks: Mapping[VertexUid, TaskState] = field(default_factory=dict)
    """Of a job with channels; a linear one has none."""
    finished: tuple[VertexUid, ...] = ()
    """The tasks whose operators have finished, and to which nothing has come since."""
    committables: tuple[CommittableGroup, ...] = ()
    """All groups not yet noted as committed, oldest first; the last is this snapshot's own."""
    published: Mapping[VertexUid, CheckpointId] = field(default_factory=dict)
    """Of each sink the newest group with output that was committed before this was taken: it must be there."""
    records: int = 0
    """Records handed over by the sources since the stream's first start; for people and tests."""
    watermark_ms: int | None = None
    name: SavepointName | None = None
    retention: ExternalizedCheckpointRetention | None = None
    """Of a checkpoint, as it was configured when this was taken; a savepoint stays at every end."""

    def handles(self) -> Iterator[StateHandle]:
        """Every file that this snapshot needs."""
        for vertex in self.vertices.values():
            for subtask in vertex.subtasks:
                yield from subtask.files
        for source in self.sources.values():
            yield from source.files
        for task in self.tasks.values():
            for each in task.inputs.values():
                for element in each.in_flight:
                    yield from element.files

    def encode(self) -> bytes:
        return wire.encode("snapshot", self)


def decode_metadata(data: bytes, ref: SnapshotRef, where: str) -> SnapshotMetadata:
    """Read the metadata that `ref` pins. Raises SnapshotDamaged if these are not the bytes that completed."""
    if len(data) != ref.metadata_length:
        raise SnapshotDamaged(f"{where} of {ref} has {len(data)} bytes, it completed with {ref.metadata_length}")
    if wire.sha256(data) != ref.metadata_sha256:
        raise SnapshotDamaged(f"{where} of {ref} has another checksum than it completed with")
    return read_metadata(data, where)


def read_metadata(data: bytes, where: str) -> SnapshotMetadata:
    """Read metadata that no slot pins: a savepoint that was brought from elsewhere.

    Whoever wrote it, its names stay where they are meant: what becomes a local file's name is one part of a path.
    """
    try:
        metadata: SnapshotMetadata = wire.decode("snapshot", data, SnapshotMetadata, where)
    except (NewerVersion, OlderVersion):
        raise
    except CorruptObject as error:
        raise SnapshotDamaged(error.what) from error
    for name in _local_names(metadata):
        if not isinstance(name, str) or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise SnapshotDamaged(f"{where} names a file {name!r}, which is no plain file name")
    return metadata


def _local_names(metadata: SnapshotMetadata) -> Iterator[Any]:
    """What a restore makes names of local files of: those of the files, and those that a version's own body has.

    An empty one is none: a backend that needs no name of its own for a file leaves it empty.
    """
    for handle in metadata.handles():
        yield handle.name or "."
    for vertex in metadata.vertices.values():
        for subtask in vertex.subtasks:
            files = subtask.version.get("files", ())
            for file in files if isinstance(files, (list, tuple)) else ():
                if isinstance(file, dict):
                    yield file.get("name", "")
                    yield file.get("local_name", "")
