"""A driver that is killed again and again loses nothing and doubles nothing: quick, on the stand-in for Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).resolve().parents[2]


def _crash_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/crash_demo.py", "--engine", "stand-in", "--records", "30000", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_f137_killed_drivers_lose_nothing_and_double_nothing(backend: str):
    ran = _crash_demo("--kills", "4", "--seed", "11", "--backend", backend)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("crash demo: OK, 4 kills, ")


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (
            "commit-before-completion",
            r"has gone back behind group \d+|[1-9]\d* (lost|doubled)",
        ),  # the sink sees it as well
        ("stale-positions", r"30000 records: 0 lost, [1-9]\d* doubled"),
    ],
)
def test_a_broken_protocol_is_caught(fault: str, seen: str):
    ran = _crash_demo("--kills", "4", "--seed", "12", "--backend", "hashmap", "--break", fault)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("crash demo: FAILED")
    assert re.search(seen, ran.stdout), ran.stdout
