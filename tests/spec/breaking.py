"""Reverses behaviours one after the other and requires that a test of each notices; `make spec-break` asks for it.

The tests of a number run first as things are, then with its switch on; pure ones only. At least one of them must fail
by an assertion of its own: an error on the way there shows nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from tests.spec.listing import numbers_of

if TYPE_CHECKING:
    from tests.spec.reversals import Reversal

TESTS = Path(__file__).resolve().parents[1]
HARNESS = TESTS.parent / "spark_jobs" / "headgate" / "testing"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-break", metavar="NUMBERS", help="reverse these behaviours (44,162), or all that can be")


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--spec-break")
    if wanted:
        from tests.spec.reversals import REVERSALS

        numbers = sorted(REVERSALS) if wanted == "all" else [int(number) for number in wanted.split(",")]
        config.pluginmanager.register(Breaking([REVERSALS[number] for number in numbers]), "headgate-spec-break")


@dataclass(frozen=True)
class Trial:
    """One run of one test."""

    seconds: float
    failure: str = ""
    """The test and its errors, if it failed."""
    asserted: bool = False
    """It failed by an assertion."""


class Breaking:
    """Takes over the run of a pytest session: each reversal's tests, sound and reversed."""

    def __init__(self, reversals: Sequence[Reversal]) -> None:
        self.reversals = reversals
        self.noticed = 0
        self._words = [word for each in reversals for word in (f"_f{each.number}_", f"F{each.number}")]
        self._sound: dict[str, Trial] = {}
        self._raised: dict[str, pytest.ExceptionInfo[BaseException]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Nothing is imported where no test can carry one of the numbers."""
        if collection_path.suffix != ".py":
            return None
        text = collection_path.read_text()
        return None if any(word in text for word in self._words) else True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        writer = session.config.get_terminal_writer()
        tests = [item for item in session.items if isinstance(item, pytest.Function)]
        for reversal in self.reversals:
            items = [item for item in tests if reversal.number in numbers_of(item.function)]
            said = self.judge(reversal, items)
            self.noticed += not said
            writer.line(f"F{reversal.number:<4} {reversal.does}: {said or 'noticed'}")
        return True

    def judge(self, reversal: Reversal, items: Sequence[pytest.Function]) -> str:
        """What is wrong with the tests of this behaviour; nothing, if one of them notices."""
        if not items:
            return "NO PURE TEST"
        sound = [self.sound(item) for item in items]
        failures = [trial.failure for trial in sound if trial.failure]
        if failures:
            return f"FAILS WITHOUT IT: {failures[0]}"
        with pytest.MonkeyPatch.context() as patch:
            try:
                reversal.switch(patch)
            except (AttributeError, ImportError) as error:
                return f"THE SWITCH DOES NOT FIT: {error}"
            return self.reversed(sorted(items, key=lambda item: self.sound(item).seconds))

    def sound(self, item: pytest.Function) -> Trial:
        if item.nodeid not in self._sound:
            self._sound[item.nodeid] = self.run(item)
        return self._sound[item.nodeid]

    def reversed(self, items: Sequence[pytest.Function]) -> str:
        """Nothing as soon as one test notices: the quick ones are asked first."""
        broken = ""
        for item in items:
            trial = self.run(item)
            if trial.asserted:
                return ""
            broken = broken or trial.failure
        return f"FAILS, BUT NOT BY AN ASSERTION: {broken}" if broken else "NOT NOTICED"

    def run(self, item: pytest.Function) -> Trial:
        self._raised.clear()
        began = time.monotonic()
        reports = runtestprotocol(item, log=False, nextitem=None)
        seconds = time.monotonic() - began
        if not any(report.failed for report in reports):
            return Trial(seconds)
        raised = self._raised.get("call")
        asserted = raised is not None and len(self._raised) == 1 and _is_assertion(raised)
        errors = "; ".join(each.exconly(tryshort=True) for each in self._raised.values())
        return Trial(seconds, f"{item.nodeid}: {errors}", asserted)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[object]:
        if call.excinfo is not None:
            self._raised[call.when] = call.excinfo
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.noticed < len(self.reversals):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        line = f"spec-break: {self.noticed} of {len(self.reversals)} reversals fail their tests"
        config.get_terminal_writer().line(line, flush=True)
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()  # it would give back what the next line takes away
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # threads that a reversal left behind have no say behind that


def _is_assertion(raised: pytest.ExceptionInfo[BaseException]) -> bool:
    """An assertion of a test, its world or the public harness; or an error that a test waited for and did not get."""
    if isinstance(raised.value, pytest.fail.Exception):
        return "DID NOT RAISE" in str(raised.value)
    place = Path(str(raised.traceback[-1].path))
    return isinstance(raised.value, AssertionError) and any(place.is_relative_to(folder) for folder in (TESTS, HARNESS))
