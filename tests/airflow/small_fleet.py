"""A fleet of small, real streams: the real driver on the stand-in for Spark, which counts the keys of Parquet files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.heartbeats import CurrentCheckpoint, ProcessIdentity, read_heartbeat, write_heartbeat
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.store import open_store
from headgate_control import Condition, Control

JOB = '''"""Counts keys."""

import headgate

job = headgate.Job("counting")
numbers = job.source("numbers", headgate.sources.files("{name}-in", format="parquet", schema="key long"))
counts = numbers.key_by("key").aggregate("counts", n=headgate.count())
counts.sink("out", headgate.sinks.files("{name}-out", format="parquet"))
'''
SETTINGS = {
    "execution.checkpointing.interval": "500 ms",
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "60 s",
    "restart-strategy.exponential-delay.initial-backoff": "100 ms",
}
ENGINE = {"HEADGATE_TEST_ENGINE": "stand-in"}


class SmallFleet:
    """Streams below `folder`, declared in its streams.yaml; none of them runs yet."""

    def __init__(self, folder: Path, names: Iterable[str], **settings: str) -> None:
        self.folder = folder
        self.root = f"file://{folder}/root"
        self.file = folder / "streams.yaml"
        self.names = list(names)
        self.settings = {**SETTINGS, "headgate.snapshot.allowed-dirs": str(folder.parent), **settings}
        for name in self.names:
            (folder / f"{name}-in").mkdir(parents=True)
            (folder / f"{name}.py").write_text(JOB.format(name=name))
            self.feed(name, range(10))
        self.declare({name: {"job": f"{name}.py", "settings": self.settings} for name in self.names})
        self.control = Control.open(self.root, by="a test")

    def declare(self, streams: Mapping[str, object]) -> None:
        self.file.write_text(yaml.safe_dump({"root": self.root, "streams": dict(streams)}))

    def feed(self, name: str, keys: Iterable[int]) -> None:
        """Add a file of records; it appears whole."""
        folder = self.folder / f"{name}-in"
        number = len(list(folder.iterdir()))
        pq.write_table(pa.table({"key": pa.array(keys, pa.int64())}), self.folder / "next.parquet")
        (self.folder / "next.parquet").rename(folder / f"{number:05d}.parquet")

    def deploy(self, name: str) -> None:
        self.control.deploy(name, self.folder / f"{name}.py", self.settings, directory=self.folder)

    def start(self, name: str) -> int:
        """Deploy and start; the generation."""
        self.deploy(name)
        return self.control.start(name).generation

    def catalogue(self, name: str) -> Catalogue:
        return read_catalogue(open_store(self.root), StreamName(name))

    def requests(self, name: str) -> list[str]:
        """The file names of all requests that were ever left for `name`."""
        return sorted(path.name for path in (self.folder / "root/streams" / name / "requests").glob("*.json"))

    def process(self, name: str) -> ProcessIdentity:
        found = self.control.status(name).process
        assert found is not None
        return found

    def kill(self, name: str) -> None:
        """SIGKILL to the driver's whole group, and it is gone."""
        pid = self.process(name).pid
        os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: not _lives(pid), f"process {pid} to be gone")

    def wait_for(self, name: str, condition: Condition) -> None:
        wait_until(
            lambda: self.control.status(name).condition is condition,
            f"{name} to be {condition.value}; it is: {self.control.status(name).text}",
        )

    def close(self) -> None:
        """End every driver, those of all generations."""
        for name in self.names:
            for beat in (self.folder / "root/fleet/heartbeats").glob(f"{name}.g*.json"):
                pid = _pid_in(beat)
                if pid is not None and _lives(pid):
                    with suppress(ProcessLookupError):  # it ends this moment
                        os.killpg(pid, signal.SIGKILL)


def wait_until(met: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def _pid_in(heartbeat: Path) -> int | None:
    import json

    body: dict[str, Any] = json.loads(heartbeat.read_text())["body"]
    return body["process"]["pid"] if body["process"] else None


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two looks
        return False


def _lives(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def is_current(fleet: SmallFleet, checkpoint: int, age_ms: int) -> None:
    """Its driver, which is gone, has last said so, `age_ms` ago."""
    store = open_store(fleet.root)
    seen = read_heartbeat(store, StreamName("counts"), Generation(1))
    assert seen is not None
    assert seen.heartbeat is not None
    current = CurrentCheckpoint(checkpoint=CheckpointId(checkpoint), as_of_ms=0, age_ms=age_ms)
    write_heartbeat(store, replace(seen.heartbeat, progress=replace(seen.heartbeat.progress, current=current)))
