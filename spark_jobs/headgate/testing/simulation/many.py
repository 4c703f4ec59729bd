"""Runs seeds one after the other; what a worker process is given."""

from __future__ import annotations

import logging

from headgate.testing.simulation.breaks import BREAKS
from headgate.testing.simulation.report import Report
from headgate.testing.simulation.trace import Trace
from headgate.testing.simulation.world import Simulation


def be_quiet() -> None:
    """What drivers log of faults that were planted interests nobody."""
    logging.disable(logging.CRITICAL)


def simulate_some(chunk: tuple[int, int, str]) -> list[Report]:
    """The seeds from `first` up to `last`, with a planted fault or none."""
    first, last, fault = chunk
    return [simulate(seed, fault) for seed in range(first, last)]


def simulate(seed: int, fault: str = "", trace: Trace | None = None) -> Report:
    """One seed, with a planted fault or none."""
    simulation = Simulation(seed, BREAKS[fault], trace) if fault else Simulation(seed, trace=trace)
    return simulation.run()
