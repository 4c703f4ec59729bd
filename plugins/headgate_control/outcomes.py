"""What the control plane's verbs return: frozen values, each of which `to_plain` turns into JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate_contract.heartbeats import ProcessIdentity, Progress, Standing, StreamState
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.mailbox import Answer, Request
from headgate_contract.records import StopWanted
from headgate_contract.restart import RestartVerdict
from headgate_contract.restore import RestoreDecision, RestoreFrom, StartFresh
from headgate_contract.snapshot import SnapshotRef
from headgate_control.measured import Prediction
from headgate_control.sharing import Sharing


class Condition(enum.Enum):
    """How a stream is, seen from outside: the logs, the newest generation's heartbeat, and its process."""

    NEVER_STARTED = "never-started"
    LAUNCHED = "launched"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    SILENT = "silent"
    """No sign of life for longer than is allowed, but not watched for long enough to call it lost."""
    STOPPED = "stopped"
    """Ended in good order, or ended otherwise after somebody wanted it stopped."""
    FAILED = "failed"
    """The driver itself said that it cannot go on."""
    LOST = "lost"
    """The driver is gone or silent, and nobody wanted that."""
    UNREADABLE = "unreadable"
    """The stream's log, or what is deployed, cannot be read; nothing is guessed and nothing is started."""


LIVE = frozenset({Condition.LAUNCHED, Condition.RESTORING, Condition.RUNNING, Condition.STOPPING, Condition.SILENT})
"""Conditions in which a driver must be taken to be at work."""


GAVE_UP = "gave up: "
"""How the reason of a StopWanted begins that the control plane wrote itself, after a start or recovery that failed."""


class ProcessSign(enum.Enum):
    """What this host knows of a driver's process."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"
    """It runs on another host or in another container, or was never recorded."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A stream without a driver that nobody wanted stopped."""

    stream: StreamName
    generation: Generation
    reason: str
    restart: RestartVerdict
    due_in_s: float
    """How long until the restart strategy allows the next launch; 0 when it does now, or has given up."""


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """One stream at one moment."""

    stream: StreamName
    condition: Condition
    text: str
    """One sentence for people: the condition and what it rests on."""
    generation: Generation | None = None
    by: str | None = None
    """Who started the newest generation."""
    host: str | None = None
    started_ms: int | None = None
    """By the launcher's clock; only for people."""
    decision: RestoreFrom | StartFresh | None = None
    """What the newest generation was started from."""
    state: StreamState | None = None
    """What the driver last said of itself."""
    heartbeat_age_s: float | None = None
    """By the storage's own clock."""
    heartbeat_fault: str | None = None
    """Why the heartbeat cannot be read, if it is there and cannot."""
    process: ProcessIdentity | None = None
    process_sign: ProcessSign = ProcessSign.UNKNOWN
    log: str | None = None
    cause: str | None = None
    """Why the driver failed, in its own words."""
    progress: Progress | None = None
    standing: tuple[Standing, ...] = ()
    """What has not moved for a while, in the driver's own words, the one that is nearest to its end first."""
    restarts: int = 0
    """How often the newest generation has gone on after a failure, inside its driver."""
    last_failure: str | None = None
    """Why it had to, the last time."""
    lost: Lost | None = None
    stop_wanted: StopWanted | None = None
    newest_snapshot: SnapshotRef | None = None
    current_age_s: float | None = None
    """How long ago the newest checkpoint had everything (`progress.current`), by the storage's own clock."""
    snapshots: int = 0
    deployed: int | None = None
    """The number of the newest *deployed* decision."""
    running_deployed: int | None = None
    """The number of the *deployed* decision that the newest generation runs."""
    parallelism: int | None = None
    """How many subtasks each stateful vertex of the newest generation has."""

    @property
    def live(self) -> bool:
        """Must a driver be taken to be at work?"""
        return self.condition in LIVE


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A generation was claimed and its driver started; RUNNING if the caller waited."""

    stream: StreamName
    generation: Generation
    decision: RestoreFrom | StartFresh
    process: ProcessIdentity
    log: str
    state: StreamState
    """LAUNCHED, or RUNNING if the launch was waited for."""
    stopped_with: CheckpointId | None = None
    """The snapshot that a restore has taken where it stopped the stream."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NotNeeded:
    """recover() launched nothing, and why: the stream is well, somebody else has it, or its time has not come."""

    stream: StreamName
    reason: str
    generation: Generation | None = None
    """The newest generation, for instance the one with which somebody else won the claim."""
    by: str | None = None
    host: str | None = None
    retry_in_s: float | None = None
    """Set when the stream is lost and the restart strategy makes it wait."""
    given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request to a driver and, if it was waited for, the answer."""

    stream: StreamName
    request: Request | None
    """None when there was nobody left to ask and nothing left to do."""
    answer: Answer | None = None
    note: str = ""

    @property
    def snapshot(self) -> CheckpointId | None:
        """The snapshot that the driver took, if the answer tells of one."""
        found = self.answer.result.get("snapshot") if self.answer is not None else None
        return CheckpointId(found) if isinstance(found, int) else None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the next start would do, and why: the decision of the very function that start uses."""

    stream: StreamName
    decision: RestoreDecision
    next_generation: Generation
    deployed: int
    """The number of the *deployed* decision that would run."""
    parallelism: int
    """With how many subtasks it would."""
    deployed_parallelism: int
    """How many are deployed: another number, if it was asked about one."""
    keeps: CheckpointId | None = None
    """What the last checkpoint of a life that is stopped for this must not retire."""
    checked: Mapping[str, str] = field(default_factory=dict)
    """What was looked at, by where it lies: `good`, `good (12 of 40 files by length only)`, or why it cannot be."""
    warnings: tuple[str, ...] = ()
    refused_by_sinks: bool = False
    """Whether what the sinks hold, or lack, lets no start come to anything; the warnings tell."""
    state_bytes: int = 0
    """The bytes of state that it would load."""
    sharing: Sharing | None = None
    """Which of the files of what it would restore other retained snapshots have, too; None if it restores nothing."""
    prediction: Prediction | None = None
    """How long it would take; None while nothing was measured that tells."""

    @property
    def restores(self) -> CheckpointId | None:
        """The snapshot that the next start would restore."""
        return self.decision.snapshot.id if isinstance(self.decision, RestoreFrom) else None


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """The end of a driver's log."""

    stream: StreamName
    generation: Generation
    host: str
    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of a log that a repair writes something else in the place of."""

    number: SlotNumber
    was: str
    """damaged, missing or contradicts."""
    why: str
    becomes: str


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot that can be asked for after a repair, and whether it is good."""

    snapshot: SnapshotRef
    checked: str


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a repair would do, or has done."""

    stream: StreamName
    needed: bool
    executed: bool
    repair: str | None
    """Its id; None if there is nothing to repair."""
    reason: str
    slots: tuple[Found, ...]
    decisions: tuple[Found, ...]
    kept: tuple[KeptSnapshot, ...]
    """Newest first."""
    strangers: tuple[str, ...]
    """Files that are called as entries are, and can be none."""
    given_up: tuple[SnapshotRef, ...]
    """Snapshots that contradict what was there before them."""
    heartbeats: tuple[str, ...]
    """Those that cannot be read, and why: no sign of life, and no proof of a generation."""
    sinks: tuple[str, ...]
    """What each sink holds, and what the next start shows of it."""
    deployed: int | None
    """The number of the newest *deployed* decision that is left."""
    next_generation: Generation | None
    next_checkpoint: CheckpointId | None
    aside: str | None
    """The folder below the root for what something else is written in the place of."""


@dataclass(frozen=True, kw_only=True)
class RootReport:
    """What putting right the file that says which root this is would do, or has done."""

    root: str
    needed: bool
    executed: bool
    reason: str
    becomes: str
    """What is written there; empty if nothing is."""
