"""Keeps a source's positions and makes them durable: what S_n is on the driver, and what it is in a snapshot."""

from __future__ import annotations

import gzip
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    The list only grows. A snapshot keeps its newest entries inline, INLINE at most, and the rest in compressed pieces,
    each uploaded once and shared by the snapshots after it. A new piece takes the pieces before it along that are not
    at least twice as long: so there are few of them, each entry is written again as often as its piece doubles, and
    what n entries cost is n log n bytes, however many snapshots there are.
    """

    INLINE = 100

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name, kind)
        self._entries: list[Json] = []
        self._pieces: tuple[Piece, ...] = ()
        """Those of the last confirmed checkpoint."""
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
            pieces = () if self_contained or _length(self._pieces) > count else self._pieces
            if count - _length(pieces) > self.INLINE:
                kept = _kept(pieces, count)
                packed, pieces = self._entries[_length(kept) : count], kept
            else:
                packed = []
            tail = [] if packed else self._entries[_length(pieces) : count]
        if packed:
            pieces = (*pieces, Piece(put("files", _pack(packed)), len(packed)))
        body = {**position, "pieces": [piece.count for piece in pieces], "tail": tail}
        return SourceState(self.name, self.kind, body, tuple(piece.handle for piece in pieces))

    def confirm(self, state: SourceState) -> None:
        with self._lock:
            self._pieces = tuple(map(Piece, state.files, state.position.get("pieces", ())))

    def load(self, state: SourceState, get: Get) -> Json:
        position = dict(state.position)
        tail, counts = list(position.pop("tail", [])), list(position.pop("pieces", []))
        packed = [_unpack(get(handle)) for handle in state.files]
        entries = [entry for piece in packed for entry in piece]
        if list(map(len, packed)) != counts or len(entries) + len(tail) != int(position.get("count", 0)):
            raise SnapshotDamaged(
                f"source {self.name}: the snapshot lists {len(entries)} + {len(tail)} files, "
                f"its position says {position.get('count', 0)} of which {counts} are in pieces"
            )
        with self._lock:
            self._entries = entries + tail
            self._pieces = ()  # those of another life are not shared: they may be retired
        return position


@dataclass(frozen=True)
class Piece:
    """A file of so many entries, behind those of the pieces before it."""

    handle: StateHandle
    count: int


def _length(pieces: Sequence[Piece]) -> int:
    return sum(piece.count for piece in pieces)


def _kept(pieces: tuple[Piece, ...], count: int) -> tuple[Piece, ...]:
    """Which pieces stay as they are when a new one makes the list `count` entries long; it takes along the others."""
    while pieces and pieces[-1].count < 2 * (count - _length(pieces)):
        pieces = pieces[:-1]
    return pieces


def _pack(entries: Sequence[Json]) -> bytes:
    return gzip.compress("".join(json.dumps(entry) + "\n" for entry in entries).encode(), mtime=0)


def _unpack(data: bytes) -> list[Json]:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]
