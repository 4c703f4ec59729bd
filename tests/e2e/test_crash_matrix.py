"""Some cells of the crash matrix on the stand-in for Spark; what the matrix would say of a broken protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.graph_matrix import AT_LEAST_ONCE_CELLS, GRAPH_CELLS, GraphCell, GraphCellRun
from tests.crash.matrix import CELLS, Cell, CellRun, leftovers

pytestmark = [pytest.mark.e2e, pytest.mark.second_run]

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = (
    "rocksdb:after-barrier",
    "hashmap:after-sync",
    "rocksdb:before-upload",
    "hashmap:after-ack",
    "hashmap:after-prepare",
    "hashmap:after-slot",
    "rocksdb:after-notify",
    "rocksdb:before-seed",
)
"""The others run on Spark, in its tests and in `make crash-matrix`."""


def test_the_matrix_has_every_step_on_both_sides_and_both_backends():
    assert len(set(CELLS)) == 36
    assert {str(cell) for cell in CELLS} >= set(QUICK)


@pytest.mark.parametrize("cell", QUICK)
def test_f137_f180_a_driver_killed_there_loses_and_leaves_nothing(tmp_path: Path, cell: str):
    run = CellRun(Cell(*cell.split(":")), tmp_path, engine="stand-in", seed=7)
    try:
        said = run.run()
    finally:
        run.end()
    assert "0 lost, 0 doubled" in said
    for orphan in ("root/streams/numbers/shared/orphan", "out/_headgate/numbers/out/staged/orphan"):
        (tmp_path / orphan).touch()
    assert len(leftovers(run.stream)) == 2, "a file that nobody names would be seen"


GRAPH_QUICK = ("unaligned:after-slot", "timeout:before-prepare", "unaligned:after-upload", "aligned:after-seed")


def test_the_matrix_of_jobs_with_channels_has_every_step_in_each_way():
    assert len({str(cell) for cell in GRAPH_CELLS}) == 54
    assert {str(cell) for cell in GRAPH_CELLS} >= set(GRAPH_QUICK)
    assert {cell.backend for cell in GRAPH_CELLS} == {"hashmap", "rocksdb"}


@pytest.mark.parametrize("cell", [cell for cell in GRAPH_CELLS if str(cell) in GRAPH_QUICK], ids=str)
def test_f137_a_job_with_channels_killed_there_loses_and_leaves_nothing(tmp_path: Path, cell: GraphCell):
    run = GraphCellRun(cell, tmp_path, engine="stand-in", seed=7)
    try:
        assert run.run().count("0 lost, 0 doubled") == 2
    finally:
        run.end()


def test_a_job_with_channels_killed_at_least_once_loses_nothing_and_repeats(tmp_path: Path):
    (cell,) = (cell for cell in AT_LEAST_ONCE_CELLS if cell.point == "after-ack")
    run = GraphCellRun(cell, tmp_path, engine="stand-in", seed=7)
    try:
        told = run.run()
    finally:
        run.end()
    assert told.count(" 0 lost") == 2
    assert " 0 doubled" not in told


def test_at_least_once_not_everything_may_come_twice(tmp_path: Path):
    (cell,) = (cell for cell in AT_LEAST_ONCE_CELLS if cell.point == "after-slot")
    run = GraphCellRun(cell, tmp_path, engine="stand-in", seed=7, fault="stale-positions")
    try:
        with pytest.raises(AssertionError, match="came twice, which is of the left input"):
            run.run()
    finally:
        run.end()


def test_a_broken_protocol_fails_its_cell():
    command = [sys.executable, "scripts/crash_matrix.py", "--engine", "stand-in", "--cells", "rocksdb:after-slot"]
    ran = subprocess.run(
        [*command, "--break", "stale-positions"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    first, last = ran.stdout.splitlines()
    assert first.startswith("rocksdb:after-slot: FAILED in ")
    assert " doubled" in first
    assert last == "crash matrix: 1 cells, 0 passed, 1 failed"
