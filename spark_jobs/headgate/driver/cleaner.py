"""Deletes what no snapshot needs any more, in a thread of its own: what completes checkpoints does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from headgate.driver.shared_state import SharedFiles
from headgate_contract.errors import StorageError
from headgate_contract.ids import CheckpointId
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
        folder = self._folders.pop(checkpoint, None)
        try:
            for path in paths:
                self._store.delete(path)
            if folder is not None:
                self._store.delete_all(folder)
        except StorageError as error:
            log.warning("checkpoint %s is retired and could not be deleted: %s", checkpoint, error)
        finally:
            done(checkpoint)

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._store.delete(path)
            except StorageError as error:
                log.warning("%s is needed no more and could not be deleted: %s", path, error)
