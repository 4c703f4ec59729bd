"""A job whose functions use a module beside the job file: on the driver and in Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.spark

JOB = """
import pyarrow as pa
from pyspark.sql import functions as F
import headgate
import my_neighbour

def doubled(df):
    double = F.udf(lambda number: my_neighbour.double(number), "bigint")
    return df.select("k", double("x").alias("x"))

def tripled(rows, keyed):
    return pa.table({"k": rows["k"], "x": [my_neighbour.triple(x) for x in rows["x"].to_pylist()]})

job = headgate.Job("neighbours")
rows = job.source("rows", headgate.sources.files("in", format="json", schema="k BIGINT, x BIGINT"))
rows = rows.transform(doubled).key_by("k")
output, state = pa.schema({"k": pa.int64(), "x": pa.int64()}), {"s": pa.schema({"n": pa.int64()})}
rows.process("all", tripled, output=output, state=state).sink("out", headgate.sinks.console(9))
"""
STEPS = """
import sys
from pathlib import Path
from headgate.job.loading import load_job
from headgate.job.tasks import graph_plan
from headgate.spark.chain import add_key, apply_transforms, run_step
from headgate.spark.engine import _ship_job_by_value
from headgate.spark.session import start_session
from headgate.step.operators import StepClock
from headgate.step.task import BatchIdentity, KeyedStage, SinkStage, StepTask
from headgate_contract.settings import Settings

job, _ = load_job(Path(sys.argv[1]))
plan, work = graph_plan(job), Path(sys.argv[2])
_ship_job_by_value()
session = start_session("neighbours", Settings({"spark.master": "local[1]"}), work / "spark", lasting=False)
(work / "state" / "0").mkdir(parents=True)
(task,), sink = plan.tasks, plan.sinks[0].vertex
(way,) = task.inputs
frame = apply_transforms(way.transforms, session.sql("SELECT 1 AS k, 7 AS x"))
frame, operator = add_key(task.port(way), frame, 1, 16), task.operator
keyed = KeyedStage(
    uid=task.uid, operator=operator, keys=("k",), parallelism=1, max_parallelism=16, backend="hashmap",
    directory=str(work / "state"), parents=(None,),
)
task = StepTask(
    identity=BatchIdentity(stream="neighbours", generation=1, restart=0, epoch=1, attempt=1), keyed=keyed,
    sinks=(SinkStage(uid=sink.uid, sink=sink.sink),), clock=StepClock(now_ms=0, seed=0),
)
(ack,) = run_step(frame, task)
print(ack.encode())
session.stop()
"""


def test_workers_find_the_neighbours_of_the_job_file(tmp_path: Path) -> None:
    folder = tmp_path / "my jobs"
    folder.mkdir()
    (folder / "my_neighbour.py").write_text("def double(x):\n    return 2 * x\n\ndef triple(x):\n    return 3 * x\n")
    for name in ("queue", "socket"):  # the daemon of Spark's workers imports the one, and what it imports the other
        (folder / f"{name}.py").write_text(f"raise ImportError('not the {name} that Python and Spark mean')\n")
    (folder / "my_job.py").write_text(JOB)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(REPO / package) for package in ("plugins", "spark_jobs")),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", STEPS, str(folder / "my_job.py"), str(tmp_path / "work")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "42" in done.stdout, done.stdout
