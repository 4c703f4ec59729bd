"""Starts a driver as a detached process of its own session, and waits until it runs or is known to have failed."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headgate_contract import wire
from headgate_contract.durations import Duration
from headgate_contract.errors import LaunchFailed, StorageError
from headgate_contract.heartbeats import (
    TERMINAL,
    Heartbeat,
    ProcessIdentity,
    StreamState,
    read_heartbeat,
    write_heartbeat,
)
from headgate_contract.ids import Generation, StreamName
from headgate_contract.modes import make_private
from headgate_contract.paths import StreamPaths
from headgate_contract.process import identify, identity_here
from headgate_contract.records import Deployed, GenerationStarted
from headgate_contract.root_store import RootStore
from headgate_contract.settings import Settings
from headgate_control.deploy import Programs
from headgate_control.journal import now_ms
from headgate_control.logs import root_cause, tail
from headgate_control.processes import LAUNCH_VARIABLE, kill_group, terminate, wait_gone

LOG = logging.getLogger(__name__)
LOG_NAME = "driver.log"
_POLL_S = 0.1
_POLL_REMOTE_S = 0.5
_CAUSE_LINES = 400
_ENDING_S = 3.0
_children: list[subprocess.Popen[bytes]] = []
"""Drivers that this process started: they are its children until one of the two ends, and are reaped here."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launch keeps its working state and its log, on this host."""

    launch: str
    work: Path
    root: str
    """The id of the root that it is for."""

    @property
    def log(self) -> Path:
        return self.work / LOG_NAME


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that was started, as its launcher sees it."""

    process: subprocess.Popen[bytes]
    identity: ProcessIdentity
    stream: StreamName
    generation: Generation
    log: Path


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """Starts the drivers of one root."""

    store: RootStore
    programs: Programs
    environment: Mapping[str, str]
    work: str | None
    """$HEADGATE_WORK of the launcher."""

    def place(self, stream: StreamName, generation: Generation, deployed: Deployed) -> Place:
        """A folder that no other launch has ever had: one root's generation 3 is not another root's.

        Raises NotARoot: before anything is claimed there.
        """
        root = self.store.identity().id
        launch = uuid.uuid4().hex
        chosen = Settings(deployed.settings)["headgate.work-dir"] or self.work or "~/.local/state/headgate"
        base = Path(deployed.directory) / Path(chosen).expanduser()
        return Place(launch, base / stream / f"g{generation}-{launch[:8]}", root)

    def start(self, started: GenerationStarted, stream: StreamName, deployed: Deployed, place: Place) -> Driver:
        """Start the driver of the claimed generation. Raises LaunchFailed if the system refuses."""
        reap()
        heartbeat = StreamPaths(stream).heartbeat(started.generation)
        self.store.delete(heartbeat)  # left of a stream of this name whose folder somebody removed
        command = [*self.programs.driver, "--root", self.store.url, "--root-id", place.root, "--stream", stream]
        command += ["--generation", str(started.generation), "--launch", started.launch, "--work", str(place.work)]
        try:
            make_private(place.work, place.work.parent.parent)
            with place.log.open("ab") as log:
                process = subprocess.Popen(
                    command,
                    cwd=deployed.directory,
                    env={**self.environment, LAUNCH_VARIABLE: started.launch},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    close_fds=True,
                )
        except OSError as error:
            cause = f"the driver could not be started: {error}"
            self._say_failed(stream, started.generation, place.log, cause)
            raise LaunchFailed(f"stream {stream}: {cause}") from error
        _children.append(process)
        identity = identify(process.pid) or identity_here(process.pid, "unknown")
        interval = Settings(deployed.settings)["heartbeat.interval"]
        first = _first_heartbeat(stream, started.generation, place.log, interval, identity)
        # Created, not replaced: the driver may have spoken already.
        try:
            self.store.create(heartbeat, wire.encode("heartbeat", first, heartbeat))
        except StorageError as error:  # the driver is on its way, and speaks for itself
            LOG.warning("cannot write %s: %s", heartbeat, error)
        return Driver(process, identity, stream, started.generation, place.log)

    def wait_running(self, driver: Driver, deployed: Deployed) -> Heartbeat:
        """Wait until the driver says that it runs (or has run to its end). Raises LaunchFailed with the root cause.

        Storage that does not answer says nothing of the driver: it is asked again, and the error raised at the end.
        """
        timeout: Duration = Settings(deployed.settings)["headgate.startup-timeout"]
        deadline = time.monotonic() + timeout.seconds
        moved = 0.0
        last: Heartbeat | None = None
        while True:
            code = driver.process.poll()  # before the heartbeat is read: what it wrote last is then seen
            try:
                beat, trouble = self._beat(driver), None
            except StorageError as error:
                beat, trouble = None, error
            if beat is not None and beat.state in (StreamState.RUNNING, StreamState.STOPPING, StreamState.STOPPED):
                return beat
            if beat is not None and beat.state is StreamState.RESTORING and beat.progress.restarts:
                return beat  # it has run, has failed, and is mending that itself
            if beat is not None and beat.state in (StreamState.FAILED, StreamState.FENCED):
                self._see_off(driver)
                raise self._failed(driver, beat.cause or f"it says that it is {beat.state.value}")
            if code is not None and trouble is None:
                raise self._ended(driver, code, beat, deployed)
            if beat is not None and (last is None or beat.counter != last.counter):
                last, moved = beat, time.monotonic()
            if time.monotonic() > deadline:
                if trouble is not None:
                    raise trouble
                raise self._too_slow(driver, deployed, last, alive_s_ago=time.monotonic() - moved)
            time.sleep(_POLL_S if self.store.url.startswith("file:") else _POLL_REMOTE_S)

    def _see_off(self, driver: Driver) -> None:
        """It says that it has failed: what is left of it after a while only holds memory and ports."""
        if not wait_gone(driver.identity, _ENDING_S):
            kill_group(driver.identity)

    def _beat(self, driver: Driver) -> Heartbeat | None:
        seen = read_heartbeat(self.store, driver.stream, driver.generation)
        return seen.heartbeat if seen is not None else None

    def _failed(self, driver: Driver, cause: str) -> LaunchFailed:
        return LaunchFailed(
            f"generation {driver.generation} of stream {driver.stream} did not come up: {cause}",
            hint=f"its log is {driver.log} on {driver.identity.host} (`headgate logs {driver.stream}`)",
        )

    def _ended(self, driver: Driver, code: int, beat: Heartbeat | None, deployed: Deployed) -> LaunchFailed:
        """The driver is dead and said nothing: say for it why, so that every host knows at once."""
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        cause = f"it ended with {how}: {root_cause(tail(driver.log, _CAUSE_LINES), deployed.job, deployed.directory)}"
        if beat is None or beat.state not in TERMINAL:
            self._say_failed(driver.stream, driver.generation, driver.log, cause, beat)
        return self._failed(driver, cause)

    def _too_slow(self, driver: Driver, deployed: Deployed, last: Heartbeat | None, alive_s_ago: float) -> LaunchFailed:
        """It does not run yet: what is alive, by the rule for any driver (heartbeat.timeout), is left alone."""
        settings = Settings(deployed.settings)
        timeout: Duration = settings["headgate.startup-timeout"]
        allowed: Duration = settings["heartbeat.timeout"]
        state = last.state.value if last is not None else "launched"
        if last is not None and last.counter > 0 and alive_s_ago <= allowed.seconds:
            return LaunchInProgress(
                f"generation {driver.generation} of stream {driver.stream} is still {state} after {timeout}; it stays",
                hint=f"`headgate status {driver.stream}` shows when it runs; headgate.startup-timeout sets the wait",
            )
        terminate(driver.identity, grace_s=2)
        cause = f"it was {state} and silent after {timeout} (headgate.startup-timeout), and was ended"
        self._say_failed(driver.stream, driver.generation, driver.log, cause, last)
        return self._failed(driver, cause)

    def _say_failed(
        self, stream: StreamName, generation: Generation, log: Path, cause: str, last: Heartbeat | None = None
    ) -> None:
        last = last or _first_heartbeat(stream, generation, log, Duration(0), None)
        failed = replace(last, counter=last.counter + 1, state=StreamState.FAILED, at_ms=now_ms(), cause=cause)
        try:
            write_heartbeat(self.store, failed)
        except StorageError as error:  # the cause itself is what the caller is to read
            LOG.warning("cannot record that generation %d of stream %s failed: %s", generation, stream, error)


class LaunchInProgress(LaunchFailed):
    """The driver restores for longer than its caller waits; it is alive and was left alone."""


def _first_heartbeat(
    stream: StreamName, generation: Generation, log: Path, interval: Duration, identity: ProcessIdentity | None
) -> Heartbeat:
    return Heartbeat(
        stream=stream,
        generation=generation,
        counter=0,
        state=StreamState.LAUNCHED,
        at_ms=now_ms(),
        interval_ms=int(interval),
        process=identity,
        log=str(log),
    )


def reap() -> None:
    """Let go of drivers that have ended, so that none stays behind as a zombie of this process."""
    _children[:] = [process for process in _children if process.poll() is None]
