"""History: one small object for each event, for people and the page; never read to decide anything."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate_contract import wire
from headgate_contract.credentials import masked
from headgate_contract.errors import CorruptObject, ObjectMissing
from headgate_contract.ids import StreamName
from headgate_contract.measures import Measures
from headgate_contract.paths import StreamPaths, moment_of, what_of
from headgate_contract.store import ObjectStore

_written = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something happened: `what` (launch, checkpoint, fenced, ...) went to `outcome` (ISSUED, EXECUTED, FAILED)."""

    at_ms: int
    what: str
    outcome: str
    by: str
    generation: int | None = None
    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    measures: Measures | None = None
    slot: int = 0
    """The newest slot that its writer knew of: history is in the order of the log, and clocks count only in between."""


def record_event(store: ObjectStore, stream: StreamName, event: Event) -> None:
    """Add `event` to the stream's history. Those of one process keep their order, also within a millisecond."""
    path = StreamPaths(stream).event(event.slot, event.at_ms, f"{next(_written):08x}{uuid.uuid4().hex[:8]}", event.what)
    store.create(path, wire.encode("event", replace(event, text=masked(event.text)), path))


def read_history(store: ObjectStore, stream: StreamName, limit: int | None = None) -> list[Event]:
    """The newest `limit` events, or all, oldest first by the log, and by the clocks of those who wrote them in between.

    An unreadable one is shown as such.
    """
    return list(itertools.islice(newest_first(store, stream), limit))[::-1]


def newest_first(
    store: ObjectStore, stream: StreamName, of: Callable[[str | None], bool] = lambda what: True
) -> Iterator[Event]:
    """The events, read one by one as they are asked for: those `of` which it is wanted, by what their names say."""
    for info in reversed(list(store.list(StreamPaths(stream).history))):
        if not of(what_of(info.path)):
            continue
        try:
            yield wire.decode("event", store.read(info.path), Event, info.path, info.path)
        except ObjectMissing:
            continue  # deleted since it was listed
        except CorruptObject as error:
            at_ms = moment_of(info.path) or int(info.modified * 1000)
            yield Event(at_ms=at_ms, what="unreadable", outcome="FAILED", by="history", text=str(error))
