"""What the control plane's verbs return: frozen values, each of which `to_plain` turns into JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate_contract.heartbeats import ProcessIdentity, Progress, StreamState
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.mailbox import Answer, Request
from headgate_contract.records import StopWanted
from headgate_contract.restart import RestartVerdict
from headgate_contract.restore import RestoreDecision, RestoreFrom, StartFresh
from headgate_contract.snapshot import SnapshotRef
from headgate_control.measured import Prediction


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
    restarts: int = 0
    """How often the newest generation has gone on after a failure, inside its driver."""
    last_failure: str | None = None
    """Why it had to, the last time."""
    lost: Lost | None = None
    stop_wanted: StopWanted | None = None
    newest_snapshot: SnapshotRef | None = None
    snapshots: int = 0
    deployed: int | None = None
    """The number of the newest *deployed* decision."""
    running_deployed: int | None = None
    """The number of the *deployed* decision that the newest generation runs."""

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
    keeps: CheckpointId | None = None
    """What the last checkpoint of a life that is stopped for this must not retire."""
    checked: Mapping[str, str] = field(default_factory=dict)
    """What was looked at, by where it lies: `good`, `good (12 of 40 files by length only)`, or why it cannot be."""
    warnings: tuple[str, ...] = ()
    state_bytes: int = 0
    """The bytes of state that it would load."""
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
