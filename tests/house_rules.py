"""The rules of a test run: pure tests first and measured, nothing skipped in CI."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

IMPURE = ("airflow", "spark", "servers", "e2e", "slow")  # in the order in which they run, after the pure ones
_MODULE_MARK = re.compile(r"^pytestmark = \[?pytest\.mark\.(\w+)", re.MULTILINE)
REPO = Path(__file__).resolve().parent.parent


def cost(item: pytest.Item) -> int:
    """0 for a pure test; the dearest marker counts."""
    return max((IMPURE.index(mark.name) + 1 for mark in item.iter_markers() if mark.name in IMPURE), default=0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pure-coverage",
        action="store_true",
        help="measure the branches that the pure tests cover, and fail below pyproject's fail_under",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NothingIsSkipped(), "headgate-nothing-is-skipped")
    if config.getoption("--pure-coverage"):
        config.pluginmanager.register(PureCoverage(), "headgate-pure-coverage")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the pure tests alone does not import modules that have none: Airflow and Spark take seconds."""
    wanted = config.option.markexpr or ""
    if collection_path.suffix != ".py" or not all(f"not {name}" in wanted for name in IMPURE):
        return None
    marked = _MODULE_MARK.search(collection_path.read_text())
    return True if marked and marked[1] in IMPURE else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=cost)


def pytest_collection_finish() -> None:
    """What the modules brought along stays to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


class NothingIsSkipped:
    """In CI a test that did not run is a test that failed: skips and expected failures end the run with exit code 1."""

    def __init__(self) -> None:
        self.not_run: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self.not_run.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.not_run.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.not_run and os.environ.get("CI") == "true" and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.not_run and os.environ.get("CI") == "true":
            terminalreporter.section("skipped or expected to fail: not allowed in CI", red=True)
            for nodeid in self.not_run:
                terminalreporter.line(nodeid)


WHOLE = (
    "tests/runtime/driver/",
    "tests/runtime/simulation/test_simulation.py::test_a_planted_fault_is_found_and_its_last_turns_are_told",
)
"""Pure tests of whole lives, whose own package does not count, or of wrong ones. Measured they take twice as long."""


class PureCoverage:
    """Measures what the pure tests of single parts cover; others neither count nor are slowed."""

    def __init__(self) -> None:
        self.measured = coverage.Coverage(config_file=str(REPO / "pyproject.toml"), data_file=None)
        self.running = True
        self.report = ""
        self.too_low = False
        self.measured.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if cost(item) or item.nodeid.startswith(WHOLE):
            self.stop()
        elif not self.running:
            self.measured.start()
            self.running = True
        return (yield)

    def stop(self) -> None:
        if self.running:
            self.measured.stop()
            self.running = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.stop()
        page = io.StringIO()
        self.measured.report(file=page)
        with tempfile.TemporaryDirectory() as folder:
            self.measured.json_report(outfile=f"{folder}/coverage.json")
            totals = json.loads(Path(folder, "coverage.json").read_text())["totals"]
        branches = totals["percent_branches_covered"]
        floor = self.measured.get_option("report:fail_under")
        self.too_low = branches < floor
        verdict = f"the pure tests cover {branches:.1f} % of the branches (asked for: {floor} %)"
        self.report = f"{page.getvalue()}\n{'too low: ' if self.too_low else ''}{verdict}"
        if self.too_low and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("branches covered by the pure tests", red=self.too_low)
        terminalreporter.write(self.report + "\n")
