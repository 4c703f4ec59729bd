"""Lives in which something hangs: what can be mended here goes on by itself, what cannot ends the driver by name."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.driver import parts
from headgate.driver.loop import CoordinatorLoop
from headgate.driver.under_way import BATCH_TIMEOUT, SOURCE_TIMEOUT, TIMEOUT, DriverSpent, Part, Remedy
from headgate.driver.watchdog import Actions, Watchdog
from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import StreamFailed
from headgate_contract.heartbeats import Heartbeat, StreamState
from headgate_contract.history import read_history
from tests.runtime.driver.failing_lives import QUICK, restarts
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import PATIENCE_S, until


class Hangs:
    """Where the engine hangs: at the N-th time that it comes by, until it is let go."""

    def __init__(self) -> None:
        self.place, self.time = "", 1
        self.hung, self.let_go = threading.Event(), threading.Event()

    def at(self, place: str, time: int = 1) -> None:
        self.place, self.time = place, time

    def reach(self, place: str) -> None:
        if place == self.place:
            self.time -= 1
            if self.time == 0:
                self.hung.set()
                self.let_go.wait(PATIENCE_S)


class Gone(Exception):
    """What py4j raises of a JVM that was killed."""


class Watched:
    """A stream whose lives are watched as a driver's are; what would be killed is let go, and says that it is gone."""

    def __init__(self, base: Path) -> None:
        self.hangs = hangs = Hangs()
        self.killed = False
        watched = self

        class HangingEngine(StandInEngine):
            def reach(self, place: str) -> None:
                hangs.reach(place)
                if watched.killed and place in {"asked", "begin", "run"}:
                    raise Gone(place)

            def failure(self) -> str | None:
                try:
                    return super().failure()
                except Gone:
                    return "Spark's JVM is gone"

            def halt(self) -> bool:
                return super().halt() and not watched.killed

        self.world = LifeWorld(base)
        self.world.settings.update({**QUICK, TIMEOUT: "2 s", SOURCE_TIMEOUT: "2 s", BATCH_TIMEOUT: "2 s"})
        self.world.engine_class = HangingEngine
        self.world.write(3)

    def begin(self) -> Running:
        self.life = self.world.begin()
        self.watch()
        return self.life

    def watch(self) -> None:
        life, setup = self.life, self.life.life._setup
        actions = Actions(
            end_life=life.life.end_life,
            tell=life.life.tell_standstill,
            end_processes=self.kill,
            kill=lambda pid: None,
            die=lambda code: None,
            stopped=list,
        )
        self.dog = Watchdog(setup.under_way, setup.settings, life.heart, actions)
        self.dog.start()

    def told(self) -> list[str]:
        """What the history has of it."""
        return [event.text for event in read_history(self.world.store, STREAM) if event.what == "progress"]

    def kill(self) -> None:
        self.killed = True
        self.hangs.let_go.set()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.hangs.let_go.set()
    found.dog.close()


@pytest.mark.parametrize(
    ("place", "time", "what"),
    [
        ("run", 2, "micro-batch 1 of source records has been under way"),
        ("position_after", 1, "micro-batch 0 of source records has been under way"),
        ("listing", 3, "source records has been looking for new records"),
    ],
)
def test_what_hangs_in_a_sources_thread_ends_the_life_and_by_name(
    watched: Watched, place: str, time: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is let go when the engine is halted, as Spark's interrupts do: the next life follows here."""
    halt = StandInEngine.halt

    ending: list[Heartbeat] = []

    def interrupt(engine: StandInEngine) -> bool:
        ending.append(watched.world.heartbeat(1))
        watched.hangs.let_go.set()
        return halt(engine)

    monkeypatch.setattr(StandInEngine, "halt", interrupt)
    watched.hangs.at(place, time)
    life = watched.begin()
    life.until_restarted()
    life.read_all()
    assert ending[0].state is StreamState.RESTORING, "an end may take a while: meanwhile nobody says that it runs"
    assert (ending[0].cause or "").startswith(f"no progress: {what} for 2 s")
    (restart,) = restarts(watched.world)
    assert restart.cause.startswith(f"no progress: {what} for 2 s (headgate.progress.")
    assert life.heart.progress.standstills == 1
    assert not watched.killed
    assert life.stop() is None
    watched.world.check_output()


@pytest.mark.parametrize(
    ("place", "time", "what"),
    [
        ("open", 1, "Spark has been starting"),
        ("begin", 1, "the queries have been starting"),
        ("asked", 5, "Spark's JVM has not answered"),
    ],
)
def test_an_engine_that_hangs_ends_the_driver_with_the_cause(
    watched: Watched, place: str, time: int, what: str
) -> None:
    watched.world.settings[BATCH_TIMEOUT] = "1 h"  # the whole restore's
    watched.hangs.at(place, time)
    error = watched.begin().wait()
    assert isinstance(error, DriverSpent)
    assert str(error).startswith(f"no progress: {what} for 2 s")
    assert watched.killed
    until(lambda: str(error) in watched.told(), "the history has it")
    assert restarts(watched.world) == []
    watched.killed, watched.hangs.place = False, ""
    again = watched.begin()
    again.read_all()
    assert again.stop() is None
    watched.world.check_output()


def test_a_life_that_does_not_end_ends_the_driver(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "END", Part("it has been ending", "", Remedy.REPLACE, 500))
    watched.world.step = lambda *_: 1 / 0
    watched.hangs.at("halt")
    error = watched.begin().wait()
    assert isinstance(error, DriverSpent)
    assert "it has been ending" in str(error)


def test_a_coordinator_that_hangs_ends_the_life(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = watched.hangs.let_go
    step, close = CoordinatorLoop._run_afterwards, CoordinatorLoop.close

    def hang(loop: CoordinatorLoop) -> None:
        hung.wait(PATIENCE_S)
        step(loop)

    def let_go(loop: CoordinatorLoop) -> bool:
        hung.set()
        return close(loop)

    monkeypatch.setattr(CoordinatorLoop, "_run_afterwards", hang)
    monkeypatch.setattr(CoordinatorLoop, "close", let_go)
    life = watched.begin()
    life.until_restarted()
    assert "the coordinator has not gone round for 2 s" in restarts(watched.world)[0].cause
    life.read_all()
    assert life.stop() is None
    watched.world.check_output()


def test_an_idle_stream_is_not_stuck(watched: Watched) -> None:
    """Three times as long as anything may stand still, with every setting as short as that.

    It is watched from then on: before, a disk that is busy may take as long for a checkpoint.
    """
    watched.world.settings.update(dict.fromkeys((TIMEOUT, SOURCE_TIMEOUT, BATCH_TIMEOUT), "1 s"))
    watched.life = life = watched.world.begin()
    life.read_all()
    watched.world.calm()
    watched.watch()
    pause = threading.Event()
    pause.wait(3)
    assert life.heart.progress.standstills == 0
    assert life.heart.state is StreamState.RUNNING
    assert life.stop() is None


# ---- the working folder


def test_a_driver_whose_working_folder_is_deleted_ends_by_name(watched: Watched) -> None:
    life = watched.begin()
    life.read_all()
    work = watched.world.base / "g1"
    work_known(life)
    gone(work)
    error = life.wait()
    assert isinstance(error, DriverSpent)
    assert str(error).startswith(f"the working folder {work} was deleted while the driver ran; set headgate.work-dir")
    again = watched.begin()
    watched.world.write(2)
    again.read_all()
    assert again.stop() is None
    watched.world.check_output()


def test_a_life_that_fails_of_a_deleted_folder_is_not_followed_here(watched: Watched) -> None:
    life = watched.begin()
    life.read_all()
    work_known(life)
    gone(watched.world.base / "g1")
    life.life.end_life(StreamFailed("the shuffle file is gone"))
    error = life.wait()
    assert isinstance(error, DriverSpent)
    assert restarts(watched.world) == []


def test_state_that_was_deleted_is_restored_here(watched: Watched) -> None:
    life = watched.begin()
    life.read_all()
    life.until_completed(1)
    gone(watched.world.base / "g1" / "state")
    watched.world.write(2)
    life.until_restarted()
    life.read_all()
    assert life.stop() is None
    watched.world.check_output()


def gone(folder: Path) -> None:
    """Deleted at once: file by file, a life that ends of it would delete beside us."""
    away = folder.with_name("away")
    folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def work_known(life: Running) -> None:
    """The stand-in has no scratch folder of its own: what Spark makes is made here, and has been seen."""
    folder = life.life._folder
    until(lambda: folder._known, "it was looked at")
