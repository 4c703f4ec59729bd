"""A stop under way: who asked for it, how far it is, and what they are told. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.coordinator.messages import Action, FailStream, Reply, Trigger, WriteStopped, refusal, result_of
from headgate_contract.ids import CheckpointId
from headgate_contract.snapshot import SnapshotRef


@dataclass
class Stop:
    """The stream's end with a last snapshot: asked for, then its barrier, then its slot, then its commit."""

    trigger: Trigger
    also: list[Trigger] = field(default_factory=list)
    """Whoever asked for a stop while this one was under way: its end answers them all."""
    barrier_waits: bool = True
    """Its barrier has not passed."""
    finishing: bool = False
    """The operators were told to finish, and may have done so: nothing goes on from here but to the end."""
    snapshot: SnapshotRef | None = None
    """What it ended with."""

    @property
    def why(self) -> str:
        """Who has asked for it, for people."""
        return self.trigger.reason or "stop was asked for"

    def may_join(self, trigger: Trigger) -> bool:
        """A stop is a stop; anything more would come behind the last barrier."""
        return trigger.stop and not trigger.is_savepoint and not trigger.drain

    def begins_to_finish(self) -> bool:
        """The last barrier is due: whether the operators are to finish before it. Asked once, they need not again."""
        begins, self.finishing = self.trigger.drain and not self.finishing, self.trigger.drain
        return begins

    def join(self, trigger: Trigger) -> list[Action]:
        """Somebody else asks for the same: its end answers them."""
        if trigger.end is not None and self.barrier_waits and not self.trigger.is_savepoint:
            self.trigger, trigger = trigger, self.trigger  # the end is there, without a snapshot that could fail
        self.also.append(trigger)
        return []

    def done(self, committed: tuple[CheckpointId, ...], snapshot: SnapshotRef) -> list[Action]:
        """All is committed: say so in the log, and answer."""
        stopped = WriteStopped(
            reason=self.why,
            committed=committed,
            snapshot=snapshot.id,
            request=self.trigger.request,
            result=result_of(self.trigger.already or snapshot),
            also=_answers(self.also, snapshot),
        )
        return [stopped]

    def failed(self, why: str) -> list[Action]:
        """Its snapshot came to nothing: the others are told, as is the one who asked first."""
        return [reply for other in self.also for reply in refusal(other.request, why)]

    def no_way_back(self, why: str) -> FailStream | None:
        """Its snapshot came to nothing: how the stream ends, if it cannot go on with the state that there is now."""
        return (
            FailStream(cause=f"no snapshot holds what the operators have finished: {why}") if self.finishing else None
        )

    @property
    def _asked(self) -> list[Trigger]:
        return [self.trigger, *self.also]

    def kept_promises(self) -> tuple[Reply, ...]:
        """A cancel overtakes it: what those who asked are told once that is in the log, if the snapshot is there."""
        complete = self.trigger.end or self.snapshot
        return _answers(self._asked, complete) if complete is not None else ()

    def overtaken(self, why: str, *, failed: bool) -> list[Action]:
        """The stream ends otherwise than those wanted who had asked: what they are told of it at once."""
        if self.trigger.end is not None:  # the next life finds them still waiting, as this one did
            return []
        first = refusal(self.trigger.request, why) if self.barrier_waits else []
        if self.snapshot is None:
            return [*first, *self.failed(why)]
        if self.finishing:  # the next life finds who asked still waiting, and takes in nothing before the end
            return []
        asked = self._asked if failed else []  # after a cancel they are told that it is there
        told = f"{why}; {self.snapshot.told}"
        return [reply for other in asked for reply in refusal(other.request, told)]


def _answers(asked: list[Trigger], snapshot: SnapshotRef) -> tuple[Reply, ...]:
    """To each: what the stream has ended with, or what an earlier life had completed for them."""
    return tuple(
        Reply(request=each.request, done=True, result=result_of(each.already or snapshot))
        for each in asked
        if each.request is not None
    )
