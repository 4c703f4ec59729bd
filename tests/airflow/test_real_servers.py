"""The whole chain through Airflow's own processes: a driver is killed, and comes back without anybody's doing."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headgate_control import Condition
from scripts.airflow_local import LocalAirflow
from tests.airflow.small_fleet import ENGINE, SmallFleet, is_alive, wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.e2e, pytest.mark.timeout(900)]

WAITS = """
import os, pathlib, time

while "--generation" in open("/proc/self/cmdline").read() and not pathlib.Path("go").exists():
    time.sleep(0.1)
"""


class World:
    """A real Airflow, and the fleet that it looks after."""

    def __init__(self, fleet: SmallFleet, airflow: LocalAirflow) -> None:
        self.fleet = fleet
        self.airflow = airflow

    def restored(self, stream: str) -> list[dict[str, Any]]:
        """The successful runs of the restore DAG that launched `stream`."""
        runs = [run for run in self.airflow.runs("headgate_restore") if run["state"] == "success"]
        launched = {
            run["dag_run_id"]: self.airflow.returned("headgate_restore", run["dag_run_id"], "recover") for run in runs
        }
        return [run for run in runs if any(entry["stream"] == stream for entry in launched[run["dag_run_id"]])]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("real")
    environment = {
        **ENGINE,
        "HEADGATE_WORK": str(folder / "work"),
        "HEADGATE_STREAMS_FILE": str(folder / "fleet/streams.yaml"),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        fleet = SmallFleet(folder / "fleet", ["counts", "slow"])
        slow = fleet.folder / "slow.py"
        slow.write_text(slow.read_text() + WAITS)
        airflow = LocalAirflow(folder / "airflow", environment=environment)
        try:
            with airflow.running():
                yield World(fleet, airflow)
        finally:
            fleet.close()


def test_a_lost_stream_raises_the_asset_starts_the_restore_dag_and_runs_again(world: World) -> None:
    fleet, airflow = world.fleet, world.airflow
    airflow.wait_run("headgate_start", airflow.trigger_dag("headgate_start", {"stream": "counts"}))
    first = fleet.process("counts")
    assert os.getsid(first.pid) == first.pid, "a driver has a session of its own, which outlives whoever launched it"
    assert first.pid not in {process.pid for leader in airflow.leaders for process in leader.session()}
    fleet.control.savepoint("counts", "before-the-crash")

    fleet.kill("counts")
    wait_until(lambda: bool(world.restored("counts")), "a run of headgate_restore", timeout_s=300)

    status = fleet.control.status("counts")
    assert (status.condition, status.generation) == (Condition.RUNNING, 2)
    assert status.by is not None
    assert status.by.startswith("airflow headgate_restore/asset_triggered__")
    newest = fleet.catalogue("counts").newest_generation
    assert newest is not None
    assert newest.replaces == 1
    assert fleet.control.lost() == []


def test_a_savepoint_by_hand_reaches_the_asset(world: World) -> None:
    airflow = world.airflow
    run = airflow.trigger_dag("headgate_savepoint", {"stream": "counts", "name": "by-hand"})
    airflow.wait_run("headgate_savepoint", run)
    taken = airflow.returned("headgate_savepoint", run, "savepoint")
    [event] = [
        event
        for event in airflow.api("GET", "/assets/events?order_by=-timestamp")["asset_events"]
        if event["name"] == "headgate-savepoint-counts"
    ]
    assert event["extra"] == taken
    assert taken["name"] == "by-hand"


def test_marking_a_waiting_start_as_failed_asks_the_driver_to_stop_and_clearing_does_not(world: World) -> None:
    fleet, airflow = world.fleet, world.airflow
    run = airflow.trigger_dag("headgate_start", {"stream": "slow"})

    def told(attempt: int, what: str) -> bool:
        """Airflow ends only a trigger that has begun; the log tells it, the task's `triggerer_job` comes before it."""
        known = airflow.tasks("headgate_start", run)[0]["try_number"] >= attempt
        return known and re.search(what, airflow.task_log("headgate_start", run, "start", attempt)) is not None

    wait_until(lambda: told(1, r"trigger \S+ \(ID \d+\) starting"), "the start to be followed")
    airflow.api(
        "POST",
        "/dags/headgate_start/clearTaskInstances",
        {"dag_run_id": run, "task_ids": ["start"], "dry_run": False, "only_failed": False},
    )
    wait_until(lambda: told(1, "invoking on_kill"), "the clear to reach the trigger")
    wait_until(lambda: told(1, "trigger completed"), "the trigger to have made up its mind")
    wait_until(lambda: told(2, r"trigger \S+ \(ID \d+\) starting"), "the start to be followed again")
    assert fleet.control.status("slow").stop_wanted is None
    assert len(fleet.catalogue("slow").generations) == 1

    airflow.api("PATCH", f"/dags/headgate_start/dagRuns/{run}/taskInstances/start", {"new_state": "failed"})
    wait_until(lambda: fleet.control.status("slow").stop_wanted is not None, "the wish to stop")
    (fleet.folder / "go").touch()
    fleet.wait_for("slow", Condition.STOPPED)


def test_while_the_file_is_no_yaml_a_driver_that_dies_is_brought_back_and_the_mistake_is_shown(world: World) -> None:
    fleet, airflow = world.fleet, world.airflow
    generation = fleet.control.status("counts").generation
    assert generation is not None

    def complaints() -> str:
        return "\n".join(error["stack_trace"] for error in airflow.api("GET", "/importErrors")["import_errors"])

    good = fleet.file.read_text()
    fleet.file.write_text(good + "\n\t: [")
    wait_until(lambda: "is not YAML" in complaints(), "the import error", timeout_s=180)
    fleet.kill("counts")
    begun = time.monotonic()
    wait_until(lambda: fleet.control.status("counts").generation == generation + 1, "its recovery", timeout_s=180)
    fleet.wait_for("counts", Condition.RUNNING)
    print(f"recovered within {time.monotonic() - begun:.1f} s")
    fleet.file.write_text(good)
    wait_until(lambda: complaints() == "", "the import error to go", timeout_s=180)


def test_airflow_knows_the_plugin_and_has_no_complaint(world: World) -> None:
    airflow = world.airflow
    assert "headgate" in [plugin["name"] for plugin in airflow.api("GET", "/plugins")["plugins"]]
    assert airflow.api("GET", "/plugins/importErrors")["import_errors"] == []
    assert airflow.api("GET", "/importErrors")["import_errors"] == []
    assert "headgate" in [
        provider["package_name"].split("-")[0] for provider in airflow.api("GET", "/providers?limit=100")["providers"]
    ]


def test_a_stopped_airflow_leaves_its_drivers_at_work_and_nothing_else(world: World) -> None:
    airflow = world.airflow
    processes = [process for leader in airflow.leaders for process in leader.session()]
    assert len(processes) >= 4
    airflow.stop()
    assert [process for process in processes if is_alive(process)] == []
    assert world.fleet.control.status("counts").condition is Condition.RUNNING
