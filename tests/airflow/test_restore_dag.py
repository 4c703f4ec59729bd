"""The restore DAG: what is lost comes back, once, and one stream's trouble is no other stream's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from headgate_control import Condition, Launched, NotNeeded
from tests.airflow.runs import FLEET, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet, wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

RESTORE = "headgate_restore"


def lose(fleet: SmallFleet, *names: str) -> None:
    """Kill the drivers, and wait until their restart is due."""
    for name in names:
        fleet.kill(name)
    wait_until(lambda: {lost.stream for lost in fleet.control.lost()} >= set(names), f"{names} to count as lost")


def test_a_lost_stream_runs_again_from_its_newest_snapshot(fleet: SmallFleet) -> None:
    fleet.start("counts")
    taken = fleet.control.savepoint("counts").snapshot
    assert taken is not None
    lose(fleet, "counts")
    run = run_dag(load_dag(FLEET, RESTORE))
    assert run.state == "success"
    assert run.returned("runs", 0)["generation"] == 2
    assert run.returned("runs", 0)["restored_from"] >= taken
    newest = fleet.catalogue("counts").newest_generation
    assert newest is not None
    assert newest.replaces == 1
    assert newest.by == f"airflow {RESTORE}/{run.run_id}/recover"


def test_nothing_is_done_while_nothing_is_lost(fleet: SmallFleet) -> None:
    fleet.start("counts")
    run = run_dag(load_dag(FLEET, RESTORE))
    assert run.state == "success"
    assert run.returned("recover") == []
    assert run.state_of("runs") == "skipped"
    assert len(fleet.catalogue("counts").generations) == 1


def test_a_stream_that_somebody_stopped_stays_stopped(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.control.cancel("counts")
    assert run_dag(load_dag(FLEET, RESTORE)).returned("recover") == []


def test_a_stream_that_cannot_be_restored_does_not_keep_the_others(make_fleet: Callable[..., SmallFleet]) -> None:
    fleet = make_fleet("bad", "good", "never-deployed")
    for name in ("bad", "good"):
        fleet.start(name)
        fleet.control.checkpoint(name)
    lose(fleet, "bad", "good")
    for metadata in (fleet.folder / "root/streams/bad/checkpoints").glob("*/_metadata"):
        metadata.write_bytes(b"damaged")
    run = run_dag(load_dag(FLEET, RESTORE))
    assert run.state == "failed"
    outcomes = {entry["stream"]: entry for entry in run.returned("recover")}
    assert set(outcomes) == {"bad", "good"}
    assert outcomes["good"]["generation"] == 2
    assert "stream bad is not started: checkpoint" in outcomes["bad"]["problem"]
    assert list(run.errors) == ["runs[bad]"]
    assert "stream bad was not recovered: " in run.errors["runs[bad]"]
    assert fleet.control.status("good").condition is Condition.RUNNING


def test_the_damaged_stream_is_a_persons_from_then_on(make_fleet: Callable[..., SmallFleet]) -> None:
    fleet = make_fleet("bad")
    fleet.start("bad")
    fleet.control.checkpoint("bad")
    lose(fleet, "bad")
    for metadata in (fleet.folder / "root/streams/bad/checkpoints").glob("*/_metadata"):
        metadata.write_bytes(b"damaged")
    dag = load_dag(FLEET, RESTORE)
    assert run_dag(dag).state == "failed"
    assert fleet.control.lost() == []
    assert run_dag(dag).returned("recover") == []


def test_a_relaunch_that_fails_is_left_to_the_restart_strategy(fleet: SmallFleet) -> None:
    fleet.start("counts")
    lose(fleet, "counts")
    (fleet.folder / "counts-in").rename(fleet.folder / "elsewhere")
    run = run_dag(load_dag(FLEET, RESTORE))
    assert run.state == "failed"
    assert "the source folder counts-in does not exist" in run.errors["runs[counts]"]
    assert fleet.control.status("counts").stop_wanted is None
    (fleet.folder / "elsewhere").rename(fleet.folder / "counts-in")
    wait_until(lambda: bool(fleet.control.lost()), "the next restart to be due")
    assert run_dag(load_dag(FLEET, RESTORE)).returned("runs", 0)["generation"] == 3


def test_of_all_who_claim_a_lost_stream_one_launches_it(fleet: SmallFleet) -> None:
    fleet.start("counts")
    lose(fleet, "counts")
    dag = load_dag(FLEET, RESTORE)
    with ThreadPoolExecutor(max_workers=4) as others:
        racing = [others.submit(fleet.control.recover, "counts", wait=False, by=f"racer {n}") for n in range(3)]
        run = run_dag(dag)
    outcomes = [race.result() for race in racing]
    launched = [outcome for outcome in outcomes if isinstance(outcome, Launched)]
    by_dag = run.returned("recover")
    assert len(launched) + len(by_dag) == 1
    assert all(isinstance(outcome, NotNeeded) for outcome in outcomes if outcome not in launched)
    assert len(fleet.catalogue("counts").generations) == 2


def edit(fleet: SmallFleet, change: Callable[[dict[str, Any]], object]) -> None:
    """Write streams.yaml anew, changed."""
    content = yaml.safe_load(fleet.file.read_text())
    change(content["streams"])
    fleet.file.write_text(yaml.safe_dump(content))


def test_a_mistake_in_one_stream_keeps_no_stream_from_being_recovered(make_fleet: Callable[..., SmallFleet]) -> None:
    fleet = make_fleet("well", "typo")
    for name in fleet.names:
        fleet.start(name)
    load_dag(FLEET, RESTORE)
    edit(fleet, lambda streams: streams["typo"].update(savepoint="61 * * * *"))
    lose(fleet, "well", "typo")
    run = run_dag(load_dag(FLEET, RESTORE))
    assert run.state == "success"
    assert {entry["stream"]: entry["generation"] for entry in run.returned("recover")} == {"well": 2, "typo": 2}


def test_a_file_that_is_no_yaml_keeps_none_either(fleet: SmallFleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.start("counts")
    load_dag(FLEET, RESTORE)
    fleet.file.write_text(fleet.file.read_text() + "\n\t: [")
    lose(fleet, "counts")
    run = run_dag(load_dag(FLEET, RESTORE))
    said = capsys.readouterr().out
    assert run.returned("runs", 0)["generation"] == 2
    assert "what it said before is watched" in said


def test_a_stream_that_left_the_file_is_named_recovered_and_stopped_by_its_form(
    make_fleet: Callable[..., SmallFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet("stays", "leaves")
    fleet.start("leaves")
    edit(fleet, lambda streams: streams.pop("leaves"))
    lose(fleet, "leaves")
    run = run_dag(load_dag(FLEET, RESTORE))
    said = capsys.readouterr().out
    assert [entry["stream"] for entry in run.returned("recover")] == ["leaves"]
    assert run.state == "success"
    assert "stream leaves on" in said
    assert "is none that streams.yaml declares" in said
    shown = run_dag(load_dag(FLEET, "headgate_undeclared"))
    assert (shown.state, list(shown.errors)) == ("failed", ["declared"])
    assert "stream leaves on" in shown.errors["declared"]

    stopped = run_dag(load_dag(FLEET, "headgate_stop"), {"stream": "leaves", "how": "checkpoint"})
    assert stopped.state == "success"
    assert fleet.control.status("leaves").condition is Condition.STOPPED
    assert fleet.control.undeclared(["stays"]) == []
    assert run_dag(load_dag(FLEET, "headgate_undeclared")).state == "success"


def test_an_undeclared_stream_whose_job_is_not_here_is_left_alone(
    make_fleet: Callable[..., SmallFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet("stays", "theirs")
    fleet.start("theirs")
    edit(fleet, lambda streams: streams.pop("theirs"))
    lose(fleet, "theirs")
    (fleet.folder / "theirs.py").rename(fleet.folder / "elsewhere.py")
    assert run_dag(load_dag(FLEET, RESTORE)).returned("recover") == []
    said = capsys.readouterr().out
    assert "stream theirs is left alone: its job is not on this machine as it was deployed" in said
    assert fleet.control.status("theirs").stop_wanted is None, "it was not given up either"
