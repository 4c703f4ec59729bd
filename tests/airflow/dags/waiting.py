"""DAGs of the tests' own: sensors, and operators that go through a connection."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from headgate_airflow.operators.savepoint import Savepoint
from headgate_airflow.operators.start import StartStream
from headgate_airflow.sensors.checkpoint import CheckpointCompleted
from headgate_airflow.sensors.running import StreamRunning
from headgate_airflow.sensors.savepoint import SavepointCompleted

with DAG("wait_for_running", params={"generation": Param(None, type=["null", "integer"])}):
    StreamRunning(
        task_id="running",
        stream="counts",
        generation="{{ params.generation }}",
        poke_interval=0.1,
        timeout=120,
    )

with DAG("wait_for_savepoint", params={"newer_than": 0, "timeout": 20}):
    SavepointCompleted(
        task_id="savepoint", stream="counts", newer_than="{{ params.newer_than }}", poke_interval=0.1, timeout=120
    )

with DAG("wait_for_checkpoint", params={"as_of": ""}):
    CheckpointCompleted(
        task_id="checkpoint", stream="counts", as_of="{{ params.as_of }}", poke_interval=0.1, timeout=120
    )

with DAG("wait_in_vain"):
    SavepointCompleted(task_id="savepoint", stream="counts", newer_than=1000, poke_interval=0.1, timeout=0.5)
    SavepointCompleted(
        task_id="softly", stream="counts", newer_than=1000, poke_interval=0.1, timeout=0.5, soft_fail=True
    )

with DAG("through_a_connection"):
    StartStream(task_id="start", stream="counts", conn_id="somewhere") >> Savepoint.partial(
        task_id="savepoint", conn_id="somewhere", timeout=timedelta(minutes=1)
    ).expand(stream=["counts"])
