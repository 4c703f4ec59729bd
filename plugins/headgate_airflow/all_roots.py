"""Does the same on all roots of the fleet at once: one that hangs holds up no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TypeVar

from headgate_airflow.fleet import Fleet
from headgate_airflow.own_thread import begin
from headgate_contract.errors import StorageUnreachable

T = TypeVar("T")
Work = Callable[[str | None, list[str], Event], T]
"""What is done on a root with its declared streams; the event is set once storage has answered."""

FORMER_S = 10.0
"""So long in all the roots are waited for that nothing names any more: they may be gone for good."""


def on_all_roots(fleet: Fleet, work: Work[T], timeout: timedelta) -> Iterator[tuple[str | None, list[str], Future[T]]]:
    """Each root, its declared streams, and what came of it: the result, an error, or that it has not answered in time.

    Those that nothing names any more come last.
    """
    former = fleet.former_roots
    begun = [(root, streams, *_begin(root, streams, work)) for root, streams in fleet.by_root.items()]
    start = time.monotonic()
    for root, streams, answered, result in sorted(begun, key=lambda each: each[0] in former):
        allowed_s = timeout.total_seconds()
        if root in former:
            allowed_s = min(FORMER_S, allowed_s)
        if answered.wait(max(0.0, start + allowed_s - time.monotonic())):
            yield root, streams, result
            continue
        late: Future[T] = Future()
        late.set_exception(StorageUnreachable(f"{root} has not answered for {allowed_s:g} s"))
        yield root, streams, late


def _begin(root: str | None, streams: list[str], work: Work[T]) -> tuple[Event, Future[T]]:
    answered = Event()
    result = begin(partial(work, root, streams, answered), f"on {root}")
    result.add_done_callback(lambda _: answered.set())
    return answered, result
