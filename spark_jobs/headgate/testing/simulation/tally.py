"""What many simulations add up to: were all faults and all steps of all life-cycles among them?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from headgate.testing.simulation.lives import STEPS
from headgate.testing.simulation.mishaps import FAULTS
from headgate.testing.simulation.report import Report

LEAST_SHARE = 0.05
LEAST_EVENTS = 200
ENOUGH = 1_000
"""From how many seeds on the least is asked for."""
ENOUGH_FOR_STEPS = 10_000
"""From how many seeds on every legal step is: some take a rare chain of faults."""


@dataclass
class Tally:
    """The sum of the reports so far."""

    seeds: int = 0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """In how many seeds each kind of fault came up."""
    steps: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    violations: int = 0

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.events += report.turns
        self.faults.update(dict.fromkeys(report.faults, 1))
        self.steps.update(report.steps)
        self.seen.update(report.seen)
        self.violations += report.broken is not None

    def lines(self) -> list[str]:
        """What was seen, kind by kind."""
        return [
            *(f"{name}: in {self.faults[name]} seeds, {self._share(name):.1%}" for name in FAULTS),
            *(f"{name}: {self.steps[name]}" for name in sorted(STEPS)),
            *(f"{name}: {count}" for name, count in sorted(self.seen.items())),
        ]

    def missing(self) -> list[str]:
        """What was too rare for these seeds to prove much."""
        if self.seeds < ENOUGH:
            return []
        found = [
            f"{name}: in fewer than {LEAST_SHARE:.0%} of the seeds"
            for name in FAULTS
            if self._share(name) < LEAST_SHARE
        ]
        if self.seeds >= ENOUGH_FOR_STEPS:
            found += [f"{name}: never" for name in sorted(STEPS) if not self.steps[name]]
        if self.events < LEAST_EVENTS * self.seeds:
            found.append(f"fewer than {LEAST_EVENTS} events a seed")
        return found

    def summary(self) -> str:
        return f"simulate: {self.seeds} seeds, {self.events} events, {self.violations} violations"

    def _share(self, name: str) -> float:
        return self.faults[name] / self.seeds if self.seeds else 0.0
