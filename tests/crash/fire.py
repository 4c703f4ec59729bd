"""A stream under fire: deploys the numbering job, starts it, kills its driver's process group, reads what it says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import ObjectMissing
from headgate_contract.heartbeats import TERMINAL, Heartbeat, read_heartbeat
from headgate_contract.ids import Generation, StreamName
from headgate_contract.paths import METADATA
from headgate_contract.restore import RestoreDecision, RestoreFrom
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, read_metadata
from headgate_contract.store import open_store
from headgate_control import Control
from headgate_control.outcomes import Launched

JOB = Path(__file__).resolve().parents[2] / "spark_jobs" / "jobs" / "running_number.py"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A life under fire is mostly its start."""
SETTINGS = {
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.num-retained": "3",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "10 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0 s",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
}


@dataclass
class StreamUnderFire:
    """One stream below `base`; `engine` is spark or stand-in."""

    base: Path
    engine: str = "spark"
    backend: str = "hashmap"
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "numbers"
    files_per_batch: int = 2
    storage: str = ""
    job: Path = JOB

    @property
    def given(self) -> Path:
        return self.base / "in"

    @property
    def held_back(self) -> Path:
        """Where files are that the source has not been given yet."""
        return self.base / "held-back"

    @property
    def output(self) -> Path:
        return self.base / "out"

    @property
    def root(self) -> str:
        """Where storage is: below `base`, or the S3 prefix that was given."""
        return self.storage or str(self.base / "root")

    def give(self, files: int) -> None:
        """The source gets the next so many of those that are held back, or what is left of them."""
        for path in sorted(self.held_back.iterdir())[:files]:
            path.rename(self.given / path.name)

    def control(self, extra: Mapping[str, str] | None = None) -> Control:
        """The control plane, whose drivers get the stream's environment."""
        mine = {
            "NUMBERS_IN": str(self.given),
            "NUMBERS_OUT": str(self.output),
            "NUMBERS_FILES_PER_BATCH": str(self.files_per_batch),
            "HEADGATE_WORK": str(self.base / "work"),
            "HEADGATE_TEST_ENGINE": self.engine,
            "HEADGATE_TEST_POINT": "",
            **self.environment,
            **(extra or {}),
        }
        with patch.dict(os.environ, mine):  # Control keeps a copy for its drivers
            return Control.open(self.root, by="the crash test")

    def deploy(self, extra: Mapping[str, str] | None = None) -> None:
        settings = {**SETTINGS, "state.backend.type": self.backend, **self.settings}
        self.control(extra).deploy(self.name, self.job, settings, directory=self.base)

    def start(self, *, extra: Mapping[str, str] | None = None, wait: bool = True, kill_old: bool = True) -> Launched:
        return self.control(extra).start(self.name, wait=wait, kill_old=kill_old)

    def start_killed_at(self, point: str) -> Launched:
        """Start a life that will be killed at `point`, or `point#N`: the N-th time that it comes by."""
        marker = self._marker(point)
        marker.unlink(missing_ok=True)
        return self.start(extra={"HEADGATE_TEST_POINT": f"SIGKILL@{point}:{marker}"}, wait=False)

    def wait_killed(self, launched: Launched, point: str, timeout_s: float = 120) -> None:
        """Until that life is gone; the marker that it left must say that it was killed there."""
        wait_gone(launched.process.pid, timeout_s)
        assert self._marker(point).exists(), f"{point} did not kill generation {launched.generation}: {launched.log}"

    def _marker(self, point: str) -> Path:
        return self.base / f"killed-{point}"

    def catalogue(self) -> Catalogue:
        return read_catalogue(open_store(self.root), StreamName(self.name))

    def records_of(self, decision: RestoreDecision) -> int:
        """How many records the sources had handed over at the snapshot of a decision."""
        if not isinstance(decision, RestoreFrom):
            return 0
        return self.metadata(decision.snapshot).records

    def metadata(self, ref: SnapshotRef) -> SnapshotMetadata:
        """What a snapshot holds."""
        path = f"{ref.folder}/{METADATA}"
        return read_metadata(open_store(self.root).read(path), path)

    def newest_snapshot_records(self) -> int:
        """How many records the newest completed snapshot has; it may be retired while we look."""
        try:
            refs = self.catalogue().snapshots
            return self.records_of(RestoreFrom(refs[0], "")) if refs else 0
        except ObjectMissing:
            return self.newest_snapshot_records()

    def newest_snapshot(self) -> SnapshotMetadata:
        """What the newest completed snapshot holds, of a stream that has ended."""
        return self.metadata(self.catalogue().snapshots[0])

    def beat(self, generation: int) -> Heartbeat | None:
        seen = read_heartbeat(open_store(self.root), StreamName(self.name), Generation(generation))
        return seen.heartbeat if seen is not None else None

    def wait(self, generation: int, condition: Callable[[Heartbeat], bool], timeout_s: float = 120) -> Heartbeat:
        """Wait until the generation's heartbeat meets the condition; a driver that has ended cannot any more."""
        deadline = time.monotonic() + timeout_s
        beat = self.beat(generation)
        while time.monotonic() < deadline:
            beat = self.beat(generation)
            if beat is not None and condition(beat):
                return beat
            if beat is not None and beat.state in TERMINAL:
                raise AssertionError(f"generation {generation} is {beat.state.value}: {beat.cause}")
            time.sleep(0.05)
        raise AssertionError(f"generation {generation}: not within {timeout_s} s; last: {beat}")


def kill_group(launched: Launched) -> None:
    """SIGKILL to the driver's whole process group; returns when its leader is gone."""
    send(launched, signal.SIGKILL)
    wait_gone(launched.process.pid)


def kill_drivers(base: Path) -> None:
    """SIGKILL to the process groups of all drivers whose storage is below `base`; returns when they are gone."""
    below, found = f"{base}/".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if b"headgate.driver" in words and any(below in word for word in words):
            found.append(int(folder.name))
            with suppress(ProcessLookupError):
                os.killpg(found[-1], signal.SIGKILL)
    for pid in found:
        wait_gone(pid)


def send(launched: Launched, number: signal.Signals) -> None:
    try:
        os.killpg(launched.process.pid, number)
    except ProcessLookupError:
        return


def wait_gone(pid: int, timeout_s: float = 60) -> None:
    """Wait until the process has ended, whoever its parent is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            if not Path(f"/proc/{pid}").exists():
                return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there after {timeout_s} s")
