"""Remembers since when a stream's sign of life has been the same, by this process's own steady clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headgate_contract.heartbeats import Seen
from headgate_contract.ids import Generation, StreamName


class Watch:
    """One look after the other: the first look at a sign of life starts its time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._first: dict[StreamName, tuple[object, float]] = {}

    def unchanged_for(self, stream: StreamName, generation: Generation, seen: Seen | None) -> float:
        """Seconds since this sign of life of `stream` was first looked at."""
        if seen is None:
            sign: object = (generation, None)
        elif seen.other_release:
            sign = (generation, seen.modified)
        elif seen.heartbeat is None:
            sign = (generation, "cannot be read")  # whatever is wrong with it, and however often that changes
        else:
            sign = (generation, seen.heartbeat.counter, seen.heartbeat.state)
        with self._lock:
            known = self._first.get(stream)
            if known is None or known[0] != sign:
                self._first[stream] = known = (sign, self._clock())
            return self._clock() - known[1]
