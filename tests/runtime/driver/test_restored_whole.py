"""A restart inside a driver begins as its own newest checkpoint only if it has taken the whole of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.driver.restoring import Restored, Restorer
from headgate.step.operators import Keyed
from headgate_contract.mailbox import RequestKind
from jobs.running_number import number
from tests.runtime.driver import graph_world
from tests.runtime.driver.failing_lives import QUICK
from tests.runtime.driver.graph_world import GraphWorld
from tests.runtime.driver.test_graph_life import UNALIGNED, in_flight
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.timeout(200)


class Slow:
    """Numbers what comes, and takes its time for it until it is to be quick; fails once if it is to."""

    def __init__(self) -> None:
        self.quick, self.fails = threading.Event(), False

    def __call__(self, rows: pa.Table, keyed: Keyed) -> Any:
        self.quick.wait(0.2)
        if self.fails:
            self.fails = False
            raise ValueError("not good")
        return number(rows, keyed)


def test_a_checkpoint_of_which_something_was_left_behind_is_not_what_the_next_life_begins_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, seen, restore = Slow(), list[Restored](), Restorer.restore

    def restored(self: Restorer) -> Restored:
        seen.append(restore(self))
        return seen[-1]

    monkeypatch.setattr(graph_world, "number", step)
    monkeypatch.setattr(Restorer, "restore", restored)
    world = GraphWorld(tmp_path)
    world.settings |= {**UNALIGNED, **QUICK, "execution.checkpointing.interval": "1 h"}
    world.settings["execution.checkpointing.recover-without-channel-state.checkpoint-id"] = "1"
    world.write(20)
    life = world.begin()
    until(lambda: life.heart.progress.batches >= 4, "some wait for the slow step")
    life.ask("first", RequestKind.CHECKPOINT)
    life.answer("first")
    assert in_flight(world)[0] >= 1
    step.fails = True
    step.quick.set()
    world.write(1)
    life.until_restarted()
    until(lambda: len(seen) == 2, "it is restored")
    assert life.stop() is None
    assert seen[1].begins_as is None
