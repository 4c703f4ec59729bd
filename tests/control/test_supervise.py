"""The supervisor tells whatever goes wrong, and goes on."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate_contract.errors import BadConfiguration, HeadgateError, RestoreRefused
from headgate_contract.heartbeats import StreamState
from headgate_control import Control, StreamStatus
from headgate_control.supervise import Sighting, Supervisor
from tests.control.world import World


@pytest.fixture
def lost(world: World) -> World:
    """A stream whose restart is due."""
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="disk full")
    return world


def looked(control: Control, *, times: int = 1) -> list[tuple[str | None, str, str]]:
    """What a supervisor says that looks so often."""
    told: list[Sighting] = []
    supervisor = Supervisor(control, told.append)
    for _ in range(times):
        with ThreadPoolExecutor(max_workers=1) as pool:
            supervisor.look(pool)
    return [(one.stream, one.what, one.text) for one in told]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RestoreRefused("checkpoint 1 is damaged"), "checkpoint 1 is damaged"),
        (RuntimeError("a mistake of ours"), "RuntimeError: a mistake of ours"),
    ],
)
def test_a_recovery_that_fails_is_told_whatever_it_was(
    lost: World, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    def fail(self: Control, stream: str) -> None:
        raise error

    monkeypatch.setattr(Control, "recover", fail)
    assert looked(lost.control())[-1] == ("orders", "failed", text)


def test_a_look_that_fails_is_told_once_and_the_next_one_looks_again(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_twice(self: Control, streams: Iterable[str] | None = None) -> list[StreamStatus]:
        failed.append(BadConfiguration("not this way"))
        if len(failed) > 2:
            return unhindered(self, streams)
        raise failed[-1]

    def refuse(self: Control, stream: str) -> None:
        raise RestoreRefused("not now")

    failed: list[HeadgateError] = []
    unhindered = Control.fleet
    monkeypatch.setattr(Control, "fleet", fail_twice)
    monkeypatch.setattr(Control, "recover", refuse)
    assert [what for _, what, _ in looked(lost.control(), times=3)] == ["storage", "lost", "failed"]
