"""Lives whose step fails as a test says, and that restart at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.step.operators import Keyed
from headgate_contract.records import Restarted
from jobs.running_number import number
from tests.runtime.driver.life_world import LifeWorld

QUICK = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "0 s",
}


class Failing:
    """A step that fails at given records, each as often as it says, and then numbers them."""

    def __init__(self, times: dict[int, int], error: Callable[[], Exception] = lambda: ValueError("not good")) -> None:
        self.times = dict(times)
        self.error = error

    def __call__(self, rows: pa.Table, keyed: Keyed) -> Any:
        for id in rows.column("id").to_pylist():
            if self.times.get(id, 0) > 0:
                self.times[id] -= 1
                raise self.error()
        return number(rows, keyed)


def restarts(world: LifeWorld) -> list[Restarted]:
    return [record for record in world.records if isinstance(record, Restarted)]


def failing_world(base: Path, times: dict[int, int], **more: Any) -> LifeWorld:
    world = LifeWorld(base, Failing(times, **more))
    world.settings.update(QUICK)
    return world
