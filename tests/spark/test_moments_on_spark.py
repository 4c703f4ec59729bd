"""Moments on real Spark: a key and a value of type TIMESTAMP, under sessions of different time zones."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules import REPO

pytestmark = pytest.mark.spark

STEPS = """
import json, os, sys
from pathlib import Path
import headgate
from headgate.job.tasks import graph_plan
from headgate.spark.chain import add_key, add_time, check_schema, run_step
from headgate.spark.session import start_session
from headgate.step.operators import StepClock
from headgate.step.task import BatchIdentity, KeyedStage, SinkStage, StepTask
from headgate_contract.settings import Settings

work = Path(sys.argv[1])
job = headgate.Job("moments")
rows = job.source("rows", headgate.sources.files("in", format="json", schema="at TIMESTAMP, seen TIMESTAMP"))
keyed = rows.with_watermark("seen", "5 s").key_by("at")
keyed.aggregate("last", seen=headgate.max("seen")).sink("out", headgate.sinks.console(9))
plan = graph_plan(job)
((port, time),) = ((task.port(task.inputs[0]), task.inputs[0].time) for task in plan.tasks)
session = start_session("moments", Settings({"spark.master": "local[1]"}), work / "spark", lasting=False)
(work / "state" / "0").mkdir(parents=True)
parent, shown, latest = None, [], []
for epoch, (zone, seen) in enumerate([("Asia/Tokyo", 12), ("UTC", 14), ("America/New_York", 13)], start=1):
    session.conf.set("spark.sql.session.timeZone", zone)
    frame = session.sql(
        f"SELECT TIMESTAMP '2026-01-01 00:00:00Z' AS at, TIMESTAMP '2026-01-01 {seen}:00:00Z' AS seen"
    )
    check_schema(port, frame)
    task = StepTask(
        identity=BatchIdentity(stream="moments", generation=1, restart=0, epoch=epoch, attempt=epoch),
        keyed=KeyedStage(
            uid="last", operator=port.operator, keys=port.keys, parallelism=1, max_parallelism=16,
            backend="hashmap", directory=str(work / "state"), parents=(parent,),
        ),
        sinks=tuple(SinkStage(uid=end.vertex.uid, sink=end.vertex.sink) for end in plan.sinks),
        clock=StepClock(now_ms=0, seed=1),
        time=time,
    )
    (ack,) = run_step(add_key(port, add_time(time, frame), 1, 16), task)
    latest.append(ack.latest_ms)
    parent = ack.version
    shown.append(ack.sinks["out"][0]["preview"])
print("SHOWN " + json.dumps([shown, latest]), flush=True)
session.stop()
"""


def test_a_moment_is_one_key_and_one_value_whatever_the_sessions_time_zone_is(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'plugins'}{os.pathsep}{REPO / 'spark_jobs'}"}
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown, latest = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("SHOWN "))[6:])
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert shown == [[[str(at), str(at + dt.timedelta(hours=hours))]] for hours in (12, 14, 14)]
    assert latest == [(at + dt.timedelta(hours=hours)).timestamp() * 1000 for hours in (12, 14, 13)]
