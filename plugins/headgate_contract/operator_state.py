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
    stored: Mapping[str, OperatorState],
    declared: Mapping[str, OperatorStateKind],
    parallelism: int,
    *,
    allow_non_restored: bool = False,
) -> str | None:
    """Why a step that declares these states cannot go on from the stored ones at `parallelism`, or None if it can."""
    for name, state in sorted(stored.items()):
        kind = declared.get(name)
        if kind is None:
            if not allow_non_restored:
                return f"has an operator state {name!r}, which the job no longer declares"
        elif kind is not state.kind:
            return f"has the operator state {name!r} as {state.kind.value}, the job declares it as {kind.value}"
        elif state.is_bound and len(state.parts) != parallelism:
            return (
                f"has the operator state {name!r} of {len(state.parts)} subtasks, which cannot be split over "
                f"{parallelism} (it is of kind single: parallelism.default must stay {len(state.parts)})"
            )
    return None
