"""Counts what the tests of each group take; `.ci/run` compares it with `.ci/budget.json`."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.house_rules import IMPURE, cost

GROUPS = ("pure", *IMPURE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--account", metavar="FILE", help="write there what the tests of each group took, in seconds")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--account"):
        config.pluginmanager.register(Account(Path(config.getoption("--account"))), "headgate-account")


class Account:
    """By group (the dearest marker of a test counts): how many tests, and their seconds with set-up and tear-down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.groups: dict[str, str] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, int] = defaultdict(int)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.groups = {item.nodeid: GROUPS[cost(item)] for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = self.groups[report.nodeid]
        self.seconds[group] += report.duration
        self.tests[group] += report.when == "call"

    def pytest_sessionfinish(self) -> None:
        found = {group: {"seconds": self.seconds[group], "tests": self.tests[group]} for group in self.seconds}
        self.path.write_text(json.dumps(found))
