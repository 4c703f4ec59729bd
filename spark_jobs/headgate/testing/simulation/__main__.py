"""Simulates many seeds: `python -m headgate.testing.simulation --seeds 2000`. Exits with 1 if a law was broken."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence

from headgate.testing.simulation.breaks import BREAKS
from headgate.testing.simulation.many import be_quiet, simulate_some

_CHUNK = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell what was simulated, and the first violations."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--break", dest="fault", choices=("", *BREAKS), default="", help="plant a fault")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    events, faults, seen, broken = 0, Counter[str](), Counter[str](), []
    chunks = [
        (first, min(first + _CHUNK, wanted.first + wanted.seeds), wanted.fault)
        for first in range(wanted.first, wanted.first + wanted.seeds, _CHUNK)
    ]
    done = 0
    with multiprocessing.get_context("spawn").Pool(wanted.workers, be_quiet) as pool:
        for reports in pool.imap(simulate_some, chunks):
            for report in reports:
                done += 1
                events += report.turns
                faults.update(dict.fromkeys(report.faults, 1))
                seen.update(report.seen)
                if report.broken is not None:
                    broken.append(report)
                    print(f"seed {report.seed}: {report.broken}", flush=True)
            if broken and wanted.fault:
                break
    for name, count in sorted(faults.items()):
        print(f"{name}: in {count} seeds, {100 * count / done:.0f} %")
    for name, count in sorted(seen.items()):
        print(f"{name}: {count}")
    print(f"simulate: {done} seeds, {events} events, {len(broken)} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
