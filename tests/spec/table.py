"""Reads docs/behaviours.md: each behaviour's number, its statement, and why no test covers it, if none does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_ROW = re.compile(r"^\| F(?P<number>\d+) \| (?P<statement>[^|]+) \|(?P<reason>[^|]*)\|$", re.MULTILINE)
_RANGE = re.compile(r"\bF(\d+)(?:-F(\d+))?\b")
BEYOND = "\n## Numbers beyond these tables\n"
OPEN = "open"


@dataclass(frozen=True)
class Behaviour:
    number: int
    statement: str
    reason: str
    """Why no test covers it; empty if one does, or must."""

    @property
    def may_wait(self) -> bool:
        """A reason that holds stands beside it."""
        return self.reason not in ("", OPEN)


@dataclass(frozen=True)
class Table:
    behaviours: Mapping[int, Behaviour]
    beyond: frozenset[int]
    """Numbers that tests may carry and that are not counted."""

    def knows(self, number: int) -> bool:
        return number in self.behaviours or number in self.beyond


def read_table(page: Path) -> Table:
    tables, _, beyond = page.read_text().partition(BEYOND)
    rows = [
        Behaviour(int(row["number"]), row["statement"].strip(), row["reason"].strip()) for row in _ROW.finditer(tables)
    ]
    behaviours = {row.number: row for row in rows}
    if len(behaviours) != len(rows):
        raise AssertionError(f"{page} has a number twice")
    ranges = [(int(first), int(last or first)) for first, last in _RANGE.findall(beyond)]
    return Table(behaviours, frozenset(number for first, last in ranges for number in range(first, last + 1)))
