"""Each law is looked at after each turn: what breaks one by itself, behind everybody's back, is found at once."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from headgate.testing.simulation.world import Simulation
from headgate_contract.ids import CheckpointId


class Sabotaged(Simulation):
    """Does `harm` between two turns as soon as it can."""

    harms: Callable[[Simulation], bool]
    harmed_at = 0

    def step(self) -> None:
        super().step()
        if not self.harmed_at and self.harms(self):
            self.harmed_at = self.turns


def lose_a_file(simulation: Simulation) -> bool:
    needed = [path for path, times in simulation.laws.needed.items() if times > 0 and "/shared/" in path]
    for path in needed[:1]:
        del simulation.disk.objects[path]
        simulation.disk.changes += 1
    return bool(needed)


def show_twice(simulation: Simulation) -> bool:
    published = simulation.database.published
    groups = [group for group in sorted(published) if published[group]]
    if len(groups) < 2:
        return False
    published[groups[1]] = (*published[groups[1]], *published[groups[0]])
    simulation.database.changes += 1
    return True


def hide(simulation: Simulation) -> bool:
    published = simulation.database.published
    groups = [group for group in sorted(published) if published[group]]
    if len(groups) < 2:
        return False
    del published[groups[0]]
    simulation.database.changes += 1
    return True


def show_without_slot(simulation: Simulation) -> bool:
    simulation.database.published[CheckpointId(10_000)] = ()
    simulation.database.changes += 1
    return True


def show_what_was_left_behind(simulation: Simulation) -> bool:
    database = simulation.database
    hidden = sorted(group for group in database.retracted if group in simulation.laws.completed)
    for group in hidden[:1]:
        database.published[group] = ()
        database.changes += 1
    return bool(hidden)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lose_a_file, "is gone, which a completed snapshot needs"),
        (show_twice, "doubled in the output"),
        (hide, "are lost"),
        (show_without_slot, "are visible and have no slot"),
        (show_what_was_left_behind, "which generation . does not stand on"),
    ],
)
def test_a_law_that_is_broken_between_two_turns_is_found_after_the_next(
    harm: Callable[[Simulation], bool], says: str
) -> None:
    for seed in range(1000):
        simulation = Sabotaged(seed)
        if simulation.model.graph is not None:
            continue
        simulation.harms = harm  # type: ignore[method-assign, assignment]
        report = simulation.run()
        if simulation.harmed_at:
            break
    assert report.broken is not None
    assert re.search(says, report.broken)
    assert report.turns - simulation.harmed_at <= 3, "found by the next turn that is somebody's"
