"""Finds the streams of a root that are at work though they are not among those that one asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from headgate_contract.ids import StreamName
from headgate_control.catalogues import Catalogues
from headgate_control.outcomes import Condition, StreamStatus
from headgate_control.status import Observer

EVERY_S = 30.0
"""How often those at rest are looked at: what a root has gathered over the years must not make each look dear."""


def is_at_rest(status: StreamStatus) -> bool:
    """Does nobody expect anything of the stream: it was never started, or somebody has stopped it, or given it up?"""
    at_rest = status.condition in (Condition.STOPPED, Condition.NEVER_STARTED)
    return at_rest or (not status.live and status.stop_wanted is not None)


class Undeclared:
    """One look after the other on one root. For use by several threads."""

    def __init__(self, catalogues: Catalogues, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalogues = catalogues
        self._observer = observer
        self._clock = clock
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._at_work: frozenset[StreamName] = frozenset()

    def beside(self, declared: Iterable[StreamName]) -> list[StreamStatus]:
        """The status of each other stream that runs, or did and was not stopped; a new one is seen within EVERY_S."""
        with self._lock:
            now = self._clock()
            due = self._looked is None or now - self._looked >= EVERY_S
            names = self._catalogues.names() if due else self._at_work
            found = [
                status for status in self._observer.fleet(sorted(set(names) - set(declared))) if not is_at_rest(status)
            ]
            if due:
                self._looked = now
            self._at_work = frozenset(status.stream for status in found)
            return found
