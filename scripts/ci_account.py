"""Prints what a CI run took, group by group, beside its budget: `ci_account.py FOLDER BUDGET SECONDS`; 1 if it is over.

FOLDER has a file for each run of tests (`pytest --account`); SECONDS is the whole run by the clock. Runs beside each
other share two processors, so the groups add up to more than the clock. A group over its own budget is told; only the
total fails the run.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path


def account(folder: Path, budget: dict[str, float], seconds: float) -> tuple[list[str], bool]:
    """The lines to print, and whether the run is within its total."""
    taken: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for path in sorted(folder.glob("*.json")):
        for group, found in json.loads(path.read_text()).items():
            taken[group] += found["seconds"] / 60
            tests[group] += found["tests"]
    lines = [f"{'group':10} {'tests':>6} {'minutes':>8} {'budget':>7}"]
    for group in sorted({*taken, *budget} - {"total"}, key=lambda name: -taken[name]):
        limit = budget.get(group)
        over = "" if limit is not None and taken[group] <= limit else "  over" if limit is not None else "  no budget"
        lines.append(f"{group:10} {tests[group]:6} {taken[group]:8.1f} {limit or 0:7.1f}{over}")
    total, whole = budget["total"], seconds / 60
    lines.append(
        f"{'by clock':10} {sum(tests.values()):6} {whole:8.1f} {total:7.1f}{'  over' if whole > total else ''}"
    )
    return lines, whole <= total


def main(folder: str, budget: str, seconds: str) -> int:
    lines, within = account(Path(folder), json.loads(Path(budget).read_text()), float(seconds))
    print(*(f"account: {line}" for line in lines), sep="\n")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
