"""The runner of reversals: which reversal counts as noticed. And all reversals of the real behaviours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO
from tests.small_run import SmallRun

pytestmark = pytest.mark.e2e

FEWEST = 60
"""So many behaviours can be reversed, at least."""

REVERSALS = """
    from package import sample
    from tests.spec.small import Reversal

    def wrong(patch):
        patch.setattr(sample, "pick", lambda yes: "no")

    def gone(patch):
        patch.setattr(sample, "pick", None)

    REVERSALS = {number: Reversal(number, f"reversal {number}", wrong) for number in range(1, 7)}
    REVERSALS[7] = Reversal(7, "reversal 7", gone)
    REVERSALS[8] = Reversal(8, "reversal 8", lambda patch: patch.setattr(sample, "choose", None))
"""
TESTS = """
    import pytest
    from package import sample

    def test_f1_noticed(): assert sample.pick(True) == "yes"

    def test_f2_not_noticed(): sample.pick(True)

    def test_f3_f4_that_fails_in_any_case(): assert sample.pick(True) == "maybe"

    @pytest.mark.spark
    def test_f5_that_is_not_pure(): assert sample.pick(True) == "yes"

    def test_f6_an_error_that_does_not_come():
        with pytest.raises(ZeroDivisionError):
            1 / (sample.pick(True) == "no")

    def test_f7_that_breaks(): assert sample.pick(True) == "yes"

    def test_f8_whose_switch_does_not_fit(): pass
"""
PURE = "not spark and not airflow and not servers and not e2e and not slow"


@pytest.fixture
def small_run(tmp_path: Path) -> SmallRun:
    run = SmallRun(tmp_path)
    run.write(
        "tests/spec/small.py",
        """
        from dataclasses import dataclass
        from typing import Any

        @dataclass
        class Reversal:
            number: int
            does: str
            switch: Any
        """,
    )
    run.write("tests/spec/reversals.py", REVERSALS)
    run.write("tests/test_some.py", TESTS)
    return run


def test_a_reversal_counts_only_if_a_sound_test_fails_by_its_assertion(small_run: SmallRun) -> None:
    shown = small_run.pytest("-q", "-m", PURE, "--spec-break", "all")
    assert shown.returncode == 1, shown.stdout
    *lines, last = [line for line in shown.stdout.splitlines() if line.startswith(("F", "spec-break"))]
    said = [line.partition(": ")[2].partition(": ")[0] for line in lines]
    assert said == [
        "noticed",
        "NOT NOTICED",
        "FAILS WITHOUT IT",
        "FAILS WITHOUT IT",
        "NO PURE TEST",
        "noticed",
        "FAILS, BUT NOT BY AN ASSERTION",
        "THE SWITCH DOES NOT FIT",
    ]
    assert last == "spec-break: 2 of 8 reversals fail their tests"
    assert shown.stdout.splitlines()[-1] == last


def test_those_that_are_named_are_tried_and_no_others(small_run: SmallRun) -> None:
    shown = small_run.pytest("-q", "-m", PURE, "--spec-break", "1,6")
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.splitlines()[-1] == "spec-break: 2 of 2 reversals fail their tests"


@pytest.mark.reversals
@pytest.mark.timeout(900)
def test_each_of_the_real_ones_is_noticed() -> None:
    """What `make spec-break` runs."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", PURE, "--spec-break", "all"]
    shown = subprocess.run(command, cwd=REPO, env=os.environ, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    last = re.fullmatch(r"spec-break: (\d+) of (\d+) reversals fail their tests", shown.stdout.splitlines()[-1])
    assert last is not None, shown.stdout
    assert last[1] == last[2]
    assert int(last[1]) >= FEWEST
