"""Kills a driver before and after each step of the protocol, on each backend, and checks every record of its output."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "plugins")]

from headgate_contract.errors import HeadgateError  # noqa: E402
from scripts.kept_cells import KeptCells  # noqa: E402
from tests.crash.graph_matrix import AT_LEAST_ONCE, AT_LEAST_ONCE_CELLS, GRAPH_CELLS, GraphCell, GraphCellRun  # noqa: E402
from tests.crash.matrix import CELLS, Cell, CellRun  # noqa: E402

GRAPHS: dict[str, tuple[Cell, ...]] = {"": CELLS, "1": GRAPH_CELLS, AT_LEAST_ONCE: AT_LEAST_ONCE_CELLS}

_LONGEST_S = 900.0
"""Until the next cell has ended, at the latest."""


def main() -> int:
    arguments = _arguments()
    known = GRAPHS[arguments.graph]
    cells = [cell for cell in known if any(fnmatchcase(str(cell), wanted) for wanted in arguments.cells.split(","))]
    if not cells:
        print(f"no cell is named {arguments.cells}; there are: {', '.join(map(str, known))}")
        return 2
    _end_in_order()
    kept = KeptCells(REPOSITORY, "crash-matrix", arguments.graph, arguments.engine, arguments.seed)
    before = {} if arguments.fault or arguments.anew else kept.lines()
    for cell in map(str, cells):
        if cell in before:
            print(f"{cell}: kept from an earlier run on this commit: {before[cell]}", flush=True)
    left = [cell for cell in cells if str(cell) not in before]
    passed = len(cells) - len(left)
    with multiprocessing.get_context("spawn").Pool(arguments.workers, _be_a_worker) as pool:
        found = pool.imap_unordered(partial(_run, arguments=arguments), left)
        for _ in left:
            cell, said, ok = found.next(_LONGEST_S)  # a worker that was killed from outside says nothing
            passed += ok
            if ok and not arguments.fault:
                kept.keep(cell, said)
    print(f"crash matrix: {len(cells)} cells, {passed} passed, {len(cells) - passed} failed")
    return 0 if passed == len(cells) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses at which checkpoint each cell's kill comes")
    parser.add_argument(
        "--cells", default="*", help="some cells only: rocksdb:before-slot, *:after-*, several by comma"
    )
    parser.add_argument(
        "--graph",
        choices=GRAPHS,
        default="",
        help="1: a job with channels: aligned:*, unaligned:*, timeout:*; at-least-once: likewise",
    )
    parser.add_argument("--workers", type=int, default=1, help="how many cells at once")
    parser.add_argument("--engine", choices=("spark", "stand-in"), default="spark")
    parser.add_argument("--break", dest="fault", default="", help="plant a fault: cells must then fail")
    parser.add_argument("--anew", action="store_true", help="run the cells, too, that have passed on this commit")
    parser.add_argument("--keep", action="store_true", help="leave the files of the cells that failed")
    return parser.parse_args()


def _be_a_worker() -> None:
    """Ctrl-C reaches everybody: the main process hears it, and ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_in_order()


def _end_in_order() -> None:
    """SIGTERM leaves no driver behind."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _run(cell: Cell, arguments: argparse.Namespace) -> tuple[str, str, bool]:
    """The cell's name, what is to be said of it, and whether it has passed."""
    base = Path(tempfile.mkdtemp(prefix=f"headgate-cell-{cell.backend}-{cell.point}-"))
    run_of = GraphCellRun if isinstance(cell, GraphCell) else CellRun
    run = run_of(cell, base, engine=arguments.engine, seed=arguments.seed, fault=arguments.fault)
    began, ok = time.monotonic(), False
    try:
        said, ok = run.run(), True
    except (AssertionError, HeadgateError) as error:
        said = str(error)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # one that comes meanwhile does not break it off
        try:
            run.end()
        except AssertionError as error:
            said, ok = str(error), False
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    told = f"{'ok' if ok else 'FAILED'} in {time.monotonic() - began:.0f} s: {said}"
    print(f"{cell}: {told}", flush=True)
    if ok or not arguments.keep:
        shutil.rmtree(base, ignore_errors=True)
    else:
        print(f"  its files: {base}")
    return str(cell), told, ok


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    sys.exit(main())
