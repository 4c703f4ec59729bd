"""A snapshot that the deployed job cannot go on from is refused before anything is stopped or started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headgate_contract.errors import RestoreRefused
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.operator_state import OperatorState, OperatorStateKind
from headgate_contract.restore import Refuse, RestoreFrom
from headgate_contract.snapshot import CommittableGroup, VertexState
from headgate_control import Condition
from headgate_control.launch import Launcher
from tests.control.world import STREAM, World

PLAN: Mapping[str, Any] = {
    "vertices": [
        {"uid": "lines", "kind": "source"},
        {"uid": "counts", "kind": "keyed"},
        {"uid": "out", "kind": "sink"},
    ],
    "sources": {"lines": {"kind": "files"}},
    "sinks": {"out": {"rollback": "retract"}},
}
STATE = {VertexUid("counts"): VertexState("counts", 2, "hashmap", (), ())}
OUTPUT = (CommittableGroup(CheckpointId(1), {VertexUid("out"): ({"staged": "a"},), VertexUid("old"): ()}),)
STATELESS = [PLAN["vertices"][0], PLAN["vertices"][2]]


def deploy(world: World, plan: Mapping[str, Any], **settings: str) -> None:
    world.decide(replace(world.deployed(**settings), plan=dict(plan)))


@pytest.fixture
def crashed(world: World) -> World:
    """A stream whose newest checkpoint carries state, positions, and output that may not be published yet."""
    deploy(world, PLAN)
    world.started()
    world.snapshot(vertices=STATE, committables=OUTPUT, committed=False)
    world.beat(StreamState.FAILED, cause="disk full")
    return world


def test_what_ran_fits_its_own_snapshot(crashed: World) -> None:
    assert isinstance(crashed.control().explain(STREAM).decision, RestoreFrom)


@pytest.mark.parametrize(
    ("plan", "settings", "why"),
    [
        (PLAN, {"pipeline__max_parallelism": "64"}, "has max-parallelism 128, the job is set to 64"),
        (
            PLAN | {"vertices": [{"uid": "sums", "kind": "keyed"}]},
            {},
            "has state of counts, which the job no longer has",
        ),
        (PLAN | {"vertices": STATELESS}, {}, "has state of counts, which the job no longer has"),
        (PLAN | {"sources": {"words": {"kind": "files"}}}, {}, "has positions of lines, the job reads words"),
        (PLAN | {"sources": {"lines": {"kind": "rate"}}}, {}, "source lines was of kind files, .* is of kind rate"),
        (
            PLAN | {"sinks": {"new": {"rollback": "retract"}}},
            {},
            "carries output of sink out that may not be published",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    crashed: World, plan: Mapping[str, Any], settings: Mapping[str, str], why: str
) -> None:
    deploy(crashed, plan, **settings)
    decision = crashed.control().explain(STREAM, snapshot=CheckpointId(1)).decision
    assert isinstance(decision, Refuse)
    assert decision.reason.startswith("checkpoint 1 cannot be restored: it")
    with pytest.raises(RestoreRefused, match=why):
        crashed.control().start(STREAM)
    assert len(crashed.catalogue().generations) == 1


def test_f63_when_metadata_are_read_the_rules_hold_before_anything_is_launched(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[object] = []
    start = Launcher.start
    monkeypatch.setattr(Launcher, "start", lambda *args: (launched.append(args), start(*args))[1])
    control = crashed.control()
    deploy(crashed, PLAN, pipeline__max_parallelism="64")
    for allow in (False, True):
        with pytest.raises(RestoreRefused, match="has max-parallelism 128, the job is set to 64"):
            control.start(STREAM, allow_non_restored_state=allow)
    deploy(crashed, PLAN | {"vertices": STATELESS})
    with pytest.raises(RestoreRefused, match="has state of counts, which the job no longer has"):
        control.start(STREAM)
    assert launched == []
    assert len(crashed.catalogue().generations) == 1
    started = control.start(STREAM, allow_non_restored_state=True)
    assert isinstance(started.decision, RestoreFrom)
    assert started.decision.non_restored == ("counts",)
    assert len(launched) == 1


def test_a_sink_may_leave_once_its_output_is_published(crashed: World) -> None:
    crashed.snapshot(vertices=STATE, committed=True)
    crashed.stopped()
    deploy(crashed, PLAN | {"sinks": {"new": {"rollback": "retract"}}})
    assert isinstance(crashed.control().explain(STREAM).decision, RestoreFrom)


def test_a_running_stream_publishes_before_it_is_stopped_so_a_sink_may_leave(crashed: World) -> None:
    crashed.beat()
    deploy(crashed, PLAN | {"sinks": {"new": {"rollback": "retract"}}})
    assert isinstance(crashed.control().explain(STREAM).decision, RestoreFrom)


def test_a_restore_that_does_not_fit_stops_nothing(crashed: World) -> None:
    crashed.beat()
    deploy(crashed, PLAN | {"vertices": STATELESS})
    with pytest.raises(RestoreRefused, match="has state of counts"):
        crashed.control().restore(STREAM)
    assert crashed.control().status(STREAM).condition is Condition.RUNNING
    assert crashed.control().status(STREAM).stop_wanted is None


def test_f61_state_that_the_job_no_longer_has_is_dropped_if_that_is_allowed_and_everybody_is_told(
    crashed: World,
) -> None:
    deploy(crashed, PLAN | {"vertices": STATELESS})
    control = crashed.control()
    explained = control.explain(STREAM, allow_non_restored_state=True)
    assert isinstance(explained.decision, RestoreFrom)
    assert explained.decision.non_restored == ("counts",)
    assert explained.warnings == ("what checkpoint 1 has of counts is NOT restored, and lost",)
    assert isinstance(control.explain(STREAM).decision, Refuse), "only if it is asked for"
    launched = control.start(STREAM, allow_non_restored_state=True)
    assert launched.warnings == explained.warnings
    assert crashed.catalogue().generations[-1].decision == explained.decision
    told = [event.text for event in control.history(STREAM) if (event.what, event.outcome) == ("start", "EXECUTED")]
    assert any("NOT restored, as was allowed: counts" in text for text in told)


def test_a_crash_before_the_first_checkpoint_does_not_take_back_what_was_allowed(crashed: World) -> None:
    deploy(crashed, PLAN | {"vertices": STATELESS})
    decision = crashed.control().explain(STREAM, allow_non_restored_state=True).decision
    assert isinstance(decision, RestoreFrom)
    crashed.started(decision)
    crashed.beat(StreamState.FAILED, cause="disk full")
    again = crashed.control().explain(STREAM).decision
    assert isinstance(again, RestoreFrom)
    assert (again.snapshot, again.non_restored) == (decision.snapshot, ("counts",))


def test_f155_a_rescale_of_state_that_cannot_be_split_is_refused_and_stops_nothing(world: World) -> None:
    step = {"uid": "counts", "kind": "keyed", "operator_state": {"next": "single"}}
    plan = PLAN | {"vertices": [PLAN["vertices"][0], step, PLAN["vertices"][2]]}
    kept = {"next": OperatorState(OperatorStateKind.SINGLE, (7, 8))}
    deploy(world, plan, parallelism__default="2")
    world.started()
    world.snapshot(vertices={uid: replace(state, operator_states=kept) for uid, state in STATE.items()})
    world.beat()
    assert isinstance(world.control().explain(STREAM).decision, RestoreFrom)
    deploy(world, plan, parallelism__default="3")
    with pytest.raises(RestoreRefused, match="operator state 'next' of 2 subtasks, which cannot be split over 3"):
        world.control().restore(STREAM)
    assert world.control().status(STREAM).condition is Condition.RUNNING
    assert world.control().status(STREAM).stop_wanted is None
