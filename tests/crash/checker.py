"""Checks an output against its input with pyarrow and numpy only: every id once, and 1..N for each key.

Shares no code with Headgate and reads what any Parquet reader sees. As a program: `checker.py INPUT OUTPUT`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds


@dataclass(frozen=True)
class Verdict:
    """What is wrong with an output."""

    records: int
    lost: int
    doubled: int
    foreign: int
    wrong_keys: int
    wrong_numbers: int
    first_doubled: int | None = None
    """The lowest id that came more than once."""

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.foreign or self.wrong_keys or self.wrong_numbers)

    def __str__(self) -> str:
        return (
            f"{self.records} records: {self.lost} lost, {self.doubled} doubled, {self.foreign} foreign, "
            f"{self.wrong_keys} with another key, {self.wrong_numbers} keys misnumbered"
        )


def check(given: Path, output: Path) -> Verdict:
    """Compare the visible output with the input."""
    truth = ds.dataset(given, format="parquet").to_table(columns=["id", "key"])
    ids, keys = truth["id"].to_numpy(), truth["key"].to_numpy()
    files = [str(path) for path in sorted(output.glob("*.parquet"))]
    if not files:
        return Verdict(len(ids), len(ids), 0, 0, 0, 0)
    seen = ds.dataset(files, format="parquet").to_table(columns=["id", "key", "number"])
    out_ids, out_keys, numbers = (seen[name].to_numpy() for name in ("id", "key", "number"))
    unique, counts = np.unique(out_ids, return_counts=True)
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids, out_ids, sorter=order), len(ids) - 1)
    known = ids[order][place] == out_ids
    return Verdict(
        records=len(ids),
        lost=len(np.setdiff1d(ids, unique, assume_unique=True)),
        doubled=int((counts - 1).sum()),
        foreign=int((~known).sum()),
        wrong_keys=int((keys[order][place][known] != out_keys[known]).sum()),
        wrong_numbers=_misnumbered(out_keys, numbers),
        first_doubled=int(unique[counts > 1].min()) if (counts > 1).any() else None,
    )


def _misnumbered(keys: np.ndarray, numbers: np.ndarray) -> int:
    """How many keys do not have exactly the numbers 1, 2, ... N."""
    order = np.lexsort((numbers, keys))
    keys, numbers = keys[order], numbers[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    lengths = np.diff(np.r_[starts, len(keys)])
    expected = np.arange(len(keys)) - np.repeat(starts, lengths) + 1
    return len(np.unique(keys[numbers != expected]))


if __name__ == "__main__":
    verdict = check(Path(sys.argv[1]), Path(sys.argv[2]))
    print(verdict)
    sys.exit(0 if verdict.ok else 1)
