"""Tells by a streaming query's trigger and its thread whether it moves, and when it last looked in vain for records."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from headgate.driver import clock

_STARTING = "Initializing sources"
"""What a query says of itself before its first trigger."""

_WAITING = "Waiting for next trigger"
"""And behind one that has come to its end."""

_LATE_MS = 2_000
"""So much longer than its pause may a query wait for its next trigger; beyond that a clock was set back."""

_FRAMES = 4
"""So many of a stack are compared: each is a call of the JVM."""


class QuerySigns:
    """The signs of life of one query."""

    def __init__(self, query: StreamingQuery, pause_ms: int) -> None:
        """`pause_ms`: how long it may wait between two triggers."""
        self._query: Any = query
        self._pause_ms = pause_ms
        self._trigger: int | None = None
        self._waits: tuple[int, int] | None = None
        """Behind which trigger it was seen to wait for the next one, and since when."""
        self._asked: tuple[int, int] | None = None
        """When it was last asked whether it had looked, and how much was handed over by then."""
        self._look: int | None = None
        """The newest trigger that was seen then."""
        self._before: tuple[int, int] | None = None
        """The last time that it was asked before that one began; None if it may have begun before."""
        self._looked_ms: int | None = None

    def looked_ms(self, handed_over: Callable[[], int]) -> int | None:
        """A moment before its last trigger that has found nothing, None if there was none yet.

        `handed_over` counts the micro-batches of its callback. If there was another trigger the last time that it was
        asked, this one has begun since. Once it is over, as it is when the next one has begun, and nothing was handed
        over, it has found nothing. Spark's own time of it is the wall clock's, which may jump. Costs and hangs as
        `newest` does.
        """
        asked_ms, before = clock.steady_ms(), self._asked
        trigger = self._query._jsq.streamingQuery().getLatestExecutionContext().currentTriggerStartTimestamp()
        status = self._query.status
        waits = not status["isTriggerActive"] and status["message"] == _WAITING and self._query.isActive
        handed = handed_over()
        if self._before is not None and self._before[1] == handed and (waits or trigger != self._look):
            self._looked_ms = self._before[0]
        if trigger != self._look:
            known = self._look is not None and trigger > 0
            self._look, self._before = trigger, before if known else None
        self._asked = (asked_ms, handed)
        return self._looked_ms

    def newest(self) -> Hashable | None:
        """When its trigger began and, if that is still the trigger of the last time, where its thread is; None if it
        waits for its next trigger, as long as it may. Costs some milliseconds, and hangs with the JVM."""
        if not self._query.isActive:
            return None
        status = self._query.status
        execution = self._query._jsq.streamingQuery()
        if status["isTriggerActive"]:
            trigger = execution.getLatestExecutionContext().currentTriggerStartTimestamp()
        elif status["message"] == _STARTING:
            trigger = 0
        elif status["message"] == _WAITING:
            return self._waiting(execution.getLatestExecutionContext().currentTriggerStartTimestamp())
        else:
            return None
        before, self._trigger = self._trigger, trigger
        if trigger != before:
            return (trigger, 0)
        stack = execution.queryExecutionThread().getStackTrace()
        return (trigger, len(stack), *(stack[at].toString() for at in range(min(_FRAMES, len(stack)))))

    def _waiting(self, trigger: int) -> Hashable | None:
        """Spark waits until a moment of the wall clock: set back by an hour, that comes an hour late."""
        if self._waits is None or self._waits[0] != trigger:
            self._waits = (trigger, clock.steady_ms())
        late = clock.steady_ms() - self._waits[1] > self._pause_ms + _LATE_MS
        return (trigger, _WAITING) if late else None
