"""Heartbeats: one small object for each generation, overwritten; and how its age is judged without comparing clocks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate_contract import wire
from headgate_contract.credentials import masked
from headgate_contract.durations import Duration
from headgate_contract.errors import CorruptObject, NewerVersion, OlderVersion
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.paths import HEARTBEATS, StreamPaths, heartbeat_of
from headgate_contract.store import ObjectStore


class StreamState(enum.Enum):
    """The life of one generation, as its driver tells it."""

    LAUNCHED = "launched"
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    FENCED = "fenced"


LEGAL = {
    StreamState.LAUNCHED: {StreamState.RESTORING, StreamState.FAILED, StreamState.FENCED},
    StreamState.RESTORING: {StreamState.RUNNING, StreamState.STOPPING, StreamState.FAILED, StreamState.FENCED},
    StreamState.RUNNING: {StreamState.RESTORING, StreamState.STOPPING, StreamState.FAILED, StreamState.FENCED},
    StreamState.STOPPING: {
        StreamState.STOPPED,
        StreamState.RESTORING,
        StreamState.FAILED,
        StreamState.FENCED,
    },
    StreamState.STOPPED: set(),
    StreamState.FAILED: set(),
    StreamState.FENCED: set(),
}
HEARTBEATS_KEPT = 20
"""Of a stream's newest generations. More than these nobody looks at: neither who judges, nor who tidies up."""
TERMINAL = frozenset(state for state, following in LEGAL.items() if not following)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Finds a process again and is not mistaken by a reused pid: its start time goes with it, and where it counts.

    Two machines, or two containers, may have one name. Files of older releases leave `machine` and `namespace` empty.
    """

    host: str
    boot: str
    pid: int
    started: str
    machine: str = ""
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Something of a driver's that has not moved for a while."""

    what: str
    """With its verb: `Spark's JVM has not answered`."""
    for_ms: int
    """For how long, by the driver's own looks at it: a clock that jumps adds nothing."""
    allowed_ms: int
    """After this long the driver ends it; 0: it may take as long as it likes."""
    setting: str
    """The setting that allows it, or "" if none does."""

    @property
    def overdue_ms(self) -> int:
        """For how long it should have been ended."""
        return max(0, self.for_ms - self.allowed_ms) if self.allowed_ms else 0

    def __str__(self) -> str:
        allowed = Duration(self.allowed_ms) if self.allowed_ms else "any time"
        return f"{self.what} for {self.for_ms / 1000:.0f} s ({self.setting or 'Headgate'} allows {allowed})"


@dataclass(frozen=True, kw_only=True)
class CurrentCheckpoint:
    """The newest checkpoint, and a moment by which nothing had come to the sources that it lacks."""

    checkpoint: CheckpointId
    as_of_ms: int
    """By the driver's clock; only for people."""
    age_ms: int = 0
    """How long before the heartbeat that was, by a clock that never jumps."""


@dataclass(frozen=True, kw_only=True)
class FailedAt:
    """The records that the last lives of a stream have failed of, in a row, whichever drivers lived them."""

    times: int = 0
    """0: of none, or of something else."""
    where: str = ""
    """Like `source 'records'`."""
    parts: tuple[str, ...] = ()
    """The first files of the micro-batch."""
    since: Mapping[str, Any] | None = None
    """The source's position before it."""
    behind: Mapping[str, Any] | None = None
    """Of what waited in a channel, and is known by nothing else: where each source stood when the life began."""
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the driver has done in this generation; for people, sensors and tests."""

    batches: int = 0
    records: int = 0
    replayed: int = 0
    """Records handed over again that an earlier generation had handed over already, as far as it told."""
    checkpoints: int = 0
    failed_checkpoints: int = 0
    last_snapshot: CheckpointId | None = None
    last_committed: CheckpointId | None = None
    current: CurrentCheckpoint | None = None
    watermark_ms: int | None = None
    spark_ui: str | None = None
    restarts: int = 0
    """How often this generation has gone on after a failure, inside its driver."""
    standstills: int = 0
    """How often something had not moved for longer than it may, and was ended for that."""
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    stream: StreamName
    generation: Generation
    counter: int
    state: StreamState
    at_ms: int
    """The driver's clock; only for people."""
    interval_ms: int
    process: ProcessIdentity | None = None
    log: str = ""
    cause: str | None = None
    progress: Progress = field(default_factory=Progress)
    given_up: bool = False
    """It failed for good: the restart strategy allows no more, or the failure is one that no restart mends."""
    standing: tuple[Standing, ...] = ()
    """What has not moved for a while, the one that is nearest to its end first."""
    failed_at: FailedAt | None = None
    """What the driver that replaces this one goes on counting; None: this one has not come so far as to know."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A heartbeat with its age by the storage's own clock.

    `heartbeat` is None, and `fault` says why, if it cannot be read.
    """

    stream: StreamName
    generation: Generation
    heartbeat: Heartbeat | None
    age_s: float
    fault: str | None = None
    modified: float = 0.0
    """When it was written, by the storage's own clock."""
    other_release: bool = False
    """Whether it is whole, and cannot be read because a driver of another release writes it."""

    @property
    def is_sign(self) -> bool:
        """Whether somebody's heart has written it; what is damaged may be anybody's."""
        return self.heartbeat is not None or self.other_release

    @property
    def current_age_s(self) -> float | None:
        """How long ago it was that the newest checkpoint had everything; None as long as there is none."""
        current = self.heartbeat.progress.current if self.heartbeat is not None else None
        return None if current is None else self.age_s + current.age_ms / 1000


def write_heartbeat(store: ObjectStore, beat: Heartbeat) -> None:
    path = StreamPaths(beat.stream).heartbeat(beat.generation)
    shown = replace(beat, cause=masked(beat.cause)) if beat.cause is not None else beat
    store.replace(path, wire.encode("heartbeat", shown, path))


def read_heartbeat(store: ObjectStore, stream: StreamName, generation: Generation) -> Seen | None:
    """The heartbeat of one generation, or None if it never wrote one, or a successor has deleted it long since."""
    path = StreamPaths(stream).heartbeat(generation)
    found = store.read_aged(path)
    if found is None:
        return None
    whose = (stream, generation)
    try:
        beat = wire.decode("heartbeat", found.data, Heartbeat, path, path)
    except CorruptObject as error:
        other = isinstance(error, (NewerVersion, OlderVersion))
        return Seen(*whose, None, found.age_s, str(error), found.modified, other)
    if (beat.stream, beat.generation) != whose:
        fault = f"{path} holds the heartbeat of {beat.stream}, generation {beat.generation}"
        return Seen(*whose, None, found.age_s, fault, found.modified)
    return Seen(*whose, beat, found.age_s, None, found.modified)


def delete_old_heartbeats(store: ObjectStore, stream: StreamName, newest: Generation) -> int:
    """Delete those of the generations that `HEARTBEATS_KEPT` and more have followed; how many.

    A driver that was frozen for so long and wakes writes its own again: nobody looks at it.
    """
    own = StreamPaths(stream).heartbeat(newest).removesuffix(f"{newest}.json")
    deleted = 0
    for info in store.list_after(HEARTBEATS, own.removeprefix(f"{HEARTBEATS}/")):
        whose = heartbeat_of(info.path)
        if not info.path.startswith(own):
            break
        if whose is not None and whose[0] == stream and whose[1] + HEARTBEATS_KEPT <= newest:
            deleted += store.delete(info.path)
    return deleted
