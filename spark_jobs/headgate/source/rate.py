"""Numbered records at a steady rate: (timestamp, value), for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.source.base import Source
from headgate_contract.errors import JobInvalid


@dataclass(frozen=True)
class RateSource(Source):
    """Made by `rate`."""

    kind: ClassVar[str] = "rate"
    rows_per_second: int
    rows_per_batch: int | None

    @property
    def guarantee(self) -> str:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "rows_per_second": self.rows_per_second, "rows_per_batch": self.rows_per_batch}


def rate(rows_per_second: int = 10, *, rows_per_batch: int | None = None) -> RateSource:
    """Make records with columns `timestamp` and `value` (0, 1, 2, ...).

    With `rows_per_batch` each micro-batch has exactly so many, as fast as they are taken.
    """
    for name, number in (("rows_per_second", rows_per_second), ("rows_per_batch", rows_per_batch)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise JobInvalid(f"rate: {name} is {number!r}, it must be 1 or more")
    return RateSource(rows_per_second, rows_per_batch)
