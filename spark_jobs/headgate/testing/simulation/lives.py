"""Which steps each life-cycle of the protocol may take, and how often a simulation has seen each."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from headgate.coordinator.pending import LEGAL as PENDING
from headgate.sink.base import LEGAL as OUTPUT
from headgate_contract.heartbeats import LEGAL as STREAM
from headgate_contract.laws import FOLLOWS

State = TypeVar("State", bound=enum.Enum)


def _named(life: str, table: Mapping[State, set[State]]) -> set[str]:
    return {step(life, before.value, after.value) for before, following in table.items() for after in following}


def step(life: str, before: str, after: str) -> str:
    return f"{life}: {before} -> {after}"


STEPS = frozenset().union(
    _named("checkpoint", PENDING),
    _named("driver", STREAM),
    _named("output", OUTPUT),
    {step("slot", before.TYPE, after.TYPE) for before, following in FOLLOWS.items() for after in following},
)
"""Every step that is legal, as it is printed."""


class IllegalStep(BaseException):
    """Something went on in a way that its life-cycle does not know. No driver may take it for a failure of its own."""


class Steps:
    """Counts the steps of all life-cycles."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def take(self, life: str, before: str, after: str) -> None:
        """Count one. Raises IllegalStep if no table has it."""
        name = step(life, before, after)
        if name not in STEPS:
            raise IllegalStep(name)
        self.seen[name] += 1
