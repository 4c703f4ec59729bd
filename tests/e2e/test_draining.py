"""A driver that drains its stream is killed when the operators have finished, and before anybody can know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotKind
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, wait_gone
from tests.crash.matrix import leftovers
from tests.crash.truth import write_input
from tests.house_rules import REPO

pytestmark = pytest.mark.e2e

RECORDS = 2_000


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_f149_killed_between_the_finishing_and_the_slot_it_has_finished_nothing(tmp_path: Path, backend: str) -> None:
    stream = StreamUnderFire(
        tmp_path,
        engine="stand-in",
        backend=backend,
        settings={"execution.checkpointing.interval": "1 h"},
        job=REPO / "tests" / "crash" / "keeping_job.py",
    )
    write_input(stream.given, seed=5, records=RECORDS, files=10, keys=40)
    stream.deploy()
    first = stream.start_killed_at("after-finish")
    stream.wait(first.generation, lambda beat: beat.progress.records >= RECORDS)
    stream.control().checkpoint(stream.name)
    stream.control().stop(stream.name, savepoint="last", drain=True, wait=False)
    stream.wait_killed(first, "after-finish")
    assert check(stream.given, stream.output).ok, "what the operators had finished is nowhere to be seen"

    second = stream.start()
    assert isinstance(second.decision, RestoreFrom)
    assert second.decision.snapshot.kind is SnapshotKind.CHECKPOINT
    stream.control().stop(stream.name, savepoint="last", drain=True)
    wait_gone(second.process.pid)
    verdict = check(stream.given, stream.output)
    keys = set(ds.dataset(stream.given, format="parquet").to_table()["key"].to_pylist())
    assert replace(verdict, foreign=0).ok, str(verdict)
    assert verdict.foreign == len(keys), "a last row of each key, once"
    assert leftovers(stream) == []
