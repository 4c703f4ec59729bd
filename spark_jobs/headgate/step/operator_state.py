"""Operator state in a step: what an author reads and writes, and what the writes of all subtasks add up to.

A subtask gets the states that stood before its micro-batch and returns what it has changed in its ack. The driver makes
the next states of it, all new values: an attempt that does not count leaves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate_contract.errors import BatchFailed, JobInvalid
from headgate_contract.operator_state import OperatorState, OperatorStateKind

States = Mapping[str, OperatorState]
Changes = dict[str, Any]
"""By name: the subtask's new part. Of a BROADCAST, by key: [the new value], or [] for a key that is removed."""

LARGEST = 1024 * 1024
"""How many bytes of JSON all operator states of a step may have."""


def declared_kinds(
    uid: str, given: Mapping[str, str], keyed: Mapping[str, Any]
) -> tuple[tuple[str, OperatorStateKind], ...]:
    """The declared operator states. Raises JobInvalid for a kind that there is not, or a name that is taken."""
    if not isinstance(given, Mapping):
        raise JobInvalid(f"process {uid!r}: operator_state is a kind for each name, not {given!r}")
    known = [kind.value for kind in OperatorStateKind]
    for name, kind in given.items():
        if not isinstance(name, str) or not name:
            raise JobInvalid(f"process {uid!r}: an operator state's name is a text, not {name!r}")
        if kind not in known:
            raise JobInvalid(
                f"process {uid!r}: operator state {name!r} is of kind {kind!r}", hint=f"it is one of {', '.join(known)}"
            )
        if name in keyed:
            raise JobInvalid(f"process {uid!r} has a keyed state and an operator state called {name!r}")
    return tuple((name, OperatorStateKind(kind)) for name, kind in given.items())


def no_state(kind: OperatorStateKind, parallelism: int) -> OperatorState:
    """What a state is before anything was written."""
    match kind:
        case OperatorStateKind.BROADCAST:
            return OperatorState(kind, ({},))
        case OperatorStateKind.SINGLE:
            return OperatorState(kind, (None,) * parallelism)
        case _:
            return OperatorState(kind, ([],) * parallelism)


class ListState:
    """A list of elements of this subtask. Over another number of subtasks they are dealt out anew."""

    def __init__(self, name: str, own: list[Any]) -> None:
        self._name = name
        self._own = own
        self._changed = False

    def get(self) -> list[Any]:
        """The elements of this subtask."""
        return list(_copy(self._own))

    def add(self, element: Any) -> None:
        self._own = [*self._own, _plain(self._name, element)]
        self._changed = True

    def update(self, elements: list[Any]) -> None:
        """Replace the elements of this subtask."""
        if not isinstance(elements, list):
            raise BatchFailed(f"operator state {self._name!r} is a list of elements, not {elements!r}")
        self._own = _plain(self._name, elements)
        self._changed = True

    def changes(self) -> Any:
        return self._own if self._changed else None


class UnionListState(ListState):
    """As a list; and the elements of all subtasks are there to be read."""

    def __init__(self, name: str, parts: tuple[Any, ...], subtask: int) -> None:
        super().__init__(name, parts[subtask])
        self._parts = parts
        self._subtask = subtask

    def get_all(self) -> list[Any]:
        """The elements of all subtasks: those of the others as they stood before this micro-batch."""
        parts = [*self._parts[: self._subtask], self._own, *self._parts[self._subtask + 1 :]]
        return [element for part in parts for element in _copy(part)]


class BroadcastState:
    """One map, the same for all subtasks. What is put is there for everybody from the next micro-batch on.

    Two subtasks that put different values under one key in one micro-batch fail it: let the records of one key decide
    about an entry, for they meet in one subtask.
    """

    def __init__(self, name: str, entries: dict[str, Any]) -> None:
        self._name = name
        self._entries = entries
        self._changes: Changes = {}

    def get(self, key: str) -> Any:
        """The value under `key`, or None, as it stood before this micro-batch."""
        return _copy(self._entries.get(key))

    def entries(self) -> dict[str, Any]:
        """All of them, as they stood before this micro-batch."""
        return dict(_copy(self._entries))

    def put(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise BatchFailed(f"operator state {self._name!r} has keys that are text, not {key!r}")
        self._changes[key] = [_plain(self._name, value)]

    def remove(self, key: str) -> None:
        self._changes[key] = []

    def changes(self) -> Any:
        return self._changes or None


class SingleState:
    """One value of this subtask, which cannot be split: the stream restores at the same parallelism only."""

    def __init__(self, name: str, value: Any) -> None:
        self._name = name
        self._value = value
        self._changed = False

    def value(self) -> Any:
        """The value, or None while there is none."""
        return _copy(self._value)

    def update(self, value: Any) -> None:
        self._value = _plain(self._name, value)
        self._changed = True

    def changes(self) -> Any:
        return [self._value] if self._changed else None


class SubtaskStates:
    """The operator states of one attempt at one subtask's share of a micro-batch."""

    def __init__(self, step: str, subtask: int, states: States) -> None:
        self._step = step
        self._states = {name: _of_subtask(name, state, subtask) for name, state in states.items()}

    def named(self, name: str) -> Any:
        if name not in self._states:
            raise BatchFailed(
                f"step {self._step!r} has no operator state {name!r}",
                hint="declare it: .process(..., operator_state={" + repr(name) + ": 'list'})",
            )
        return self._states[name]

    def changes(self) -> Changes:
        """What is to travel with the ack."""
        found = {name: state.changes() for name, state in self._states.items()}
        changed = {name: changes for name, changes in found.items() if changes is not None}
        _refuse_large(self._step, changed)
        return changed


def _of_subtask(name: str, state: OperatorState, subtask: int) -> Any:
    match state.kind:
        case OperatorStateKind.LIST:
            return ListState(name, state.parts[subtask])
        case OperatorStateKind.UNION:
            return UnionListState(name, state.parts, subtask)
        case OperatorStateKind.BROADCAST:
            return BroadcastState(name, state.parts[0])
        case OperatorStateKind.SINGLE:
            return SingleState(name, state.parts[subtask])


def states_after(step: str, states: States, changes: Mapping[int, Changes]) -> States:
    """The states behind a micro-batch whose subtasks acknowledged these changes."""
    if not any(changes.values()):
        return states
    after = {}
    for name, state in states.items():
        changed = {subtask: own[name] for subtask, own in sorted(changes.items()) if name in own}
        if state.kind is OperatorStateKind.BROADCAST:
            after[name] = replace(state, parts=(_entries_after(step, name, state.parts[0], changed),))
        else:
            new = {
                subtask: own[0] if state.kind is OperatorStateKind.SINGLE else own for subtask, own in changed.items()
            }
            after[name] = replace(state, parts=tuple(new.get(at, part) for at, part in enumerate(state.parts)))
    _refuse_large(step, {name: state.parts for name, state in after.items()})
    return after


def _entries_after(step: str, name: str, entries: Mapping[str, Any], changed: Mapping[int, Changes]) -> dict[str, Any]:
    decided: dict[str, tuple[int, list[Any]]] = {}
    for subtask, changes in changed.items():
        for key, new in changes.items():
            first, other = decided.setdefault(key, (subtask, new))
            if _text(other) != _text(new):
                raise BatchFailed(
                    f"step {step!r}: in one micro-batch the subtasks {first} and {subtask} would change the entry "
                    f"{key!r} of the broadcast state {name!r}, each to something else",
                    hint="let records of one key decide about an entry: they meet in one subtask",
                )
    after = {key: value for key, value in entries.items() if key not in decided}
    return {**after, **{key: new[0] for key, (_, new) in decided.items() if new}}


def _plain(name: str, value: Any) -> Any:
    """A copy of `value`, which must come back from JSON as it was."""
    try:
        copied = json.loads(json.dumps(value, allow_nan=False))
        same = copied == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        shown = repr(value)
        raise BatchFailed(
            f"operator state {name!r} cannot hold {shown if len(shown) < 200 else shown[:200] + '...'}",
            hint="it holds plain JSON values: None, bool, int, float, str, lists of them, and dicts by text",
        )
    return copied


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _refuse_large(step: str, values: Mapping[str, Any]) -> None:
    sizes = {name: len(_text(value)) for name, value in values.items()}
    if sum(sizes.values()) > LARGEST:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BatchFailed(
            f"step {step!r}: its operator states have {sum(sizes.values())} bytes, the largest is {largest!r} with "
            f"{sizes[largest]}; at most {LARGEST} are kept with every micro-batch",
            hint="operator state is for what is small: put it into keyed state, or keep less of it",
        )
