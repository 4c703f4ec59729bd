"""Whole lives, without Spark: a checkpoint is said to be current as of no moment at which the source has not looked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import StreamFailed
from headgate_contract.heartbeats import StreamState
from tests.runtime.driver.failing_lives import QUICK, Failing
from tests.runtime.driver.life_world import LifeWorld, Running
from tests.runtime.driver.waiting import PATIENCE_S, until

ROUNDED_S = 0.01
"""Moments are told in whole milliseconds."""


class Gate:
    """Lets an engine hang at one place, once it is closed."""

    def __init__(self) -> None:
        self._closed, self._open = threading.Event(), threading.Event()
        self._hit = threading.Event()

    def engine(self, place: str) -> type[StandInEngine]:
        class Hanging(StandInEngine):
            def reach(inner, at: str) -> None:  # noqa: N805
                if at == place and self._closed.is_set():
                    self._hit.set()
                    self._open.wait(PATIENCE_S)

        return Hanging

    def close(self) -> None:
        self._closed.set()

    def wait_until_it_hangs(self) -> None:
        assert self._hit.wait(PATIENCE_S)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def idle(world: LifeWorld, life: Running) -> None:
    life.read_all()
    until(lambda: as_of_s(life) is not None, "a checkpoint is current")
    began = time.time()
    until(lambda: (as_of_s(life) or 0) > began, "the moment moves on while nothing comes")
    until(lambda: len(world.output()) == world.written, "what is current is published")


def as_of_s(life: Running) -> float | None:
    current = life.heart.progress.current
    return None if current is None else current.as_of_ms / 1000


def some_intervals() -> None:
    """Nothing tells that nothing is said: some checkpoint intervals and looks go by."""
    time.sleep(1.3)


def went_on(life: Running, since: float) -> None:
    life.read_all()
    until(lambda: (as_of_s(life) or 0) > since, "it has looked since, and has everything")
    life.stop()


def check(world: LifeWorld, life: Running, gate: Gate) -> None:
    came = time.time()
    world.write(1)
    some_intervals()
    moment = as_of_s(life)
    gate.open()
    assert moment is None or moment < came + ROUNDED_S, "nobody has read what has come since"
    went_on(life, came)


def world_of(tmp_path: Path, engine: type[StandInEngine], step: Callable[..., object] | None = None) -> LifeWorld:
    world = LifeWorld(tmp_path) if step is None else LifeWorld(tmp_path, step)  # type: ignore[arg-type]
    world.settings.update(QUICK)
    world.engine_class = engine
    world.write(2)
    return world


def test_while_a_restart_has_not_begun_its_queries(tmp_path: Path, gate: Gate) -> None:
    world = world_of(tmp_path, gate.engine("begin"))
    life = world.begin()
    idle(world, life)
    gate.close()
    life.life.end_life(StreamFailed("a failure"))
    gate.wait_until_it_hangs()
    assert life.heart.state is StreamState.RESTORING
    check(world, life, gate)


def test_while_the_source_hangs_in_its_look(tmp_path: Path, gate: Gate) -> None:
    world = world_of(tmp_path, gate.engine("listing"))
    life = world.begin()
    idle(world, life)
    gate.close()
    gate.wait_until_it_hangs()
    assert life.heart.state is StreamState.RUNNING
    check(world, life, gate)


def test_of_what_was_handed_over_and_lost_with_a_life_nothing_is_said(tmp_path: Path, gate: Gate) -> None:
    world = world_of(tmp_path, gate.engine("begin"), Failing({41: 1}))
    life = world.begin()
    idle(world, life)
    gate.close()
    came = time.time()
    world.write(1)  # ids 40 to 59: handed over, and the step fails
    gate.wait_until_it_hangs()
    some_intervals()
    moment = as_of_s(life)
    gate.open()
    assert moment is None or moment < came + ROUNDED_S, "what had come then is in no checkpoint"
    went_on(life, came)
