"""Switches that reverse numbered behaviours of the coordinator: acks, attempts, barriers, retention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.coordinator import coordinator, messages, pending, policy, reasons, retention, stopping
from headgate.coordinator import requests as deciding
from headgate.driver import snapshots
from headgate_contract import settings, snapshot
from headgate_contract.ids import CheckpointId
from tests.spec.reversing import Patch, everywhere, reverses

# ---- the coordinator: acks and declines


@reverses(1, "an ack is not counted down")
def _(patch: Patch) -> None:
    patch.setattr(pending.PendingCheckpoint, "acknowledge", lambda attempt, ack: pending.AckResult.SUCCESS)


@reverses(2, "a decline ends every checkpoint under way")
def _(patch: Patch) -> None:
    handle = coordinator.Coordinator.handle

    def all_of_them(self: coordinator.Coordinator, event: Any, now_ms: int) -> Any:
        actions = handle(self, event, now_ms)
        if isinstance(event, messages.Declined):
            self.pending.clear()
        return actions

    patch.setattr(coordinator.Coordinator, "handle", all_of_them)


@reverses(3, "who declines after others have acknowledged is not heard")
def _(patch: Patch) -> None:
    handle = coordinator.Coordinator.handle

    def deaf(self: coordinator.Coordinator, event: Any, now_ms: int) -> Any:
        late = isinstance(event, messages.Declined) and event.checkpoint in self.pending
        return [] if late and self.pending[event.checkpoint].acknowledged else handle(self, event, now_ms)

    patch.setattr(coordinator.Coordinator, "handle", deaf)


@reverses(7, "what is uploaded after its attempt was given up stays")
def _(patch: Patch) -> None:
    patch.setattr(snapshots.SnapshotTaker, "_delete", lambda taker, store, path: None)


@reverses(46, "a second ack counts like the first")
def _(patch: Patch) -> None:
    acknowledge = pending.PendingCheckpoint.acknowledge

    def again(self: pending.PendingCheckpoint, ack: messages.Acknowledged) -> pending.AckResult:
        self.acknowledged.discard(ack.participant)
        self.waiting.add(ack.participant)
        return acknowledge(self, ack)

    patch.setattr(pending.PendingCheckpoint, "acknowledge", again)


# ---- the coordinator: how an attempt ends


@reverses(5, "a checkpoint never expires")
def _(patch: Patch) -> None:
    patch.setattr(pending.PendingCheckpoint, "expires_ms", lambda attempt, timeout_ms: None)


@reverses(6, "a failed checkpoint is never one too many")
def _(patch: Patch) -> None:
    patch.setattr(policy.FailureManager, "failed", lambda manager, aborted, storing=None: None)


@reverses(12, "a checkpoint that completes leaves those under way that it has overtaken")
def _(patch: Patch) -> None:
    patch.setattr(coordinator.Coordinator, "_subsume", lambda it, by: [])


@reverses(19, "a checkpoint that cannot be stored does not count as a failure")
def _(patch: Patch) -> None:
    handle = coordinator.Coordinator.handle

    def lenient(self: coordinator.Coordinator, event: Any, now_ms: int) -> Any:
        if not isinstance(event, messages.StoreFailed):
            return handle(self, event, now_ms)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(policy.FailureManager, "failed", lambda manager, aborted, storing=None: None)
            return handle(self, event, now_ms)

    patch.setattr(coordinator.Coordinator, "handle", lenient)


def _give_up(patch: Patch, instead: Callable[..., Any]) -> None:
    """Another way to end an attempt: it gets the one that holds, and then what that gets."""
    give_up = coordinator.Coordinator._give_up
    patch.setattr(coordinator.Coordinator, "_give_up", lambda *args: instead(give_up, *args))


@reverses(20, "nobody is told why the last snapshot of a stop came to nothing")
def _(patch: Patch) -> None:
    def silent(give_up: Any, it: coordinator.Coordinator, trigger: Any, aborted: Any, now_ms: int) -> Any:
        return give_up(it, trigger, replace(aborted, cause="it failed") if trigger.stop else aborted, now_ms)

    _give_up(patch, silent)


@reverses(22, "the notice of an abort names no completed checkpoint")
def _(patch: Patch) -> None:
    aborted = coordinator.Coordinator._aborted
    patch.setattr(coordinator.Coordinator, "_aborted", lambda *args: replace(aborted(*args), latest_completed=None))


@reverses(24, "who asks after the end gets no answer")
def _(patch: Patch) -> None:
    patch.setattr(coordinator.Coordinator, "_after_end", lambda it, event: [])


@reverses(40, "a success does not begin the count of failures anew")
def _(patch: Patch) -> None:
    patch.setattr(policy.FailureManager, "succeeded", lambda manager, checkpoint: None)


@reverses(42, "a failure counts whatever is being stored, or has completed")
def _(patch: Patch) -> None:
    failed = policy.FailureManager.failed

    def rash(self: policy.FailureManager, aborted: messages.NotifyAborted, storing: Any = None) -> Any:
        self.newest = None
        return failed(self, aborted)

    patch.setattr(policy.FailureManager, "failed", rash)


@reverses(44, "attempts that were overtaken end without a word")
def _(patch: Patch) -> None:
    def quietly(self: coordinator.Coordinator, by: CheckpointId) -> list[Any]:
        for checkpoint in [id for id in self.pending if id < by]:
            del self.pending[checkpoint]
        return []

    patch.setattr(coordinator.Coordinator, "_subsume", quietly)


@reverses(45, "whatever is under way can be subsumed")
def _(patch: Patch) -> None:
    patch.setattr(pending.PendingCheckpoint, "can_be_subsumed", property(lambda attempt: True))


@reverses(147, "what came behind a savepoint is told without its place")
def _(patch: Patch) -> None:
    patch.setattr(snapshot.SnapshotRef, "told", property(lambda ref: f"{ref} is complete"))


@reverses(148, "a stop whose snapshot fails goes on stopping")
def _(patch: Patch) -> None:
    def stubborn(give_up: Any, it: coordinator.Coordinator, *args: Any) -> Any:
        stop = it.stop
        actions = give_up(it, *args)
        it.stop = stop
        return actions

    _give_up(patch, stubborn)


@reverses(162, "only who takes snapshots hears of an abort")
def _(patch: Patch) -> None:
    patch.setattr(snapshots.SnapshotTaker, "_tell_aborted", lambda taker, checkpoint: None)


@reverses(149, "a drain is a stop: no operator finishes")
def _(patch: Patch) -> None:
    patch.setattr(stopping.Stop, "begins_to_finish", lambda stop: False)


@reverses(153, "after a failed stop periodic checkpoints stay off")
def _(patch: Patch) -> None:
    abort = coordinator.Coordinator._abort

    def for_good(self: coordinator.Coordinator, *args: Any) -> Any:
        actions = abort(self, *args)
        self.scheduler.stop()
        return actions

    patch.setattr(coordinator.Coordinator, "_abort", for_good)


@reverses(163, "a checkpoint that cannot be stored counts twice")
def _(patch: Patch) -> None:
    abort = coordinator.Coordinator._abort

    def twice(self: coordinator.Coordinator, *args: Any) -> Any:
        self.failed += 1
        return abort(self, *args)

    patch.setattr(coordinator.Coordinator, "_abort", twice)


# ---- the coordinator: when a barrier passes


def _another_load(patch: Patch, change: Callable[[coordinator.Coordinator, deciding.Load], deciding.Load]) -> None:
    load = coordinator.Coordinator._load
    patch.setattr(coordinator.Coordinator, "_load", lambda it: change(it, load(it)))


@reverses(10, "there is no pause after a checkpoint")
def _(patch: Patch) -> None:
    _another_load(patch, lambda it, load: replace(load, pause_until_ms=None))


@reverses(11, "one more at once than allowed")
def _(patch: Patch) -> None:
    patch.setattr(policy.CheckpointOptions, "concurrent", property(lambda options: options.max_concurrent + 1))


def _hold_requests(patch: Patch, held: Callable[[deciding.CheckpointRequestDecider, deciding.Load, int], bool]) -> None:
    """While `held`, no request is carried out."""
    look = deciding.CheckpointRequestDecider.look

    def holding(self: deciding.CheckpointRequestDecider, load: deciding.Load, now_ms: int) -> Any:
        return None if held(self, load, now_ms) else look(self, load, now_ms)

    patch.setattr(deciding.CheckpointRequestDecider, "look", holding)


def _pauses(it: deciding.CheckpointRequestDecider, load: deciding.Load, now_ms: int) -> bool:
    return load.pause_until_ms is not None and now_ms < load.pause_until_ms


@reverses(13, "a savepoint counts for the limit of checkpoints at once")
def _(patch: Patch) -> None:
    _another_load(patch, lambda it, load: replace(load, running=len(it.pending)))
    _hold_requests(patch, lambda it, load, _: load.running >= it.options.concurrent)


@reverses(14, "the pause holds between savepoints too")
def _(patch: Patch) -> None:
    _hold_requests(patch, _pauses)


@reverses(26, "periodic checkpoints come at twice the interval")
def _(patch: Patch) -> None:
    again = policy.PeriodicScheduler.again

    def late(self: policy.PeriodicScheduler, now_ms: int) -> None:
        again(self, now_ms + (self.interval_ms or 0))

    patch.setattr(policy.PeriodicScheduler, "again", late)


@reverses(27, "a scheduler that was shut down goes on asking")
def _(patch: Patch) -> None:
    patch.setattr(policy.PeriodicScheduler, "stop", lambda scheduler: None)


@reverses(30, "with a request that waits too long all others go")
def _(patch: Patch) -> None:
    patch.setattr(deciding.CheckpointRequestDecider, "expire", lambda it, request: it.waiting.clear())


@reverses(31, "where a checkpoint is discarded, nobody's turn comes")
def _(patch: Patch) -> None:
    handle = coordinator.Coordinator.handle

    def idle(self: coordinator.Coordinator, event: Any, now_ms: int) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            if isinstance(event, messages.Declined):
                inner.setattr(coordinator.Coordinator, "_barriers", lambda it, now_ms: [])
            return handle(self, event, now_ms)

    patch.setattr(coordinator.Coordinator, "handle", idle)


@reverses(32, "a checkpoint that failed is followed by no pause")
def _(patch: Patch) -> None:
    abort = coordinator.Coordinator._abort

    def without_pause(self: coordinator.Coordinator, *args: Any) -> Any:
        before = self._last_end_ms
        actions = abort(self, *args)
        self._last_end_ms = before
        return actions

    patch.setattr(coordinator.Coordinator, "_abort", without_pause)


@reverses(36, "what a person asks for waits for the pause")
def _(patch: Patch) -> None:
    _hold_requests(patch, _pauses)


@reverses(37, "the queue has no limit")
def _(patch: Patch) -> None:
    submit = deciding.CheckpointRequestDecider.submit

    def anything(self: deciding.CheckpointRequestDecider, request: Any) -> Any:
        self.limit = 1_000_000
        return submit(self, request)

    patch.setattr(deciding.CheckpointRequestDecider, "submit", anything)


@reverses(38, "nothing is put off for the checkpoints that are under way or being cleaned")
def _(patch: Patch) -> None:
    look = deciding.CheckpointRequestDecider.look
    idle = {"running": 0, "cleaning": 0}
    patch.setattr(
        deciding.CheckpointRequestDecider, "look", lambda it, load, now_ms: look(it, replace(load, **idle), now_ms)
    )


@reverses(39, "requests are carried out in the order in which they came")
def _(patch: Patch) -> None:
    patch.setattr(deciding, "_rank", lambda request: 0)


@reverses(43, "every reason counts")
def _(patch: Patch) -> None:
    patch.setattr(reasons.CheckpointFailureReason, "counts", property(lambda reason: True))


@reverses(47, "every life numbers its checkpoints from 1")
def _(patch: Patch) -> None:
    begin = coordinator.Coordinator.__post_init__

    def anew(self: coordinator.Coordinator) -> None:
        begin(self)
        self.next_id = CheckpointId(1)

    patch.setattr(coordinator.Coordinator, "__post_init__", anew)


@reverses(161, "a checkpoint by hand is refused while periodic ones are off")
def _(patch: Patch) -> None:
    ask = coordinator.Coordinator._ask

    def refusing(self: coordinator.Coordinator, trigger: Any, now_ms: int) -> Any:
        if self.options.interval_ms is None and trigger.request is not None:
            return [messages.Reply(request=trigger.request, done=False, why="checkpointing is off")]
        return ask(self, trigger, now_ms)

    patch.setattr(coordinator.Coordinator, "_ask", refusing)


# ---- retention


def _retire(patch: Patch, rule: Callable[..., tuple[CheckpointId, ...]]) -> None:
    """Another `rule`: it gets the one that holds, and then what that gets."""
    subsumed = retention.subsumed
    everywhere(patch, subsumed, lambda *args: rule(subsumed, *args))


@reverses(48, "a savepoint retires checkpoints as a checkpoint does")
def _(patch: Patch) -> None:
    _retire(patch, lambda subsumed, refs, kind, *rest: subsumed(refs, snapshot.SnapshotKind.CHECKPOINT, *rest))


@reverses(25, "no retention is stamped on a checkpoint")
def _(patch: Patch) -> None:
    store = pending.PendingCheckpoint.store
    patch.setattr(pending.PendingCheckpoint, "store", lambda it, **given: replace(store(it, **given), retention=None))


@reverses(50, "the snapshot of a stop retires all before it")
def _(patch: Patch) -> None:
    _retire(patch, lambda subsumed, refs, *rest: tuple(ref.id for ref in refs))


@reverses(51, "one less is retained than asked for")
def _(patch: Patch) -> None:
    _retire(patch, lambda subsumed, refs, kind, keep, *rest: subsumed(refs, kind, keep - 1, *rest))


@reverses(56, "the newest one is retired first")
def _(patch: Patch) -> None:
    def newest(subsumed: Any, refs: Any, *rest: Any) -> tuple[CheckpointId, ...]:
        return tuple(sorted((ref.id for ref in refs), reverse=True)[: len(subsumed(refs, *rest))])

    _retire(patch, newest)


@reverses(52, "the older ones go before the new one is stored")
def _(patch: Patch) -> None:
    store = coordinator.Coordinator._store

    def early(self: coordinator.Coordinator, attempt: Any) -> messages.StoreSnapshot:
        action: messages.StoreSnapshot = store(self, attempt)
        self.store.snapshots = [ref for ref in self.store.snapshots if ref.id not in action.retires]
        return action

    patch.setattr(coordinator.Coordinator, "_store", early)


@reverses(55, "no number to retain is refused")
def _(patch: Patch) -> None:
    checked = settings.Settings

    class Lenient:
        def __init__(self, given: Any) -> None:
            key = "execution.checkpointing.num-retained"
            self._settings = checked({name: value for name, value in dict(given).items() if name != key})

        def __getitem__(self, key: str) -> Any:
            return self._settings[key]

    everywhere(patch, checked, Lenient)
