"""A task of a job with channels that hangs: it is named, and the life ends; who only waits for it is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate.driver.under_way import BATCH_TIMEOUT, SOURCE_TIMEOUT, TIMEOUT
from headgate.driver.watchdog import Actions, Watchdog
from headgate.testing.stand_in import StandInEngine
from tests.runtime.driver.failing_lives import QUICK, restarts
from tests.runtime.driver.graph_world import GraphWorld
from tests.runtime.driver.waiting import PATIENCE_S


def test_a_task_that_hangs_ends_the_life_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources wait for room behind it meanwhile, and the other task for records: neither is told of."""
    world = GraphWorld(tmp_path)
    world.settings.update({**QUICK, TIMEOUT: "2 s", SOURCE_TIMEOUT: "2 s", BATCH_TIMEOUT: "2 s"})
    let_go, hung = threading.Event(), threading.Event()
    run, halt = StandInEngine.run_written, StandInEngine.halt

    def hang(engine: StandInEngine, *given: object) -> object:
        if not hung.is_set():
            hung.set()
            let_go.wait(PATIENCE_S)
        return run(engine, *given)  # type: ignore[arg-type]

    def interrupt(engine: StandInEngine) -> bool:
        let_go.set()
        return halt(engine)

    monkeypatch.setattr(StandInEngine, "run_written", hang)
    monkeypatch.setattr(StandInEngine, "halt", interrupt)
    for _ in range(4):
        world.write(1)
    life = world.begin()
    setup = life.life._setup
    actions = Actions(
        end_life=life.life.end_life,
        tell=life.life.tell_standstill,
        end_processes=let_go.set,
        kill=lambda pid: None,
        die=lambda code: None,
        stopped=list,
    )
    dog = Watchdog(setup.under_way, setup.settings, life.heart, actions)
    dog.start()
    try:
        life.until_restarted()
        life.read_all()
    finally:
        dog.close()
    (restart,) = restarts(world)
    assert restart.cause.startswith("no progress: a micro-batch of task number, from pair->number, has been under way")
    assert life.stop() is None
    world.check_output()
