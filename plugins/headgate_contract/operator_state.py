"""Operator state: what the subtasks of a step keep that belongs to no key; small, so it lies in the metadata."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class OperatorStateKind(enum.Enum):
    """How the state is shared out when the step goes on with another number of subtasks."""

    LIST = "list"
    """A list of elements in each subtask: they are dealt out anew, one after the other."""
    UNION = "union"
    """As a list, and every subtask reads the elements of all."""
    BROADCAST = "broadcast"
    """One map, the same for every subtask."""
    SINGLE = "single"
    """One value in each subtask, which cannot be split: the number of subtasks stays as it is."""


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One operator state of a step, over all of its subtasks: plain JSON values."""

    kind: OperatorStateKind
    parts: tuple[Any, ...]
    """That of each subtask: a list (LIST, UNION), a value or None (SINGLE). BROADCAST has one part, the map."""

    @property
    def is_bound(self) -> bool:
        """Whether it fits its own number of subtasks only."""
        return self.kind is OperatorStateKind.SINGLE and any(part is not None for part in self.parts)


def misfit(
    stored: Mapping[str, OperatorState], declared: Mapping[str, OperatorStateKind], parallelism: int
) -> tuple[str, str] | None:
    """Why a step that declares these states cannot go on from the stored ones at `parallelism`, and what to do."""
    for name, state in sorted(stored.items()):
        kind = declared.get(name)
        if kind is None:
            return (
                f"has the operator state {name!r}, which the job no longer declares",
                "declare it as it was: one that is not used costs nothing",
            )
        if kind is not state.kind:
            return (
                f"has the operator state {name!r} as {state.kind.value}, the job declares it as {kind.value}",
                "declare it as it was, and another one under a new name",
            )
        if state.is_bound and len(state.parts) != parallelism:
            was = len(state.parts)
            why = f"of {was} subtasks, which cannot be split over {parallelism}: it is of kind single"
            return f"has the operator state {name!r} {why}", f"set parallelism.default back to {was}"
    return None
