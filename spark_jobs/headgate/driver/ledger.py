"""The io thread: the only writer of this generation's slots, and so the only one who completes and commits.

A create that fails reads the slot that beat it: if that starts a newer generation, this driver is fenced. There is no
check-then-act. Before every commit the log is read once more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress

from headgate.coordinator.cut import Group
from headgate.coordinator.messages import (
    Cleaned,
    CommitGroups,
    Committed,
    Event,
    FailStream,
    NotifyAborted,
    NotifyComplete,
    Reply,
    Stored,
    StoreFailed,
    StoreSnapshot,
    WriteStopped,
)
from headgate.driver import clock
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate.driver.cleaner import Cleaner
from headgate.driver.metadata import metadata_of
from headgate.driver.points import KillPoints
from headgate.driver.shared_state import SharedFiles, check_there
from headgate.driver.snapshots import SnapshotTaker, snapshot_folder
from headgate.driver.telling import tell
from headgate.sink.base import SinkCommitter
from headgate_contract import wire
from headgate_contract.errors import BadInput, Fenced, HeadgateError, RootLost, SlotTaken, StorageError, StreamFailed
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName, VertexUid
from headgate_contract.mailbox import Answer, Mailbox, Outcome
from headgate_contract.measures import Measures
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.records import (
    GenerationStarted,
    Hole,
    Repaired,
    Restarted,
    SlotLog,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
)
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)

Action = StoreSnapshot | CommitGroups | WriteStopped | Reply | NotifyComplete | NotifyAborted | FailStream
_ATTEMPTS = 5


def _one_thread(name: str) -> Executor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


class Ledger:
    """Carries out the coordinator's actions that touch the log, the sinks or the mailbox, one after the other."""

    PAUSE_S = 0.1
    """The unit of the growing pauses between tries."""

    def __init__(  # noqa: PLR0913 - it is where the parts of a life that touch storage meet
        self,
        *,
        store: ObjectStore,
        stream: StreamName,
        generation: Generation,
        slots: SlotLog,
        newest: SlotNumber,
        max_parallelism: int,
        sinks: Mapping[VertexUid, SinkCommitter],
        shared: SharedFiles,
        folders: dict[CheckpointId, str],
        post: Callable[[Event], None],
        end: Callable[[BaseException | None], None],
        points: KillPoints,
        executor: Callable[[str], Executor] = _one_thread,
    ) -> None:
        self._store = store
        self._stream = stream
        self._paths = StreamPaths(stream)
        self._generation = generation
        self._slots = slots
        self._newest = newest
        self._max_parallelism = max_parallelism
        self._sinks = sinks
        self._shared = shared
        self._folders = folders
        self._post = post
        self._end = end
        self._points = points
        self._mailbox = Mailbox(store, stream)
        self._pool = executor("ledger")
        self.cleaner = Cleaner(store, shared, folders, executor("disposal"))
        self._fenced_lock = threading.Lock()
        self._fenced_said = False
        self._over = False
        self.taker: SnapshotTaker | None = None
        self.meter = CheckpointMeter()
        self._published: dict[VertexUid, CheckpointId] = {}
        """Of each sink the newest group with output that is committed."""

    def goes_on_from(self, published: Mapping[VertexUid, CheckpointId]) -> None:
        """What the sinks show at the beginning; before anything is performed."""
        self._published = dict(published)

    def perform(self, action: Action) -> None:
        """Queue an action; what becomes of it is posted to the coordinator."""
        self._pool.submit(self._perform, action)

    def look(self) -> None:
        """See soon, between two actions, whether a successor has started, or the root is gone; if so, end."""
        self._pool.submit(self._look)

    def _look(self) -> None:
        try:
            self.check_not_fenced()
        except Fenced as error:
            self.fenced(error)
        except RootLost as error:
            self._finish(error)
        except Exception as error:  # noqa: BLE001 - nobody asks the Future
            log.warning("the log could not be looked at: %r", error)

    def close(self, patience_s: float | None = None) -> bool:
        """Carry out what is queued, and end; False if something is still under way after `patience_s`."""

        def wait() -> None:
            self._pool.shutdown(wait=True)  # first: what it still does may give the cleaner work
            self.cleaner.executor.shutdown(wait=True)

        waiting = threading.Thread(target=wait, name="ledger ends", daemon=True)
        waiting.start()
        waiting.join(patience_s)
        return not waiting.is_alive()

    def _perform(self, action: Action) -> None:
        if self._over and not isinstance(action, Reply):
            return  # fenced or failed: nothing more is completed, committed, deleted or said to be so
        try:
            match action:
                case StoreSnapshot():
                    self._store_snapshot(action)
                case CommitGroups(groups=groups):
                    self._commit(groups)
                case WriteStopped():
                    self._write_stopped(action)
                case Reply():
                    self._reply(action)
                case NotifyComplete():
                    self._notify_complete(action)
                case NotifyAborted():
                    self._notify_aborted(action)
                case FailStream(cause=cause):
                    self._fail_unless_fenced(StreamFailed(cause))
        except Fenced as error:
            self.fenced(error)
        except Exception as error:
            log.exception("the ledger failed at %s", type(action).__name__)
            self._fail_unless_fenced(error)

    def _fail_unless_fenced(self, error: Exception) -> None:
        """A zombie looks failed before it looks fenced: read the log before saying anything."""
        try:
            self.check_not_fenced()
        except Fenced as fenced:
            self.fenced(fenced)
            return
        except RootLost as lost:
            self._finish(lost)
            return
        except Exception as other:  # noqa: BLE001 - whatever it is, the life ends
            log.warning("the log cannot be read either: %r", other)
        self._finish(error)

    def fenced(self, error: Fenced) -> None:
        """End at once: a successor runs. Said once, whoever finds out first."""
        with self._fenced_lock:
            first, self._fenced_said = not self._fenced_said, True
        if first:
            self.say("fenced", "EXECUTED", str(error))
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        self._over = True
        self._end(error)

    def check_not_fenced(self) -> None:
        """Raise Fenced if a newer generation has started, and RootLost if that cannot be seen: the log is not there."""
        found = self._slots.peek(self._newest.next())
        if found is not None:
            raise self._beaten(found.record)
        self._slots.confirm(self._newest)

    def _append(self, record: SlotRecord) -> SlotNumber:
        try:
            slot = self._slots.append(self._newest, record)
        except SlotTaken as error:
            found = self._slots.peek(self._newest.next())
            raise (self._beaten(found.record) if found is not None else error) from error
        self._slots.confirm(self._newest)  # behind it: an older copy may have taken the new one
        self._newest = slot.number
        self._slots.begin(slot.number)  # nothing before it is looked at again
        self.cleaner.fold_if_due(slot.number)
        return slot.number

    def _beaten(self, record: SlotRecord) -> HeadgateError:
        if isinstance(record, GenerationStarted) and record.generation > self._generation:
            return Fenced(
                f"generation {self._generation} of stream {self._stream} is fenced: "
                f"generation {record.generation} was started by {record.by} on {record.host}",
                hint="nothing more is completed or committed here",
            )
        if isinstance(record, Restarted) and record.generation == self._generation:
            return Fenced(
                f"generation {self._generation} of stream {self._stream} has gone on without this attempt: "
                f"restart {record.restart} after {record.cause}",
                hint="nothing more is completed or committed by it",
            )
        if isinstance(record, (Hole, Repaired)):
            return Fenced(
                f"generation {self._generation} of stream {self._stream} is fenced: its log was repaired",
                hint="nothing more is completed or committed here",
            )
        return SlotTaken(
            f"slot {self._newest.next()} of stream {self._stream} holds a {type(record).__name__} that is not ours"
        )

    # ---- completion

    def _store_snapshot(self, action: StoreSnapshot) -> None:
        folder = snapshot_folder(self._paths, action, self._generation)
        metadata = metadata_of(action, self._stream, self._generation, self._max_parallelism, self._published)
        data = metadata.encode()
        self._points.reach("before-metadata")
        try:
            self._write_metadata(action, f"{folder}/{METADATA}", data)
            self._check_stored(action, metadata, folder)
        except RootLost:
            raise
        except (StorageError, BadInput) as error:
            with suppress(StorageError):
                self.check_not_fenced()
            self._post(StoreFailed(checkpoint=action.checkpoint, cause=str(error)))
            return
        snapshot = SnapshotRef(
            action.checkpoint,
            action.kind,
            self._generation,
            folder,
            len(data),
            wire.sha256(data),
            action.name,
            action.origin,
            action.target,
        )
        self._points.reach("before-slot")
        slot = self._append(
            SnapshotCompleted(
                generation=self._generation,
                snapshot=snapshot,
                committed=action.committed,
                retires=action.retires,
                request=action.request,
            )
        )
        self._points.reach("after-slot")
        self._folders[action.checkpoint] = folder
        if action.name is None and self.taker is not None:
            self.taker.confirm(metadata)
        unneeded = self._shared.register(action.checkpoint, metadata.handles() if action.name is None else ())
        self.cleaner.delete(unneeded, f"checkpoint {action.checkpoint} does not need them any more")
        self._post(Stored(checkpoint=action.checkpoint, snapshot=snapshot, slot=slot))

    def _write_metadata(self, action: StoreSnapshot, path: str, data: bytes) -> None:
        store = self._store
        if action.target is not None:
            store = self._store.elsewhere(action.target)
            store.make()
        try:
            created = store.create(path, data)
        except StorageError:
            self._unwrite(store, path)
            raise
        if not created:
            raise StorageError(f"{path} exists already")

    def _check_stored(self, action: StoreSnapshot, metadata: SnapshotMetadata, folder: str) -> None:
        """Raise StorageError unless all that was written for this snapshot is where its log is."""
        if action.target is None and self._store.stays_s == 0:  # of buckets none is put in the place of another
            self._slots.confirm(self._newest)
            known = self._shared.confirmed().values() if action.name is None else ()
            new = {handle.path for handle in metadata.handles()} - {handle.path for handle in known}
            places = sorted(path if action.name is None else f"{folder}/{path}" for path in new)
            check_there(self._store, (f"{folder}/{METADATA}", *places))

    def _unwrite(self, store: ObjectStore, path: str) -> None:
        """It may be there for all that: nobody is to find metadata whose files go. Its folder is this attempt's own."""
        try:
            self.check_not_fenced()
            store.delete(path)
        except StorageError as error:
            log.warning("whether %s is there is not known: %s", path, error)

    # ---- commit

    def _commit(self, groups: tuple[Group, ...]) -> None:
        self._points.reach("before-commit")
        for group in groups:
            for uid, sink in self._sinks.items():
                self._commit_one(uid, sink, group)
        self._points.reach("after-commit")
        self._post(Committed(groups=tuple(group.id for group in groups)))

    def _commit_one(self, uid: VertexUid, sink: SinkCommitter, group: Group) -> None:
        def commit() -> None:
            self.check_not_fenced()
            self._points.reach("inside-commit")
            sink.commit(group.id, group.sinks.get(uid, ()))

        self._insist(f"sink {uid} commits group {group.id}", commit)
        if group.sinks.get(uid):
            self._published[uid] = group.id

    def _insist(self, what: str, act: Callable[[], object]) -> None:
        """Do what may be repeated, again and again while storage refuses; its last error is raised."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                act()
                return
            except RootLost:
                raise
            except StorageError as error:
                log.warning("%s: try %s of %s failed: %s", what, attempt, _ATTEMPTS, error)
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(self.PAUSE_S * 2**attempt)

    def _write_stopped(self, action: WriteStopped) -> None:
        record = Stopped(
            generation=self._generation,
            reason=action.reason,
            committed=action.committed,
            snapshot=action.snapshot,
            request=action.request,
            retires=action.retires,
        )
        self._insist("the end is written", lambda: self._append(record))
        if action.request is not None:
            self._reply(Reply(request=action.request, done=True, result=action.result))
        for reply in action.also:
            self._reply(reply)
        if action.retires:
            self._shared.confirm(())  # no increment is built on the newest one any more
            self.cleaner.dispose(action.retires)
        self._finish(None)

    # ---- words

    def _reply(self, action: Reply) -> None:
        """Answer. A word that cannot be written is no reason to fail: who asked looks at the log as well."""
        answer = Answer(
            id=action.request,
            outcome=Outcome.DONE if action.done else Outcome.FAILED,
            result=action.result,
            why=action.why,
            generation=self._generation,
            at_ms=clock.wall_ms(),
        )
        try:
            self._insist(f"request {action.request} is answered", lambda: self._mailbox.reply(answer))
        except StorageError as error:
            log.error("request %s could not be answered: %s", action.request, error)

    def _notify_complete(self, action: NotifyComplete) -> None:
        self._points.reach("before-notify")
        if self.taker is not None:
            self.taker.forget(action.checkpoint)
        cost = self.meter.completed(action.checkpoint)
        self.say(action.snapshot.kind.value, "EXECUTED", f"{action.snapshot} is complete and committed", cost)
        self.cleaner.dispose(action.retired, self._cleaned)
        self._points.reach("after-notify")

    def _cleaned(self, checkpoint: CheckpointId) -> None:
        self._post(Cleaned(checkpoint=checkpoint))

    def _notify_aborted(self, action: NotifyAborted) -> None:
        if self.taker is not None:
            self.taker.discard(action.checkpoint)
        cost = self.meter.aborted(action)
        latest = action.latest_completed
        newest = f"the newest complete snapshot is {latest}" if latest is not None else "none is complete yet"
        why = f"{action.cause} ({action.reason.name}); {newest}"
        self.say(cost.kind.value, "FAILED", f"{cost.kind.value} {action.checkpoint} was given up: {why}", cost)

    def say(self, what: str, outcome: str, text: str, measures: Measures | None = None) -> None:
        """Put an event into the stream's history; if that fails, into the log only."""
        tell(self._store, self._stream, self._generation, what, outcome, text, measures, slot=self._newest)
