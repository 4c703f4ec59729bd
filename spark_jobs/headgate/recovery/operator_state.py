"""Shares operator state out over the subtasks of a new life. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.step.operator_state import no_state
from headgate_contract.operator_state import OperatorState, OperatorStateKind


def restored_states(
    stored: Mapping[str, OperatorState], declared: Mapping[str, OperatorStateKind], parallelism: int
) -> dict[str, OperatorState]:
    """A state for each declared name: out of the snapshot what it has, shared out over `parallelism` subtasks.

    What does not fit was refused before (headgate_contract.operator_state.misfit).
    """
    return {
        name: redistributed(stored[name], parallelism) if name in stored else no_state(kind, parallelism)
        for name, kind in declared.items()
    }


def redistributed(state: OperatorState, parallelism: int) -> OperatorState:
    """The same state for another number of subtasks; for the same number each has exactly its own."""
    match state.kind:
        case OperatorStateKind.BROADCAST:
            return state
        case _ if len(state.parts) == parallelism:
            return state
        case OperatorStateKind.SINGLE:
            assert not state.is_bound, "refused before"
            return no_state(state.kind, parallelism)
        case OperatorStateKind.LIST | OperatorStateKind.UNION:
            return replace(state, parts=_dealt_out(state.parts, parallelism))


def _dealt_out(parts: tuple[list[Any], ...], parallelism: int) -> tuple[list[Any], ...]:
    """All elements, in the order of the subtasks that had them, one to each new subtask in turn."""
    elements = [element for part in parts for element in part]
    return tuple(elements[subtask::parallelism] for subtask in range(parallelism))
