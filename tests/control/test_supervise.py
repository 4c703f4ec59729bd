"""The supervisor tells whatever goes wrong, and goes on."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate_contract.errors import BadConfiguration, HeadgateError, RestoreRefused, StorageError
from headgate_contract.heartbeats import StreamState
from headgate_control import Control, StreamStatus
from headgate_control.supervise import Sighting, Supervisor
from tests.control.command_line import Cli
from tests.control.world import World


@pytest.fixture
def lost(world: World) -> World:
    """A stream whose restart is due."""
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="disk full")
    return world


def looked(control: Control, *, times: int = 1, every_s: float = 200.0) -> list[tuple[str | None, str, str]]:
    """What a supervisor says that looks so often."""
    told: list[Sighting] = []
    now = 0.0
    supervisor = Supervisor(control, told.append, clock=lambda: now)
    for _ in range(times):
        with ThreadPoolExecutor(max_workers=1) as pool:
            supervisor.look(pool)
        now += every_s
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
    assert looked(lost.control())[-1] == ("orders", "failed", f"{text} (tried again in 2 s)")


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


def test_a_recovery_that_fails_again_and_again_is_tried_after_pauses_that_double(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Control, stream: str) -> None:
        raise RestoreRefused("not now")

    monkeypatch.setattr(Control, "recover", refuse)
    told = looked(lost.control(), times=301, every_s=1.0)
    failed = [text for _, what, text in told if what == "failed"]
    pauses = (2, 4, 8, 16, 32, 64, 120, 120)
    assert failed == [f"not now (tried again in {pause} s)" for pause in pauses]


class Looks:
    """A supervisor that a test lets look, second after second."""

    def __init__(self, control: Control) -> None:
        self.now, self.told = 0.0, list[Sighting]()
        self._supervisor = Supervisor(control, self.told.append, clock=lambda: self.now)

    def look(self, seconds: int = 1) -> list[tuple[str, float]]:
        """What it says in these seconds, and when."""
        said: list[tuple[str, float]] = []
        for _ in range(seconds):
            before = len(self.told)
            with ThreadPoolExecutor(max_workers=1) as pool:
                self._supervisor.look(pool)
            said += [(one.what, self.now) for one in self.told[before:]]
            self.now += 1.0
        return said


def test_a_root_that_is_back_is_looked_at_within_seconds_and_its_next_outage_is_told_as_well(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(lost.control())
    with monkeypatch.context() as outage:
        for _ in range(2):
            asked: list[float] = []

            def fail(self: Control, streams: Iterable[str] | None = None, asked: list[float] = asked) -> None:
                asked.append(looks.now)
                raise BadConfiguration("gone")

            outage.setattr(Control, "fleet", fail)
            begun = looks.now
            assert [what for what, _ in looks.look(seconds=301)] == ["storage"]
            assert [at - begun for at in asked[:5]] == [0, 2, 6, 11, 16], "a listing is no launch: 5 s are enough"
            outage.undo()
            outage.setattr(Control, "recover", lambda self, stream: refuse())
            back = looks.now
            assert looks.look(seconds=5)[0][1] < back + 5


def refuse() -> None:
    raise RestoreRefused("not now")


def test_a_stream_that_has_run_meanwhile_is_taken_for_well_its_next_loss_is_told_and_recovered_as_a_first_one(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Control, "recover", lambda self, stream: refuse())
    looks = Looks(lost.control())
    assert [what for what, _ in looks.look(seconds=40)] == ["lost", *["failed"] * 5]
    lost.started()
    lost.beat(StreamState.RESTORING)
    looks.look()
    lost.beat(StreamState.FAILED, cause="disk full")
    assert looks.look() == [("lost", 41.0)], "it has not run: the pause goes on"
    lost.started()
    lost.beat(StreamState.RUNNING)
    assert looks.look() == []
    lost.beat(StreamState.FAILED, cause="disk full")
    begun = looks.now
    assert looks.look(seconds=4) == [("lost", begun), ("failed", begun), ("failed", begun + 2)]


def test_a_log_that_cannot_be_read_is_told_again_after_it_could_be(world: World) -> None:
    world.deployed()
    world.started()
    world.beat()
    looks = Looks(world.control())
    slot = world.root / "streams/orders/slots/00000002.json"
    for _ in range(2):
        slot.write_bytes(b"torn")
        assert [what for what, _ in looks.look(seconds=3)] == ["unreadable"]
        slot.unlink()
        assert looks.look() == []


def test_one_life_that_is_lost_comes_back_and_is_lost_again_is_told_twice(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Control, "recover", lambda self, stream: refuse())
    looks = Looks(lost.control())
    for _ in range(2):
        assert looks.look()[0][0] == "lost"
        lost.beat(StreamState.RUNNING)
        looks.look()
        lost.beat(StreamState.FAILED, cause="disk full")


def test_storage_that_does_not_answer_when_it_begins_is_told_and_watched_on(
    lost: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Control, stream: str) -> StreamStatus:
        raise StorageError("the connection was closed")

    ran: list[Supervisor] = []
    monkeypatch.setattr(Control, "status", fail)
    monkeypatch.setattr(Supervisor, "run", lambda self, every_s, ended: ran.append(self))
    result = cli("supervise", "orders")
    assert (result.code, len(ran)) == (0, 1)
    assert "whether there is a stream orders cannot be told yet: the connection was closed" in result.err


def test_a_stream_that_was_never_deployed_is_a_mistake(lost: World, cli: Cli) -> None:
    assert cli("supervise", "oders").code == 3
