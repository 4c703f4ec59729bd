"""Heartbeats: one small object for each generation, overwritten; and how its age is judged without comparing clocks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate_contract import wire
from headgate_contract.errors import CorruptObject, ObjectMissing, StorageError
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
    watermark_ms: int | None = None
    spark_ui: str | None = None
    restarts: int = 0
    """How often this generation has gone on after a failure, inside its driver."""
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


def write_heartbeat(store: ObjectStore, beat: Heartbeat) -> None:
    store.replace(StreamPaths(beat.stream).heartbeat(beat.generation), wire.encode("heartbeat", beat))


def read_heartbeats(store: ObjectStore) -> dict[tuple[StreamName, Generation], Seen]:
    """Every heartbeat on the root, with one listing."""
    now = store.now()
    found = {}
    for info in store.list(HEARTBEATS):
        whose = heartbeat_of(info.path)
        if whose is None:
            continue
        age_s = max(0.0, now - info.modified)
        try:
            seen = _seen(store, whose, info.path, age_s)
        except StorageError as error:  # one that cannot be read must not hide the others
            seen = Seen(*whose, None, age_s, str(error))
        if seen is not None:
            found[whose] = seen
    return found


def read_heartbeat(store: ObjectStore, stream: StreamName, generation: Generation) -> Seen | None:
    """The heartbeat of one generation, or None if it never wrote one."""
    path = StreamPaths(stream).heartbeat(generation)
    info = store.stat(path)
    return _seen(store, (stream, generation), path, max(0.0, store.now() - info.modified)) if info else None


def _seen(store: ObjectStore, whose: tuple[StreamName, Generation], path: str, age_s: float) -> Seen | None:
    """None, if it was deleted since it was listed."""
    try:
        beat = wire.decode("heartbeat", store.read(path), Heartbeat, path)
    except ObjectMissing:
        return None
    except CorruptObject as error:
        return Seen(*whose, None, age_s, str(error))
    if (beat.stream, beat.generation) != whose:
        return Seen(*whose, None, age_s, f"{path} holds the heartbeat of {beat.stream}, generation {beat.generation}")
    return Seen(*whose, beat, age_s)
