"""A small checkout with our rules of a test run, to try them on tests that are written for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.house_rules import REPO

RULES = (
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/house_rules.py",
    "tests/account.py",
    "tests/spec/__init__.py",
    "tests/spec/breaking.py",
    "tests/spec/listing.py",
    "tests/spec/table.py",
)


class SmallRun:
    """A checkout of its own: our conftest and rules, one package to measure, and the tests that are written into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tests" / "spec").mkdir(parents=True)
        for name in RULES:
            (root / name).write_text((REPO / name).read_text())
        (root / "pyproject.toml").write_text(
            textwrap.dedent("""
                [tool.pytest.ini_options]
                pythonpath = ["."]
                addopts = ["--import-mode=importlib", "--strict-markers", "-p", "no:cacheprovider"]
                markers = ["spark: .", "airflow: .", "servers: .", "e2e: .", "slow: ."]
                [tool.coverage.run]
                branch = true
                source = ["package"]
                [tool.coverage.report]
                fail_under = 85
            """)
        )
        self.write("package/__init__.py", "")
        self.write("package/sample.py", 'def pick(yes):\n    if yes:\n        return "yes"\n    return "no"\n')

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def pytest(self, *arguments: str, ci: bool = True) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "pytest", *arguments, ci=ci)

    def python(self, *arguments: str, ci: bool = True) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"CI": "true" if ci else "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
