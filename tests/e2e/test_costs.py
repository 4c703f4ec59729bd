"""What a recovery took, as the history tells it, is what somebody with a watch would have measured from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate_contract.heartbeats import StreamState, read_heartbeat
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.measures import RecoveryKind
from headgate_contract.store import open_store
from headgate_control.outcomes import Launched
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.truth import write_input

pytestmark = pytest.mark.e2e

SETTINGS = {
    "execution.checkpointing.interval": "300 ms",
    "heartbeat.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 s",
}


@pytest.fixture
def stream(tmp_path: Path):
    under_fire = StreamUnderFire(tmp_path, engine="stand-in", settings=SETTINGS, files_per_batch=2)
    write_input(under_fire.given, seed=3, records=6000, files=6, keys=500)
    under_fire.deploy()
    yield under_fire
    status = under_fire.control().status(under_fire.name)
    if status.process is not None and Path(f"/proc/{status.process.pid}").exists():
        with suppress(ProcessLookupError):
            os.killpg(status.process.pid, signal.SIGKILL)
        wait_gone(status.process.pid)


@dataclass
class Watched:
    """A recovery, seen from outside: neither what is seen late nor a slow machine makes these bounds wrong."""

    stream: StreamUnderFire
    killed: Launched
    silent_s: float = 0.0
    """For how long there had been no sign of life when the driver was killed."""
    waited_s: float = 0.0
    """From the kill until it was last seen not to run yet."""
    told_s: float = 0.0
    """From the kill until its history told of it."""

    def recover(self) -> None:
        name, store = StreamName(self.stream.name), open_store(self.stream.root)
        self._until(lambda: self._told() == 1)  # a driver tells of its start once it runs
        began, began_at = time.monotonic(), time.time()
        kill_group(self.killed)
        last = read_heartbeat(store, name, Generation(self.killed.generation))
        assert last is not None
        self.silent_s = began_at - last.modified
        with ThreadPoolExecutor(1) as pool:
            recovering = pool.submit(self._recover)
            while not recovering.done():
                looked = time.monotonic()
                beat = self.stream.beat(self.killed.generation + 1)
                if beat is None or beat.state is not StreamState.RUNNING:
                    self.waited_s = looked - began
                time.sleep(0.01)
            recovering.result()
        self._until(lambda: self._told() == 2)
        self.told_s = time.monotonic() - began

    def _told(self) -> int:
        return len(self.stream.control().recoveries(self.stream.name).recoveries)

    def _recover(self) -> None:
        control = self.stream.control()
        self._until(lambda: isinstance(control.recover(self.stream.name), Launched))

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_recovery_takes_from_the_last_sign_of_life_to_running_and_the_next_one_is_predicted(stream: StreamUnderFire):
    control = stream.control()
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 6000)
    control.checkpoint(stream.name)
    watched = Watched(stream, first)
    watched.recover()

    recovery, start = control.recoveries(stream.name).recoveries
    assert (start.time.kind, recovery.time.kind) == (RecoveryKind.START, RecoveryKind.RECOVERY)
    assert recovery.time.detect_ms is not None
    assert recovery.time.detect_ms > 0
    assert recovery.time.loaded_bytes > 0
    took_s, fine_s = recovery.duration_ms / 1000, 0.05  # the moments of files are not finer than a tick
    assert watched.silent_s + watched.waited_s - fine_s < took_s < watched.silent_s + watched.told_s + fine_s, recovery
    predicted = control.explain(stream.name).prediction
    assert predicted is not None
    assert predicted.rests_on == 2

    rows = control.checkpoints(stream.name).checkpoints
    assert [row.cost.checkpoint for row in rows] == sorted((row.cost.checkpoint for row in rows), reverse=True)
    assert rows[-1].cost.checkpoint == CheckpointId(1)
    assert rows[-1].cost.uploaded_bytes == rows[-1].cost.full_bytes, "the first one holds everything"
