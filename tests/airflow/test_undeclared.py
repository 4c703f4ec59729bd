"""What is at work and not in streams.yaml turns a task red, and a root that is gone for good holds up nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from headgate_airflow.fleet import declared_fleet
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.operators.declared import CheckDeclared
from headgate_airflow.operators.recover import RecoverLost
from headgate_airflow.triggers.lost import StreamLostTrigger
from headgate_airflow.triggers.undeclared import UndeclaredTrigger
from headgate_contract.errors import StorageUnreachable
from headgate_control import Control
from tests.control.world import STREAM, World

pytestmark = pytest.mark.airflow

CONTEXT: Mapping[str, Any] = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)}
LONG_S = 60


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A root with the stream `orders`, which runs; the fleet's file is still to be written."""
    monkeypatch.setenv("HEADGATE_STREAMS_FILE", str(tmp_path / "streams.yaml"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("HEADGATE_ROOT", raising=False)
    monkeypatch.setattr("headgate_control.undeclared.EVERY_S", 0.0)
    made = World(tmp_path)
    made.deployed()
    made.started()
    made.beat()
    return made


def declare(world: World, *lines: str, root: Path | None = None) -> None:
    text = "\n".join([f"root: {root or world.root}", "streams:", "  stays: {job: job.py}", *lines])
    (world.folder / "streams.yaml").write_text(text)


def check(**more: Any) -> None:
    operator = CheckDeclared(task_id="declared", **more)
    CheckDeclared.execute(operator, CONTEXT)


def hang(monkeypatch: pytest.MonkeyPatch, root: Path) -> Event:
    """Whoever opens this root waits for the event."""
    released, control = Event(), HeadgateHook.control

    def opened(hook: HeadgateHook, by: str) -> Control:
        if str(hook.root).endswith(str(root)):
            released.wait(2 * LONG_S)
        return control(hook, by)

    monkeypatch.setattr(HeadgateHook, "control", opened)
    return released


def test_a_stream_that_nobody_declares_fails_the_task_until_somebody_has_spoken(world: World) -> None:
    declare(world)
    with pytest.raises(AirflowFailException) as failed:
        check()
    said = str(failed.value)
    assert f"stream orders on file://{world.root} is none that streams.yaml declares, and is running" in said
    assert "`headgate stop orders`" in said
    assert "below `ignore:`" in said
    declare(world, "ignore: [orders]")
    check()
    declare(world, "  orders: {job: job.py}")
    check()
    declare(world)
    world.stopped()
    check()


def test_a_stream_with_a_mistake_is_declared_all_the_same(world: World) -> None:
    declare(world, "  orders: {job: job.py, root: data/root}")
    check()


def test_what_is_ignored_is_not_recovered_either(world: World) -> None:
    declare(world, "ignore: [orders]")
    [*looked] = declared_fleet().by_root.items()
    assert looked == [(f"file://{world.root}", ["stays"])]
    seen: list[list[str]] = []

    def undeclared(self: Control, streams: list[str]) -> list[Any]:
        seen.append(sorted(streams))
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Control, "undeclared", undeclared)
        RecoverLost.execute.__wrapped__(RecoverLost(task_id="t"), CONTEXT)
    assert seen == [["orders", "stays"]]
    (world.folder / "streams.yaml").write_text("streams: {")
    assert declared_fleet().ignored == {"orders"}, "also while the file cannot be read"


def test_a_root_that_nothing_names_any_more_and_that_is_gone_is_told_until_it_is_ignored(world: World) -> None:
    gone = world.folder / "gone"
    declare(world, root=gone)
    declared_fleet()
    declare(world, "  orders: {job: job.py}")
    with pytest.raises(StorageUnreachable, match=f"root file://{gone}, which streams.yaml does not name any more"):
        check()
    declare(world, "  orders: {job: job.py}", f"ignore: [{gone}]")
    check()
    declare(world, "  orders: {job: job.py}")
    assert list(declared_fleet().by_root) == [f"file://{world.root}"], "whoever was told to forget it has done so"


def test_a_root_that_hangs_and_that_nothing_names_holds_no_recovery_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.folder / "old"
    declare(world, root=old)
    declared_fleet()
    declare(world, "  orders: {job: job.py}")
    monkeypatch.setattr("headgate_airflow.all_roots.FORMER_S", 0.1)
    released, begun = hang(monkeypatch, old), time.monotonic()
    try:
        RecoverLost.execute.__wrapped__(RecoverLost(task_id="t", root_timeout=timedelta(seconds=LONG_S)), CONTEXT)
        with pytest.raises(StorageUnreachable, match=f"{old} has not answered for 0.1 s"):
            check()
        assert time.monotonic() - begun < LONG_S
    finally:
        released.set()


def test_a_watch_on_a_root_that_hangs_takes_no_thread_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = hang(monkeypatch, world.root)

    async def story() -> str:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        watches = [
            asyncio.ensure_future(anext(trigger.run()))
            for trigger in (
                StreamLostTrigger(streams=["orders"], root=f"file://{world.root}"),
                UndeclaredTrigger(streams=["orders"], root=f"file://{world.root}"),
            )
        ]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: "answered"), 20)
        finally:
            released.set()
            for watch in watches:
                watch.cancel()

    assert asyncio.run(story()) == "answered"


def events(trigger: UndeclaredTrigger, *steps: Any) -> list[dict[str, Any]]:
    """What it fires: an event before each step, and one behind the last."""

    async def story() -> list[dict[str, Any]]:
        run, found = trigger.run(), []
        for step in (*steps, lambda: None):
            event = await asyncio.wait_for(anext(run), 60)
            found.append(event.payload)
            step()
        return found

    return asyncio.run(story())


def test_the_watch_fires_at_first_and_when_such_a_stream_comes_or_goes(world: World) -> None:
    def other() -> None:
        world.deployed("other")  # type: ignore[arg-type]
        world.started(stream="other")  # type: ignore[arg-type]
        world.beat(stream="other")  # type: ignore[arg-type]

    trigger = UndeclaredTrigger(streams=["stays"], root=str(world.root), poll_s=0.01)
    told = events(trigger, other, world.stopped)
    assert [each["undeclared"] for each in told] == [[str(STREAM)], [str(STREAM), "other"], ["other"]]


def test_the_watch_tells_once_that_a_former_root_is_gone_and_that_it_is_back(world: World) -> None:
    elsewhere = world.folder / "elsewhere"
    world.root.rename(elsewhere)
    trigger = UndeclaredTrigger(streams=[str(STREAM)], root=str(world.root), former=True, poll_s=0.01)
    back, away = lambda: elsewhere.rename(world.root), lambda: world.root.rename(elsewhere)
    told = events(trigger, back, away, back)
    assert [each.get("gone", each.get("undeclared")) for each in told] == [str(world.root), [], str(world.root), []]
