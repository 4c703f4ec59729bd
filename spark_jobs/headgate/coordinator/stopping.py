"""A stop under way: who asked for it, how far it is, and what they are told. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.coordinator.messages import Action, Reply, Trigger, WriteStopped, refusal, result_of
from headgate_contract.ids import CheckpointId, RequestId
from headgate_contract.snapshot import SnapshotRef


@dataclass
class Stop:
    """The stream's end with a last snapshot: asked for, then its barrier, then its slot, then its commit."""

    trigger: Trigger
    also: list[RequestId] = field(default_factory=list)
    """Whoever asked for a stop while this one was under way: its end answers them all."""
    barrier_waits: bool = True
    """Its barrier has not passed."""
    snapshot: SnapshotRef | None = None
    """What it ended with."""

    def join(self, trigger: Trigger) -> list[Action]:
        """Somebody else asks: a stop is a stop, anything more is refused."""
        if not trigger.stop or trigger.is_savepoint:
            return refusal(trigger.request, "the stream is stopping: its last barrier has been asked for")
        self.also += [trigger.request] if trigger.request else []
        return []

    def done(self, committed: tuple[CheckpointId, ...], snapshot: SnapshotRef) -> list[Action]:
        """All is committed: say so in the log, and answer."""
        told = result_of(snapshot)
        stopped = WriteStopped(
            reason=self.trigger.reason or "stop was asked for",
            committed=committed,
            snapshot=snapshot.id,
            request=self.trigger.request,
            result=told,
        )
        return [stopped, *(Reply(request=other, done=True, result=told) for other in self.also)]

    def failed(self, why: str) -> list[Action]:
        """Its snapshot came to nothing: the others are told, as is the one who asked first."""
        return [reply for other in self.also for reply in refusal(other, why)]

    def overtaken(self, why: str, *, good: bool) -> list[Action]:
        """The stream ends otherwise than those wanted who had asked, perhaps with the last snapshot."""
        first = refusal(self.trigger.request, why) if self.barrier_waits else []
        if self.snapshot is None:
            return [*first, *self.failed(why)]
        asked = [other for other in (self.trigger.request, *self.also) if other is not None]
        if good:
            return [Reply(request=other, done=True, result=result_of(self.snapshot)) for other in asked]
        return [reply for other in asked for reply in refusal(other, f"{why}; {self.snapshot} is complete")]
