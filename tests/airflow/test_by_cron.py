"""The savepoint DAG of a stream: what a schedule takes is marked as a schedule's, and a stream at rest is let be."""

from __future__ import annotations

import pytest
import yaml

from headgate_contract.snapshot import SavepointOrigin
from tests.airflow.runs import FLEET, Run, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def by_cron(fleet: SmallFleet) -> Run:
    content = yaml.safe_load(fleet.file.read_text())
    content["streams"]["counts"]["savepoint"] = "0 3 * * *"
    fleet.file.write_text(yaml.safe_dump(content))
    return run_dag(load_dag(FLEET, "counts__savepoint"))


def test_a_schedules_savepoint_is_marked_as_such(fleet: SmallFleet) -> None:
    fleet.start("counts")
    run = by_cron(fleet)
    assert run.state == "success"
    taken = run.returned("savepoint")["snapshot"]
    [ref] = [ref for ref in fleet.control.snapshots("counts") if ref.id == taken]
    assert ref.origin is SavepointOrigin.SCHEDULE


def test_it_skips_while_the_stream_is_stopped(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.control.stop("counts")
    assert by_cron(fleet).state_of("savepoint") == "skipped"


def test_it_fails_while_the_stream_is_lost(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    run = by_cron(fleet)
    assert run.state == "failed"
    assert "stream counts does not run (lost" in run.errors["savepoint"]


@pytest.mark.parametrize("deployed", [False, True], ids=["nothing deployed", "deployed"])
def test_it_skips_before_the_stream_was_ever_started(fleet: SmallFleet, deployed: bool) -> None:
    if deployed:
        fleet.deploy("counts")
    assert by_cron(fleet).state_of("savepoint") == "skipped"
