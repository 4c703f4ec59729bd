"""Four cells of the crash matrix on real Spark; `make crash-matrix` runs all 36."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.matrix import Cell, CellRun

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.mark.parametrize(
    "cell", ["rocksdb:after-upload", "hashmap:before-slot", "rocksdb:before-commit", "hashmap:after-seed"]
)
def test_f137_f180_a_driver_on_spark_killed_there_loses_and_leaves_nothing(tmp_path: Path, cell: str):
    run = CellRun(Cell(*cell.split(":")), tmp_path, engine="spark", seed=7)
    try:
        assert "0 lost, 0 doubled" in run.run()
    finally:
        run.end()
