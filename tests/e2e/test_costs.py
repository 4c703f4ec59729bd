"""What a recovery took, as the history tells it, is what somebody with a watch would have measured from outside."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headgate_contract.ids import CheckpointId
from headgate_contract.measures import RecoveryKind
from headgate_control.outcomes import Launched
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.truth import write_input

pytestmark = pytest.mark.e2e

SETTINGS = {
    "execution.checkpointing.interval": "300 ms",
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "4 s",
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


def test_a_recovery_takes_from_the_last_sign_of_life_to_running_and_the_next_one_is_predicted(stream: StreamUnderFire):
    control = stream.control()
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 6000)
    control.checkpoint(stream.name)
    killed = time.monotonic()
    kill_group(first)
    deadline = killed + 60
    while not isinstance(control.recover(stream.name), Launched):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    seen_s = time.monotonic() - killed  # recover has waited until it runs

    recovery, start = control.recoveries(stream.name).recoveries
    assert (start.time.kind, recovery.time.kind) == (RecoveryKind.START, RecoveryKind.RECOVERY)
    assert recovery.time.detect_ms is not None
    assert recovery.time.detect_ms > 0
    assert recovery.time.loaded_bytes > 0
    beat_s = 0.5  # the last sign of life came before the kill, and control sees that it runs a moment after it did
    assert seen_s - 1.0 < recovery.duration_ms / 1000 < seen_s + beat_s, recovery
    predicted = control.explain(stream.name).prediction
    assert predicted is not None
    assert predicted.rests_on == 2

    rows = control.checkpoints(stream.name).checkpoints
    assert [row.cost.checkpoint for row in rows] == sorted((row.cost.checkpoint for row in rows), reverse=True)
    assert rows[-1].cost.checkpoint == CheckpointId(1)
    assert rows[-1].cost.uploaded_bytes == rows[-1].cost.full_bytes, "the first one holds everything"
