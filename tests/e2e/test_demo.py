"""The demo, with fewer words: the whole story under a real Airflow and on Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark]

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_the_demo_counts_every_word_once() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/demo.py"],
        cwd=REPOSITORY,
        env={**os.environ, "DEMO_WORDS": "60000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = ran.stdout.splitlines()[-1]
    told = re.fullmatch(
        r"demo: OK, 60000 words counted exactly once, (\d+) checkpoints, (\d+) savepoints, (\d+) restores, "
        r"(\d+) records replayed",
        last,
    )
    assert told, last
    assert all(int(number) > 0 for number in told.groups()), last
