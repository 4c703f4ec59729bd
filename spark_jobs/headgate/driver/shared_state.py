"""Which files on shared storage each snapshot needs, and so which may be deleted when one is retired."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headgate_contract.errors import StorageError
from headgate_contract.ids import CheckpointId
from headgate_contract.snapshot import StateHandle
from headgate_contract.store import ObjectStore


class SharedFiles:
    """References by snapshot: a file goes only if a disposed snapshot's own list has it and nobody else names it."""

    def __init__(self) -> None:
        self._files: dict[CheckpointId, frozenset[str]] = {}
        self._confirmed: dict[str, StateHandle] = {}
        self._all_known = True
        self._lock = threading.Lock()

    def register(self, snapshot: CheckpointId, handles: Iterable[StateHandle]) -> list[str]:
        """`snapshot` (retained, or under way) needs these files; those that it alone has kept so far and does not."""
        with self._lock:
            before = self._files.get(snapshot, frozenset())
            self._files[snapshot] = frozenset(handle.path for handle in handles)
            return self._unneeded(before)

    def miss(self) -> None:
        """What some retained snapshot needs cannot be read: from now on any file may be one of its files."""
        with self._lock:
            self._all_known = False

    def confirm(self, handles: Iterable[StateHandle]) -> None:
        """These are the files of the newest CONFIRMED checkpoint: the base of the next increment."""
        with self._lock:
            self._confirmed = {handle.name: handle for handle in handles}

    def confirmed(self) -> dict[str, StateHandle]:
        with self._lock:
            return dict(self._confirmed)

    def release(self, snapshot: CheckpointId) -> list[str]:
        """`snapshot` is gone: the files that it named and nobody else does."""
        with self._lock:
            return self._unneeded(self._files.pop(snapshot, frozenset()))

    def named(self) -> frozenset[str] | None:
        """All files that a snapshot needs, or None if that is not known of all."""
        with self._lock:
            return frozenset().union(*self._files.values()) if self._all_known else None

    def _unneeded(self, files: frozenset[str]) -> list[str]:
        if not self._all_known:
            return []
        base = {handle.path for handle in self._confirmed.values()}
        return sorted(files - base - frozenset().union(*self._files.values()))


def check_there(store: ObjectStore, paths: Iterable[str]) -> None:
    """Raise StorageError unless all that was written is there.

    A copy of the root that was there for a while has its identity: what was written meanwhile went there.
    """
    for path in paths:
        if store.stat(path) is None:
            raise StorageError(
                f"{path} was written, and is not there", hint="was another folder in the root's place meanwhile?"
            )
