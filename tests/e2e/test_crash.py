"""A driver that is killed again and again loses nothing and doubles nothing: quick, on the stand-in for Spark."""

from __future__ import annotations

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
def test_killed_drivers_lose_nothing_and_double_nothing(backend: str):
    ran = _crash_demo("--kills", "4", "--seed", "11", "--backend", backend)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("crash demo: OK, 4 kills, ")


def test_a_commit_before_its_completion_is_caught():
    ran = _crash_demo("--kills", "4", "--seed", "12", "--backend", "hashmap", "--break", "commit-before-completion")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("crash demo: FAILED")
