"""Keeps a source's positions and makes them durable: what S_n is on the driver, and what it is in a snapshot."""

from __future__ import annotations

import gzip
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from headgate_contract.errors import SnapshotDamaged
from headgate_contract.ids import CheckpointId
from headgate_contract.snapshot import SourceState, StateHandle

Json = dict[str, Any]
Put = Callable[[str, bytes], StateHandle]
"""Makes bytes durable under a name that it makes unique."""
Get = Callable[[StateHandle], bytes]
"""Reads them back, verified."""

INITIAL: Json = {"initial": True}
"""Before the first micro-batch of a stream's life: replay begins at the source's beginning."""


class PositionBook(ABC):
    """The positions of one source in one life of a driver."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind

    @abstractmethod
    def save(self, position: Json, put: Put, *, self_contained: bool = False) -> SourceState:
        """The position as a snapshot keeps it. May be called while newer positions are noted.

        What it puts is its own; files of the last confirmed checkpoint are shared, unless it must be self-contained.
        """

    @abstractmethod
    def load(self, state: SourceState, get: Get) -> Json:
        """The position that a snapshot kept."""

    def confirm(self, state: SourceState) -> None:
        """A checkpoint with this state is complete: later ones may share its files. Most books have none."""
        return

    def aborted(self, checkpoint: CheckpointId) -> None:
        """This snapshot came to nothing, for whatever reason. Most books keep nothing of an attempt."""
        return


class InlineBook(PositionBook):
    """For positions that are a few numbers."""

    def save(self, position: Json, put: Put, *, self_contained: bool = False) -> SourceState:
        return SourceState(self.name, self.kind, position)

    def load(self, state: SourceState, get: Get) -> Json:
        return dict(state.position)


class FileListBook(PositionBook):
    """For a source whose position is the list of files that it has handed over.

    The list only grows. A snapshot keeps a base (a compressed file of entries, uploaded once and shared by the
    snapshots after it) and the entries since then inline; the base is written anew when the rest outgrows it, so that
    the bytes written stay proportional to the entries.
    """

    INLINE = 200

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name, kind)
        self._entries: list[Json] = []
        self._base: StateHandle | None = None
        self._in_base = 0
        self._lock = threading.Lock()

    def note(self, entries: Sequence[Json]) -> int:
        """Add entries; the length of the list, which names this moment of it."""
        with self._lock:
            self._entries.extend(entries)
            return len(self._entries)

    def entries(self, count: int) -> list[Json]:
        with self._lock:
            return self._entries[:count]

    def save(self, position: Json, put: Put, *, self_contained: bool = False) -> SourceState:
        count = int(position.get("count", 0))
        with self._lock:
            base, in_base = (None, 0) if self_contained else (self._base, self._in_base)
            anew = in_base > count or count - in_base > max(self.INLINE, in_base // 2)
            entries = self._entries[0 if anew else in_base : count]
        if anew:
            packed = gzip.compress("".join(json.dumps(entry) + "\n" for entry in entries).encode(), mtime=0)
            base, in_base, entries = put("files", packed), count, []
        body = {**position, "in_base": in_base, "tail": entries}
        return SourceState(self.name, self.kind, body, (base,) if base is not None and in_base else ())

    def confirm(self, state: SourceState) -> None:
        if state.files:
            with self._lock:
                self._base, self._in_base = state.files[0], int(state.position["in_base"])

    def load(self, state: SourceState, get: Get) -> Json:
        position = dict(state.position)
        tail, in_base = list(position.pop("tail", [])), int(position.pop("in_base", 0))
        entries: list[Json] = []
        if state.files:
            entries = [json.loads(line) for line in gzip.decompress(get(state.files[0])).splitlines()]
        if len(entries) != in_base or len(entries) + len(tail) != int(position.get("count", 0)):
            raise SnapshotDamaged(
                f"source {self.name}: the snapshot lists {len(entries)} + {len(tail)} files, "
                f"its position says {position.get('count', 0)}"
            )
        with self._lock:
            self._entries = entries + tail
            self._base, self._in_base = None, 0  # a base of another life is not shared: it may be retired
        return position
