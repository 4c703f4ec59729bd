"""Deletes what no snapshot needs any more, in a thread of its own: what completes checkpoints does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from headgate.driver.shared_state import SharedFiles
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.errors import HeadgateError, StorageError
from headgate_contract.ids import CheckpointId
from headgate_contract.paths import METADATA
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


class Cleaner:
    """Of a retired checkpoint a slot says that it is no candidate any more: only then does it come here."""

    def __init__(
        self, store: ObjectStore, shared: SharedFiles, folders: dict[CheckpointId, str], executor: Executor
    ) -> None:
        self._store = store
        self._shared = shared
        self._folders = folders
        self.executor = executor
        self._claimed: dict[CheckpointId, SnapshotRef] = {}

    def claim(self, ref: SnapshotRef) -> None:
        """A savepoint that is the stream's: when it is retired, it goes as well."""
        self._claimed[ref.id] = ref

    def dispose(
        self, checkpoints: Sequence[CheckpointId], done: Callable[[CheckpointId], None] = lambda checkpoint: None
    ) -> None:
        """Delete what retired checkpoints alone need; `done` is told of each, whether it could be deleted or not."""
        for checkpoint in checkpoints:
            self.executor.submit(self._dispose, checkpoint, done)

    def delete(self, paths: Sequence[str], why: str) -> None:
        """Delete files that no snapshot needs, whenever there is time."""
        if paths:
            log.info("%s files on shared storage go: %s", len(paths), why)
            self.executor.submit(self._delete, paths)

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
