"""Whole drivers on real Spark: killed, left without a JVM, given a record that the job cannot take."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headgate_contract.heartbeats import StreamState
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.keeping_job import wrong
from tests.crash.truth import write_input
from tests.house_rules import REPO

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

RECORDS = 20_000
KEEPING = REPO / "tests" / "crash" / "keeping_job.py"


@pytest.fixture
def stream(tmp_path: Path):
    under_fire = StreamUnderFire(
        tmp_path / "a folder, 100% with spaces", settings={"execution.checkpointing.interval": "1 s"}
    )
    launched: list[Launched] = []
    yield under_fire, launched
    for one in launched:
        if Path(f"/proc/{one.process.pid}").exists():
            kill_group(one)


def deploy(under_fire: StreamUnderFire, parallelism: int) -> None:
    under_fire.settings = {**under_fire.settings, "parallelism.default": str(parallelism)}
    under_fire.deploy()


def wrong_states(under_fire: StreamUnderFire, parallelism: int) -> list[str]:
    """What of the newest snapshot's operator states is not as the input makes it."""
    (state,) = under_fire.newest_snapshot().vertices.values()
    truth = ds.dataset(under_fire.given, format="parquet").to_table()
    assert {name: len(held.parts) for name, held in state.operator_states.items()} == {
        "hundreds": parallelism,
        "records": parallelism,
        "counts": 1,
    }
    return wrong(state.operator_states, truth["id"].to_pylist(), truth["key"].to_pylist())


def test_f149_f156_a_killed_driver_and_one_whose_jvm_died_come_back_exactly_at_any_parallelism(stream):
    under_fire, launched = stream
    under_fire.job = KEEPING
    write_input(under_fire.given, seed=3, records=RECORDS, files=60, keys=900)
    deploy(under_fire, 2)
    first = under_fire.start()
    launched.append(first)
    under_fire.wait(first.generation, lambda beat: beat.progress.checkpoints > 0 and beat.progress.batches > 2)
    kill_group(first)

    deploy(under_fire, 3)
    second = under_fire.start()
    launched.append(second)
    under_fire.wait(second.generation, lambda beat: beat.progress.batches > 1)
    for child in psutil.Process(second.process.pid).children():
        if child.name() == "java":
            os.kill(child.pid, signal.SIGKILL)
    wait_gone(second.process.pid, timeout_s=60)
    beat = under_fire.beat(second.generation)
    assert beat is not None
    assert beat.state is StreamState.FAILED
    assert "Spark" in (beat.cause or ""), beat.cause

    under_fire.files_per_batch = 100
    deploy(under_fire, 1)
    third = under_fire.start()
    launched.append(third)
    under_fire.wait(third.generation, lambda beat: beat.progress.records >= RECORDS, timeout_s=120)
    under_fire.control().savepoint(under_fire.name, "before")
    assert wrong_states(under_fire, 1) == []
    under_fire.control().stop(under_fire.name, savepoint="last", drain=True)
    wait_gone(third.process.pid)
    verdict = check(under_fire.given, under_fire.output)
    keys = len(set(ds.dataset(under_fire.given, format="parquet").to_table()["key"].to_pylist()))
    assert replace(verdict, foreign=0).ok, str(verdict)
    assert verdict.foreign == keys, "of each key the drain has said one row more, with its next number"
    assert wrong_states(under_fire, 1) == ["hundreds"], "what the operators finished is in the last savepoint"


def test_a_record_without_a_key_fails_the_stream_by_name(stream):
    under_fire, launched = stream
    under_fire.given.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "key": pa.array([7, None], pa.int64())}), under_fire.given / "a.parquet")
    under_fire.settings = {"restart-strategy.type": "none"}
    under_fire.deploy()
    first = under_fire.start(wait=False)
    launched.append(first)
    deadline = time.monotonic() + 90
    while (beat := under_fire.beat(first.generation)) is None or beat.state is not StreamState.FAILED:
        assert time.monotonic() < deadline, beat
        time.sleep(0.1)
    assert "no value in the key column 'key'" in (beat.cause or "")
    assert not list(under_fire.output.glob("*.parquet"))
