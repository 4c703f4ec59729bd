"""A storage root with streams in any state, made by hand: what the tests of the control plane look at."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.heartbeats import (
    Heartbeat,
    ProcessIdentity,
    Progress,
    Standing,
    StreamState,
    write_heartbeat,
)
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.paths import METADATA, StreamPaths, numbered
from headgate_contract.process import this_host
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    SlotRecord,
    Stopped,
    decision_log,
    slot_log,
)
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.root_store import RootStore, make_root
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import open_store
from headgate_contract.store_local import LocalStore
from headgate_control import Control
from headgate_control.deploy import Programs
from tests.control.standin_driver import complete_snapshot

HERE = Path(__file__).parent
STREAM = StreamName("orders")
STANDIN = Programs(
    driver=(sys.executable, str(HERE / "standin_driver.py")), check=(sys.executable, str(HERE / "standin_check.py"))
)
QUICK = {
    "heartbeat.interval": "50 ms",
    "heartbeat.timeout": "30 s",
    "headgate.startup-timeout": "60 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "0 ms",
}
T = TypeVar("T")


def until(what: Callable[[], T], timeout_s: float = 60.0) -> T:
    """Wait until `what()` is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, f"{what} did not become true"
        time.sleep(0.01)
    return found


@dataclass
class World:
    """One root below a test's folder."""

    folder: Path
    sinks: Mapping[str, str] = field(default_factory=lambda: {"out": "retract"})
    sink_paths: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        store = open_store(str(self.root))
        assert isinstance(store, LocalStore)
        self.store = store
        self.make_root()
        self.job = self.write_job("")

    def make_root(self) -> None:
        make_root(RootStore(self.store), by="anna", at_ms=1)

    def control(self, by: str = "anna") -> Control:
        return Control.open(str(self.root), by=by, programs=STANDIN)

    def write_job(self, text: str) -> Path:
        job = self.folder / "job.py"
        job.write_text(text)
        return job

    def catalogue(self, stream: StreamName = STREAM) -> Catalogue:
        return read_catalogue(self.store, stream)

    # -- what drivers and callers would have written

    def decide(self, record: DecisionRecord, stream: StreamName = STREAM) -> None:
        log = decision_log(self.store, stream)
        known = log.read()
        log.append(known[-1].number if known else None, record)

    def slot(self, record: SlotRecord, stream: StreamName = STREAM) -> None:
        slot_log(self.store, stream).append(self.catalogue(stream).newest_slot, record)

    def deployed(self, stream: StreamName = STREAM, **settings: str) -> Deployed:
        """As if it had been deployed with QUICK settings and `settings` (dots as `__`, dashes as `_`).

        Snapshots may lie anywhere in the test's folder.
        """
        own = {"headgate.snapshot.allowed-dirs": str(self.folder)}
        given = {**QUICK, **own, **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}}
        record = Deployed(
            job=str(self.job),
            job_sha256=wire.sha256(self.job.read_bytes()),
            directory=str(self.folder),
            settings=Settings(given).given,
            plan={"sinks": {uid: self._sink(uid, how) for uid, how in self.sinks.items()}},
            by="anna",
            at_ms=1,
        )
        self.decide(record, stream)
        return record

    def _sink(self, uid: str, rollback: str) -> dict[str, str]:
        path = {"kind": "files", "path": self.sink_paths[uid]} if uid in self.sink_paths else {}
        return {"rollback": rollback, **path}

    def started(
        self,
        decision: RestoreFrom | StartFresh | None = None,
        *,
        stream: StreamName = STREAM,
        host: str | None = None,
        replaces: int | None = None,
        first_checkpoint: int | None = None,
    ) -> GenerationStarted:
        catalogue = self.catalogue(stream)
        number = len(catalogue.generations) + 1
        record = GenerationStarted(
            generation=Generation(number),
            decision=decision or StartFresh("the stream has never run"),
            first_checkpoint=CheckpointId(first_checkpoint or catalogue.next_checkpoint),
            deployed=catalogue.deployed_number or 1,
            by="anna",
            host=host or this_host(),
            at_ms=1_700_000_000_000,
            launch=f"launch{number}",
            log=str(self.folder / f"g{number}" / "driver.log"),
            replaces=Generation(replaces) if replaces else None,
        )
        self.slot(record, stream)
        return record

    def snapshot(self, name: str | None = None, stream: StreamName = STREAM, **more: Any) -> SnapshotRef:
        catalogue = self.catalogue(stream)
        assert catalogue.newest_generation is not None
        return complete_snapshot(self.store, catalogue, catalogue.newest_generation.generation, name=name, **more)

    def stopped(self, reason: str = "stop by anna") -> None:
        newest = self.catalogue().newest_generation
        assert newest is not None
        self.slot(Stopped(generation=newest.generation, reason=reason))

    def beat(
        self,
        state: StreamState = StreamState.RUNNING,
        *,
        counter: int = 1,
        generation: int | None = None,
        cause: str | None = None,
        process: ProcessIdentity | None = None,
        age_s: float = 0.0,
        stream: StreamName = STREAM,
        given_up: bool = False,
        progress: Progress | None = None,
        standing: tuple[Standing, ...] = (),
    ) -> None:
        newest = self.catalogue(stream).newest_generation
        whose = Generation(generation) if generation else newest.generation if newest else Generation(1)
        beat = Heartbeat(
            stream=stream,
            generation=whose,
            counter=counter,
            state=state,
            at_ms=0,
            interval_ms=50,
            cause=cause,
            process=process,
            given_up=given_up,
            progress=progress or Progress(),
            standing=standing,
        )
        write_heartbeat(self.store, beat)
        self.age(StreamPaths(stream).heartbeat(whose), age_s)

    def age(self, path: str, age_s: float) -> None:
        """Make an object look as if it had been written `age_s` ago, by the storage's own clock."""
        when = time.time() - age_s
        os.utime(self.root / path, (when, when))

    def age_slot(self, number: int, age_s: float, stream: StreamName = STREAM) -> None:
        entry = next(slot.number for slot in self.catalogue(stream).slots if slot.number == number)
        self.age(numbered(StreamPaths(stream).slots, entry), age_s)

    def freeze(self, process: ProcessIdentity, *, silent: bool = True) -> None:
        """Stop the driver of the newest generation; if `silent`, for longer than its heartbeat may be.

        Returns when it writes nothing more. It is for whoever looks on to confirm the silence.
        """
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        newest = self.catalogue().newest_generation
        assert newest is not None
        if silent:
            self.age(StreamPaths(STREAM).heartbeat(newest.generation), 3600)

    # -- damage

    def damage_metadata(self, ref: SnapshotRef) -> None:
        path = self.root / ref.folder / METADATA
        path.write_bytes(path.read_bytes().replace(b"snapshot", b"snapshoT", 1))

    def state_file(self, ref: SnapshotRef) -> Path:
        name = f"positions-{ref.id}-g{ref.generation}.bin"
        return self.root / StreamPaths(STREAM).shared / name


def ids(refs: tuple[SnapshotRef, ...]) -> list[CheckpointId]:
    return [ref.id for ref in refs]
