"""What the two logs of a stream say: slots (written by drivers and launches) and decisions (by the control plane)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headgate_contract.ids import CheckpointId, Generation, RequestId, SlotNumber, StreamName
from headgate_contract.log import ExclusiveLog, Slot
from headgate_contract.paths import StreamPaths
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore


@dataclass(frozen=True, kw_only=True)
class GenerationStarted:
    """The launch intent: written before the driver is started."""

    TYPE: ClassVar[str] = "generation-started"
    generation: Generation
    decision: RestoreFrom | StartFresh
    first_checkpoint: CheckpointId
    """The id that this generation's first completed snapshot gets: above every id completed before."""
    deployed: int
    """The number of the *deployed* decision that this generation runs."""
    by: str
    host: str
    at_ms: int
    launch: str
    """Identifies the launch; the driver must carry the same."""
    log: str
    """Where the driver's output goes, on `host`."""
    accept_duplicates: bool = False
    replaces: Generation | None = None
    """The lost generation that the control plane replaces with this one by itself; None when a person started it."""
    repair: str | None = None
    """The repair that wrote this in the place of an entry that was lost: what it starts from is assumed then."""


@dataclass(frozen=True, kw_only=True)
class SnapshotCompleted:
    """A checkpoint or savepoint IS complete when this slot exists."""

    TYPE: ClassVar[str] = "snapshot-completed"
    generation: Generation
    snapshot: SnapshotRef
    committed: tuple[CheckpointId, ...] = ()
    """Groups that the sinks have committed since the last slot said so."""
    retires: tuple[CheckpointId, ...] = ()
    """Older checkpoints that this one subsumes: no candidates any more; only now may their files be deleted."""
    request: RequestId | None = None


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """The generation goes on inside its driver after a failure, from the newest snapshot of its history.

    Written before anything is restored: whatever the failed attempt still has on its way to this slot comes too late.
    """

    TYPE: ClassVar[str] = "restarted"
    generation: Generation
    restart: int
    """1 for the first one of this generation."""
    cause: str
    snapshot: CheckpointId | None
    """What it goes on from; None: without state, from the sources' beginning."""
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The generation has ended in good order and does nothing more."""

    TYPE: ClassVar[str] = "stopped"
    generation: Generation
    reason: str
    committed: tuple[CheckpointId, ...] = ()
    snapshot: CheckpointId | None = None
    request: RequestId | None = None
    retires: tuple[CheckpointId, ...] = ()
    """Checkpoints that were not to be retained when the stream is cancelled; only now may their files be deleted."""


@dataclass(frozen=True, kw_only=True)
class Hole:
    """Stands where an entry was that a repair has put aside, or that was gone: its number stays taken."""

    TYPE: ClassVar[str] = "hole"
    repair: str
    """The repair's id: what was there lies below its folder."""
    why: str


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """The log was repaired: the generation before has ended, and what there is left of the log counts from here on.

    It was created before anything was put aside: whoever knew the log as it was finds the next slot taken.
    """

    TYPE: ClassVar[str] = "repaired"
    repair: str
    next_generation: Generation
    """Above every one that there may have been."""
    next_checkpoint: CheckpointId
    """Above every id under which anything may have been completed or published."""
    retires: tuple[CheckpointId, ...] = ()
    """Snapshots whose files are gone, while the entries that may have retired them are lost."""
    by: str
    reason: str
    at_ms: int


SlotRecord = GenerationStarted | SnapshotCompleted | Restarted | Stopped | Hole | Repaired
SlotLog = ExclusiveLog[SlotRecord]
StreamSlot = Slot[SlotRecord]


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A job file with settings, under a stream's name."""

    TYPE: ClassVar[str] = "deployed"
    job: str
    job_sha256: str
    directory: str
    """The driver's working directory: relative paths in the job mean this."""
    settings: Mapping[str, str]
    plan: dict[str, Any]
    """What validation found: vertices, sources, sinks and what each can promise."""
    by: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class StopWanted:
    """A person wants generation `generation` to end: nobody restarts it."""

    TYPE: ClassVar[str] = "stop-wanted"
    generation: Generation
    by: str
    reason: str
    at_ms: int
    request: RequestId | None = None
    """What the driver was asked. If it answers that as failed, it runs on, and the wish counts no more."""


@dataclass(frozen=True, kw_only=True)
class StopWithdrawn:
    """The wish to stop generation `generation` is taken back. Older releases wrote it when a stop had failed."""

    TYPE: ClassVar[str] = "stop-withdrawn"
    generation: Generation
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class Retired:
    """These snapshots are no candidates any more.

    Slots and decisions are two logs: a launch may claim its slot with one of these as its base while this is written.
    So who deletes files reads the slots once more, after writing this and before deleting; and a driver reads the
    decisions, after its start was written and before it restores. One of the two sees the other.
    """

    TYPE: ClassVar[str] = "retired"
    snapshots: tuple[CheckpointId, ...] = field(default=())
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class StreamCopy:
    """The content of stream.json: the newest *deployed* decision, for people; a repair takes a lost one from it."""

    stream: StreamName
    number: SlotNumber
    """The decision's number."""
    root: str
    deployed: Deployed


DecisionRecord = Deployed | StopWanted | StopWithdrawn | Retired | Hole
DecisionLog = ExclusiveLog[DecisionRecord]


def slot_log(store: ObjectStore, stream: StreamName) -> SlotLog:
    """The log of what is true about `stream`."""
    return ExclusiveLog(store, StreamPaths(stream).slots, "slot", SlotRecord)


def decision_log(store: ObjectStore, stream: StreamName) -> DecisionLog:
    """The log of what was decided about `stream`."""
    return ExclusiveLog(store, StreamPaths(stream).decisions, "decision", DecisionRecord)
