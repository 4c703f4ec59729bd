"""`make test` runs every test but the slow ones, each once, in two runs, and misses nothing that is wrong in either."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from scripts.all_tests import RUNS
from tests.house_rules import IMPURE, REPO
from tests.small_run import SmallRun

PROGRAM = """
import sys
from pathlib import Path
from scripts.all_tests import run_all
sys.exit(run_all(Path(sys.argv[1]), {"1": ("-m", "not spark"), "2": ("-m", "spark")}))
"""
FAILED = "    FAILED tests/test_some.py::"
TESTS = """
    import pytest

    def test_f1_pure(): assert {pure}

    @pytest.mark.spark
    def test_{number}_on_spark(): assert {spark}
"""


def test_each_test_is_in_one_run_and_no_slow_one_in_any() -> None:
    for marks in chain.from_iterable(combinations(IMPURE, size) for size in range(len(IMPURE) + 1)):
        runs = [
            name
            for name, (_, wanted, *_) in RUNS.items()
            if Expression.compile(wanted).evaluate(lambda mark, marks=marks, **_: mark in marks)
        ]
        assert len(runs) == (0 if "slow" in marks else 1), marks


@pytest.fixture
def small_run(tmp_path: Path) -> SmallRun:
    run = SmallRun(tmp_path)
    (tmp_path / "docs").mkdir()
    run.write("docs/behaviours.md", "| F1 | What is first. | |\n| F2 | What is second. | |\n")
    return run


def start(run: SmallRun) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(run.root)]
    return subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("pure", "spark", "number", "said"),
    [
        (True, True, "f2", ["spec: 2 of 2 covered"]),
        (False, True, "f2", ["spec: 1 of 2 covered", "tests: run 1 failed", f"{FAILED}test_f1_pure"]),
        (True, False, "f2", ["spec: 1 of 2 covered", "tests: run 2 failed", f"{FAILED}test_f2_on_spark"]),
        (True, True, "without_a_number", ["spec: less than 90% is covered", "spec: 1 of 2 covered"]),
    ],
    ids=["all is well", "the first fails", "the second fails", "both pass and do not cover"],
)
def test_whatever_is_wrong_in_either_run_is_told_and_fails(
    small_run: SmallRun, pure: bool, spark: bool, number: str, said: list[str]
) -> None:
    small_run.write("tests/test_some.py", TESTS.format(pure=pure, spark=spark, number=number))
    ran = start(small_run)
    told, _ = ran.communicate(timeout=120)
    assert ran.returncode == (0 if said == ["spec: 2 of 2 covered"] else 1), told
    heads = [line.partition(" - ")[0] for line in told.splitlines()]
    assert [head for head in heads if head in said] == said, told


@pytest.mark.e2e
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_it_lets_both_runs_tear_down_what_they_began(small_run: SmallRun, stop: signal.Signals) -> None:
    small_run.write(
        "tests/test_slow.py",
        """
        import pathlib, time, pytest

        @pytest.fixture(params=[pytest.param("pure"), pytest.param("spark", marks=pytest.mark.spark)])
        def server(request):
            yield request.param
            pathlib.Path(f"{request.param}.down").touch()

        def test_f1_f2_long(server):
            pathlib.Path(f"{server}.up").touch()  # what stops it now finds the server made
            time.sleep(100)
        """,
    )
    ran = start(small_run)
    deadline = time.monotonic() + 120
    while not all((small_run.root / f"{name}.up").exists() for name in ("pure", "spark")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ran.send_signal(stop)
    ran.communicate(timeout=120)
    assert ran.returncode != 0
    assert all((small_run.root / f"{name}.down").exists() for name in ("pure", "spark"))
