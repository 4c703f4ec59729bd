"""A Python worker of real Spark: what a step leaves behind in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.spark

TASKS = """
import gc, json, os, sys
from pathlib import Path
import pyarrow as pa
from headgate.spark.chain import run_step
from headgate.spark.session import start_session
from headgate.step.operators import StepClock
from headgate.step.task import BatchIdentity, StepTask
from headgate_contract.settings import Settings

session = start_session("worker", Settings({"spark.master": "local[1]"}), Path(sys.argv[1]), lasting=False)

def look(batches):
    import gc, os
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "spared": [gc.get_freeze_count()]})

def seen():
    (row,) = session.range(1).mapInArrow(look, "worker bigint, spared bigint").collect()
    return list(row)

found = [seen()]
for epoch in (1, 2):
    identity = BatchIdentity(stream="s", generation=1, restart=0, epoch=epoch, attempt=epoch)
    run_step(session.range(1), StepTask(identity=identity, keyed=None, sinks=(), clock=StepClock(now_ms=0, seed=1)))
    found.append(seen())
print("FOUND " + json.dumps(found), flush=True)
session.stop()
"""


def test_the_garbage_collector_of_a_worker_is_spared_what_its_first_step_imported(tmp_path: Path) -> None:
    """Spark collects after each task: what is spared once need not be gone through again, and is not added to."""
    done = subprocess.run(
        [sys.executable, "-c", TASKS, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{REPO / 'plugins'}{os.pathsep}{REPO / 'spark_jobs'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, done.stderr[-3000:]
    before, first, second = json.loads(line.removeprefix("FOUND "))
    assert len({worker for worker, _ in (before, first, second)}) == 1, "it is one worker"
    assert before[1] == 0
    assert first[1] > 10_000
    assert second[1] == first[1], "a second step does not keep what it makes"
