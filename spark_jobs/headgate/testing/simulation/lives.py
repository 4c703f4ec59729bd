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


ALL = frozenset().union(
    _named("checkpoint", PENDING),
    _named("driver", STREAM),
    _named("output", OUTPUT),
    {step("slot", before.TYPE, after.TYPE) for before, following in FOLLOWS.items() for after in following},
)

"""Every step that is legal, as it is printed."""

_NOT_YET = ("restoring -> stopping", "stopping -> running", "ing -> restoring")
STEPS = frozenset(name for name in ALL if not name.endswith(_NOT_YET) and "restarted" not in name)
"""Those that simulations take: no driver of theirs restarts yet."""


class IllegalStep(Exception):
    """Something went on in a way that its life-cycle does not know."""


class Steps:
    """Counts the steps of all life-cycles."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def take(self, life: str, before: str, after: str) -> None:
        """Count one. Raises IllegalStep if no table has it."""
        name = step(life, before, after)
        if name not in ALL:
            raise IllegalStep(name)
        self.seen[name] += 1
