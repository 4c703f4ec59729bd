"""Restart strategies: what they allow, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_contract.ids import Generation
from headgate_contract.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    Life,
    NoRestart,
    RestartAfter,
    RestartFacts,
    RestartStrategy,
    strategy_of,
)
from headgate_contract.settings import Settings


def facts(*lasted_s: float, pause_s: float = 1.0) -> RestartFacts:
    """Lives that lasted so long, one after the other."""
    lives, now = [], 0.0
    for number, seconds in enumerate(lasted_s, start=1):
        lives.append(Life(Generation(number), now, now + seconds))
        now += seconds + pause_s
    return RestartFacts("orders", tuple(lives))


def exponential(*, jitter: float = 0.0, attempts: int = 2**31 - 1, multiplier: float = 2) -> ExponentialDelay:
    return ExponentialDelay(
        initial_s=1, max_s=10, multiplier=multiplier, reset_after_s=100, jitter=jitter, attempts=attempts
    )


lifetimes = st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=30)


def test_none_never_restarts() -> None:
    assert isinstance(NoRestart().next_attempt(facts(5)), GiveUp)


def test_f168_fixed_delay_restarts_as_often_as_it_may_and_then_gives_up() -> None:
    strategy = FixedDelay(attempts=2, delay_s=3)
    assert strategy.next_attempt(facts(1)) == RestartAfter(3, 1)
    assert strategy.next_attempt(facts(1, 1)) == RestartAfter(3, 2)
    assert isinstance(strategy.next_attempt(facts(1, 1, 1)), GiveUp)


@given(lifetimes, st.sampled_from([NoRestart(), FixedDelay(2, 1), exponential(jitter=0.5), FailureRate(2, 60, 1)]))
def test_f168_asking_twice_consumes_nothing(lasted: list[float], strategy: RestartStrategy) -> None:
    assert strategy.next_attempt(facts(*lasted)) == strategy.next_attempt(facts(*lasted))


def test_f169_failure_rate_allows_so_many_within_the_interval() -> None:
    strategy = FailureRate(max_failures=2, interval_s=60, delay_s=1)
    assert strategy.next_attempt(facts(10, 10)) == RestartAfter(1, 2)
    assert isinstance(strategy.next_attempt(facts(10, 10, 10)), GiveUp)
    assert strategy.next_attempt(facts(10, 10, 100)) == RestartAfter(1, 3), "the old failures are outside the interval"


@pytest.mark.parametrize(
    ("multiplier", "expected"),
    [(2.0, [1, 2, 4, 8, 10, 10]), (3.0, [1, 3, 9, 10, 10, 10]), (1.5, [1, 1.5, 2.25, 3.375, 5.0625, 7.59375])],
)
def test_f170_f172_exponential_delay_grows_by_its_multiplier_and_is_capped(
    multiplier: float, expected: list[float]
) -> None:
    strategy = exponential(multiplier=multiplier)
    pauses = [strategy.next_attempt(facts(*[1.0] * count)) for count in range(1, 7)]
    assert [verdict.delay_s for verdict in pauses if isinstance(verdict, RestartAfter)] == expected


def test_f170_exponential_delay_begins_anew_after_a_long_life() -> None:
    assert exponential().next_attempt(facts(1, 1, 1, 100)) == RestartAfter(1, 1)
    assert exponential().next_attempt(facts(1, 1, 1, 99)) == RestartAfter(8, 4)


def test_f170_exponential_delay_gives_up_after_its_attempts_in_a_row() -> None:
    strategy = exponential(attempts=2)
    assert isinstance(strategy.next_attempt(facts(1, 1)), RestartAfter)
    assert isinstance(strategy.next_attempt(facts(1, 1, 1)), GiveUp)
    assert isinstance(strategy.next_attempt(facts(1, 1, 1, 200)), RestartAfter)


def test_f170_jitter_goes_both_ways_and_is_capped_too() -> None:
    strategy = exponential(jitter=0.5)

    def pauses(lives: Sequence[float]) -> list[float]:
        verdicts = [strategy.next_attempt(facts(*[100.0] * count, *lives)) for count in range(50)]
        return [verdict.delay_s for verdict in verdicts if isinstance(verdict, RestartAfter)]

    grown, capped = pauses([100, 1, 1]), pauses([100, 1, 1, 1, 1, 1])
    assert 2 <= min(grown) < 4 < max(grown) <= 6
    assert 5 <= min(capped) < 10 == max(capped)


@given(lifetimes, st.floats(0, 1))
def test_f170_jitter_stays_within_its_share_and_never_above_the_longest_pause(
    lasted: list[float], jitter: float
) -> None:
    bare = exponential().next_attempt(facts(*lasted))
    shaken = exponential(jitter=jitter).next_attempt(facts(*lasted))
    assert isinstance(bare, RestartAfter)
    assert isinstance(shaken, RestartAfter)
    assert shaken.attempt == bare.attempt
    assert bare.delay_s * (1 - jitter) - 1e-9 <= shaken.delay_s <= min(10, bare.delay_s * (1 + jitter)) + 1e-9


@given(lifetimes)
def test_a_longer_row_of_short_lives_never_shortens_the_pause(lasted: list[float]) -> None:
    short = [min(life, 50.0) for life in lasted]
    before, after = (exponential().next_attempt(facts(*row)) for row in (short, [*short, 1.0]))
    assert isinstance(before, RestartAfter)
    assert isinstance(after, RestartAfter)
    assert after.delay_s >= before.delay_s


@pytest.mark.parametrize(
    ("given_settings", "expected"),
    [
        ({"restart-strategy.type": "none"}, NoRestart()),
        (
            {"restart-strategy": "fixed_delay", "restart-strategy.fixed-delay.attempts": 7},
            FixedDelay(attempts=7, delay_s=1),
        ),
        (
            {"restart-strategy.type": "failure-rate", "restart-strategy.failure-rate.delay": "10 s"},
            FailureRate(max_failures=1, interval_s=60, delay_s=10),
        ),
        ({}, ExponentialDelay(1, 60, 1.5, 3600, 0.1, 2**31 - 1)),
    ],
)
def test_settings_name_the_strategy(given_settings: dict[str, object], expected: RestartStrategy) -> None:
    assert strategy_of(Settings(given_settings)) == expected
