"""Lists the numbered behaviours with the tests of this run that passed and cover them; `make spec` asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spec.table import Table, read_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "behaviours.md"
MOST_NUMBERS = 3
FLOOR = 0.9

_IN_NAME = re.compile(r"^test((?:_f\d+)+)_")
_IN_DOCSTRING = re.compile(r"\bF(\d+)\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec", action="store_true", help="run the tests with numbers only, and list what they cover")
    parser.addoption("--spec-summary", action="store_true", help="say at the end which behaviours nothing covered")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--spec") or config.getoption("--spec-summary"):
        config.pluginmanager.register(Listing(config, read_table(PAGE)), "headgate-spec-listing")


def numbers_of(test: Callable[..., object]) -> tuple[int, ...]:
    """The numbers that a test carries in its name and in its docstring."""
    named = _IN_NAME.match(test.__name__)
    in_name = re.findall(r"\d+", named[1]) if named else []
    return tuple(sorted({int(number) for number in (*in_name, *_IN_DOCSTRING.findall(test.__doc__ or ""))}))


def _names(numbers: list[int]) -> str:
    return ", ".join(f"F{number}" for number in numbers)


class Listing:
    """Notes which tests with numbers passed; judges at the end."""

    def __init__(self, config: pytest.Config, table: Table) -> None:
        self.config = config
        self.whole = config.getoption("--spec")
        self.table = table
        self.numbers: dict[str, tuple[int, ...]] = {}
        """Of each test, all of its parametrisations taken together."""
        self.items: dict[str, str] = {}
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            numbers = numbers_of(item.function) if isinstance(item, pytest.Function) else ()
            if numbers:
                test = item.nodeid.partition("[")[0]
                self.items[item.nodeid] = test
                self.numbers[test] = numbers
        if self.whole:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.items])
            items[:] = [item for item in items if item.nodeid in self.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self.items:
            return
        if not report.passed or hasattr(report, "wasxfail"):
            self.not_passed.add(self.items[report.nodeid])
        elif report.when == "call":
            self.passed.add(self.items[report.nodeid])

    def covering(self, number: int) -> list[str]:
        return sorted(test for test in self.passed - self.not_passed if number in self.numbers[test])

    def covered(self) -> list[int]:
        return [number for number in self.table.behaviours if self.covering(number)]

    def complaints(self) -> list[str]:
        covered = self.covered()
        behaviours = self.table.behaviours.values()
        bare = [each.number for each in behaviours if each.number not in covered and not each.may_wait]
        stale = [each.number for each in behaviours if each.number in covered and each.reason]
        wrong = []
        if bare:
            wrong.append(
                f"{_names(bare)}: covered by no test that passed, and docs/behaviours.md has no reason that holds"
            )
        if stale:
            wrong.append(f"{_names(stale)}: covered, and docs/behaviours.md still says why not")
        for test, numbers in sorted(self.numbers.items()):
            wrong += [f"{test}: there is no F{number}" for number in numbers if not self.table.knows(number)]
            if len(numbers) > MOST_NUMBERS:
                wrong.append(f"{test}: more than {MOST_NUMBERS} numbers")
        if len(covered) < FLOOR * len(behaviours):
            wrong.append(f"less than {FLOOR:.0%} is covered")
        return wrong

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.complaints():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self) -> list[str]:
        """The listing. A summary leaves out what is covered."""
        covered = self.covered()
        shown = []
        for each in self.table.behaviours.values():
            if self.whole or each.number not in covered:
                shown.append(f"F{each.number:<4} {each.statement}")
            if each.number not in covered:
                shown.append(f"      not covered: {each.reason or 'no test that covers it passed'}")
            elif self.whole:
                shown += [f"      {test}" for test in self.covering(each.number)]
        shown += [f"spec: {wrong}" for wrong in self.complaints()]
        return [*shown, f"spec: {len(covered)} of {len(self.table.behaviours)} covered"]

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Behind everything else that a run prints, so that the count is the last line."""
        if not config.getoption("collectonly"):
            writer = config.get_terminal_writer()
            for line in self.lines():
                writer.line(line)
