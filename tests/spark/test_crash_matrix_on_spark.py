"""Two cells of the crash matrix on real Spark, and one of that of jobs with channels; `make crash-matrix` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.graph_matrix import GRAPH_CELLS, GraphCellRun
from tests.crash.matrix import Cell, CellRun

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.mark.parametrize("cell", ["rocksdb:after-upload", "hashmap:after-seed"])
def test_f137_f180_a_driver_on_spark_killed_there_loses_and_leaves_nothing(tmp_path: Path, cell: str):
    run = CellRun(Cell(*cell.split(":")), tmp_path, engine="spark", seed=7)
    try:
        assert "0 lost, 0 doubled" in run.run()
    finally:
        run.end()


@pytest.mark.parametrize("wanted", ["unaligned:before-slot"])
def test_f137_a_job_with_channels_killed_there_loses_and_leaves_nothing(tmp_path: Path, wanted: str):
    (cell,) = (cell for cell in GRAPH_CELLS if str(cell) == wanted)
    run = GraphCellRun(cell, tmp_path, engine="spark", seed=7)
    try:
        assert run.run().count("0 lost, 0 doubled") == 2
    finally:
        run.end()
