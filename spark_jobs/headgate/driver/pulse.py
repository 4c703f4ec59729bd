"""The driver's signs of life and its ear: heartbeats, and requests from the mailbox."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headgate.coordinator.messages import Cancel, Event, Trigger, result_of
from headgate.driver import clock
from headgate_contract.errors import BadInput, StorageError
from headgate_contract.heartbeats import (
    LEGAL,
    TERMINAL,
    CurrentCheckpoint,
    FailedAt,
    Heartbeat,
    Progress,
    Standing,
    StreamState,
    write_heartbeat,
)
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName
from headgate_contract.mailbox import Answer, CorruptRequest, Mailbox, Outcome, Request, RequestKind
from headgate_contract.paths import directory_url
from headgate_contract.places import Places
from headgate_contract.process import identify
from headgate_contract.snapshot import SavepointOrigin, SnapshotKind, SnapshotRef
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


class Heart:
    """Writes the heartbeat: at its interval, soon after what others wait for, and at once when the state changes."""

    SOONEST_S = 0.2

    def __init__(self, store: ObjectStore, stream: StreamName, generation: Generation) -> None:
        self._store = store
        self._beat = Heartbeat(
            stream=stream,
            generation=generation,
            counter=0,
            state=StreamState.LAUNCHED,
            at_ms=clock.wall_ms(),
            interval_ms=2000,
            process=identify(),
        )
        self._current_ms: int | None = None
        """Until when the newest checkpoint has everything, on the clock that never jumps."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self.beats_while: Callable[[], bool] = lambda: True
        """Whether who watches the driver is awake: a driver that nobody watches gives no sign of life."""

    @property
    def state(self) -> StreamState:
        return self._beat.state

    @property
    def progress(self) -> Progress:
        return self._beat.progress

    def start(self) -> None:
        """Beat from now on, by the default interval until `know` has said another."""
        self._thread.start()

    def know(self, interval_ms: int, log_path: str) -> None:
        """What the log has told: how often it beats, and where the driver's output goes."""
        with self._lock:
            self._beat = replace(self._beat, interval_ms=interval_ms, log=log_path)
        if self._thread.is_alive():
            self._wake.set()

    def become(self, state: StreamState, cause: str | None = None, *, given_up: bool = False) -> None:
        """Enter `state` and tell at once; nothing follows a terminal one."""
        with self._lock:
            if self._beat.state in TERMINAL or (state, cause) == (self._beat.state, self._beat.cause):
                return
            if state is not self._beat.state and state not in LEGAL[self._beat.state]:
                log.warning("heartbeat: %s does not follow %s", state.value, self._beat.state.value)
            self._beat = replace(self._beat, state=state, cause=cause, given_up=given_up)
        self._write()

    def note(self, change: Callable[[Progress], Progress], *, soon: bool = False) -> None:
        """Tell of progress, with the next beat or `soon`."""
        with self._lock:
            self._beat = replace(self._beat, progress=change(self._beat.progress))
        if soon:
            self._wake.set()

    def remember(self, failed_at: FailedAt) -> None:
        """Tell at once of what the stream has failed: who replaces this driver goes on counting, whatever ends it."""
        with self._lock:
            self._beat = replace(self._beat, failed_at=failed_at)
        self._write()

    def stand(self, standing: tuple[Standing, ...]) -> None:
        """Tell with the next beat what has not moved for a while."""
        with self._lock:
            self._beat = replace(self._beat, standing=standing)

    def current(self, checkpoint: CheckpointId, age_ms: int | None) -> None:
        """What had come to the sources `age_ms` ago is in this checkpoint, the newest; None: not known of any moment.

        It has what the one before had. With the next beat: it may be said at each interval.
        """
        as_of_ms = None if age_ms is None else clock.steady_ms() - age_ms
        with self._lock:
            current, known_ms = self._beat.progress.current, self._current_ms
            if as_of_ms is not None and age_ms is not None and (known_ms is None or as_of_ms > known_ms):
                self._current_ms = as_of_ms
                current = CurrentCheckpoint(checkpoint=checkpoint, as_of_ms=clock.wall_ms() - age_ms)
            elif current is not None:
                current = replace(current, checkpoint=checkpoint)
            self._beat = replace(self._beat, progress=replace(self._beat.progress, current=current))

    def restored(self, checkpoint: CheckpointId | None) -> None:
        """The stream goes on from there. If that is not what was current, nothing is known to be."""
        with self._lock:
            current = self._beat.progress.current
            if current is not None and current.checkpoint != checkpoint:
                self._current_ms = None
                self._beat = replace(self._beat, progress=replace(self._beat.progress, current=None))

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._closed.is_set():
            if self.beats_while():
                self._write()
            self._closed.wait(self.SOONEST_S)
            self._wake.wait(max(0.0, self._beat.interval_ms / 1000 - self.SOONEST_S))
            self._wake.clear()

    def _write(self) -> None:
        with self._writing:  # one at a time, and whoever notes progress does not wait for storage
            with self._lock:
                progress = self._beat.progress
                if progress.current is not None and self._current_ms is not None:
                    current = replace(progress.current, age_ms=clock.steady_ms() - self._current_ms)
                    progress = replace(progress, current=current)
                beat = replace(self._beat, counter=self._beat.counter + 1, at_ms=clock.wall_ms(), progress=progress)
                self._beat = beat
            try:
                write_heartbeat(self._store, beat)
            except StorageError as error:
                log.warning("the heartbeat could not be written: %s", error)
            except Exception:  # without a heart it would be taken for lost, and nobody would know why
                log.exception("the heart goes on after")


class Ear:
    """Polls the mailbox and turns requests into events; answers by itself only what the coordinator need not know."""

    def __init__(
        self,
        store: ObjectStore,
        stream: StreamName,
        generation: Generation,
        *,
        post: Callable[[Event], None],
        look_at_log: Callable[[], None],
        say: Callable[[str, str, str], None],
        interval_ms: int,
        places: Places,
        done: Mapping[RequestId, SnapshotRef] | None = None,
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._done = done or {}
        """What earlier lives have carried out, and perhaps not answered."""
        self._places = places
        """Where savepoints may go: whoever can write the root can leave a request."""
        self._mailbox = Mailbox(store, stream)
        self._generation = generation
        self._post = post
        self._look_at_log = look_at_log
        self._say = say
        self._known: set[str] = set()
        self._restored: SnapshotRef | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ear", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self.listen()

    def first_look(self, restored: SnapshotRef | None) -> None:
        """Look before anything is taken in on top of `restored`: that may be what a stop has ended with.

        Raises StorageError if this cannot be told.
        """
        self._restored = restored
        if restored in self._done.values():
            self._hear()
        else:
            self.listen()

    def _hear(self) -> None:
        self._look_at_log()
        for request in self._mailbox.open_requests(frozenset(self._known)):
            self._take(request)

    def listen(self) -> None:
        """Look once at the log and at the mailbox."""
        try:
            self._hear()
        except StorageError as error:
            log.warning("the mailbox cannot be read: %s", error)
        except Exception:
            log.exception("the ear goes on after")

    def _take(self, request: Request | CorruptRequest) -> None:
        if isinstance(request, CorruptRequest):
            self._known.add(request.name)
            self._say("request", "FAILED", f"request {request.name} cannot be read and is left alone: {request.why}")
            return
        done = self._done.get(request.id)
        if done is not None and request.kind is not RequestKind.STOP:
            self._reply(request.id, Outcome.DONE, result=result_of(done))
        elif request.generation < self._generation:
            complete = f"; {done.told}" if done is not None else ""
            self._refuse(request.id, f"it was meant for generation {request.generation}, which is over{complete}")
        elif request.generation == self._generation:
            if done is not None:  # its savepoint is there, the stream is not at its end yet
                request = replace(request, args={**request.args, "savepoint": None, "drain": False})
            try:
                event = _event(request, self._places)
                if isinstance(event, Trigger) and done is not None:
                    event = replace(event, already=done, at_its_end=done == self._restored)
                self._post(event)
            except BadInput as error:
                self._refuse(request.id, str(error))
        self._known.add(request.id)  # last: a refusal that storage did not take is tried again

    def _refuse(self, request: RequestId, why: str) -> None:
        self._reply(request, Outcome.FAILED, why=why)

    def _reply(
        self, request: RequestId, outcome: Outcome, *, why: str = "", result: Mapping[str, Any] | None = None
    ) -> None:
        answer = Answer(
            id=request,
            outcome=outcome,
            why=why,
            result=dict(result or {}),
            generation=self._generation,
            at_ms=clock.wall_ms(),
        )
        self._mailbox.reply(answer)


def _event(request: Request, places: Places) -> Event:
    """What a request means to the coordinator. Raises BadInput."""
    name = request.args.get("name") or (request.args.get("savepoint") if request.kind is RequestKind.STOP else None)
    savepoint = SavepointName(name) if name else None
    origin = _origin(request.args.get("origin", "person"))
    drain = request.kind is RequestKind.STOP and _drain(request.args.get("drain"))
    if drain and savepoint is None:
        raise BadInput("a drain ends with a savepoint", hint="name it")
    target = _target(request.args.get("target_directory"), places) or places.usual
    reason = f"{'drain' if drain else request.kind.value} was asked for by {request.by}"
    match request.kind:
        case RequestKind.CHECKPOINT:
            return Trigger(request=request.id, reason=reason)
        case RequestKind.SAVEPOINT:
            if savepoint is None:
                raise BadInput("a savepoint needs a name")
            return Trigger(
                kind=SnapshotKind.SAVEPOINT,
                name=savepoint,
                origin=origin,
                request=request.id,
                target=target,
                reason=reason,
            )
        case RequestKind.STOP:
            kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
            return Trigger(
                kind=kind,
                name=savepoint,
                origin=origin if savepoint else None,
                request=request.id,
                target=target if savepoint else None,
                stop=True,
                drain=drain,
                keep=_checkpoint(request.args.get("keep")),
                reason=reason,
            )
        case RequestKind.CANCEL:
            return Cancel(request=request.id, reason=reason)


def _checkpoint(given: object) -> CheckpointId | None:
    try:
        return None if given is None else CheckpointId(given)  # type: ignore[arg-type]
    except (BadInput, TypeError, ValueError):
        raise BadInput(f"what a stop is to keep is a checkpoint's id, not {given!r}") from None


def _drain(given: object) -> bool:
    if given is not None and not isinstance(given, bool):
        raise BadInput(f"whether a stop drains is true or false, not {given!r}")
    return bool(given)


def _target(given: object, places: Places) -> str | None:
    if given is not None and not isinstance(given, str):
        raise BadInput(f"the target directory of a savepoint is a URL, not {given!r}")
    if not given:
        return None
    target = directory_url(given)
    places.check_target(target)
    return target


def _origin(given: object) -> SavepointOrigin:
    try:
        return SavepointOrigin(given)
    except ValueError:
        known = " or ".join(origin.value for origin in SavepointOrigin)
        raise BadInput(f"the origin of a savepoint is {known}, not {given!r}") from None
