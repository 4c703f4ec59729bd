"""Finds a state backend by the name that a job or a setting gives."""

from __future__ import annotations

import difflib

from headgate.state.base import StateBackend
from headgate.state.errors import UnknownBackend
from headgate.state.hashmap import HashMapBackend

BACKENDS: dict[str, type[StateBackend]] = {HashMapBackend.name: HashMapBackend}


def backend_named(name: str) -> StateBackend:
    """The backend of that name, or an error with the nearest one."""
    try:
        return BACKENDS[name]()
    except KeyError:
        near = difflib.get_close_matches(name, BACKENDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of: {', '.join(sorted(BACKENDS))}"
        raise UnknownBackend(f"no state backend {name!r} exists", hint=hint) from None
