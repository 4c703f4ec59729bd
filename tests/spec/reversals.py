"""Switches that reverse numbered behaviours in the production classes: each must make a test of its number fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.messages import Acknowledged, Declined, Reply, StoreFailed, StoreSnapshot
from headgate.coordinator.pending import AckResult, PendingCheckpoint
from headgate.coordinator.policy import CheckpointOptions, FailureManager, PeriodicTrigger, subsumed
from headgate.driver.ledger import Ledger
from headgate.driver.shared_state import SharedFiles
from headgate.driver.snapshots import SnapshotTaker
from headgate.recovery.state import check_vertices, restore_vertex
from headgate_contract.errors import StorageError
from headgate_contract.ids import CheckpointId
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotKind, decode_metadata, read_metadata

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Reversal:
    number: int
    does: str
    switch: Callable[[Patch], None]


REVERSALS: dict[int, Reversal] = {}


def reverses(number: int, does: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Marks the switch of a behaviour; `does` says what is done instead."""

    def note(switch: Callable[[Patch], None]) -> Callable[[Patch], None]:
        if number in REVERSALS:
            raise AssertionError(f"F{number} has two switches")
        REVERSALS[number] = Reversal(number, does, switch)
        return switch

    return note


def everywhere(patch: Patch, function: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Replace a function in every module that has imported it, the tests' own too, but not here."""
    for module in [module for name, module in sys.modules.items() if name != __name__]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                patch.setattr(module, name, instead)


# ---- the coordinator: acks and declines


@reverses(1, "an ack is not counted down")
def _(patch: Patch) -> None:
    patch.setattr(PendingCheckpoint, "acknowledge", lambda pending, ack: AckResult.SUCCESS)


@reverses(2, "a decline ends every checkpoint under way")
def _(patch: Patch) -> None:
    handle = Coordinator.handle

    def all_of_them(self: Coordinator, event: Any, now_ms: int) -> Any:
        actions = handle(self, event, now_ms)
        if isinstance(event, Declined):
            self.pending.clear()
        return actions

    patch.setattr(Coordinator, "handle", all_of_them)


@reverses(3, "who declines after others have acknowledged is not heard")
def _(patch: Patch) -> None:
    handle = Coordinator.handle

    def deaf(self: Coordinator, event: Any, now_ms: int) -> Any:
        late = isinstance(event, Declined) and event.checkpoint in self.pending
        return [] if late and self.pending[event.checkpoint].acknowledged else handle(self, event, now_ms)

    patch.setattr(Coordinator, "handle", deaf)


@reverses(7, "what is uploaded after its attempt was given up stays")
def _(patch: Patch) -> None:
    patch.setattr(SnapshotTaker, "_delete", lambda taker, path: None)


@reverses(46, "a second ack counts like the first")
def _(patch: Patch) -> None:
    acknowledge = PendingCheckpoint.acknowledge

    def again(self: PendingCheckpoint, ack: Acknowledged) -> AckResult:
        self.acknowledged.discard(ack.participant)
        self.waiting.add(ack.participant)
        return acknowledge(self, ack)

    patch.setattr(PendingCheckpoint, "acknowledge", again)


# ---- the coordinator: how an attempt ends


@reverses(5, "a checkpoint never expires")
def _(patch: Patch) -> None:
    patch.setattr(PendingCheckpoint, "can_expire", property(lambda pending: False))


@reverses(6, "a failed checkpoint is never one too many")
def _(patch: Patch) -> None:
    patch.setattr(FailureManager, "failed", lambda manager: False)


@reverses(12, "a checkpoint that completes leaves those under way that it has overtaken")
def _(patch: Patch) -> None:
    patch.setattr(Coordinator, "_subsume", lambda coordinator, by: [])


@reverses(19, "a checkpoint that cannot be stored does not count as a failure")
def _(patch: Patch) -> None:
    handle = Coordinator.handle

    def lenient(self: Coordinator, event: Any, now_ms: int) -> Any:
        if not isinstance(event, StoreFailed):
            return handle(self, event, now_ms)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(FailureManager, "failed", lambda manager: False)
            return handle(self, event, now_ms)

    patch.setattr(Coordinator, "handle", lenient)


@reverses(22, "the notice of an abort names no completed checkpoint")
def _(patch: Patch) -> None:
    aborted = Coordinator._aborted
    patch.setattr(Coordinator, "_aborted", lambda *args: replace(aborted(*args), latest_completed=None))


@reverses(24, "who asks after the end gets no answer")
def _(patch: Patch) -> None:
    patch.setattr(Coordinator, "_after_end", lambda coordinator, event: [])


@reverses(40, "a success does not begin the count of failures anew")
def _(patch: Patch) -> None:
    patch.setattr(FailureManager, "succeeded", lambda manager: None)


@reverses(44, "attempts that were overtaken end without a word")
def _(patch: Patch) -> None:
    def quietly(self: Coordinator, by: CheckpointId) -> list[Any]:
        for checkpoint in [id for id in self.pending if id < by]:
            del self.pending[checkpoint]
        return []

    patch.setattr(Coordinator, "_subsume", quietly)


@reverses(45, "whatever is under way can be subsumed")
def _(patch: Patch) -> None:
    patch.setattr(PendingCheckpoint, "can_be_subsumed", property(lambda pending: True))


@reverses(153, "after a failed stop periodic checkpoints stay off")
def _(patch: Patch) -> None:
    abort = Coordinator._abort

    def for_good(self: Coordinator, *args: Any) -> Any:
        stopping = self.stopping
        actions = abort(self, *args)
        self.stopping = stopping
        return actions

    patch.setattr(Coordinator, "_abort", for_good)


@reverses(163, "a checkpoint that cannot be stored counts twice")
def _(patch: Patch) -> None:
    abort = Coordinator._abort

    def twice(self: Coordinator, *args: Any) -> Any:
        self.failed += 1
        return abort(self, *args)

    patch.setattr(Coordinator, "_abort", twice)


# ---- the coordinator: when a barrier passes


@reverses(10, "there is no pause after a checkpoint")
def _(patch: Patch) -> None:
    due_at = PeriodicTrigger.due_at

    def at_once(self: PeriodicTrigger) -> int | None:
        self.last_end_ms = None
        return due_at(self)

    patch.setattr(PeriodicTrigger, "due_at", at_once)


@reverses(11, "one more at once than allowed")
def _(patch: Patch) -> None:
    patch.setattr(CheckpointOptions, "concurrent", property(lambda options: options.max_concurrent + 1))


def _hold_requests(patch: Patch, held: Callable[[Coordinator, int], bool]) -> None:
    """While `held`, no barrier passes that a person has asked for."""
    barriers = Coordinator._barriers

    def holding(self: Coordinator, now_ms: int) -> Any:
        waiting = self.queue if held(self, now_ms) else []
        self.queue = [] if waiting else self.queue
        actions = barriers(self, now_ms)
        self.queue = [*waiting, *self.queue]
        return actions

    patch.setattr(Coordinator, "_barriers", holding)


def _pauses(coordinator: Coordinator, now_ms: int) -> bool:
    ended = coordinator._periodic.last_end_ms
    return ended is not None and now_ms < ended + coordinator.options.min_pause_ms


@reverses(13, "a savepoint counts for the limit of checkpoints at once")
def _(patch: Patch) -> None:
    _hold_requests(patch, lambda coordinator, _: len(coordinator.pending) >= coordinator.options.concurrent)


@reverses(14, "the pause holds between savepoints too")
def _(patch: Patch) -> None:
    _hold_requests(patch, _pauses)


@reverses(26, "periodic checkpoints come at twice the interval")
def _(patch: Patch) -> None:
    due_at = PeriodicTrigger.due_at

    def late(self: PeriodicTrigger) -> int | None:
        due = due_at(self)
        return None if due is None else due + (self.options.interval_ms or 0)

    patch.setattr(PeriodicTrigger, "due_at", late)


@reverses(32, "a checkpoint that failed is followed by no pause")
def _(patch: Patch) -> None:
    patch.setattr(PeriodicTrigger, "ended", lambda trigger, now_ms: None)


@reverses(36, "what a person asks for waits for the pause")
def _(patch: Patch) -> None:
    _hold_requests(patch, _pauses)


@reverses(47, "every life numbers its checkpoints from 1")
def _(patch: Patch) -> None:
    begin = Coordinator.__post_init__

    def anew(self: Coordinator) -> None:
        begin(self)
        self.next_id = CheckpointId(1)

    patch.setattr(Coordinator, "__post_init__", anew)


@reverses(161, "a checkpoint by hand is refused while periodic ones are off")
def _(patch: Patch) -> None:
    enqueue = Coordinator._enqueue

    def refusing(self: Coordinator, trigger: Any) -> Any:
        if self.options.interval_ms is None and trigger.request is not None:
            return [Reply(request=trigger.request, done=False, why="checkpointing is off")]
        return enqueue(self, trigger)

    patch.setattr(Coordinator, "_enqueue", refusing)


# ---- retention


def _retire(patch: Patch, rule: Callable[..., tuple[CheckpointId, ...]]) -> None:
    everywhere(patch, subsumed, rule)


@reverses(48, "a savepoint retires checkpoints as a checkpoint does")
def _(patch: Patch) -> None:
    _retire(patch, lambda refs, kind, *rest: subsumed(refs, SnapshotKind.CHECKPOINT, *rest))


@reverses(50, "the snapshot of a stop retires all before it")
def _(patch: Patch) -> None:
    _retire(patch, lambda refs, kind, *rest: tuple(ref.id for ref in refs))


@reverses(51, "one less is retained than asked for")
def _(patch: Patch) -> None:
    _retire(patch, lambda refs, kind, keep, *rest: subsumed(refs, kind, keep - 1, *rest))


@reverses(52, "the older ones go before the new one is stored")
def _(patch: Patch) -> None:
    store = Coordinator._store

    def early(self: Coordinator, pending: Any) -> StoreSnapshot:
        action: StoreSnapshot = store(self, pending)
        self.retained = [ref for ref in self.retained if ref.id not in action.retires]
        return action

    patch.setattr(Coordinator, "_store", early)


@reverses(55, "no number to retain is refused")
def _(patch: Patch) -> None:
    everywhere(patch, Settings, lambda given=(): _Lenient(given))


class _Lenient:
    """Settings that take a number to retain of 0."""

    def __init__(self, given: Any) -> None:
        key = "execution.checkpointing.num-retained"
        self._settings = Settings({name: value for name, value in dict(given).items() if name != key})

    def __getitem__(self, key: str) -> Any:
        return self._settings[key]


@reverses(56, "the newest one is retired first")
def _(patch: Patch) -> None:
    def newest(refs: Any, *rest: Any) -> tuple[CheckpointId, ...]:
        return tuple(sorted((ref.id for ref in refs), reverse=True)[: len(subsumed(refs, *rest))])

    _retire(patch, newest)


# ---- storage


@reverses(9, "an aborted checkpoint takes along what others need")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


@reverses(34, "a slot whose fate is unknown discards its checkpoint")
def _(patch: Patch) -> None:
    store_snapshot = Ledger._store_snapshot

    def discarding(self: Ledger, action: StoreSnapshot) -> None:
        try:
            store_snapshot(self, action)
        except StorageError:
            self._store.delete_all(self._paths.checkpoint(action.checkpoint, self._generation))
            raise

    patch.setattr(Ledger, "_store_snapshot", discarding)


@reverses(53, "metadata that are damaged are taken as they are")
def _(patch: Patch) -> None:
    everywhere(patch, decode_metadata, lambda data, ref, where: read_metadata(data, where))


def _delete_without_counting(patch: Patch) -> None:
    patch.setattr(SharedFiles, "release", lambda shared, snapshot: sorted(shared._files.pop(snapshot, ())))


@reverses(67, "a file goes with the first snapshot that named it")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


@reverses(70, "a retired checkpoint's shared files go with it")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


# ---- restore


@reverses(60, "another max-parallelism is taken")
def _(patch: Patch) -> None:
    def lenient(metadata: Any, vertex: Any, *rest: Any, **more: Any) -> None:
        check_vertices(replace(metadata, max_parallelism=vertex.max_parallelism), vertex, *rest, **more)

    everywhere(patch, check_vertices, lenient)


@reverses(61, "state that the job no longer has is dropped without a word")
def _(patch: Patch) -> None:
    everywhere(patch, check_vertices, lambda metadata, vertex, *rest, **more: check_vertices(metadata, vertex, True))


@reverses(65, "every subtask gets the state of its neighbour")
def _(patch: Patch) -> None:
    def swapped(files: Any, state: Any, vertex: Any, identity: str) -> Any:
        restored = restore_vertex(files, state, vertex, identity)
        versions = dict(zip(restored.versions, reversed(restored.versions.values()), strict=True))
        return replace(restored, versions=versions)

    everywhere(patch, restore_vertex, swapped)
