"""Lists the numbered behaviours with the tests that passed and cover them; `make spec` asks for it.

As a program it sums up several runs, each of which has noted its own: `python -m tests.spec.listing NOTES ...`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    parser.addoption("--spec-notes", metavar="FILE", help="note what is covered there, for a summary of several runs")


def pytest_configure(config: pytest.Config) -> None:
    if any(config.getoption(name) for name in ("--spec", "--spec-notes")):
        config.pluginmanager.register(Listing(config), "headgate-spec-listing")


def numbers_of(test: Callable[..., object]) -> tuple[int, ...]:
    """The numbers that a test carries in its name and in its docstring."""
    named = _IN_NAME.match(test.__name__)
    in_name = re.findall(r"\d+", named[1]) if named else []
    return tuple(sorted({int(number) for number in (*in_name, *_IN_DOCSTRING.findall(test.__doc__ or ""))}))


def _names(numbers: list[int]) -> str:
    return ", ".join(f"F{number}" for number in numbers)


@dataclass
class Covering:
    """Which tests with numbers passed."""

    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of each test, all of its parametrisations taken together."""
    passed: set[str] = field(default_factory=set)
    not_passed: set[str] = field(default_factory=set)

    def plus(self, other: Covering) -> Covering:
        return Covering(
            {**self.numbers, **other.numbers}, self.passed | other.passed, self.not_passed | other.not_passed
        )

    def by(self, number: int) -> list[str]:
        return sorted(test for test in self.passed - self.not_passed if number in self.numbers[test])

    def covered(self, table: Table) -> list[int]:
        return [number for number in table.behaviours if self.by(number)]

    def complaints(self, table: Table) -> list[str]:
        covered = self.covered(table)
        behaviours = table.behaviours.values()
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
            wrong += [f"{test}: there is no F{number}" for number in numbers if not table.knows(number)]
            if len(numbers) > MOST_NUMBERS:
                wrong.append(f"{test}: more than {MOST_NUMBERS} numbers")
        if len(covered) < FLOOR * len(behaviours):
            wrong.append(f"less than {FLOOR:.0%} is covered")
        return wrong

    def lines(self, table: Table, *, whole: bool) -> list[str]:
        """The listing. A summary leaves out what is covered."""
        covered = self.covered(table)
        shown = []
        for each in table.behaviours.values():
            if whole or each.number not in covered:
                shown.append(f"F{each.number:<4} {each.statement}")
            if each.number not in covered:
                shown.append(f"      not covered: {each.reason or 'no test that covers it passed'}")
            elif whole:
                shown += [f"      {test}" for test in self.by(each.number)]
        shown += [f"spec: {wrong}" for wrong in self.complaints(table)]
        return [*shown, f"spec: {len(covered)} of {len(table.behaviours)} covered"]

    def write(self, path: Path) -> None:
        noted = {"numbers": self.numbers, "passed": sorted(self.passed), "not_passed": sorted(self.not_passed)}
        path.write_text(json.dumps(noted))

    @classmethod
    def read(cls, path: Path) -> Covering:
        noted = json.loads(path.read_text())
        numbers = {test: tuple(numbers) for test, numbers in noted["numbers"].items()}
        return cls(numbers, set(noted["passed"]), set(noted["not_passed"]))


class Listing:
    """Notes which tests with numbers passed; judges at the end, or leaves that to who puts several runs together."""

    def __init__(self, config: pytest.Config) -> None:
        self.whole: bool = config.getoption("--spec")
        self.notes: str | None = config.getoption("--spec-notes")
        self.table = read_table(PAGE)
        self.covering = Covering()
        self.items: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            numbers = numbers_of(item.function) if isinstance(item, pytest.Function) else ()
            if numbers:
                test = item.nodeid.partition("[")[0]
                self.items[item.nodeid] = test
                self.covering.numbers[test] = numbers
        if self.whole:
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.items])
            items[:] = [item for item in items if item.nodeid in self.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self.items:
            return
        if not report.passed or hasattr(report, "wasxfail"):
            self.covering.not_passed.add(self.items[report.nodeid])
        elif report.when == "call":
            self.covering.passed.add(self.items[report.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.notes:
            self.covering.write(Path(self.notes))
        elif exitstatus == pytest.ExitCode.OK and self.covering.complaints(self.table):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Behind everything else that a run prints, so that the count is the last line."""
        if not config.getoption("collectonly") and not self.notes:
            writer = config.get_terminal_writer()
            for line in self.covering.lines(self.table, whole=True):
                writer.line(line)


def summary(notes: Sequence[Path]) -> int:
    """What several runs cover together; 1 if that will not do."""
    table, covering = read_table(PAGE), Covering()
    for path in notes:
        covering = covering.plus(Covering.read(path))
    print(*covering.lines(table, whole=False), sep="\n")
    return 1 if covering.complaints(table) else 0


if __name__ == "__main__":
    sys.exit(summary([Path(name) for name in sys.argv[1:]]))
