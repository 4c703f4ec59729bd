"""`make test` runs every test but the slow ones, and each once."""

from __future__ import annotations

from itertools import chain, combinations

from _pytest.mark.expression import Expression

from scripts.all_tests import RUNS
from tests.house_rules import IMPURE


def test_each_test_is_in_one_run_and_no_slow_one_in_any() -> None:
    for marks in chain.from_iterable(combinations(IMPURE, size) for size in range(len(IMPURE) + 1)):
        runs = [
            name
            for name, (wanted, *_) in RUNS.items()
            if Expression.compile(wanted).evaluate(lambda mark, marks=marks, **_: mark in marks)
        ]
        assert len(runs) == (0 if "slow" in marks else 1), marks
