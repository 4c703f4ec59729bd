"""When a checkpoint is due, and what its failure means. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headgate.coordinator.messages import FailStream, NotifyAborted, Trigger
from headgate_contract.ids import CheckpointId
from headgate_contract.settings import Settings
from headgate_contract.snapshot import ExternalizedCheckpointRetention


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """The coordinator's settings, in milliseconds."""

    interval_ms: int | None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    retained: int = 1
    tolerable_failures: int = 0
    retention: ExternalizedCheckpointRetention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    overtakes_after_ms: int | None = None
    """How long a periodic checkpoint's barriers wait before they overtake: 0 is not at all, None for ever."""

    @property
    def concurrent(self) -> int:
        """How many checkpoints may run beside a periodic one, itself included: a pause between two allows only one."""
        return 1 if self.min_pause_ms else self.max_concurrent

    @classmethod
    def of(cls, settings: Settings) -> CheckpointOptions:
        prefix = "execution.checkpointing."
        return cls(
            interval_ms=settings[prefix + "interval"],
            timeout_ms=int(settings[prefix + "timeout"]),  # a number in what is said, too
            min_pause_ms=settings[prefix + "min-pause"],
            max_concurrent=settings[prefix + "max-concurrent-checkpoints"],
            retained=settings[prefix + "num-retained"],
            tolerable_failures=settings[prefix + "tolerable-failed-checkpoints"],
            retention=ExternalizedCheckpointRetention(settings[prefix + "externalized-checkpoint-retention"]),
            overtakes_after_ms=(
                int(settings[prefix + "aligned-checkpoint-timeout"]) if settings[prefix + "unaligned.enabled"] else None
            ),
        )


@dataclass
class PeriodicScheduler:
    """Says when the next periodic checkpoint is asked for, while it is started and an interval is set.

    One request at a time: the next is due an interval after the last one's barrier, or when it is said to come again.
    What a person asks for keeps its own time: it moves the interval of the periodic ones not at all.
    """

    interval_ms: int | None
    running: bool = False
    due_ms: int | None = None
    """None also while a request of its own waits."""

    def start(self, now_ms: int) -> None:
        self.running = self.interval_ms is not None
        self.again(now_ms)

    def stop(self) -> None:
        self.running, self.due_ms = False, None

    def fires(self, now_ms: int) -> int | None:
        """If a checkpoint is to be asked for now: since when it is due. Once for each time that it is."""
        if self.due_ms is None or now_ms < self.due_ms:
            return None
        due, self.due_ms = self.due_ms, None
        return due

    def again(self, now_ms: int) -> None:
        """The last request has come to its barrier, or to nothing."""
        if self.running and self.interval_ms is not None:
            self.due_ms = now_ms + self.interval_ms

    def put_off(self, until_ms: int) -> None:
        """The last request came too early."""
        if self.running:
            self.due_ms = until_ms


RUNNING_BATCH = "the running micro-batch let no barrier pass"


@dataclass
class HeldUpBarrier:
    """A step that lets a barrier wait for the whole of a checkpoint's timeout is a checkpoint that expired."""

    timeout_ms: int | None
    """None with checkpointing off: then a barrier waits as long as it has to."""
    since_ms: int | None = None
    """From when on a barrier that may pass waits for the running step."""
    trigger: Trigger | None = None
    """Whose barrier that is: one that comes later and passes first has a time of its own."""
    why: str = RUNNING_BATCH
    """What it waits for."""

    @property
    def deadline_ms(self) -> int | None:
        return None if self.since_ms is None or self.timeout_ms is None else self.since_ms + self.timeout_ms

    def begin(self, trigger: Trigger, why: str, now_ms: int) -> None:
        """Another step begins before the same barrier: it has the whole time."""
        self.trigger, self.since_ms, self.why = trigger, now_ms, why

    def look(self, waiting: Collection[Trigger], now_ms: int) -> tuple[Trigger, int] | None:
        """Note who waits for a step, the next one first; whose barrier has waited too long, and how long."""
        if self.trigger not in waiting:
            self.trigger = next(iter(waiting), None)
            self.since_ms, self.why = None if self.trigger is None else now_ms, RUNNING_BATCH
        if self.trigger is None or self.since_ms is None or self.timeout_ms is None:
            return None
        expired, waited = self.trigger, now_ms - self.since_ms
        if waited < self.timeout_ms:
            return None
        self.trigger = self.since_ms = None
        return expired, waited


@dataclass
class FailureManager:
    """Counts checkpoints that failed in a row, for one of the reasons that count.

    One that is older than a snapshot which completes is none of them: that has what it would have had. So while a newer
    one is being stored, it depends on how that turns out whether a failure counts.
    """

    tolerable: int
    in_a_row: int = 0
    newest: CheckpointId | None = None
    """Of the snapshots that have completed."""
    undecided: list[NotifyAborted] = field(default_factory=list)
    """Those that have failed while a newer one was being stored, in order."""

    def succeeded(self, checkpoint: CheckpointId) -> None:
        """It is complete: whatever had failed before it is over."""
        self.in_a_row, self.newest = 0, checkpoint
        self.undecided.clear()

    def failed(self, aborted: NotifyAborted, storing: CheckpointId | None = None) -> FailStream | None:
        """Take in one more, while `storing` is being stored; why the stream must fail, if it must."""
        if not aborted.reason.counts or (self.newest is not None and aborted.checkpoint < self.newest):
            return None
        if storing is not None and aborted.checkpoint < storing:
            self.undecided.append(aborted)
            return None
        self.in_a_row += 1
        return self._told(aborted) if self.in_a_row > self.tolerable else None

    def not_stored(self) -> FailStream | None:
        """What was being stored has come to nothing: those that had failed meanwhile count."""
        undecided, self.undecided = self.undecided, []
        found = [self.failed(aborted) for aborted in undecided]
        return next((failure for failure in found if failure is not None), None)

    def _told(self, aborted: NotifyAborted) -> FailStream:
        return FailStream(
            cause=f"checkpoint {aborted.checkpoint} failed ({aborted.cause}), and no more than {self.tolerable} may "
            "fail in a row (execution.checkpointing.tolerable-failed-checkpoints)"
        )
