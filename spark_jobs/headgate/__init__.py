"""Headgate's runtime, and the API that a job's author imports.

The names are loaded when they are first used: a Python worker that only runs a step loads no more than that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate import sinks, sources
    from headgate.job.job import Job, KeyedStream, Stream
    from headgate.step.aggregates import avg, count, max, min, sum
    from headgate.step.operator_state import BroadcastState, ListState, SingleState, UnionListState
    from headgate.step.operators import Keyed
    from headgate_contract.errors import SuppressRestarts

_HOMES = {
    "BroadcastState": "headgate.step.operator_state",
    "Job": "headgate.job.job",
    "KeyedStream": "headgate.job.job",
    "ListState": "headgate.step.operator_state",
    "SingleState": "headgate.step.operator_state",
    "Stream": "headgate.job.job",
    "UnionListState": "headgate.step.operator_state",
    "Keyed": "headgate.step.operators",
    "SuppressRestarts": "headgate_contract.errors",
    "avg": "headgate.step.aggregates",
    "count": "headgate.step.aggregates",
    "max": "headgate.step.aggregates",
    "min": "headgate.step.aggregates",
    "sum": "headgate.step.aggregates",
}

__all__ = [
    "BroadcastState",
    "Job",
    "Keyed",
    "KeyedStream",
    "ListState",
    "SingleState",
    "Stream",
    "SuppressRestarts",
    "UnionListState",
    "avg",
    "count",
    "max",
    "min",
    "sinks",
    "sources",
    "sum",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("sinks", "sources"):
        return import_module(f"headgate.{name}")
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")
