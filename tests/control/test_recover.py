"""Tier 2: a lost stream is found and restarted once, by whoever comes first, as its restart strategy allows."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from headgate_contract.errors import BadInput, RestoreRefused
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation
from headgate_contract.mailbox import Mailbox
from headgate_contract.process import this_host
from headgate_contract.records import StopWanted
from headgate_control import Asked, Condition, Control, Explanation, Launched, NotNeeded
from headgate_control.explain import explain
from headgate_control.processes import wait_gone
from headgate_control.starting import Starter
from tests.control.test_processes import is_over
from tests.control.world import STREAM, World, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def crashed(world: World) -> World:
    """A stream whose driver took a checkpoint and was killed."""
    world.deployed()
    control = world.control()
    launched = control.start(STREAM)
    control.checkpoint(STREAM)
    os.killpg(launched.process.pid, signal.SIGKILL)
    assert wait_gone(launched.process, 60)
    return world


def test_a_killed_driver_is_lost_and_recovered_from_its_newest_checkpoint(crashed: World) -> None:
    control = crashed.control("watcher")
    assert [lost.stream for lost in control.lost()] == [STREAM]
    found = control.recover(STREAM)
    assert isinstance(found, Launched)
    assert (found.generation, found.state) == (2, StreamState.RUNNING)
    newest = crashed.catalogue().newest_generation
    assert newest is not None
    assert (newest.replaces, newest.by) == (1, "watcher")
    assert newest.decision == found.decision
    assert control.lost() == []


def test_what_a_killed_driver_has_left_behind_frozen_ends_with_the_recovery(world: World) -> None:
    note = world.folder / "child"
    world.write_job(
        "import os, pathlib, signal, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "os.kill(child.pid, signal.SIGSTOP)\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
    )
    world.deployed()
    control = world.control()
    launched = control.start(STREAM)
    child = psutil.Process(int(note.read_text()))
    try:
        world.write_job("")
        world.deployed()
        os.kill(launched.process.pid, signal.SIGKILL)
        assert wait_gone(launched.process, 60)
        assert isinstance(control.recover(STREAM), Launched)
        until(lambda: is_over(child))
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def test_eight_recoveries_at_once_launch_exactly_one(crashed: World) -> None:
    controls = [crashed.control(f"watcher-{number}") for number in range(8)]
    found: list[Launched | NotNeeded] = []
    barrier = threading.Barrier(8)

    def recover(control: Control) -> None:
        barrier.wait()
        found.append(control.recover(STREAM))

    threads = [threading.Thread(target=recover, args=(control,)) for control in controls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert sum(isinstance(one, Launched) for one in found) == 1
    newest = crashed.catalogue().newest_generation
    assert newest is not None
    assert newest.generation == 2
    losers = [one for one in found if isinstance(one, NotNeeded)]
    assert {(loser.generation, loser.by) for loser in losers} == {(2, newest.by)}


def test_a_running_stream_needs_no_recovery(world: World) -> None:
    world.deployed()
    world.control().start(STREAM)
    found = world.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert "is running" in found.reason


def test_a_frozen_driver_is_lost_and_fenced_when_it_wakes(world: World) -> None:
    world.deployed()
    control = world.control()
    frozen = control.start(STREAM)
    world.freeze(frozen.process)
    until(control.lost)
    found = control.recover(STREAM, kill_old=False)
    assert isinstance(found, Launched)
    os.kill(frozen.process.pid, signal.SIGCONT)
    assert wait_gone(frozen.process, 60)
    assert control.status(STREAM).condition is Condition.RUNNING
    assert control.status(STREAM).generation == 2


def test_a_frozen_driver_is_killed_unless_told_otherwise(world: World) -> None:
    world.deployed()
    control = world.control()
    frozen = control.start(STREAM)
    world.freeze(frozen.process)
    until(lambda: control.status(STREAM).condition is not Condition.RUNNING)
    assert isinstance(world.control().recover(STREAM), Launched)
    assert wait_gone(frozen.process, 60)


def test_a_stopped_stream_is_never_recovered(world: World) -> None:
    world.deployed()
    control = world.control()
    control.start(STREAM)
    control.stop(STREAM)
    assert control.lost() == []
    assert isinstance(control.recover(STREAM), NotNeeded)


def test_a_crash_while_it_was_wanted_stopped_is_not_recovered(crashed: World) -> None:
    crashed.control().stop(STREAM)
    assert crashed.control().lost() == []
    assert isinstance(crashed.control().recover(STREAM), NotNeeded)


def test_the_strategy_makes_it_wait(crashed: World) -> None:
    crashed.deployed()
    world = crashed
    world.deployed(restart_strategy__fixed_delay__delay="1 h")
    world.control().start(STREAM)
    status = world.control().status(STREAM)
    assert status.process is not None
    os.killpg(status.process.pid, signal.SIGKILL)
    wait_gone(status.process, 60)
    found = world.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert found.retry_in_s == pytest.approx(3600, abs=10)
    assert world.control().lost() == []
    assert world.control().status(STREAM).lost is not None


def test_a_recovery_that_fails_counts_and_is_tried_again_until_given_up(crashed: World) -> None:
    crashed.job.write_text(crashed.job.read_text())
    control = crashed.control()
    for replaces in (1, 2, 3):
        crashed.started(replaces=replaces)
        crashed.beat(StreamState.FAILED, cause="no port is free")
    found = control.recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert found.given_up
    assert "restarted 3 times already" in found.reason
    assert control.lost() == []
    assert isinstance(control.start(STREAM), Launched), "a person may start it all the same"


def test_a_refused_recovery_waits_for_a_person_and_is_not_tried_for_ever(crashed: World) -> None:
    crashed.damage_metadata(crashed.catalogue().snapshots[0])
    control = crashed.control()
    with pytest.raises(RestoreRefused, match="checkpoint 1 cannot be restored"):
        control.recover(STREAM)
    status = control.status(STREAM)
    assert status.condition is Condition.FAILED
    assert "gave up" in status.text
    assert control.lost() == []
    assert isinstance(control.recover(STREAM), NotNeeded)
    told = [(event.what, event.outcome) for event in control.history(STREAM)]
    assert told[-2:] == [("recover", "ISSUED"), ("recover", "FAILED")]


def test_recovery_runs_what_ran_not_what_was_deployed_since(crashed: World) -> None:
    crashed.deployed(parallelism__default="3")
    assert isinstance(crashed.control().recover(STREAM), Launched)
    newest = crashed.catalogue().newest_generation
    assert newest is not None
    assert newest.deployed == 1


def test_recovery_runs_what_was_deployed_since_if_the_job_file_is_that_one_now(crashed: World) -> None:
    crashed.write_job("# the next version")
    crashed.deployed()
    found = crashed.control().recover(STREAM)
    assert isinstance(found, Launched)
    assert "deployed since" in found.warnings[0]


def test_a_recovery_whose_job_file_is_gone_waits_for_a_person(crashed: World) -> None:
    crashed.job.unlink()
    control = crashed.control()
    with pytest.raises(BadInput, match=r"the job file .*job\.py cannot be read"):
        control.recover(STREAM)
    status = control.status(STREAM)
    assert status.condition is Condition.FAILED
    assert "gave up: the job file" in status.text
    assert control.lost() == []


def test_a_stop_that_comes_while_a_recovery_claims_wins(crashed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def claim_then_somebody_stops(self: Starter, *args: Any) -> object:
        claimed = unhindered(self, *args)
        crashed.decide(StopWanted(generation=Generation(1), by="boris", reason="stop", at_ms=1))
        return claimed

    unhindered = Starter._claim
    monkeypatch.setattr(Starter, "_claim", claim_then_somebody_stops)
    found = crashed.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert "boris" in found.reason
    status = crashed.control().status(STREAM)
    assert (status.condition, status.generation) == (Condition.STOPPED, 2)


def test_a_recovery_that_stalled_leaves_a_stream_that_was_stopped_and_started_meanwhile_alone(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_then_somebody_stops_and_starts(self: Starter, *args: Any) -> object:
        claimed = unhindered(self, *args)
        crashed.decide(StopWanted(generation=Generation(1), by="boris", reason="stop", at_ms=1))
        crashed.started()
        return claimed

    unhindered = Starter._claim
    monkeypatch.setattr(Starter, "_claim", claim_then_somebody_stops_and_starts)
    found = crashed.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert "generation 3" in found.reason
    assert crashed.control().status(STREAM).condition is Condition.LAUNCHED, "its log is whole"


def test_a_stop_whose_driver_is_withdrawn_before_it_began_is_done(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Asked] = []

    def claim_while_somebody_stops(self: Starter, *args: Any) -> object:
        claimed = unhindered(self, *args)
        crashed.decide(StopWanted(generation=Generation(1), by="boris", reason="stop", at_ms=1))
        stopping.start()
        until(lambda: Mailbox(crashed.store, STREAM).open_requests())
        return claimed

    unhindered = Starter._claim
    stopping = threading.Thread(target=lambda: told.append(crashed.control("boris").stop(STREAM)))
    monkeypatch.setattr(Starter, "_claim", claim_while_somebody_stops)
    assert isinstance(crashed.control().recover(STREAM), NotNeeded)
    stopping.join(60)
    assert [asked.answer for asked in told] == [None]
    assert "it stays stopped" in told[0].note
    assert crashed.control().status(STREAM).condition is Condition.STOPPED


def test_a_driver_that_wakes_while_a_recovery_decides_keeps_its_stream(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_writes_then_claim(self: Starter, *args: Any) -> object:
        crashed.snapshot()
        return unhindered(self, *args)

    unhindered = Starter._claim
    monkeypatch.setattr(Starter, "_claim", somebody_writes_then_claim)
    found = crashed.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert "lives" in found.reason


def test_lost_never_blocks_and_confirms_between_calls(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deployed(heartbeat__interval="300 ms")
    control = world.control()
    frozen = control.start(STREAM)
    world.freeze(frozen.process)
    until(lambda: control.status(STREAM).condition is not Condition.RUNNING)
    fresh = world.control()
    with monkeypatch.context() as blocking:
        blocking.setattr("headgate_control.status.time", SimpleNamespace(monotonic=time.monotonic))  # none can sleep
        assert fresh.lost() == []
    until(fresh.lost)
    assert fresh.status(STREAM).host == this_host()


def test_a_driver_that_wakes_while_it_is_looked_at_is_not_given_up_for_what_it_has_subsumed(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of a log may be overtaken: the checkpoint that it names is gone, and a newer one is there."""
    until(crashed.control().lost)
    old = crashed.catalogue().snapshots[0]

    def wake(*arguments: Any, **more: Any) -> Explanation:
        crashed.snapshot(retires=(old.id,))
        crashed.store.delete_all(old.folder)
        return explain(*arguments, **more)

    monkeypatch.setattr("headgate_control.starting.explain", wake)
    found = crashed.control().recover(STREAM)
    assert isinstance(found, NotNeeded)
    assert "has just written to the log" in found.reason
    assert not found.given_up
    assert crashed.control().status(STREAM).stop_wanted is None
