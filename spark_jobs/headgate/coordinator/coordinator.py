"""The coordinator: decides about barriers, completion, commit and the end. Pure: `handle(event, now)` returns actions.

It does no I/O and starts no thread. One thread owns it. The order that it keeps: barrier, acks, metadata, completion
slot, commit, notify. Nothing is committed that has no slot; nothing is retired but by a slot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headgate.coordinator.cut import Cut, Group, StagedOutput
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Cancel,
    CommitGroups,
    Committed,
    Declined,
    Event,
    FailStream,
    NotifyAborted,
    NotifyComplete,
    Reply,
    Stored,
    StoreFailed,
    StoreSnapshot,
    TakeSnapshot,
    Tick,
    Trigger,
    WriteStopped,
)
from headgate.coordinator.pending import AckResult, PendingCheckpoint, PendingState
from headgate.coordinator.policy import CheckpointOptions, FailureManager, PeriodicTrigger, subsumed
from headgate_contract.ids import CheckpointId, RequestId
from headgate_contract.snapshot import SnapshotRef

log = logging.getLogger(__name__)


@dataclass
class Segment:
    """Output staged before the barrier of one attempt, and not yet in a completed snapshot."""

    barrier: CheckpointId
    output: StagedOutput


@dataclass
class Coordinator:
    """The protocol's state. `participants` are the names of those who acknowledge a snapshot."""

    options: CheckpointOptions
    participants: frozenset[str]
    cut: Cut
    next_id: CheckpointId
    retained: list[SnapshotRef]
    groups: list[Group]
    """Groups that completed and of which no slot says yet that they are committed, oldest first."""
    started_ms: int
    busy: bool = False
    staged: StagedOutput = field(default_factory=StagedOutput)
    segments: list[Segment] = field(default_factory=list)
    pending: dict[CheckpointId, PendingCheckpoint] = field(default_factory=dict)
    queue: list[Trigger] = field(default_factory=list)
    committed: set[CheckpointId] = field(default_factory=set)
    """Groups that are committed, which no slot says yet."""
    stopping: Trigger | None = None
    ended: bool = False
    completed: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self._periodic = PeriodicTrigger(self.options, self.started_ms)
        self._failures = FailureManager(self.options.tolerable_failures)
        self._storing: CheckpointId | None = None
        self._noting: tuple[CheckpointId, ...] = ()
        self._retiring: tuple[CheckpointId, ...] = ()
        self._stopped_with: SnapshotRef | None = None
        self._spared: set[CheckpointId] = set()
        """Checkpoints that whoever asked for a stop will restore."""
        self._held_up_ms: int | None = None
        """From when on a barrier that is due waits for the running step."""
        self._also_stopping: list[RequestId] = []
        """Whoever asked for a stop while one was under way: its end answers them all."""
        self._doom: Cancel | FailStream | None = None
        """How the stream ends as soon as what is being stored has turned out one way or the other."""

    # ---- questions

    @property
    def may_begin(self) -> bool:
        """May a micro-batch begin now, or a periodic checkpoint? Not while the stream is ending."""
        return self.stopping is None and self._doom is None and not self.ended

    def next_deadline(self) -> int | None:
        """When `handle(Tick)` should come at the latest, or None: never a moment at which it would do nothing."""
        moments = [
            pending.started_ms + self.options.timeout_ms
            for pending in self.pending.values()
            if pending.can_expire and pending.waiting
        ]
        due = self._next_periodic()
        if due is not None and not self.busy:  # the end of the running step is an event of its own
            moments.append(due)
        if self._held_up_ms is not None:
            moments.append(self._held_up_ms + self.options.timeout_ms)
        return min(moments) if moments and not self.ended else None

    # ---- events

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Take in one event; what is to be done about it, in order."""
        if self.ended:
            return self._after_end(event)
        actions = self._take_in(event, now_ms)
        if self._doom is None:
            actions += self._barriers(now_ms)
            actions += self._held_up(now_ms)
        if self._doom is None:
            actions += self._store_next()
        elif self._storing is None:
            actions += self._end(self._doom)
        return actions

    def _take_in(self, event: Event, now_ms: int) -> list[Action]:
        match event:
            case BatchBegun():
                self.busy = True
            case BatchDone(result=result):
                self.busy = False
                self.cut = self.cut.after(result)
                self.staged = self.staged.plus(result.staged)
            case BatchFailed(cause=cause):
                self.busy = False
                self._doom = self._doom or FailStream(cause=cause)
            case Trigger():
                return self._enqueue(replace(event, due_ms=now_ms))
            case Cancel():
                return self._cancel(event)
            case Acknowledged():
                self._acknowledged(event)
            case Declined(checkpoint=checkpoint, participant=participant, cause=cause):
                if participant in self.participants and self._collects(checkpoint):
                    return self._abort(checkpoint, f"{participant} declined: {cause}", now_ms)
            case Stored():
                return self._stored(event, now_ms)
            case StoreFailed(checkpoint=checkpoint, cause=cause):
                self._storing, self._noting, self._retiring = None, (), ()
                return self._abort(checkpoint, f"it could not be stored: {cause}", now_ms)
            case Committed(groups=groups):
                return self._committed(groups)
            case Tick():
                return self._expire(now_ms)
        return []

    def _after_end(self, event: Event) -> list[Action]:
        return _refusal(event.request, "the stream has ended") if isinstance(event, (Trigger, Cancel)) else []

    def _cancel(self, event: Cancel) -> list[Action]:
        if self._doom is not None:
            return _refusal(event.request, "the stream is ending already")
        self._doom = event
        return []

    def _enqueue(self, trigger: Trigger) -> list[Action]:
        if self._doom is not None:
            return _refusal(trigger.request, "the stream is ending")
        if self.stopping is not None and not (trigger.stop and trigger.name is None):
            return _refusal(trigger.request, "the stream is stopping: its last barrier has been asked for")
        if self.stopping is not None:
            self._also_stopping += [trigger.request] if trigger.request else []
            return []
        if trigger.name is not None and self._name_taken(trigger):
            return _refusal(trigger.request, f"there is a savepoint {trigger.name} already, or one is being taken")
        if trigger.keep is not None:
            self._spared.add(trigger.keep)
        self.stopping = trigger if trigger.stop else None
        self.queue.append(trigger)
        return []

    def _name_taken(self, trigger: Trigger) -> bool:
        under_way = [pending.trigger.name for pending in self.pending.values()]
        waiting = [other.name for other in self.queue]
        return trigger.name in [*under_way, *waiting, *(ref.name for ref in self.retained)]

    # ---- barriers

    def _next_periodic(self) -> int | None:
        """From when on a periodic checkpoint may be triggered, or None while none may."""
        if not self.may_begin or len(self._running()) >= self.options.concurrent:
            return None
        return self._periodic.due_at()

    def _running(self) -> list[PendingCheckpoint]:
        return [pending for pending in self.pending.values() if pending.trigger.name is None]

    def _barriers(self, now_ms: int) -> list[Action]:
        """Let every barrier pass that is due, if no step is running: a cut lies between two micro-batches."""
        if self.busy:
            return []
        actions: list[Action] = []
        waiting, self.queue = self.queue, []
        for trigger in waiting:
            if trigger.stop and (self.pending or self._storing is not None or self._uncommitted()):
                self.queue.append(trigger)  # the last barrier waits until everything before it has ended
            else:
                actions.append(self._barrier(trigger, now_ms))
        due = self._next_periodic()
        if due is not None and now_ms >= due:
            self._periodic.triggered(now_ms)
            actions.append(self._barrier(Trigger(reason="interval", due_ms=due), now_ms))
        return actions

    def _barrier_wanted(self) -> int | None:
        """From when on a barrier is to pass that the running step lets not; None with checkpointing off."""
        if self.options.interval_ms is None:
            return None
        return 0 if self.queue else self._next_periodic()

    def _held_up(self, now_ms: int) -> list[Action]:
        """A step that lets no barrier pass for the whole of a checkpoint's timeout is a checkpoint that expired."""
        wanted = self._barrier_wanted()
        if not self.busy or wanted is None:
            self._held_up_ms = None
            return []
        since = max(wanted, now_ms)
        self._held_up_ms = since if self._held_up_ms is None else min(self._held_up_ms, since)
        if now_ms < self._held_up_ms + self.options.timeout_ms:
            return []
        checkpoint, self.next_id = self.next_id, self.next_id.next()
        waited, self._held_up_ms = now_ms - self._held_up_ms, now_ms
        cause = f"it expired after {waited} ms: the running micro-batch let no barrier pass"
        self.failed += 1
        self._failed_periodic(checkpoint, cause)
        return [replace(self._aborted(checkpoint, cause), held_up_ms=waited)]

    def _barrier(self, trigger: Trigger, now_ms: int) -> Action:
        checkpoint = self.next_id
        self.next_id = checkpoint.next()
        self.segments.append(Segment(checkpoint, self.staged))
        staged = self._staged_up_to(checkpoint).handles
        self.staged = StagedOutput()
        self.pending[checkpoint] = PendingCheckpoint(checkpoint, trigger, self.cut, now_ms, set(self.participants))
        return TakeSnapshot(
            checkpoint=checkpoint,
            kind=trigger.kind,
            name=trigger.name,
            cut=self.cut,
            staged=staged,
            due_ms=trigger.due_ms,
        )

    def _staged_up_to(self, checkpoint: CheckpointId) -> StagedOutput:
        """Everything staged before this barrier that no completed snapshot has: a failed attempt's rolls on."""
        output = StagedOutput()
        for segment in self.segments:
            if segment.barrier <= checkpoint:
                output = output.plus(segment.output.handles)
        return output

    # ---- acks

    def _collects(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self.pending and self.pending[checkpoint].state is PendingState.COLLECTING

    def _acknowledged(self, ack: Acknowledged) -> None:
        if not self._collects(ack.checkpoint):
            log.info("late ack of %s for checkpoint %s: dropped", ack.participant, ack.checkpoint)
            return
        result = self.pending[ack.checkpoint].acknowledge(ack)
        if result is not AckResult.SUCCESS:
            log.warning("ack of %s for checkpoint %s: %s", ack.participant, ack.checkpoint, result.value)

    def _store_next(self) -> list[Action]:
        """Complete one snapshot at a time, in the order of their barriers.

        A snapshot with all of its acks overtakes older attempts that may be subsumed: they end once it is stored;
        it waits for those that may not (savepoints, and what a person asked for): completed out of order, the output
        between two barriers would belong to the wrong one.
        """
        if self._storing is not None:
            return []
        for _, candidate in sorted(self.pending.items()):
            if not candidate.waiting:
                return [self._store(candidate)]
            if not candidate.can_be_subsumed:
                break
        return []

    def _subsume(self, by: CheckpointId) -> list[Action]:
        """End the attempts that a completed snapshot has overtaken."""
        overtaken = sorted(checkpoint for checkpoint in self.pending if checkpoint < by)
        for checkpoint in overtaken:
            self.pending.pop(checkpoint).enter(PendingState.DISCARDED)
        return [self._aborted(checkpoint, f"subsumed by {by}") for checkpoint in overtaken]

    def _store(self, pending: PendingCheckpoint) -> Action:
        pending.enter(PendingState.STORING)
        self._storing = pending.id
        self._noting = tuple(sorted(self.committed))
        self._retiring = subsumed(self.retained, pending.trigger.kind, self.options.retained, self._spared)
        own = Group(id=pending.id, sinks=self._staged_up_to(pending.id).handles)
        return StoreSnapshot(
            checkpoint=pending.id,
            kind=pending.trigger.kind,
            name=pending.trigger.name,
            origin=pending.trigger.origin,
            request=pending.trigger.request,
            cut=pending.cut,
            vertices=pending.vertices,
            sources=pending.sources,
            groups=(*self._uncommitted(), own),
            committed=self._noting,
            retires=self._retiring,
        )

    def _stored(self, event: Stored, now_ms: int) -> list[Action]:
        pending = self.pending.pop(event.checkpoint)
        pending.enter(PendingState.COMPLETED)
        own = Group(id=pending.id, sinks=self._staged_up_to(pending.id).handles)
        self.segments = [segment for segment in self.segments if segment.barrier > pending.id]
        self.committed -= set(self._noting)
        self.groups = [group for group in self.groups if group.id not in self._noting]
        self.groups.append(own)
        self.retained = [ref for ref in self.retained if ref.id not in self._retiring] + [event.snapshot]
        retired, self._retiring, self._noting, self._storing = self._retiring, (), (), None
        self.completed += 1
        self._failures.succeeded()
        self._periodic.ended(now_ms)
        actions: list[Action] = [
            CommitGroups(groups=tuple(self._uncommitted())),
            NotifyComplete(checkpoint=pending.id, snapshot=event.snapshot, cut=pending.cut, retired=retired),
            *self._subsume(pending.id),
        ]
        if pending.trigger.stop:
            self._stopped_with = event.snapshot
        elif pending.trigger.request is not None:
            actions.append(Reply(request=pending.trigger.request, done=True, result=result_of(event.snapshot)))
        return actions

    # ---- commit and end

    def _uncommitted(self) -> list[Group]:
        return [group for group in self.groups if group.id not in self.committed]

    def _committed(self, groups: Sequence[CheckpointId]) -> list[Action]:
        self.committed |= {group.id for group in self.groups if group.id in groups}
        if self._stopped_with is None or self._uncommitted() or self.stopping is None:
            return []
        self.ended = True
        result = result_of(self._stopped_with)
        stopped = WriteStopped(
            reason=self.stopping.reason or "stop was asked for",
            committed=tuple(sorted(self.committed)),
            snapshot=self._stopped_with.id,
            request=self.stopping.request,
            result=result,
        )
        return [stopped, *(Reply(request=other, done=True, result=result) for other in self._also_stopping)]

    def _end(self, doom: Cancel | FailStream) -> list[Action]:
        """End without a snapshot: what is not in a completed one is given up."""
        self.ended = True
        why = doom.cause if isinstance(doom, FailStream) else "the stream was cancelled"
        triggers = [*(pending.trigger for pending in self.pending.values()), *self.queue]
        answers = [reply for trigger in triggers for reply in _refusal(trigger.request, why)]
        answers += self._answer_stops(why, good=isinstance(doom, Cancel))
        if isinstance(doom, FailStream):
            return [*answers, doom]
        noted = tuple(sorted(self.committed))
        return [*answers, WriteStopped(reason=doom.reason, committed=noted, snapshot=None, request=doom.request)]

    def _answer_stops(self, why: str, good: bool) -> list[Action]:
        """The stream ends otherwise than those wanted who had asked for its stop, perhaps with its last snapshot."""
        snapshot = self._stopped_with
        if snapshot is None or self.stopping is None:
            return [reply for other in self._also_stopping for reply in _refusal(other, why)]
        asked = [other for other in (self.stopping.request, *self._also_stopping) if other is not None]
        if good:
            return [Reply(request=other, done=True, result=result_of(snapshot)) for other in asked]
        return [reply for other in asked for reply in _refusal(other, f"{why}; {snapshot} is complete")]

    def _expire(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self.pending.values()):
            if pending.can_expire and pending.waiting and now_ms >= pending.started_ms + self.options.timeout_ms:
                waiting = ", ".join(sorted(pending.waiting))
                cause = f"it expired after {self.options.timeout_ms} ms, still waiting for {waiting}"
                actions += self._abort(pending.id, cause, now_ms)
        return actions

    def _abort(self, checkpoint: CheckpointId, cause: str, now_ms: int) -> list[Action]:
        pending = self.pending.pop(checkpoint, None)
        if pending is None:
            return []
        pending.enter(PendingState.DISCARDED)
        self.failed += 1
        self._periodic.ended(now_ms)
        trigger = pending.trigger
        actions = [self._aborted(checkpoint, cause), *_refusal(trigger.request, cause)]
        if trigger.stop:  # the stream goes on, periodic checkpoints too
            actions += [reply for other in self._also_stopping for reply in _refusal(other, cause)]
            self.stopping, self._also_stopping = None, []
        if pending.is_periodic:
            self._failed_periodic(checkpoint, cause)
        return actions

    def _failed_periodic(self, checkpoint: CheckpointId, cause: str) -> None:
        if self._failures.failed():
            self._doom = self._doom or FailStream(
                cause=f"checkpoint {checkpoint} failed ({cause}), and no more than {self.options.tolerable_failures} "
                "may fail in a row (execution.checkpointing.tolerable-failed-checkpoints)"
            )

    def _aborted(self, checkpoint: CheckpointId, cause: str) -> NotifyAborted:
        completed = [ref.id for ref in self.retained]
        return NotifyAborted(checkpoint=checkpoint, cause=cause, latest_completed=max(completed, default=None))


def _refusal(request: RequestId | None, why: str) -> list[Action]:
    return [Reply(request=request, done=False, why=why)] if request is not None else []


def result_of(snapshot: SnapshotRef) -> dict[str, object]:
    """What the one who asked for a snapshot is told of it."""
    return {"snapshot": int(snapshot.id), "name": snapshot.name, "folder": snapshot.folder, "kind": snapshot.kind.value}
