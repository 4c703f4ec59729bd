"""The points at which a test may kill a driver: off unless asked for, and then exactly there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.driver.points import POINTS, VARIABLE, KillPoints

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
