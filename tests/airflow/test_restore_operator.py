"""RestoreStream asks the control plane for the right things, before anything is stopped; no driver is launched here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.operators.base import optional_number
from headgate_airflow.operators.restore import RestoreStream
from headgate_contract import wire
from headgate_contract.errors import BadConfiguration, BadInput
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation, RequestId, StreamName
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request
from headgate_contract.paths import StreamPaths
from headgate_contract.restore import ClaimMode, Located, RestoreFrom
from headgate_control import Control
from headgate_control.as_it_ran import AS_IT_RAN
from tests.control.world import STREAM, World

pytestmark = pytest.mark.airflow

OTHER = StreamName("others")
CONTEXT: Mapping[str, Any] = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A stream that was started from a claimed savepoint of another one, and seems to run."""
    made = World(tmp_path)
    monkeypatch.setattr(HeadgateHook, "control", lambda hook, by: made.control(by))
    made.deployed(OTHER)
    made.started(stream=OTHER)
    theirs = made.snapshot("before", stream=OTHER)
    made.deployed()
    found = made.control().explain(STREAM, snapshot=Located(theirs.folder), claim_mode=ClaimMode.CLAIM).decision
    assert isinstance(found, RestoreFrom)
    started = made.started(found)
    made.store.delete(f"{StreamPaths(STREAM).slots}/00000001.json")
    made.slot(replace(started, first_checkpoint=found.snapshot.id.next()))
    made.snapshot()
    made.beat()
    return made


def stop_asked_by(world: World, **arguments: Any) -> Request:
    """The request that the operator leaves for the driver before it defers."""
    operator = RestoreStream(task_id="t", stream=str(STREAM), root=str(world.root), **arguments)
    with pytest.raises(TaskDeferred):
        RestoreStream.execute.__wrapped__(operator, CONTEXT)
    [stop] = world.store.list(StreamPaths(STREAM).requests)
    return wire.decode("request", world.store.read(stop.path), Request, stop.path)


def test_the_stop_keeps_the_snapshot_that_is_restored_next_also_a_claimed_one_from_elsewhere(world: World) -> None:
    place = world.catalogue(OTHER).completed[0].folder
    assert stop_asked_by(world, snapshot=place, savepoint_first=False).args["keep"] == 1
    assert world.catalogue().claimed[0].id == 1


def test_the_newest_needs_no_keeping(world: World) -> None:
    assert "keep" not in stop_asked_by(world).args


def test_a_parallelism_that_cannot_be_stops_nothing(world: World) -> None:
    operator = RestoreStream(task_id="t", stream=str(STREAM), root=str(world.root), parallelism="129")
    with pytest.raises(AirflowFailException, match=r"parallelism\.default \(129\)"):
        RestoreStream.execute.__wrapped__(operator, CONTEXT)
    assert world.store.list(StreamPaths(STREAM).requests) == []


def test_the_job_is_deployed_with_the_parallelism_when_the_stream_has_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Control, "restore", lambda control, stream, **how: asked.append(how["parallelism"]))
    asked: list[int | None] = []
    for given in ("3", "None", None):
        operator = RestoreStream(task_id="t", stream=str(STREAM), root=str(world.root), parallelism=given)
        with pytest.raises(AttributeError):  # there is nothing launched to follow
            operator._start(world.control(), 0.0, stopped_by=None)
    assert asked == [3, None, None]
    assert "parallelism" in RestoreStream.template_fields


def test_a_retry_whose_earlier_try_has_stopped_the_stream_goes_on_and_is_refused_by_nothing_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_asked_by(world, savepoint_first=False, parallelism="3")
    world.stopped()
    answer = Answer(id=stop.id, outcome=Outcome.DONE, generation=1, at_ms=0)
    assert Mailbox(world.store, STREAM).reply(answer)

    monkeypatch.setattr(Control, "check_restore", refuse)
    assert restored_by(world, monkeypatch) == stop.id


def refuse(control: Control, stream: str, **how: Any) -> None:
    raise BadConfiguration("the check of the job took more than 60 s")


def restored_by(world: World, monkeypatch: pytest.MonkeyPatch) -> RequestId | None:
    """By which request a try of the task says that the stream was stopped for it."""

    def restore(control: Control, stream: str, **how: Any) -> None:
        asked.append(how["stopped_by"])

    monkeypatch.setattr(Control, "restore", restore)
    asked: list[RequestId | None] = []
    again = RestoreStream(task_id="t", stream=str(STREAM), root=str(world.root), savepoint_first=False, parallelism="3")
    with pytest.raises(AttributeError):  # there is nothing launched to follow
        RestoreStream.execute.__wrapped__(again, CONTEXT)
    return asked[0]


def test_a_retry_whose_stop_is_not_answered_yet_goes_on_waiting_and_checks_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_asked_by(world, savepoint_first=False)
    monkeypatch.setattr(Control, "check_restore", refuse)
    assert stop_asked_by(world, savepoint_first=False) == stop


def test_a_retry_whose_driver_died_over_the_stop_restores_it_and_checks_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = stop_asked_by(world, savepoint_first=False)
    world.beat(StreamState.FAILED, counter=2)
    monkeypatch.setattr(Control, "check_restore", refuse)
    assert restored_by(world, monkeypatch) == stop.id


def test_a_retry_whose_stop_has_failed_checks_and_asks_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = stop_asked_by(world, savepoint_first=False)
    assert Mailbox(world.store, STREAM).reply(Answer(id=stop.id, outcome=Outcome.FAILED, generation=1, at_ms=0))
    with monkeypatch.context() as refusing:
        refusing.setattr(Control, "check_restore", refuse)
        operator = RestoreStream(task_id="t", stream=str(STREAM), root=str(world.root), savepoint_first=False)
        with pytest.raises(AirflowFailException, match="more than 60 s"):
            RestoreStream.execute.__wrapped__(operator, CONTEXT)
    with pytest.raises(TaskDeferred):
        RestoreStream.execute.__wrapped__(operator, CONTEXT)
    assert Mailbox(world.store, STREAM).request(stop.id.next_ordinal()) is not None


def test_a_stream_that_somebody_stopped_for_another_reason_was_not_stopped_by_this_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stopped()
    monkeypatch.setattr(Control, "check_restore", lambda control, stream, **how: None)
    assert restored_by(world, monkeypatch) is None


def test_a_cleared_task_does_not_take_what_went_on_as_it_ran_for_what_it_was_to_restore(world: World) -> None:
    by = f"{TaskIdentity.of(CONTEXT).by}{AS_IT_RAN}"
    world.slot(replace(world.started(RestoreFrom(world.snapshot(), "newest")), generation=Generation(3), by=by))
    world.beat()
    assert stop_asked_by(world).generation == 3


@pytest.mark.parametrize("given", ["many", "-1", "1.5", True])
def test_what_is_no_number_is_refused_by_name(given: object) -> None:
    with pytest.raises(BadInput, match="parallelism is"):
        optional_number(given, "parallelism")
