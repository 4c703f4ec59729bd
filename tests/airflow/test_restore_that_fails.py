"""RestoreStream of a stream that ran well: what others want meanwhile counts, and a failure leaves it running."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headgate_airflow.operators.restore import RestoreStream
from headgate_contract.restore import RestoreFrom
from headgate_control import Condition, Control
from tests.airflow.runs import FLEET, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FAILS_AT_ITS_START = """
import sys

if "driver" in sys.argv[0]:  # and not where it is checked
    raise RuntimeError("the port 4040 is taken")
"""


def restore_to(fleet: SmallFleet, **fields: Any) -> Any:
    return run_dag(load_dag(FLEET, "headgate_restore_to"), {"stream": "counts", **fields}, at=NOON)


def test_one_whose_driver_does_not_come_up_goes_on_as_it_ran(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_control.as_it_ran._ENDING_S", 60.0)  # a busy machine takes its time to end it
    fleet.start("counts")
    early = fleet.control.savepoint("counts", "early").snapshot
    newer = fleet.folder / "newer.py"
    newer.write_text((fleet.folder / "counts.py").read_text() + FAILS_AT_ITS_START)
    fleet.control.deploy("counts", newer, fleet.settings, directory=fleet.folder)
    run = restore_to(fleet, snapshot="early")
    assert run.state == "failed"
    said = run.errors["restore_to"]
    assert "generation 2 of stream counts did not come up: " in said
    assert "the port 4040 is taken" in said
    assert "it was stopped for that, and goes on as it was, as generation 3" in said
    fleet.wait_for("counts", Condition.RUNNING)
    catalogue = fleet.catalogue("counts")
    back = catalogue.generations[-1]
    assert isinstance(back.decision, RestoreFrom)
    assert (back.decision.snapshot.generation, back.decision.snapshot.id > (early or 0)) == (1, True)
    assert (back.deployed, catalogue.deployed_number) == (1, 2)
    assert back.by.endswith("/restore_to (as it ran)")


def test_a_person_who_stops_it_meanwhile_has_it_stopped(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_too(self: RestoreStream, context: Any, event: Any) -> Any:
        Control.open(fleet.root, by="alice").stop("counts")
        return unhindered(self, context, event)

    unhindered = RestoreStream.stopped
    monkeypatch.setattr(RestoreStream, "stopped", stop_too)
    fleet.start("counts")
    fleet.control.savepoint("counts", "early")
    run = restore_to(fleet, snapshot="early")
    assert run.state == "failed"
    assert "alice wanted that meanwhile" in run.errors["restore_to"]
    assert fleet.control.status("counts").condition is Condition.STOPPED
    assert len(fleet.catalogue("counts").generations) == 1
