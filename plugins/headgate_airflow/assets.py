"""The assets that other DAGs can be scheduled on: "a stream is lost", and "a stream has a new savepoint"."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Asset, AssetAlias, AssetWatcher
from airflow.triggers.base import BaseEventTrigger

STREAM_LOST = "headgate-stream-lost"
UNDECLARED = "headgate-undeclared"
ANY_SAVEPOINT = AssetAlias(name="headgate-savepoints")
"""Through which a task whose stream is chosen only when it runs (a form, a template) reports its savepoint."""


def stream_lost(triggers: Iterable[BaseEventTrigger]) -> Asset:
    """The asset that is updated for as long as one of `triggers` sees a lost stream."""
    return _watched(STREAM_LOST, triggers)


def undeclared(triggers: Iterable[BaseEventTrigger]) -> Asset:
    """The asset that is updated when what is at work and not in streams.yaml is something else than before."""
    return _watched(UNDECLARED, triggers)


def _watched(name: str, triggers: Iterable[BaseEventTrigger]) -> Asset:
    watchers = [AssetWatcher(name=f"{name}-{n}", trigger=trigger) for n, trigger in enumerate(triggers, start=1)]
    return Asset(name=name, watchers=watchers)


def savepoint_of(stream: str) -> Asset:
    """The asset that is updated with each savepoint of `stream` that a task took; `extra` tells which."""
    return Asset(name=f"headgate-savepoint-{stream}")
