"""The coordinator: decides about barriers, completion, commit and the end. Pure: `handle(event, now)` returns actions.

It does no I/O and starts no thread. One thread at a time has it. The order that it keeps: barrier, acks, metadata,
completion slot, commit, notify. Nothing is committed that has no slot; nothing is retired but by a slot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headgate.coordinator.cut import Cut, Group
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Cancel,
    Cleaned,
    CommitGroups,
    Committed,
    Declined,
    Event,
    FailStream,
    FinishOperators,
    Looked,
    NotifyAborted,
    NotifyComplete,
    NotifyCurrent,
    Reply,
    SourceEnded,
    Stored,
    StoreFailed,
    Tick,
    Trigger,
    WriteStopped,
    refusal,
    result_of,
)
from headgate.coordinator.newest import Content, NewestCheckpoint
from headgate.coordinator.output import OutputOnItsWay
from headgate.coordinator.pending import AckResult, PendingCheckpoint, PendingState
from headgate.coordinator.policy import CheckpointOptions, FailureManager, HeldUpBarrier, PeriodicScheduler
from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.coordinator.requests import CheckpointRequestDecider, Dropped, Load
from headgate.coordinator.retention import CompletedCheckpointStore
from headgate.coordinator.stopping import Stop
from headgate_contract.ids import CheckpointId
from headgate_contract.snapshot import SnapshotRef

log = logging.getLogger(__name__)

INPUT_ENDED = "its input has ended"
"""Why a stream of bounded sources stops."""


@dataclass
class Coordinator:
    """The protocol's state. `participants` are the names of those who acknowledge a snapshot."""

    options: CheckpointOptions
    participants: frozenset[str]
    cut: Cut
    next_id: CheckpointId
    retained: Sequence[SnapshotRef]
    """The snapshots of the log when this life began."""
    groups: list[Group]
    """What the sinks began with: committed, and no slot says so yet, oldest first."""
    started_ms: int
    claimed: frozenset[CheckpointId] = frozenset()
    """Savepoints that are retired as if they were checkpoints."""
    begins_as: CheckpointId | None = None
    """The checkpoint of this generation that `cut` is, to the last bit: a restart of the driver begins so."""
    busy: bool = False
    pending: dict[CheckpointId, PendingCheckpoint] = field(default_factory=dict)
    stop: Stop | None = None
    """The stop that is under way."""
    ended: bool = False
    failed: int = 0

    def __post_init__(self) -> None:
        self.output = OutputOnItsWay(self.groups, {group.id for group in self.groups})
        self.store = CompletedCheckpointStore(list(self.retained), self.options.retained, self.claimed)
        self.requests = CheckpointRequestDecider(self.options)
        self.scheduler = PeriodicScheduler(self.options.interval_ms)
        self.scheduler.start(self.started_ms)
        self._held_up = HeldUpBarrier(self.options.timeout_ms if self.options.interval_ms is not None else None)
        self._failures = FailureManager(self.options.tolerable_failures)
        self._newest = NewestCheckpoint(self.begins_as, Content(cut=self.cut))
        self._storing: CheckpointId | None = None
        self._looked_ms: int | None = None
        """When the sources last began to look and found nothing: None until each of them has, in this life."""
        self._last_end_ms: int | None = None
        """When the last snapshot completed or came to nothing."""
        self._input_ended = False
        self._doom: Cancel | FailStream | None = None
        """How the stream ends as soon as what is being stored has turned out one way or the other."""

    # ---- questions

    @property
    def may_begin(self) -> bool:
        """May a micro-batch begin now, or a periodic checkpoint? Not while the stream is ending."""
        return self.stop is None and self._doom is None and not self.ended

    @property
    def is_through(self) -> bool:
        """Whether nothing will ever come any more: the stream stops by itself then."""
        return self._input_ended

    def pinned_files(self) -> frozenset[str]:
        """The local files of channels that are still read: a chain has none."""
        return frozenset()

    def next_deadline(self) -> int | None:
        """When `handle(Tick)` should come at the latest, or None: never a moment at which it would do nothing."""
        if self.ended or self._doom is not None:
            return None
        moments = [pending.expires_ms(self.options.timeout_ms) for pending in self.pending.values()]
        moments += [self.scheduler.due_ms, self._held_up.deadline_ms]
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- events

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Take in one event; what is to be done about it, in order."""
        if self.ended:
            return self._after_end(event)
        if isinstance(event, Looked):
            self._looked_ms = event.began_ms
        actions = self._take_in(event, now_ms)
        if self._doom is None:
            actions += self._barriers(now_ms)
            actions += self._check_held_up(now_ms)
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
                self.output.stage(result.staged)
            case SourceEnded(source=source):  # a chain has one
                self.cut = self.cut.at_end_of(source)
                self._input_ended = True
            case BatchFailed(cause=cause):
                self.busy = False
                self._doom = self._doom or FailStream(cause=cause)
            case Trigger():
                return self._ask(replace(event, due_ms=now_ms), now_ms)
            case Cancel():
                return self._cancel(event)
            case Acknowledged():
                self._acknowledged(event)
            case Declined(checkpoint=checkpoint, participant=participant, cause=cause):
                if participant in self.participants and self._collects(checkpoint):
                    return self._abort(checkpoint, event.reason, f"{participant} declined: {cause}", now_ms)
            case Stored():
                return self._stored(event, now_ms)
            case StoreFailed(checkpoint=checkpoint, cause=cause):
                self._storing = None
                self.store.not_completed()
                self.output.not_noted()
                self._doom = self._doom or self._failures.not_stored()
                reason = Reason.FINALIZE_CHECKPOINT_FAILURE
                return self._abort(checkpoint, reason, f"it could not be stored: {cause}", now_ms)
            case Committed(groups=groups):
                return self._committed(groups)
            case Cleaned(checkpoint=checkpoint):
                self.store.cleaned(checkpoint)
            case Tick():
                return self._expire(now_ms)
        return []

    def _after_end(self, event: Event) -> list[Action]:
        return refusal(event.request, "the stream has ended") if isinstance(event, (Trigger, Cancel)) else []

    def _cancel(self, cancel: Cancel) -> list[Action]:
        if self._doom is not None:
            return refusal(cancel.request, f"the stream is ending already: {_why(self._doom)}")
        self._doom = cancel
        return []

    def _ask(self, trigger: Trigger, now_ms: int) -> list[Action]:
        """Somebody asks for a snapshot: refuse it, or let it wait for its turn."""
        why_not = self._why_not(trigger)
        if why_not is not None:
            return refusal(trigger.request, why_not)
        if trigger.keep is not None:
            self.store.spared.add(trigger.keep)
        if trigger.end is not None:
            self.store.spared.add(trigger.end.id)
        if self.stop is not None:
            return self.stop.join(trigger)
        return self._begin_to_stop(trigger, now_ms) if trigger.stop else self._submit(trigger, now_ms)

    def _why_not(self, trigger: Trigger) -> str | None:
        if self._doom is not None:
            return f"the stream is ending: {_why(self._doom)}"
        if self.stop is not None and not self.stop.may_join(trigger):
            return f"the stream is stopping: {self.stop.why}"
        if trigger.name is not None and trigger.name in [*self.store.names(), *(one.name for one in self._asked_for)]:
            return f"there is a savepoint {trigger.name} already, or one is being taken"
        if trigger.keep is not None and not self.store.stays(trigger.keep):
            return f"snapshot {trigger.keep}, which was to be kept, is not retained any more"
        return None

    @property
    def _asked_for(self) -> list[Trigger]:
        return [*(pending.trigger for pending in self.pending.values()), *self.requests.waiting]

    def _begin_to_stop(self, trigger: Trigger, now_ms: int) -> list[Action]:
        self.stop = Stop(trigger)
        self.scheduler.stop()
        return [reply for dropped in self.requests.withdraw_periodic() for reply in self._drop(dropped, now_ms)]

    def _submit(self, trigger: Trigger, now_ms: int) -> list[Action]:
        if trigger.is_periodic and not self.scheduler.running:
            return self._drop(Dropped(request=trigger, reason=Reason.PERIODIC_SCHEDULER_SHUTDOWN), now_ms)
        dropped = self.requests.submit(trigger)
        return self._drop(dropped, now_ms) if dropped is not None else []

    def _drop(self, dropped: Dropped, now_ms: int) -> list[Action]:
        """Tell whoever asked; nobody asked for a periodic one, and the scheduler comes again."""
        request, reason = dropped.request, dropped.reason
        pause = self._load().pause_until_ms
        if request.is_periodic and reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS and pause is not None:
            self.scheduler.put_off(pause)
        elif request.is_periodic:
            self.scheduler.again(now_ms)
        log.info("a checkpoint asked for by %s is not taken: %s", request.request or "the scheduler", reason.told)
        return refusal(request.request, reason.told)

    # ---- barriers

    def _load(self) -> Load:
        running = sum(not pending.trigger.is_savepoint for pending in self.pending.values())
        pause = None if self._last_end_ms is None else self._last_end_ms + self.options.min_pause_ms
        return Load(running=running, cleaning=len(self.store.cleaning), pause_until_ms=pause)

    def _barriers(self, now_ms: int) -> list[Action]:
        """Let every barrier pass that may, if no step is running: a cut lies between two micro-batches."""
        actions: list[Action] = []
        if self.is_through and self.may_begin:
            actions += self._begin_to_stop(Trigger(stop=True, drain=True, reason=INPUT_ENDED, due_ms=now_ms), now_ms)
        due = self.scheduler.fires(now_ms)
        actions += self._submit(Trigger(reason="interval", due_ms=due), now_ms) if due is not None else []
        while (chosen := self.requests.look(self._load(), now_ms)) is not None:
            if isinstance(chosen, Dropped):
                self.requests.take()
                actions += self._drop(chosen, now_ms)
            elif self.busy:
                break
            else:
                self.requests.take()
                actions += self._current(chosen, now_ms) or self._barrier(chosen, now_ms)
        if self.stop is not None and self._last_barrier_due and not self.busy:
            actions += self._last_barrier(self.stop, now_ms)
        return actions

    def _current(self, trigger: Trigger, now_ms: int) -> list[Action]:
        """If a periodic checkpoint would repeat the newest one, that is said of the newest, and none is taken.

        Beside another attempt that is not known: the newest may be retired by that. A savepoint's retires nothing.
        """
        others = any(not pending.trigger.is_savepoint for pending in self.pending.values())
        if not trigger.is_periodic or others:
            return []
        newest = self._newest.says_all(self._would_find(), self.output)
        if newest is None:
            return []
        self.scheduler.again(now_ms)
        return [NotifyCurrent(checkpoint=newest, as_of_ms=self._as_of_ms())]

    def _as_of_ms(self) -> int | None:
        """By when whatever had come to the sources is in what the barriers of a checkpoint would find now.

        Not the moment of the barrier: nobody knows what had come by then and was not looked for.
        """
        return self._looked_ms

    def _would_find(self) -> Content | None:
        """What the barriers of a checkpoint would find now; None if that has still to turn out."""
        return Content(cut=self.cut)

    def _last_barrier(self, stop: Stop, now_ms: int) -> list[Action]:
        """The stop's own; before that of a drain a last step, without records. None where the end is there."""
        end = stop.trigger.end
        if end is not None and end.id == self.store.latest:
            self.ended = True
            return stop.done(self.output.note(), end)
        if stop.begins_to_finish():
            self.busy = True
            self._held_up.begin(stop.trigger, "the operators had not finished", now_ms)
            finishing = self._finish()
            if self.busy:
                return finishing
        stop.barrier_waits = False
        return self._barrier(stop.trigger, now_ms)

    def _finish(self) -> list[Action]:
        """The last step of all operators; `busy` until it is done. Nothing has come to those that have finished."""
        self.busy = not self.cut.finished
        return [FinishOperators(cut=self.cut)] if self.busy else []

    @property
    def _last_barrier_due(self) -> bool:
        """It waits until everything before it has ended."""
        before = self.requests.waiting or self.pending or self._storing is not None or self.output.uncommitted()
        return self.stop is not None and self.stop.barrier_waits and not before

    def _check_held_up(self, now_ms: int) -> list[Action]:
        """A step that lets no barrier pass: with checkpointing on, that is a checkpoint that expires."""
        expired = self._held_up.look(self._waiting_for_step(now_ms), now_ms)
        if expired is None:
            return []
        trigger, waited = expired
        self.requests.expire(trigger)
        checkpoint, self.next_id = self.next_id, self.next_id.next()
        cause = f"it expired after {waited} ms: {self._held_up.why}"
        aborted = replace(self._aborted(checkpoint, Reason.CHECKPOINT_EXPIRED, cause), held_up_ms=waited)
        actions = self._give_up(trigger, aborted, now_ms)
        self._held_up.look(self._waiting_for_step(now_ms), now_ms)
        return actions

    def _waiting_for_step(self, now_ms: int) -> list[Trigger]:
        """Whose barriers wait for the running step and for nothing else, the next one first."""
        if self.busy and self.stop is not None and self._last_barrier_due:
            return [self.stop.trigger]
        next_one = self.requests.look(self._load(), now_ms) if self.busy else None
        return self.requests.waiting if next_one is not None else []

    def _barrier(self, trigger: Trigger, now_ms: int) -> list[Action]:
        pending = self._begin(trigger, now_ms)
        due_ms = max(trigger.due_ms, now_ms if self._held_up.since_ms is None else self._held_up.since_ms)
        staged = self.output.barrier(pending.id)
        joinable = self._is_first(pending.id)
        return [pending.take(self.cut, self.participants, due_ms, staged=staged, joinable=joinable)]

    def _is_first(self, checkpoint: CheckpointId) -> bool:
        """Whether no earlier attempt is under way: then all that is staged before its barrier completes with it."""
        return min(self.pending) == checkpoint

    def _begin(self, trigger: Trigger, now_ms: int) -> PendingCheckpoint:
        """A checkpoint begins: it has its number, and waits for everybody's part."""
        checkpoint, self.next_id = self.next_id, self.next_id.next()
        if trigger.is_periodic:
            self.scheduler.again(now_ms)
        as_of_ms = self._as_of_ms()
        pending = PendingCheckpoint(checkpoint, trigger, self.cut, now_ms, set(self.participants), as_of_ms=as_of_ms)
        self.pending[checkpoint] = pending
        return pending

    # ---- acks

    def _collects(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self.pending and self.pending[checkpoint].state is PendingState.COLLECTING

    def _acknowledged(self, ack: Acknowledged) -> None:
        if not self._collects(ack.checkpoint):
            log.info("late ack of %s for checkpoint %s: dropped", ack.participant, ack.checkpoint)
            return
        if (result := self.pending[ack.checkpoint].acknowledge(ack)) is not AckResult.SUCCESS:
            log.warning("ack of %s for checkpoint %s: %s", ack.participant, ack.checkpoint, result.value)

    def _store_next(self) -> list[Action]:
        """Complete one snapshot at a time, in the order of their barriers.

        A snapshot with all of its acks overtakes older attempts that may be subsumed: they end once it is stored. For
        the others it waits: completed out of order, the output between two barriers would belong to the wrong one.
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
        return [self._aborted(checkpoint, Reason.CHECKPOINT_SUBSUMED, f"subsumed by {by}") for checkpoint in overtaken]

    def _store(self, pending: PendingCheckpoint) -> Action:
        pending.enter(PendingState.STORING)
        self._storing = pending.id
        self.output.stand_in(pending.id, pending.staged, pending.prepared)
        return pending.store(
            groups=(*self.output.uncommitted(), self.output.group(pending.id)),
            committed=self.output.note(),
            retires=self.store.retire_for(pending.trigger.kind, self._newest.repeated_by(pending)),
            retention=self.options.retention,
        )

    def _stored(self, event: Stored, now_ms: int) -> list[Action]:
        pending = self.pending.pop(event.checkpoint)
        pending.enter(PendingState.COMPLETED)
        self.output.complete(pending.id)
        self._storing = None
        retired = self.store.complete(event.snapshot)
        self._newest.completed(pending)
        self._failures.succeeded(pending.id)
        self._last_end_ms = now_ms
        actions: list[Action] = [
            CommitGroups(groups=self.output.uncommitted()),
            NotifyComplete(
                checkpoint=pending.id,
                snapshot=event.snapshot,
                cut=pending.cut,
                retired=retired,
                as_of_ms=pending.as_of_ms,
            ),
            *self._subsume(pending.id),
        ]
        if pending.trigger.stop and self.stop is not None:
            self.stop.snapshot = event.snapshot
            self.store.spared.add(event.snapshot.id)  # a cancel that comes now ends the commit, and no more
        elif pending.trigger.request is not None:
            actions.append(Reply(request=pending.trigger.request, done=True, result=result_of(event.snapshot)))
        return actions

    # ---- commit and end

    def _committed(self, groups: Sequence[CheckpointId]) -> list[Action]:
        self.output.commit(groups)
        if self.stop is None or self.stop.snapshot is None or self.output.uncommitted():
            return []
        self.ended = True
        return self.stop.done(self.output.note(), self.stop.snapshot)

    def _end(self, doom: Cancel | FailStream) -> list[Action]:
        """End without a snapshot: what is not in a completed one is given up."""
        self.ended = True
        failed = isinstance(doom, FailStream)
        reason = Reason.JOB_FAILURE if failed else Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
        why = doom.cause if isinstance(doom, FailStream) else reason.value
        answers: list[Action] = [self._aborted(checkpoint, reason, why) for checkpoint in sorted(self.pending)]
        answers += [reply for trigger in self._asked_for for reply in refusal(trigger.request, why)]
        answers += self.stop.overtaken(why, failed=failed) if self.stop is not None else []
        if isinstance(doom, FailStream):
            return [*answers, doom]
        also = self.stop.kept_promises() if self.stop is not None else ()
        retires, noted = self.store.retire_at_cancel(self.options.retention), self.output.note()
        stopped = WriteStopped(
            reason=doom.reason, committed=noted, snapshot=None, request=doom.request, also=also, retires=retires
        )
        return [*answers, stopped]

    def _expire(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self.pending.values()):
            expires = pending.expires_ms(self.options.timeout_ms)
            if expires is not None and now_ms >= expires:
                cause = f"it expired after {self.options.timeout_ms} ms, still waiting for {pending.missing}"
                actions += self._abort(pending.id, Reason.CHECKPOINT_EXPIRED, cause, now_ms)
        return actions

    def _abort(self, checkpoint: CheckpointId, reason: Reason, cause: str, now_ms: int) -> list[Action]:
        pending = self.pending.pop(checkpoint, None)
        if pending is None:
            return []
        pending.enter(PendingState.DISCARDED)
        self._last_end_ms = now_ms
        return self._give_up(pending.trigger, self._aborted(checkpoint, reason, cause), now_ms)

    def _give_up(self, trigger: Trigger, aborted: NotifyAborted, now_ms: int) -> list[Action]:
        """What a person asked for fails for them, and not for the stream."""
        actions = [aborted, *refusal(trigger.request, aborted.cause)]
        if self.stop is not None and trigger.stop:  # the stream goes on, periodic checkpoints too
            actions += self.stop.failed(aborted.cause)
            self._doom = self._doom or self.stop.no_way_back(aborted.cause)
            self.stop = None
            self.scheduler.start(now_ms)
        self.failed += 1
        if trigger.is_periodic:
            self._doom = self._doom or self._failures.failed(aborted, self._storing)
        return actions

    def _aborted(self, checkpoint: CheckpointId, reason: Reason, cause: str) -> NotifyAborted:
        return NotifyAborted(checkpoint=checkpoint, reason=reason, cause=cause, latest_completed=self.store.latest)


def _why(doom: Cancel | FailStream) -> str:
    return doom.reason if isinstance(doom, Cancel) else doom.cause
