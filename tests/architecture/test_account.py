"""A CI run tells what each group of tests took, and fails when the whole is over its budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.ci_account import account
from tests.account import GROUPS
from tests.house_rules import REPO
from tests.small_run import SmallRun

BUDGET = {"pure": 1.0, "spark": 1.0, "total": 3.0}


def note(folder: Path, name: str, **seconds: float) -> None:
    (folder / f"{name}.json").write_text(json.dumps({key: {"seconds": s, "tests": 2} for key, s in seconds.items()}))


def test_the_runs_add_up_and_who_is_over_its_budget_is_told(tmp_path: Path) -> None:
    note(tmp_path, "1", pure=30.0)
    note(tmp_path, "2", pure=36.0, spark=60.0, airflow=6.0)
    lines, within = account(tmp_path, BUDGET, 179)
    assert within
    assert [line.split() for line in lines[1:]] == [
        ["pure", "4", "1.1", "1.0", "over"],
        ["spark", "2", "1.0", "1.0"],
        ["airflow", "2", "0.1", "0.0", "no", "budget"],
        ["by", "clock", "8", "3.0", "3.0"],
    ]


def test_the_clock_decides(tmp_path: Path) -> None:
    budget = tmp_path / "budget"
    budget.write_text(json.dumps(BUDGET))
    for seconds, code in (("180", 0), ("181", 1)):
        command = [sys.executable, "scripts/ci_account.py", str(tmp_path), str(budget), seconds]
        assert subprocess.run(command, cwd=REPO, check=False, capture_output=True).returncode == code


def test_each_group_of_tests_has_a_budget() -> None:
    budget = json.loads((REPO / ".ci/budget.json").read_text())
    assert set(budget) == {*GROUPS, "total"} - {"slow"}


@pytest.mark.e2e
def test_a_run_notes_its_tests_by_their_dearest_marker(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    run.write(
        "tests/test_some.py",
        """
        import time, pytest

        def test_pure(): time.sleep(0.2)

        @pytest.mark.spark
        @pytest.mark.e2e
        def test_story(): pass
        """,
    )
    assert run.pytest("--account", str(tmp_path / "noted.json")).returncode == 0
    noted = json.loads((tmp_path / "noted.json").read_text())
    assert {group: found["tests"] for group, found in noted.items()} == {"pure": 1, "e2e": 1}
    assert 0.2 <= noted["pure"]["seconds"] < 10
