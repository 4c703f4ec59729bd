"""The DAGs that people start by hand: start, savepoint, stop and restore of a real stream, each safe to repeat."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate_airflow.operators.restore import named_snapshot
from headgate_airflow.operators.savepoint import Savepoint
from headgate_airflow.operators.stop import StopStream
from headgate_airflow.triggers import answer
from headgate_contract.errors import InvalidName
from headgate_contract.restore import ClaimMode, Located, RestoreFrom
from headgate_contract.snapshot import SnapshotRef
from headgate_control import Condition
from tests.airflow.runs import FLEET, asset_events, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet, wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
COUNTS = {"stream": "counts"}


def test_a_stream_is_deployed_and_started_and_the_task_ends_when_it_runs(fleet: SmallFleet) -> None:
    run = run_dag(load_dag(FLEET, "headgate_start"), COUNTS)
    assert run.state == "success"
    assert run.returned("start") | {"log": "", "host": ""} == {
        "stream": "counts",
        "generation": 1,
        "condition": "running",
        "restored_from": None,
        "reason": "the stream has never run",
        "host": "",
        "log": "",
    }
    assert fleet.control.status("counts").condition is Condition.RUNNING


def test_a_cleared_start_follows_the_generation_that_it_had_launched(fleet: SmallFleet) -> None:
    dag = load_dag(FLEET, "headgate_start")
    first = run_dag(dag, COUNTS, at=NOON)
    again = run_dag(dag, COUNTS, at=NOON)
    assert again.run_id == first.run_id
    assert again.state == "success"
    assert again.returned("start") == first.returned("start")
    assert len(fleet.catalogue("counts").generations) == 1


def test_a_cleared_start_follows_the_recovery_of_its_generation(fleet: SmallFleet) -> None:
    dag = load_dag(FLEET, "headgate_start")
    run_dag(dag, COUNTS, at=NOON)
    fleet.kill("counts")
    wait_until(lambda: bool(fleet.control.lost()), "the stream to count as lost")
    fleet.control.recover("counts")
    again = run_dag(dag, COUNTS, at=NOON)
    assert again.returned("start")["generation"] == 2
    assert len(fleet.catalogue("counts").generations) == 2


def test_a_stream_that_somebody_else_runs_is_left_alone_and_the_task_says_whose_it_is(fleet: SmallFleet) -> None:
    fleet.start("counts")
    process = fleet.process("counts")
    run = run_dag(load_dag(FLEET, "headgate_start"), COUNTS)
    assert run.state == "failed"  # at once: no retry can mend it
    said = run.errors["start"]
    assert "stream counts runs already: generation 1 is running, started by a test on" in said
    assert f"{process.host}, pid {process.pid} at 20" in said
    assert fleet.process("counts") == process


def test_a_start_that_fails_tells_the_root_cause_and_leaves_the_stream_down(fleet: SmallFleet) -> None:
    shutil.rmtree(fleet.folder / "counts-in")
    run = run_dag(load_dag(FLEET, "headgate_start"), COUNTS)
    assert run.state == "failed"
    said = run.errors["start"]
    assert "generation 1 of stream counts did not come up: " in said
    assert "the source folder counts-in does not exist" in said
    assert "its log is " in said
    assert fleet.control.status("counts").stop_wanted is not None
    assert fleet.control.lost() == []


def test_a_savepoint_is_taken_and_told_to_whom_it_may_concern(fleet: SmallFleet) -> None:
    fleet.start("counts")
    run = run_dag(load_dag(FLEET, "headgate_savepoint"), COUNTS | {"name": "before-lunch"})
    assert run.state == "success"
    taken = run.returned("savepoint")
    assert (taken["stream"], taken["name"], taken["generation"]) == ("counts", "before-lunch", 1)
    assert taken["folder"] == f"streams/counts/savepoints/before-lunch-{taken['snapshot']}-g1"
    size = sum(path.stat().st_size for path in (fleet.folder / "root" / taken["folder"]).rglob("*") if path.is_file())
    assert taken["size"] == size
    assert asset_events("headgate-savepoint-counts")[-1] == taken


def test_a_savepoint_where_only_the_driver_sees_it_is_told_all_the_same(
    fleet: SmallFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_another_host(self: Savepoint, taken: SnapshotRef) -> dict[str, Any]:
        shutil.rmtree(tmp_path / "backup")
        return described(self, taken)

    fleet.start("counts")
    described = Savepoint.described
    monkeypatch.setattr(Savepoint, "described", from_another_host)
    about = {"name": "away", "target_directory": f"file://{tmp_path}/backup"}
    run = run_dag(load_dag(FLEET, "headgate_savepoint"), COUNTS | about)
    assert run.state == "success"
    taken = run.returned("savepoint")
    assert taken["folder"].startswith(f"file://{tmp_path}/backup/")
    assert (taken["size"], taken["records"], taken["watermark_ms"]) == (None, None, None)
    assert asset_events("headgate-savepoint-counts")[-1] == taken


def test_a_cleared_savepoint_finds_its_first_request_and_answer(fleet: SmallFleet) -> None:
    fleet.start("counts")
    dag = load_dag(FLEET, "headgate_savepoint")
    first = run_dag(dag, COUNTS, at=NOON)
    again = run_dag(dag, COUNTS, at=NOON)
    assert again.returned("savepoint") == first.returned("savepoint")
    assert len(fleet.requests("counts")) == 1
    another = run_dag(dag, COUNTS)
    assert another.returned("savepoint")["snapshot"] > first.returned("savepoint")["snapshot"]
    assert len(fleet.requests("counts")) == 2


def test_f17_a_savepoint_of_a_stream_that_does_not_run_fails_at_once(fleet: SmallFleet) -> None:
    fleet.deploy("counts")
    run = run_dag(load_dag(FLEET, "headgate_savepoint"), COUNTS)
    assert run.state == "failed"
    assert "stream counts does not run" in run.errors["savepoint"]


def test_a_stop_takes_a_last_savepoint_and_is_safe_to_repeat(fleet: SmallFleet) -> None:
    fleet.start("counts")
    dag = load_dag(FLEET, "headgate_stop")
    first = run_dag(dag, COUNTS | {"name": "the-last"}, at=NOON)
    assert first.state == "success"
    assert first.returned("stop")["folder"].startswith("streams/counts/savepoints/the-last-")
    assert fleet.control.status("counts").condition is Condition.STOPPED
    cleared, pressed_again = run_dag(dag, COUNTS | {"name": "the-last"}, at=NOON), run_dag(dag, COUNTS)
    assert cleared.returned("stop") == first.returned("stop")
    assert pressed_again.returned("stop")["snapshot"] == first.returned("stop")["snapshot"]
    assert len(fleet.requests("counts")) == 1


@pytest.mark.parametrize("how", ["checkpoint", "cancel"])
def test_a_stop_without_savepoint(fleet: SmallFleet, how: str) -> None:
    fleet.start("counts")
    for given in ("name", "target_directory"):
        refused = run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"how": how, given: "nightly"})
        assert f"{given} is for a savepoint, and how is {how}" in refused.errors["stop"]
    assert fleet.control.status("counts").condition is Condition.RUNNING
    assert run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"how": how}).state == "success"
    assert fleet.control.status("counts").condition is Condition.STOPPED
    assert fleet.control.lost() == []


def test_a_drain_takes_a_savepoint_and_a_stream_that_was_only_stopped_is_not_drained(fleet: SmallFleet) -> None:
    fleet.start("counts")
    drained = run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"how": "drain", "name": "last"})
    assert drained.state == "success"
    newest = fleet.control.status("counts").newest_snapshot
    assert newest is not None
    assert newest.name == "last"
    (request,) = (fleet.folder / "root/streams/counts/requests").glob("*.json")
    assert json.loads(request.read_text())["body"]["args"]["drain"] is True
    again = run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"how": "drain"}, at=NOON)
    assert again.state == "failed"
    assert "does not run" in again.errors["stop"]


def test_a_stop_whose_driver_dies_without_an_answer_is_done_since_nobody_restarts_it(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_and_kill(self: StopStream, *args: Any) -> object:
        os.kill(process.pid, signal.SIGSTOP)
        asked = unhindered(self, *args)
        os.killpg(process.pid, signal.SIGKILL)
        return asked

    fleet.start("counts")
    process = fleet.process("counts")
    unhindered = StopStream._ask
    monkeypatch.setattr(StopStream, "_ask", ask_and_kill)
    monkeypatch.setattr(answer, "_PATIENCE_S", 0.2)
    run = run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"how": "checkpoint"})
    assert run.state == "success"
    assert "was not answered" in run.returned("stop")["note"]
    assert fleet.control.lost() == []


def test_a_running_stream_is_restored_to_an_older_savepoint(fleet: SmallFleet) -> None:
    fleet.start("counts")
    early = fleet.control.savepoint("counts", "early").snapshot
    fleet.feed("counts", range(100))
    run = run_dag(load_dag(FLEET, "headgate_restore_to"), COUNTS | {"snapshot": "early"}, at=NOON)
    assert run.state == "success"
    restored = run.returned("restore_to")
    assert restored["generation"] == 2
    assert restored["restored_from"] == early
    again = run_dag(load_dag(FLEET, "headgate_restore_to"), COUNTS | {"snapshot": "early"}, at=NOON)
    assert again.returned("restore_to") == restored
    assert len(fleet.catalogue("counts").generations) == 2


def test_a_savepoint_goes_to_the_directory_that_was_named_and_is_restored_from_there_and_claimed(
    fleet: SmallFleet,
) -> None:
    fleet.start("counts")
    away = COUNTS | {"name": "away", "target_directory": f"{fleet.folder}/elsewhere"}
    run = run_dag(load_dag(FLEET, "headgate_savepoint"), away)
    assert run.state == "success"
    taken = run.returned("savepoint")
    assert taken["folder"] == f"file://{fleet.folder}/elsewhere/counts-away-{taken['snapshot']}-g1"
    back = COUNTS | {"snapshot": taken["folder"], "claim_mode": "claim"}
    assert run_dag(load_dag(FLEET, "headgate_restore_to"), back).state == "success"
    decision = fleet.catalogue("counts").generations[-1].decision
    assert isinstance(decision, RestoreFrom)
    assert (decision.snapshot.id, decision.claim_mode) == (taken["snapshot"], ClaimMode.CLAIM)
    run = run_dag(load_dag(FLEET, "headgate_stop"), COUNTS | {"target_directory": f"{fleet.folder}/elsewhere"})
    assert run.returned("stop")["folder"].startswith(f"file://{fleet.folder}/elsewhere/counts-sp-")


def test_digits_name_an_id_and_what_only_looks_like_one_is_refused_by_name() -> None:
    assert named_snapshot("12") == 12
    assert named_snapshot("before-12") == "before-12"
    assert named_snapshot("s3://backup/before-12-g1") == Located("s3://backup/before-12-g1")
    with pytest.raises(InvalidName, match="savepoint name"):
        named_snapshot("²")


def test_a_restore_that_would_be_refused_stops_nothing(fleet: SmallFleet) -> None:
    fleet.start("counts")
    run = run_dag(load_dag(FLEET, "headgate_restore_to"), COUNTS | {"snapshot": "never-taken"})
    assert run.state == "failed"
    assert "there is no snapshot never-taken" in run.errors["restore_to"]
    assert fleet.control.status("counts").condition is Condition.RUNNING
    assert fleet.requests("counts") == []
