"""Which request for a snapshot is carried out next, put off or dropped: Flink's CheckpointRequestDecider. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.coordinator.messages import Trigger
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.reasons import CheckpointFailureReason

MOST_QUEUED = 1000
"""Flink's limit of requests that wait."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a request's turn depends on besides the other requests."""

    running: int
    """Checkpoints under way. Savepoints are none of them: they may take as long as they like."""
    cleaning: int
    """Retired checkpoints whose files are still being deleted."""
    pause_until_ms: int | None
    """The end of the pause after the last snapshot."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A request that is not carried out."""

    request: Trigger
    reason: CheckpointFailureReason


@dataclass
class CheckpointRequestDecider:
    """Keeps the requests that wait: savepoints first, then what a person asked for, then periodic ones.

    Too many checkpoints under way put off all but savepoints, and where barriers overtake, savepoints too: theirs never
    do, and would stand in the way. Too many that are still being cleaned put off everything.
    A periodic one whose turn comes within the pause is dropped, not put off: the scheduler comes again.
    """

    options: CheckpointOptions
    limit: int = MOST_QUEUED
    waiting: list[Trigger] = field(default_factory=list)

    def submit(self, request: Trigger) -> Dropped | None:
        """Queue a request; what had to go for it, if there was no room. What people asked for goes for nobody."""
        if len(self.waiting) >= self.limit and not self.waiting[-1].is_periodic:
            return Dropped(request=request, reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS)
        before = [other for other in self.waiting if _rank(other) <= _rank(request)]
        self.waiting.insert(len(before), request)
        if len(self.waiting) <= self.limit:
            return None
        return Dropped(request=self.waiting.pop(), reason=CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS)

    def look(self, load: Load, now_ms: int) -> Trigger | Dropped | None:
        """What becomes of the first one now, if it must not wait."""
        if not self.waiting or load.cleaning > self.options.max_concurrent:
            return None
        first = self.waiting[0]
        is_forced = first.is_savepoint and self.options.overtakes_after_ms is None
        if not is_forced and load.running >= self.options.concurrent:
            return None
        if first.is_periodic and load.pause_until_ms is not None and now_ms < load.pause_until_ms:
            return Dropped(request=first, reason=CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)
        return first

    def take(self) -> None:
        """The first one has got what `look` said."""
        del self.waiting[0]

    def expire(self, request: Trigger) -> None:
        """It waited too long for the running step. A periodic one stands for all that follow: it goes on waiting."""
        self.waiting = [other for other in self.waiting if other != request or other.is_periodic]

    def withdraw_periodic(self) -> list[Dropped]:
        """The scheduler has been shut down: nobody waits for its requests."""
        periodic = [request for request in self.waiting if request.is_periodic]
        self.waiting = [request for request in self.waiting if not request.is_periodic]
        reason = CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN
        return [Dropped(request=request, reason=reason) for request in periodic]


def _rank(request: Trigger) -> int:
    if request.is_savepoint:
        return 0
    return 2 if request.is_periodic else 1
