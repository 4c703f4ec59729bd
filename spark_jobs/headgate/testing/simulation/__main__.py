"""Simulates many seeds: `python -m headgate.testing.simulation --seeds 2000`. Exits with 1 if a law was broken.

It also does so if the seeds are many and a kind of fault was rare among them, or a legal step never taken.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence

from headgate.testing.simulation.breaks import BREAKS
from headgate.testing.simulation.many import be_quiet, simulate, simulate_some
from headgate.testing.simulation.report import Report
from headgate.testing.simulation.tally import Tally
from headgate.testing.simulation.trace import Trace

_CHUNK = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell what was simulated, and the first violations."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every turn")
    parser.add_argument("--break", dest="fault", choices=("", *BREAKS), default="", help="plant a fault")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    if wanted.seed is not None:
        return _one(wanted.seed, wanted.fault, wanted.trace)
    return _many(range(wanted.first, wanted.first + wanted.seeds), wanted.fault, wanted.workers)


def _one(seed: int, fault: str, all_turns: bool) -> int:
    be_quiet()
    trace = Trace(last=None) if all_turns else Trace()
    try:
        report = simulate(seed, fault, trace)
    finally:
        logging.disable(logging.NOTSET)
    if all_turns:
        print("\n".join(trace.lines()))
        print(f"seed {seed}: {report.broken or 'no law was broken'}, {report.turns} events")
    else:
        _tell(report)
    return 1 if report.broken else 0


def _many(seeds: range, fault: str, workers: int) -> int:
    tally = Tally()
    for report in _reports(seeds, fault, workers):
        tally.add(report)
        if report.broken is not None:
            _tell(report)
            if fault:
                break
    for line in tally.lines():
        print(line)
    missing = [] if fault else tally.missing()
    for line in missing:
        print(f"too rare: {line}")
    print(tally.summary())
    return 1 if tally.violations or missing else 0


def _reports(seeds: range, fault: str, workers: int) -> Iterator[Report]:
    chunks = [(first, min(first + _CHUNK, seeds.stop), fault) for first in seeds[::_CHUNK]]
    with multiprocessing.get_context("spawn").Pool(workers, be_quiet) as pool:
        for reports in pool.imap(simulate_some, chunks):
            yield from reports


def _tell(report: Report) -> None:
    if report.trace:
        print("\n".join(report.trace))
    print(f"seed {report.seed}: {report.broken or 'no law was broken'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
