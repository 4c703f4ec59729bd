"""How long a driver may take until it runs: one that is silent is ended then, one that is at work is left alone."""

from __future__ import annotations

import time

import pytest

from headgate_contract.errors import LaunchFailed
from headgate_contract.heartbeats import StreamState, read_heartbeat
from headgate_contract.ids import Generation
from headgate_control import Condition, launch
from headgate_control.outcomes import ProcessSign
from tests.control.world import STREAM, World, until

pytestmark = pytest.mark.e2e


def test_a_driver_without_any_sign_of_life_is_ended_at_the_startup_timeout(world: World) -> None:
    world.write_job("MODE = 'mute'")
    world.deployed(headgate__startup_timeout="1500 ms")
    with pytest.raises(LaunchFailed, match=r"launched and silent after 1500 ms.*was ended"):
        world.control().start(STREAM)
    status = world.control().status(STREAM)
    assert (status.condition, status.process_sign) == (Condition.FAILED, ProcessSign.GONE)


class LaunchersClock:
    """A second goes by with each pause of the launcher, once the driver has said that it restores: however long
    its interpreter takes to start."""

    def __init__(self, world: World, *, beating: bool) -> None:
        self._world = world
        self._beating = beating
        """Only when the driver has given another sign of life."""
        self._counter = 0
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        seen = read_heartbeat(self._world.store, STREAM, Generation(1))
        beat = seen.heartbeat if seen is not None else None
        if beat is not None and beat.state is StreamState.RESTORING:
            self._now += not self._beating or beat.counter > self._counter
            self._counter = beat.counter


def test_a_driver_that_falls_silent_while_it_restores_is_ended_at_the_startup_timeout(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "time", LaunchersClock(world, beating=False))
    world.write_job("MODE = 'stuck'")
    world.deployed(headgate__startup_timeout="4 s", heartbeat__timeout="2 s")
    with pytest.raises(LaunchFailed, match=r"restoring and silent after 4 s.*was ended"):
        world.control().start(STREAM)
    assert world.control().status(STREAM).process_sign is ProcessSign.GONE


def test_a_driver_that_restores_for_long_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "time", LaunchersClock(world, beating=True))
    world.write_job("MODE = 'slow'")
    world.deployed(headgate__startup_timeout="4 s")
    with pytest.raises(LaunchFailed, match="still restoring after 4 s"):
        world.control().start(STREAM)
    assert world.control().status(STREAM).condition is Condition.RESTORING
    assert world.control().status(STREAM).stop_wanted is None
    (world.folder / "mark").touch()
    until(lambda: world.control().status(STREAM).condition is Condition.RUNNING)
