"""The protocol under simulation: nothing breaks a law, and each planted fault does."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from headgate.testing.simulation.__main__ import main
from headgate.testing.simulation.breaks import BREAKS
from headgate.testing.simulation.lives import STEPS, IllegalStep, Steps
from headgate.testing.simulation.many import simulate, simulate_some
from headgate.testing.simulation.mishaps import FAULTS
from headgate.testing.simulation.report import Report
from headgate.testing.simulation.tally import ENOUGH, ENOUGH_FOR_STEPS, Tally
from headgate.testing.simulation.trace import LAST


def test_no_seed_breaks_a_law_and_every_kind_of_fault_comes_up() -> None:
    reports = simulate_some((0, 80, ""))
    assert [(report.seed, report.broken) for report in reports if report.broken] == []
    assert {fault for report in reports for fault in report.faults} == set(FAULTS)
    assert sum(report.turns for report in reports) > 200 * len(reports)


RARE = {
    "accept-foreign-ack": 90,
    "current-by-positions": 55,
    "incremental-on-unconfirmed": 372,
    "no-block-in-aligned": 40,
    "no-fence": 30,
    "restart-without-slot": 2440,
}
"""Faults that few seeds find, and one from which on it does not take long."""


@pytest.mark.parametrize("fault", BREAKS)
def test_a_planted_fault_is_found_and_its_last_turns_are_told(fault: str) -> None:
    first = RARE.get(fault, 0)
    found = next(report for seed in range(first, first + 2000) if (report := simulate(seed, fault)).broken)
    turns = [int(line.split()[0]) for line in found.trace]
    assert turns[-1] == found.turns, "the trace ends where the law is broken"
    assert turns == sorted(turns)
    assert turns[0] > found.turns - LAST


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (simulate(41) for _ in range(2))
    assert first == second


def test_one_seed_is_replayed_with_every_turn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "41", "--trace"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    turns = simulate(41).turns
    assert last == f"seed 41: no law was broken, {turns} events"
    assert len(lines) > turns
    assert any(re.search(r"the barrier of checkpoint \d+ passes", line) for line in lines)


def test_drivers_of_some_seeds_restart_and_others_are_followed_by_a_launch() -> None:
    steps = Counter[str]()
    for report in simulate_some((0, 60, "")):
        steps.update(report.steps)
    for before in ("generation-started", "snapshot-completed", "restarted"):
        for after in ("snapshot-completed", "restarted", "generation-started"):
            assert steps[f"slot: {before} -> {after}"], (before, after)


def test_a_step_that_no_table_has_is_a_violation() -> None:
    with pytest.raises(IllegalStep, match="slot: stopped -> snapshot-completed"):
        Steps().take("slot", "stopped", "snapshot-completed")


class TestTally:
    """Many seeds must have had everything among them."""

    def tally(self, seeds: int, **seldom: int) -> Tally:
        """All kinds of faults in every seed and every step once, but for those that are named."""
        tally = Tally()
        for seed in range(seeds):
            report = Report(seed, turns=200)
            report.faults.update({fault: 1 for fault in FAULTS if seed < seldom.get(fault, seeds)})
            report.steps.update(sorted(STEPS) if seed == 0 else ())
            tally.add(report)
        return tally

    def test_nothing_is_missing_where_everything_was_there(self) -> None:
        assert self.tally(ENOUGH).missing() == []

    def test_a_kind_of_fault_below_one_in_twenty_seeds_is_too_rare(self) -> None:
        assert self.tally(ENOUGH, crash=ENOUGH // 20).missing() == []
        assert self.tally(ENOUGH, crash=ENOUGH // 20 - 1).missing() == ["crash: in fewer than 5% of the seeds"]

    def test_a_legal_step_that_was_never_taken_is_missing(self) -> None:
        tally = self.tally(ENOUGH_FOR_STEPS)
        del tally.steps["output: retracted -> committed"]
        assert tally.missing() == ["output: retracted -> committed: never"]

    def test_seeds_with_too_little_in_them_are_no_proof(self) -> None:
        tally = self.tally(ENOUGH)
        tally.events -= 1
        assert tally.missing() == ["fewer than 200 events a seed"]

    def test_few_seeds_are_not_judged(self) -> None:
        assert self.tally(ENOUGH - 1, crash=0).missing() == []
