"""The points at which a test may kill a driver: off unless asked for, and then exactly there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headgate.driver.points import POINTS, VARIABLE, KillPoints
from headgate_contract.mailbox import RequestKind
from tests.runtime.driver.life_world import LifeWorld

REACHING = """
import os
from headgate.driver.points import KillPoints
points = KillPoints.of(os.environ)
for number in range(3):
    points.reach("before-slot")
    print(number, flush=True)
"""


def run(wanted: str) -> tuple[int, str]:
    """A process group of its own that reaches `before-slot` three times: how it ended, and what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: wanted}
    done = subprocess.run(
        [sys.executable, "-c", REACHING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    return done.returncode, done.stdout


def test_it_kills_at_the_wanted_time_and_leaves_a_marker_first(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert run(f"SIGKILL@before-slot#2:{marker}") == (-signal.SIGKILL, "0\n")
    assert marker.read_text() == "before-slot\n"


def test_it_does_nothing_unless_asked(tmp_path: Path) -> None:
    assert run("") == (0, "0\n1\n2\n")
    assert run(f"SIGKILL@after-slot:{tmp_path / 'marker'}") == (0, "0\n1\n2\n")
    assert not (tmp_path / "marker").exists()
    for point in POINTS:
        KillPoints().reach(point)


def test_a_point_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE}: 'before-slots' is no point; known are before-seed, "):
        KillPoints("SIGKILL@before-slots:/tmp/x")


class Spy(KillPoints):
    """Notes who came by, instead of killing anybody."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def reach(self, point: str, checkpoint: int | None = None) -> None:
        self.seen.append((threading.current_thread().name.partition("_")[0], point))

    def of_thread(self, name: str) -> list[str]:
        return [point for thread, point in self.seen if thread == name]


def test_within_one_checkpoint_a_point_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(number))
    points = KillPoints(f"SIGKILL@after-upload#2:{tmp_path / 'marker'}")
    for checkpoint in (7, 7, 7):
        points.reach("after-upload", checkpoint)
    assert not killed
    points.reach("after-upload", 8)
    assert killed == [signal.SIGKILL]


def test_a_life_comes_by_every_point_in_the_order_of_the_protocol(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.points = spy = Spy()
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(2)
    life = world.begin()
    life.read_all()
    life.ask("now", RequestKind.CHECKPOINT)
    life.answer("now")
    life.ask("drain", RequestKind.STOP, savepoint="last", drain=True)
    assert life.wait() is None
    once = len(spy.of_thread("coordinator")) // 2
    assert spy.of_thread("coordinator")[:once] == ["before-barrier", "before-sync", "after-sync", "after-barrier"]
    assert spy.of_thread("life") == ["before-seed", "after-seed"]
    assert spy.of_thread("finish") == ["after-finish"]
    assert spy.of_thread("ledger")[:9] == [
        "before-metadata",
        "before-slot",
        "after-slot",
        "before-commit",
        *["inside-commit"] * 2,
        "after-commit",
        "before-notify",
        "after-notify",
    ]
    uploads = spy.of_thread("upload")
    for name in ("upload", "prepare", "ack"):
        assert uploads.index(f"before-{name}") < uploads.index(f"after-{name}")
    assert {point for _, point in spy.seen} == set(POINTS)
