"""A sync phase that is stuck fails the stream by name; one that ends in time is nobody's business."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.coordinator.messages import FailStream, TakeSnapshot
from headgate.driver.loop import CoordinatorLoop
from headgate.driver.snapshots import SnapshotTaker
from headgate.driver.sync_phase import SyncPhaseWatchdog
from headgate_contract.ids import CheckpointId
from tests.runtime.driver.life_world import LifeWorld
from tests.runtime.driver.waiting import PATIENCE_S, until

STUCK = (
    "the sync phase of checkpoint 1 is stuck: for 50 ms no micro-batch could begin "
    "(execution.checkpointing.sync-phase-timeout)"
)


def test_f142_a_stuck_sync_phase_is_told_once_while_it_is_stuck() -> None:
    told: list[FailStream] = []
    with SyncPhaseWatchdog(50, told.append).watch(CheckpointId(1)):
        until(lambda: told, "the watchdog barks")
    assert told == [FailStream(cause=STUCK)]


@pytest.mark.parametrize("timeout_ms", [0, 600_000], ids=["no timeout", "in time"])
def test_a_sync_phase_that_is_not_stuck_leaves_no_timer_behind(timeout_ms: int) -> None:
    told: list[FailStream] = []
    before = set(threading.enumerate())
    with SyncPhaseWatchdog(timeout_ms, told.append).watch(CheckpointId(1)):
        timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer) and each not in before]
    until(lambda: not any(each.is_alive() for each in timers), "no timer is left")
    assert len(timers) == bool(timeout_ms)
    assert told == []


def test_f142_a_stream_whose_sync_phase_is_stuck_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, let_go = threading.Event(), threading.Event()

    def take(taker: SnapshotTaker, action: TakeSnapshot) -> Callable[[], None]:
        stuck.set()
        assert let_go.wait(PATIENCE_S)
        return lambda: None

    close = CoordinatorLoop.close

    def close_late(loop: CoordinatorLoop) -> None:
        let_go.set()  # the stream has failed: nothing waits for the thread any more
        close(loop)

    monkeypatch.setattr(SnapshotTaker, "take", take)
    monkeypatch.setattr(CoordinatorLoop, "close", close_late)
    world = LifeWorld(tmp_path)
    world.write(2)
    life = world.begin(settings={"execution.checkpointing.sync-phase-timeout": "50 ms"})
    error = life.wait()
    assert stuck.is_set()
    assert STUCK in str(error)
