"""The restart strategies: may a stream go on after a failure, and when. Pure: lives in, verdict out.

They keep no memory of their own, so asking twice consumes nothing, and whoever asks gets the same answer. A driver asks
about its own attempts; outside of it the lives of a stream since a person last started it are read from the slot log
and the heartbeats.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headgate_contract.ids import Generation
from headgate_contract.settings import Settings


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """The strategy allows a restart once this long has passed since the failure."""

    TYPE: ClassVar[str] = "restart-after"
    delay_s: float
    attempt: int
    """Which restart in a row this would be."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The strategy allows no further restart; a person has to start the stream."""

    TYPE: ClassVar[str] = "give-up"
    reason: str


RestartVerdict = RestartAfter | GiveUp


@dataclass(frozen=True, slots=True)
class Life:
    """From a start to the failure that ended it: an attempt by the driver's steady clock, a generation by storage's."""

    generation: Generation
    started_s: float
    ended_s: float

    @property
    def lasted_s(self) -> float:
        return max(0.0, self.ended_s - self.started_s)


@dataclass(frozen=True, slots=True)
class RestartFacts:
    """Everything that a verdict rests on."""

    stream: str
    lives: tuple[Life, ...]
    """Oldest first; all have failed, the last one is the one in question."""


class RestartStrategy(Protocol):
    def next_attempt(self, facts: RestartFacts) -> RestartVerdict:
        """What follows the end of the last life."""
        ...


@dataclass(frozen=True, slots=True)
class NoRestart:
    """A person starts it again."""

    def next_attempt(self, facts: RestartFacts) -> RestartVerdict:
        return GiveUp("restart-strategy.type is none")


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Always the same pause, a limited number of times."""

    attempts: int
    delay_s: float

    def next_attempt(self, facts: RestartFacts) -> RestartVerdict:
        attempt = len(facts.lives)
        if attempt > self.attempts:
            return GiveUp(
                f"the stream was restarted {_times(self.attempts)} already (restart-strategy.fixed-delay.attempts)"
            )
        return RestartAfter(self.delay_s, attempt)


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A pause that grows with each failure, and is the first one again after a life of at least `reset_after_s`."""

    initial_s: float
    max_s: float
    multiplier: float
    reset_after_s: float
    jitter: float
    attempts: int

    def next_attempt(self, facts: RestartFacts) -> RestartVerdict:
        attempt, pause = 0, self.initial_s
        for life in facts.lives:
            if attempt == 0 or life.lasted_s >= self.reset_after_s:
                attempt, pause = 1, min(self.initial_s, self.max_s)
            else:
                attempt, pause = attempt + 1, min(pause * self.multiplier, self.max_s)
        if attempt > self.attempts:
            return GiveUp(
                f"the stream was restarted {_times(self.attempts)} in a row "
                "(restart-strategy.exponential-delay.attempts-before-reset-backoff)"
            )
        # The chance is the same for all who ask about this failure: else the most impatient asker would decide.
        seed = f"{facts.stream}.g{facts.lives[-1].generation}.{len(facts.lives)}"
        chance = random.Random(seed).uniform(-self.jitter, self.jitter)
        return RestartAfter(min(pause * (1 + chance), self.max_s), attempt)


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Always the same pause, while there are at most `max_failures` within `interval_s`."""

    max_failures: int
    interval_s: float
    delay_s: float

    def next_attempt(self, facts: RestartFacts) -> RestartVerdict:
        newest = facts.lives[-1].ended_s
        recent = [life for life in facts.lives if newest - life.ended_s < self.interval_s]
        if len(recent) > self.max_failures:
            return GiveUp(
                f"{len(recent)} failures within {self.interval_s:g} s, {self.max_failures} are allowed "
                "(restart-strategy.failure-rate)"
            )
        return RestartAfter(self.delay_s, len(facts.lives))


def _times(number: int) -> str:
    return f"{number} time{'s'[: number != 1]}"


def strategy_of(settings: Settings) -> RestartStrategy:
    """The strategy that the stream's settings name."""

    def of(key: str) -> str:
        return f"restart-strategy.{settings['restart-strategy.type']}.{key}"

    match settings["restart-strategy.type"]:
        case "none":
            return NoRestart()
        case "fixed-delay":
            return FixedDelay(settings[of("attempts")], settings[of("delay")].seconds)
        case "failure-rate":
            return FailureRate(
                settings[of("max-failures-per-interval")],
                settings[of("failure-rate-interval")].seconds,
                settings[of("delay")].seconds,
            )
        case _:
            return ExponentialDelay(
                initial_s=settings[of("initial-backoff")].seconds,
                max_s=settings[of("max-backoff")].seconds,
                multiplier=settings[of("backoff-multiplier")],
                reset_after_s=settings[of("reset-backoff-threshold")].seconds,
                jitter=settings[of("jitter-factor")],
                attempts=settings[of("attempts-before-reset-backoff")],
            )
