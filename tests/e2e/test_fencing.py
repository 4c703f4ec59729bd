"""A driver that was frozen wakes up after its successor has run on: it completes and commits nothing, and says so."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from headgate_contract.heartbeats import StreamState
from headgate_contract.history import read_history
from headgate_contract.ids import StreamName
from headgate_contract.store import open_store
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, send, wait_gone
from tests.crash.truth import write_input

pytestmark = pytest.mark.e2e

RECORDS = 6000
SETTINGS = {
    "execution.checkpointing.interval": "200 ms",
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "1500 ms",
}


@pytest.fixture
def stream(tmp_path: Path):
    under_fire = StreamUnderFire(tmp_path, engine="stand-in", settings=SETTINGS, files_per_batch=1)
    under_fire.given.mkdir()
    write_input(under_fire.held_back, seed=4, records=RECORDS, files=60, keys=500)
    under_fire.deploy()
    launched: list[Launched] = []
    yield under_fire, launched
    for one in launched:
        if Path(f"/proc/{one.process.pid}").exists():
            kill_group(one)  # a stopped process too


def _newest_slot(stream: StreamUnderFire) -> int:
    snapshots = stream.catalogue().snapshots
    return snapshots[0].id if snapshots else 0


def _frozen_at(stream: StreamUnderFire, launched: list[Launched], point: str, number: int) -> Launched:
    """Start a driver that is stopped when it reaches `point` for the `number`-th time, then give it the other files.

    Until then it gets a file behind each checkpoint: without something new there would be no next one.
    """
    marker = stream.base / "marker"
    old = stream.start(extra={"HEADGATE_TEST_POINT": f"SIGSTOP@{point}#{number}:{marker}"})
    launched.append(old)
    deadline = time.monotonic() + 60
    seen = -1
    while not marker.exists():
        assert time.monotonic() < deadline, f"{point} was not reached"
        newest = _newest_slot(stream)
        if newest > seen:
            seen = newest
            stream.give(1)
        time.sleep(0.02)
    stream.give(60)
    deadline = time.monotonic() + 30
    control = stream.control({"HEADGATE_TEST_POINT": ""})
    while not control.lost([stream.name]):
        assert time.monotonic() < deadline, "the frozen driver is not seen as lost"
        time.sleep(0.1)
    return old


def _finish_and_wake(stream: StreamUnderFire, old: Launched, new: Launched) -> None:
    stream.wait(new.generation, lambda beat: beat.progress.records >= RECORDS)
    send(old, signal.SIGCONT)
    wait_gone(old.process.pid)
    woken = stream.beat(old.generation)
    assert woken is not None
    assert woken.state is StreamState.FENCED, woken.cause
    stream.control().stop(stream.name)
    wait_gone(new.process.pid)


def _assert_fenced_and_exact(stream: StreamUnderFire, old: Launched) -> None:
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)
    events = read_history(open_store(stream.root), StreamName(stream.name))
    fenced = [event for event in events if event.what == "fenced" and event.generation == old.generation]
    assert len(fenced) == 1
    assert "generation 2" in fenced[0].text


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("point", ["before-slot", "before-commit", "inside-commit"])
def test_a_frozen_driver_that_wakes_after_its_successor_changes_nothing(stream, point: str, backend: str):
    under_fire, launched = stream
    under_fire.backend = backend
    under_fire.deploy()
    old = _frozen_at(under_fire, launched, point, 3)
    new = under_fire.start(kill_old=False)
    launched.append(new)
    assert new.generation == 2
    _finish_and_wake(under_fire, old, new)
    _assert_fenced_and_exact(under_fire, old)


@pytest.mark.parametrize("point", ["before-commit", "inside-commit"])
def test_a_frozen_driver_cannot_publish_again_what_a_rollback_took_back(stream, point: str):
    under_fire, launched = stream
    old = _frozen_at(under_fire, launched, point, 4)
    older = under_fire.catalogue().snapshots[1]
    new = under_fire.control({"HEADGATE_TEST_POINT": ""}).restore(
        under_fire.name, snapshot=older.id, savepoint_first=False, kill_old=False
    )
    launched.append(new)
    assert new.decision.snapshot == older
    _finish_and_wake(under_fire, old, new)
    _assert_fenced_and_exact(under_fire, old)
