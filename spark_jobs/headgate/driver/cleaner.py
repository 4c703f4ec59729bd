"""Deletes what no snapshot needs any more, in a thread of its own: what completes checkpoints does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from headgate.driver.shared_state import SharedFiles
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import HeadgateError, StorageError
from headgate_contract.folding import FOLD_EVERY, Folding
from headgate_contract.forgetting import forget_events, forget_requests
from headgate_contract.heartbeats import delete_old_heartbeats
from headgate_contract.ids import CheckpointId, SlotNumber, StreamName
from headgate_contract.paths import HEARTBEATS, METADATA, StreamPaths
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


class Cleaner:
    """Of a retired checkpoint a slot says that it is no candidate any more: only then does it come here."""

    FOLD_EVERY = FOLD_EVERY
    folding_class: type[Folding] = Folding

    def __init__(
        self, store: ObjectStore, shared: SharedFiles, folders: dict[CheckpointId, str], executor: Executor
    ) -> None:
        self._store = store
        self._shared = shared
        self._folders = folders
        self.executor = executor
        self._claimed: dict[CheckpointId, SnapshotRef] = {}
        self._folding: Folding | None = None

    def claim(self, ref: SnapshotRef) -> None:
        """A savepoint that is the stream's: when it is retired, it goes as well."""
        self._claimed[ref.id] = ref

    def dispose(
        self, checkpoints: Sequence[CheckpointId], done: Callable[[CheckpointId], None] = lambda checkpoint: None
    ) -> None:
        """Delete what retired checkpoints alone need; `done` is told of each, whether it could be deleted or not."""
        for checkpoint in checkpoints:
            self._later(self._dispose, checkpoint, done)

    def delete(self, paths: Sequence[str], why: str) -> None:
        """Delete files that no snapshot needs, whenever there is time."""
        if paths:
            log.info("%s files on shared storage go: %s", len(paths), why)
            self._later(self._delete, paths)

    def _later(self, act: Callable[..., object], *args: object) -> None:
        def told() -> None:
            try:
                act(*args)
            except Exception:  # nobody asks the Future: what is not told here is never told
                log.exception("something was to be tidied up, and was not")

        self.executor.submit(told)

    def forget_old(self, catalogue: Catalogue) -> None:
        """Delete old heartbeats, requests and events, whenever there is time."""
        self._later(self._forget_old, catalogue)

    def _forget_old(self, catalogue: Catalogue) -> None:
        stream, newest = catalogue.stream, catalogue.newest_generation
        try:
            if newest is not None:
                delete_old_heartbeats(self._store, stream, newest.generation)
            requests, events = (
                forget_requests(self._store, stream, catalogue.requests),
                forget_events(self._store, stream),
            )
        except StorageError as error:
            log.warning("old heartbeats, requests and events could not be deleted: %s", error)
        else:
            if requests or events:
                log.info("%s files of old requests and %s old events are deleted", requests, events)

    def forget_broken_writes(self, stream: StreamName) -> None:
        """Delete what killed drivers and others were writing when they died, whenever there is time."""
        self._later(self._forget_broken_writes, stream)

    def _forget_broken_writes(self, stream: StreamName) -> None:
        for folder in (StreamPaths(stream).root, HEARTBEATS):
            try:
                found = self._store.delete_broken_writes(folder)
            except StorageError as error:
                log.warning("what broken writes left in %s could not be deleted: %s", folder, error)
            else:
                if found:
                    log.info("%s files that broken writes had left in %s are deleted", found, folder)

    def fold_from(self, catalogue: Catalogue) -> None:
        """Fold the log's old entries from now on, at once if `catalogue` was read from many."""
        self._folding = self.folding_class(self._store, catalogue, self.FOLD_EVERY)
        if catalogue.newest_slot is not None:
            self.fold_if_due(catalogue.newest_slot)

    def fold_if_due(self, newest: SlotNumber) -> None:
        """Fold whenever there is time, if so many slots have come since that it is worth it."""
        if self._folding is not None and self._folding.is_due(newest):
            self._later(self._fold, self._folding)

    def _fold(self, folding: Folding) -> None:
        try:
            self._forget_old(folding.fold())
        except StorageError as error:
            log.warning("old log entries could not be folded, which is tried again later: %s", error)

    def _dispose(self, checkpoint: CheckpointId, done: Callable[[CheckpointId], None]) -> None:
        """Its folder goes last: what is left of a deletion that was broken off is found by it in the next life."""
        paths = self._shared.release(checkpoint)
        folder, claimed = self._folders.pop(checkpoint, None), self._claimed.pop(checkpoint, None)
        try:
            for path in paths:
                self._store.delete(path)
            if claimed is not None:
                self._delete_savepoint(claimed)
            elif folder is not None:
                self._store.delete_all(folder)
        except HeadgateError as error:
            log.warning("checkpoint %s is retired and could not be deleted: %s", checkpoint, error)
        finally:
            done(checkpoint)

    def _delete_savepoint(self, ref: SnapshotRef) -> None:
        """Delete the files that its metadata names, and then that: whatever else lies in its folder is not ours."""
        store = ref.store(self._store)
        if store.stat(f"{ref.folder}/{METADATA}") is None:
            return  # an earlier life has done it
        for handle in SnapshotFiles(self._store, ref).metadata().handles():
            store.delete(ref.path(handle))
        store.delete(f"{ref.folder}/{METADATA}")
        if not store.list(ref.folder):
            store.delete_all(ref.folder)  # on a local disk it leaves folders behind
        log.info("%s was claimed and is subsumed: %s is deleted", ref, ref.where)

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._store.delete(path)
            except StorageError as error:
                log.warning("%s is needed no more and could not be deleted: %s", path, error)
