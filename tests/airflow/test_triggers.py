"""The triggers: what they wait for on real streams, and that what Airflow stores of them is all there is to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.serde import deserialize, serialize
from airflow.triggers.base import BaseTrigger

from headgate_airflow.sensors.checkpoint import CheckpointCompleted
from headgate_airflow.triggers.answer import AnswerTrigger
from headgate_airflow.triggers.checkpoint import CheckpointTrigger
from headgate_airflow.triggers.lost import Reports, StreamLostTrigger
from headgate_airflow.triggers.running import StreamRunningTrigger
from headgate_airflow.triggers.snapshot import SnapshotTrigger
from headgate_airflow.triggers.undeclared import UndeclaredTrigger
from headgate_contract.errors import BadInput
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName
from headgate_contract.mailbox import RequestKind
from headgate_contract.restart import RestartAfter
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_control import Control, Lost
from tests.airflow.runs import check_plain
from tests.airflow.small_fleet import SmallFleet, is_current, wait_until

pytestmark = pytest.mark.airflow

ALL: list[BaseTrigger] = [
    StreamRunningTrigger(stream="s", root="file:///r", until=12.5, conn_id="c", poll_s=0.5, generation=3),
    StreamRunningTrigger(stream="s", root=None, until=12.5, generation=3, stop_if_failed=True),
    AnswerTrigger(stream="s", root="file:///r", until=12.5, request="savepoint-s-1"),
    SnapshotTrigger(stream="s", root="file:///r", until=12.5, newer_than=7, kind=None),
    SnapshotTrigger(stream="s", root="file:///r", until=12.5),
    CheckpointTrigger(stream="s", root="file:///r", until=12.5, as_of=1_700_000_000.5),
    StreamLostTrigger(streams=["a", "b"], root="s3://bucket/x", ignored=["c"], conn_id="c", poll_s=1.0, refire_s=3.0),
    UndeclaredTrigger(streams=["a", "b"], root="s3://bucket/x", former=True, conn_id="c", poll_s=1.0),
]


@pytest.mark.parametrize("trigger", ALL, ids=lambda trigger: type(trigger).__name__)
def test_a_trigger_comes_back_as_it_was_stored(trigger: BaseTrigger) -> None:
    path, kwargs = trigger.serialize()
    check_plain(kwargs)
    assert json.loads(json.dumps(kwargs)) == kwargs
    assert deserialize(serialize(kwargs)) == kwargs
    rebuilt = import_string(path)(**kwargs)
    assert type(rebuilt) is type(trigger)
    assert rebuilt.serialize() == (path, kwargs)


def about(fleet: SmallFleet, timeout_s: float = 120.0) -> dict[str, Any]:
    return {"stream": "counts", "root": fleet.root, "until": time.time() + timeout_s, "poll_s": 0.1}


def fired(trigger: BaseTrigger) -> dict[str, Any]:
    """The payload of the trigger's first event, after what Airflow does to it on its way."""

    async def first() -> Any:
        async for event in trigger.run():
            check_plain(event.payload)
            return event.payload
        raise AssertionError("the trigger ended without an event")

    payload: dict[str, Any] = json.loads(json.dumps(asyncio.run(first())))
    return payload


def test_running_fires_when_the_generation_runs(fleet: SmallFleet) -> None:
    fleet.deploy("counts")
    launched = fleet.control.start("counts", wait=False)
    event = fired(StreamRunningTrigger(**about(fleet), generation=launched.generation))
    assert event["outcome"] == "running"
    assert event["asked"]["generation"] == launched.generation


def test_running_fires_when_the_generation_is_lost_or_overtaken(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    assert fired(StreamRunningTrigger(**about(fleet), generation=1))["outcome"] == "failed"
    wait_until(lambda: bool(fleet.control.lost()), "the restart to be due")
    fleet.control.recover("counts")
    assert fired(StreamRunningTrigger(**about(fleet), generation=1))["outcome"] == "superseded"


def test_running_without_a_generation_waits_for_a_stream_that_is_down(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    event = fired(StreamRunningTrigger(**about(fleet, timeout_s=0.5)))
    assert event["outcome"] == "timeout"
    assert event["why"] == "stream counts does not run yet"


def test_answer_fires_when_the_request_is_answered(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.control.ask("counts", RequestKind.CHECKPOINT, id=RequestId("please"))
    assert fired(AnswerTrigger(**about(fleet), request="please"))["outcome"] == "answered"


def test_answer_gives_up_when_nobody_is_left_to_answer(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_airflow.triggers.answer._PATIENCE_S", 0.3)
    fleet.start("counts")
    fleet.kill("counts")
    event = fired(AnswerTrigger(**about(fleet), request="never-asked"))
    assert event["outcome"] == "failed"
    assert event["why"].startswith("request never-asked was not answered: process ")


def test_f147_answer_that_gives_up_names_the_savepoint_that_was_taken(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_airflow.triggers.answer._PATIENCE_S", 0.3)
    fleet.start("counts")
    fleet.kill("counts")
    last = SavepointName("last")
    taken = SnapshotRef(CheckpointId(7), SnapshotKind.SAVEPOINT, Generation(1), "savepoints/last", 1, "00", last)
    monkeypatch.setattr(Control, "taken_for", lambda control, stream, id: taken if id == "stop-1" else None)
    event = fired(AnswerTrigger(**about(fleet), request="stop-1"))
    assert event["why"].endswith("; savepoint last (7) is complete, at savepoints/last")


def test_checkpoint_fires_when_the_newest_has_all_that_had_come_by_then(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    asked = time.time()
    event = fired(CheckpointTrigger(**about(fleet, timeout_s=0.3), as_of=asked))
    assert event["outcome"] == "timeout"
    assert event["why"].startswith("no checkpoint of stream counts is current as of 20")
    is_current(fleet, 12, age_ms=60_000)
    assert fired(CheckpointTrigger(**about(fleet, timeout_s=0.3), as_of=asked))["outcome"] == "timeout"
    assert fired(CheckpointTrigger(**about(fleet), as_of=asked - 61))["snapshot"] == 12, "older, and nothing has come"
    is_current(fleet, 12, age_ms=0)
    assert fired(CheckpointTrigger(**about(fleet), as_of=asked))["snapshot"] == 12


def test_the_sensor_of_a_checkpoint_looks_the_same_and_refuses_what_is_no_moment(fleet: SmallFleet) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    is_current(fleet, 12, age_ms=60_000)
    sensor = CheckpointCompleted(task_id="checkpoint", stream="counts")
    assert sensor.look(fleet.control) is None, "that was before it began"
    is_current(fleet, 12, age_ms=0)
    time.sleep(0.01)
    assert sensor.look(fleet.control) == {"stream": "counts", "snapshot": 12, "as_of_ms": 0}
    old = CheckpointCompleted(task_id="old", stream="counts", as_of="2020-01-31T12:00:00")
    assert old.look(fleet.control) is not None
    with pytest.raises(BadInput, match="as_of is 'yesterday'"):
        CheckpointCompleted(task_id="wrong", stream="counts", as_of="yesterday").look(fleet.control)


def test_snapshot_fires_for_a_newer_one_only(fleet: SmallFleet) -> None:
    fleet.start("counts")
    taken = fleet.control.savepoint("counts").snapshot
    assert taken is not None
    event = fired(SnapshotTrigger(**about(fleet)))
    assert (event["outcome"], event["snapshot"]) == ("completed", taken)
    assert fired(SnapshotTrigger(**about(fleet, timeout_s=0.3), newer_than=taken))["outcome"] == "timeout"
    fleet.feed("counts", range(10))  # of an idle stream no newer one is written
    assert fired(SnapshotTrigger(**about(fleet), newer_than=taken, kind="checkpoint"))["snapshot"] > taken


def test_a_stream_that_nobody_knows_fails_the_wait(make_fleet: Callable[..., SmallFleet]) -> None:
    fleet = make_fleet("counts", "other")
    fleet.deploy("other")
    event = fired(StreamRunningTrigger(**about(fleet), generation=1))
    assert event["outcome"] == "failed"
    assert "no stream counts was deployed" in event["why"]


def test_storage_that_does_not_answer_is_asked_again(fleet: SmallFleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.start("counts")
    give_back = take_away(fleet.folder / "root/streams/counts/slots")

    async def wait() -> Any:
        waiting = asyncio.ensure_future(anext(SnapshotTrigger(**about(fleet), kind=None).run()))
        await asyncio.to_thread(
            wait_until, lambda: "cannot look at stream counts now" in capsys.readouterr().out, "a complaint"
        )
        give_back()
        return (await waiting).payload

    assert asyncio.run(wait())["outcome"] == "completed"


def take_away(folder: Path) -> Callable[[], None]:
    """Put a link to itself where `folder` was: every read below it fails. What is returned puts the folder back."""
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    folder.symlink_to(folder)

    def give_back() -> None:
        folder.unlink()
        hidden.rename(folder)

    return give_back


class Watching:
    """A StreamLostTrigger at work, as in the triggerer."""

    def __init__(self, fleet: SmallFleet, refire_s: float) -> None:
        self.trigger = StreamLostTrigger(streams=fleet.names, root=fleet.root, poll_s=0.05, refire_s=refire_s)
        self.events: list[dict[str, Any]] = []

    async def __aenter__(self) -> Watching:
        async def watch() -> None:
            async for event in self.trigger.run():
                check_plain(event.payload)
                self.events.append(json.loads(json.dumps(event.payload)))

        self.task = asyncio.ensure_future(watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, met: Callable[[], bool], what: str) -> None:
        await asyncio.to_thread(wait_until, met, what)
        assert not self.task.done()


def test_lost_fires_for_as_long_as_a_stream_is_lost_and_stops_when_it_is_claimed(fleet: SmallFleet) -> None:
    fleet.start("counts")

    async def story() -> list[int]:
        seen = []
        async with Watching(fleet, refire_s=0.2) as watching:
            await asyncio.to_thread(fleet.kill, "counts")
            await watching.until(lambda: len(watching.events) >= 3, "three events of one loss")
            assert {event["lost"][0]["stream"] for event in watching.events} == {"counts"}
            await asyncio.to_thread(fleet.control.recover, "counts")
            seen.append(len(watching.events))
            looks = fleet.control
            await watching.until(lambda: looks.status("counts").progress is not None, "the successor to run")
            await asyncio.sleep(0.6)  # three times refire_s: the absence of an event can only be waited for
            seen.append(len(watching.events))
        return seen

    before, after = asyncio.run(story())
    assert after - before <= 1  # one look may have been under way when the slot was claimed


def test_lost_says_nothing_of_streams_that_are_well_or_stopped(make_fleet: Callable[..., SmallFleet]) -> None:
    fleet = make_fleet("well", "stopped", "lost")
    for name in fleet.names:
        fleet.start(name)
    fleet.control.cancel("stopped")
    fleet.kill("lost")

    async def first() -> dict[str, Any]:
        async with Watching(fleet, refire_s=60) as watching:
            await watching.until(lambda: bool(watching.events), "an event")
            return watching.events[0]

    assert [entry["stream"] for entry in asyncio.run(first())["lost"]] == ["lost"]


def test_a_stream_that_nobody_declares_is_told_of_and_reported_when_it_is_lost(
    make_fleet: Callable[..., SmallFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet("declared", "undeclared", "at-rest")
    for name in ("undeclared", "at-rest"):
        fleet.start(name)
    fleet.control.cancel("at-rest")
    fleet.names = ["declared"]

    async def story() -> str:
        said = ""

        def told() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "stream undeclared on" in said

        async with Watching(fleet, refire_s=60) as watching:
            await watching.until(told, "a word of it")
            await asyncio.to_thread(fleet.kill, "undeclared")
            await watching.until(lambda: bool(watching.events), "an event")
            assert [entry["stream"] for entry in watching.events[0]["lost"]] == ["undeclared"]
        return said

    try:
        assert "at-rest" not in asyncio.run(story())
    finally:
        fleet.names = ["declared", "undeclared", "at-rest"]


def lost(stream: str, generation: int = 1) -> Lost:
    return Lost(
        stream=StreamName(stream),
        generation=Generation(generation),
        reason="gone",
        restart=RestartAfter(0.0, 1),
        due_in_s=0.0,
    )


def test_what_is_declared_is_reported_again_and_again_what_is_not_more_and_more_seldom() -> None:
    reports = Reports(["declared"], refire_s=10)
    both = [lost("declared"), lost("other")]
    told = {at: [str(one.stream) for one in reports.due(both, float(at))] for at in range(0, 121, 5)}
    assert [at for at, names in told.items() if "declared" in names] == list(range(0, 121, 10))
    assert [at for at, names in told.items() if "other" in names] == [0, 10, 30, 70]


def test_a_stream_that_is_lost_later_is_reported_at_once_and_a_new_loss_too() -> None:
    reports = Reports(["a", "b"], refire_s=60)
    assert reports.due([lost("a")], 0) == [lost("a")]
    assert reports.due([lost("a"), lost("b")], 1) == [lost("b")]
    assert reports.due([lost("a", 2)], 2) == [lost("a", 2)]
    assert reports.due([], 3) == []
    assert reports.due([lost("b")], 4) == [lost("b")], "it was claimed, or well, in between"


def test_lost_goes_on_watching_when_storage_fails(fleet: SmallFleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.start("counts")
    fleet.kill("counts")
    give_back = take_away(fleet.folder / "root/fleet/heartbeats")

    async def story() -> None:
        async with Watching(fleet, refire_s=60) as watching:
            await watching.until(lambda: "cannot look at stream counts now" in capsys.readouterr().out, "a complaint")
            assert watching.events == []
            give_back()
            await watching.until(lambda: bool(watching.events), "an event after the trouble")

    asyncio.run(story())
