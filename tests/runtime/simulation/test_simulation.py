"""The protocol under simulation: nothing breaks a law, and each planted fault does."""

from __future__ import annotations

import pytest

from headgate.testing.simulation.breaks import BREAKS
from headgate.testing.simulation.many import simulate, simulate_some


def test_no_seed_breaks_a_law_and_every_kind_of_fault_comes_up() -> None:
    reports = simulate_some((0, 80, ""))
    assert [(report.seed, report.broken) for report in reports if report.broken] == []
    faults = {fault for report in reports for fault in report.faults}
    storage = {"storage: refused", "storage: lost answer", "storage: twice", "storage: late"}
    assert faults == {*storage, "crash", "freeze", "wake", "suspicion", "clock jump", "duplicate ack", "foreign ack"}
    assert sum(report.turns for report in reports) > 200 * len(reports)


@pytest.mark.parametrize("fault", BREAKS)
def test_a_planted_fault_is_found(fault: str) -> None:
    assert any(simulate(seed, fault).broken for seed in range(300))


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (simulate(41) for _ in range(2))
    assert first == second
