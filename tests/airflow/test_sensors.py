"""The sensors: what they wait for, and how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headgate_contract.heartbeats import CurrentCheckpoint
from tests.airflow.runs import OWN, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet, wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

WAITING = OWN / "waiting.py"


@contextmanager
def meanwhile(deed: Callable[[], object]) -> Iterator[None]:
    """`deed` is done while the block runs, beginning at some time in it."""
    doing = threading.Thread(target=deed)
    doing.start()
    try:
        yield
    finally:
        doing.join()


def test_running_waits_until_the_stream_runs(fleet: SmallFleet) -> None:
    fleet.deploy("counts")
    with meanwhile(lambda: fleet.control.start("counts")):
        run = run_dag(load_dag(WAITING, "wait_for_running"))
    assert run.state == "success"
    assert run.returned("running")["generation"] == 1


def test_running_returns_at_once_when_the_stream_runs(fleet: SmallFleet) -> None:
    fleet.start("counts")
    assert run_dag(load_dag(WAITING, "wait_for_running")).returned("running")["condition"] == "running"


def test_running_fails_with_the_generation_that_it_waits_for(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    run = run_dag(load_dag(WAITING, "wait_for_running"), {"generation": 1})
    assert run.state == "failed"
    assert "of generation 1 is gone" in run.errors["running"]


def test_savepoint_waits_for_one_that_is_newer(fleet: SmallFleet) -> None:
    fleet.start("counts")
    old = fleet.control.savepoint("counts").snapshot
    dag = load_dag(WAITING, "wait_for_savepoint")
    assert run_dag(dag).returned("savepoint")["snapshot"] == old
    with meanwhile(lambda: fleet.control.savepoint("counts", "newer")):
        assert run_dag(dag, {"newer_than": old}).returned("savepoint")["name"] == "newer"


class Idleness:
    """A stream has had its ten records, and says of one checkpoint again that it is current: none will follow."""

    def __init__(self, fleet: SmallFleet) -> None:
        self._fleet = fleet
        self._first: CurrentCheckpoint | None = None

    def is_seen(self) -> bool:
        progress = self._fleet.control.status("counts").progress
        said = progress.current if progress is not None and progress.records == 10 else None
        if said is None or self._first is None or said.checkpoint != self._first.checkpoint:
            self._first = said
            return False
        return said.as_of_ms > self._first.as_of_ms


def test_checkpoint_of_an_idle_stream_is_the_newest_again_and_again(fleet: SmallFleet) -> None:
    fleet.start("counts")
    dag = load_dag(WAITING, "wait_for_checkpoint")
    wait_until(Idleness(fleet).is_seen, "it has had all of its input, and said so")
    first = run_dag(dag).returned("checkpoint")
    slots = len(fleet.catalogue("counts").slots)
    second = run_dag(dag).returned("checkpoint")
    assert second["snapshot"] == first["snapshot"], "none was written, and none is waited for"
    assert second["as_of_ms"] > first["as_of_ms"]
    assert len(fleet.catalogue("counts").slots) == slots
    assert run_dag(dag, {"as_of": "2020-01-31T12:00:00+01:00"}).returned("checkpoint")["snapshot"] == first["snapshot"]


def test_a_sensor_gives_up_in_time_or_skips_if_it_may(fleet: SmallFleet) -> None:
    fleet.deploy("counts")
    run = run_dag(load_dag(WAITING, "wait_in_vain"))
    assert run.state_of("savepoint") == "failed"
    assert run.errors["savepoint"] == "stream counts has no savepoint newer than 1000"
    assert run.state_of("softly") == "skipped"
