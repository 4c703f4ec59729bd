"""A stream's life on real Spark at 2, 3, 1 and 4 subtasks, records flowing: exact, each subtask with its range."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rescaling import PARALLELISMS, FlowingStream

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("backend", "savepoint"),
    [
        pytest.param("rocksdb", False, id="rocksdb-checkpoint"),
        pytest.param("hashmap", True, id="hashmap-savepoint", marks=pytest.mark.slow),
        pytest.param("hashmap", False, id="hashmap-checkpoint", marks=pytest.mark.slow),
        pytest.param("rocksdb", True, id="rocksdb-savepoint", marks=pytest.mark.slow),
    ],
)
def test_f154_f157_rescaled_on_spark_each_key_has_one_owner_and_the_output_is_exact(
    tmp_path: Path, backend: str, savepoint: bool
):
    life = FlowingStream(tmp_path, engine="spark", backend=backend, interval="1 s", pause_s=0.3)
    with life.flowing():
        for parallelism in PARALLELISMS[1:]:
            life.live()
            life.rescale(parallelism, savepoint=savepoint)
        life.live()
    life.assert_subtasks()
