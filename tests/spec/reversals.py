"""Switches that reverse numbered behaviours in the production classes: each must make a test of its number fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headgate.coordinator import messages
from headgate.driver import cleaner, ledger, lives, restoring, shared_state, snapshots, sweeping
from headgate.recovery import operator_state as recovered_operator_state
from headgate.recovery import sinks as recovered_sinks
from headgate.recovery import state as recovered_state
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract import fitting, operator_state, restart, restore, snapshot
from headgate_contract.errors import RestoreRefused, StorageError
from headgate_contract.ids import CheckpointId
from headgate_control import explain, requests, watch
from tests.spec import reversals_of_the_coordinator, reversals_of_the_gate  # noqa: F401 - their switches count, too
from tests.spec.reversing import REVERSALS, Patch, Reversal, everywhere, reverses

__all__ = ["REVERSALS", "Reversal"]


# ---- asking, and being alive


@reverses(17, "a request is left also where nobody runs to take it")
def _(patch: Patch) -> None:
    ask = requests.Requests.ask

    def hopeful(self: requests.Requests, *args: Any, **more: Any) -> Any:
        ask(self, *args, **{**more, "anyhow": True})
        return ask(self, *args, **more)

    patch.setattr(requests.Requests, "ask", hopeful)


@reverses(23, "who asked is answered before the statistics are noted")
def _(patch: Patch) -> None:
    notify = ledger.Ledger._notify_complete
    patch.setattr(ledger.Ledger, "_notify_complete", lambda it, action: it._pool.submit(notify, it, action))


@reverses(176, "a heartbeat that changes does not begin the count of its silence anew")
def _(patch: Patch) -> None:
    def stubborn(self: watch.Watch, stream: Any, generation: Any, seen: Any) -> float:
        return self._clock() - self._first.setdefault(stream, (None, self._clock()))[1]

    patch.setattr(watch.Watch, "unchanged_for", stubborn)


# ---- storage


@reverses(9, "an aborted checkpoint takes along what others need")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


@reverses(34, "a slot whose fate is unknown discards its checkpoint")
def _(patch: Patch) -> None:
    store_snapshot = ledger.Ledger._store_snapshot

    def discarding(self: ledger.Ledger, action: messages.StoreSnapshot) -> None:
        try:
            store_snapshot(self, action)
        except StorageError:
            self._store.delete_all(self._paths.checkpoint(action.checkpoint, self._generation))
            raise

    patch.setattr(ledger.Ledger, "_store_snapshot", discarding)


@reverses(53, "metadata that are damaged are taken as they are")
def _(patch: Patch) -> None:
    everywhere(patch, snapshot.decode_metadata, lambda data, ref, where: snapshot.read_metadata(data, where))


def _delete_without_counting(patch: Patch) -> None:
    patch.setattr(shared_state.SharedFiles, "release", lambda shared, snapshot: sorted(shared._files.pop(snapshot, ())))


@reverses(67, "a file goes with the first snapshot that named it")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


@reverses(70, "a retired checkpoint's shared files go with it")
def _(patch: Patch) -> None:
    _delete_without_counting(patch)


@reverses(33, "what was uploaded for a checkpoint that came to nothing stays")
def _(patch: Patch) -> None:
    patch.setattr(snapshots.SnapshotTaker, "discard", lambda taker, checkpoint: None)


@reverses(54, "a life that ends takes its checkpoints along")
def _(patch: Patch) -> None:
    close = ledger.Ledger.close

    def clean(self: ledger.Ledger, *args: Any) -> bool:
        self._store.delete_all(self._paths.checkpoints)
        return close(self, *args)

    patch.setattr(ledger.Ledger, "close", clean)


@reverses(57, "the metadata of a subsumed checkpoint stay")
def _(patch: Patch) -> None:
    def of_files_only(self: cleaner.Cleaner, checkpoint: CheckpointId, done: Any) -> None:
        self._delete(self._shared.release(checkpoint))

    patch.setattr(cleaner.Cleaner, "_dispose", of_files_only)


@reverses(58, "what a checkpoint retires goes before its slot exists")
def _(patch: Patch) -> None:
    store_snapshot = ledger.Ledger._store_snapshot

    def early(self: ledger.Ledger, action: messages.StoreSnapshot) -> None:
        self.cleaner.dispose(action.retires)
        self.cleaner.executor.submit(lambda: None).result()
        store_snapshot(self, action)

    patch.setattr(ledger.Ledger, "_store_snapshot", early)


@reverses(66, "metadata forget what is not committed yet")
def _(patch: Patch) -> None:
    encode = snapshot.SnapshotMetadata.encode
    patch.setattr(snapshot.SnapshotMetadata, "encode", lambda metadata: encode(replace(metadata, committables=())))


@reverses(69, "a checkpoint stays as long as somebody uses a file of it")
def _(patch: Patch) -> None:
    dispose = cleaner.Cleaner._dispose

    def patient(self: cleaner.Cleaner, checkpoint: CheckpointId, done: Any) -> None:
        files = self._shared._files
        others = frozenset().union(*(named for id, named in files.items() if id != checkpoint))
        if not others & files.get(checkpoint, frozenset()):
            dispose(self, checkpoint, done)

    patch.setattr(cleaner.Cleaner, "_dispose", patient)


@reverses(71, "an attempt that never completed leaves the shared files that it made")
def _(patch: Patch) -> None:
    discard = snapshots.SnapshotTaker.discard

    def sparing(self: snapshots.SnapshotTaker, checkpoint: CheckpointId) -> None:
        with self._lock:
            made = self._uploaded.get(checkpoint, [])
            made[:] = [(store, path) for store, path in made if not path.startswith(f"{self._paths.shared}/")]
        discard(self, checkpoint)

    patch.setattr(snapshots.SnapshotTaker, "discard", sparing)


@reverses(144, "a savepoint that was claimed stays")
def _(patch: Patch) -> None:
    patch.setattr(cleaner.Cleaner, "_delete_savepoint", lambda it, ref: None)


# ---- restore


def _build_on_what_was_restored(patch: Patch) -> None:
    register = restoring.Restorer._register_retained

    def confirming(self: restoring.Restorer) -> None:
        register(self)
        if isinstance(self._setup.decision, restore.RestoreFrom):
            restored = SnapshotFiles(self._setup.store, self._setup.decision.snapshot)
            self._shared.confirm(restored.metadata().handles())

    patch.setattr(restoring.Restorer, "_register_retained", confirming)


@reverses(28, "the first checkpoint after a restore builds on what was restored")
def _(patch: Patch) -> None:
    _build_on_what_was_restored(patch)


@reverses(29, "a savepoint is the base of the next checkpoint")
def _(patch: Patch) -> None:
    forget = snapshots.SnapshotTaker.forget
    taken: dict[CheckpointId, Any] = {}
    store_snapshot = ledger.Ledger._store_snapshot

    def noting(self: ledger.Ledger, action: messages.StoreSnapshot) -> None:
        taken[action.checkpoint] = action
        store_snapshot(self, action)

    def building(self: snapshots.SnapshotTaker, checkpoint: CheckpointId) -> None:
        parts = [part for state in taken[checkpoint].vertices.values() for part in state.subtasks]
        self._shared.confirm(handle for part in parts for handle in part.files)
        forget(self, checkpoint)

    patch.setattr(ledger.Ledger, "_store_snapshot", noting)
    patch.setattr(snapshots.SnapshotTaker, "forget", building)


@reverses(145, "checkpoints build on the savepoint that was restored")
def _(patch: Patch) -> None:
    _build_on_what_was_restored(patch)


@reverses(146, "a savepoint that was moved is swept away")
def _(patch: Patch) -> None:
    patch.setattr(sweeping, "_lies_where_it_was_written", lambda *args: True)


@reverses(159, "nothing is taken under another uid")
def _(patch: Patch) -> None:
    patch.setattr(fitting, "renamed", lambda metadata, former: metadata)


@reverses(63, "what was read is not looked at before the launch")
def _(patch: Patch) -> None:
    patch.setattr(explain, "fit", lambda metadata, *rest: fitting.Fit(metadata, {}, None))


@reverses(175, "a subtask that did not fail begins anew")
def _(patch: Patch) -> None:
    restore_vertex = recovered_state.restore_vertex

    def half(files: Any, state: Any, vertex: Any, identity: str) -> Any:
        restored = restore_vertex(files, state, vertex, identity)
        first = {subtask: version for subtask, version in restored.versions.items() if subtask == 0}
        return restored if ".r0." in identity else replace(restored, versions=first)

    everywhere(patch, restore_vertex, half)


@reverses(35, "a sink does not get at the restore what it gave at the trigger")
def _(patch: Patch) -> None:
    patch.setattr(recovered_sinks, "_groups", lambda uid, groups: [])


@reverses(150, "a stateless step more is another job")
def _(patch: Patch) -> None:
    restored = restoring.Restorer.restore

    def pedantic(self: restoring.Restorer) -> Any:
        if any(end.functions for end in self._setup.plan.sinks):
            raise RestoreRefused("the job has another number of steps")
        return restored(self)

    patch.setattr(restoring.Restorer, "restore", pedantic)


@reverses(158, "the newest checkpoint is taken, whichever was named")
def _(patch: Patch) -> None:
    decide = restore.decide_restore
    everywhere(patch, decide, lambda facts: decide(replace(facts, wanted=restore.Newest())))


@reverses(60, "another max-parallelism is taken")
def _(patch: Patch) -> None:
    patch.setattr(fitting, "_max_parallelism", lambda metadata, job: None)


@reverses(61, "state that the job no longer has is dropped without a word")
def _(patch: Patch) -> None:
    patch.setattr(fitting.Fit, "refusal", lambda fit, allowed: fit.misfit)


@reverses(65, "every subtask gets the state of its neighbour")
def _(patch: Patch) -> None:
    restored = recovered_operator_state.redistributed

    def swapped(state: Any, parallelism: int) -> Any:
        found = restored(state, parallelism)
        return replace(found, parts=(*found.parts[1:], *found.parts[:1]))

    everywhere(patch, restored, swapped)


@reverses(64, "list and union state stays where it was; what has no subtask any more is left")
def _(patch: Patch) -> None:
    def kept(parts: tuple[list[Any], ...], parallelism: int) -> tuple[list[Any], ...]:
        return (*parts[:parallelism], *([] for _ in range(parallelism - len(parts))))

    patch.setattr(recovered_operator_state, "_dealt_out", kept)


@reverses(155, "state that cannot be split goes with any parallelism")
def _(patch: Patch) -> None:
    patch.setattr(operator_state.OperatorState, "is_bound", property(lambda state: False))


@reverses(156, "operator state begins anew with every life")
def _(patch: Patch) -> None:
    restored = recovered_operator_state.restored_states
    everywhere(patch, restored, lambda stored, declared, parallelism: restored({}, declared, parallelism))


# ---- restarts


def _strategy(patch: Patch, strategy: type[Any], change: Callable[[Any], Any]) -> None:
    """Another one of the same kind."""
    next_attempt = strategy.next_attempt
    patch.setattr(strategy, "next_attempt", lambda it, facts: next_attempt(change(it), facts))


@reverses(168, "a fixed delay is allowed once more than it says")
def _(patch: Patch) -> None:
    _strategy(patch, restart.FixedDelay, lambda it: replace(it, attempts=it.attempts + 1))


@reverses(169, "a failure rate counts failures of any time")
def _(patch: Patch) -> None:
    _strategy(patch, restart.FailureRate, lambda it: replace(it, interval_s=float("inf")))


@reverses(170, "an exponential delay grows without end")
def _(patch: Patch) -> None:
    _strategy(patch, restart.ExponentialDelay, lambda it: replace(it, max_s=float("inf")))


@reverses(172, "an exponential delay doubles whatever its multiplier is")
def _(patch: Patch) -> None:
    _strategy(patch, restart.ExponentialDelay, lambda it: replace(it, multiplier=2))


@reverses(174, "of what was given up nobody hears the cause")
def _(patch: Patch) -> None:
    patch.setattr(lives.Lives, "_given_up", lambda it, failure, why: lives.GivenUp(f"not restarted: {why}"))


@reverses(177, "a failure rate never allows a restart")
def _(patch: Patch) -> None:
    _strategy(patch, restart.FailureRate, lambda it: replace(it, max_failures=0))
