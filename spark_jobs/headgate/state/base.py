"""The interface of a state backend: versions, sessions and tables, whose calls take whole Arrow batches of keys.

    backend.open(parent, ...) -> session        reads the exact parent version, never touches its files
    session.table(name) -> table                get, put, delete, entries, scan, count on Arrow batches
    session.seal() -> version                   a new immutable version: the parent's files and some new ones

A session belongs to one attempt of one task. Several sessions may be open from the same parent at once, in one process
or in many; none sees what another writes, and their files never share a name.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.state.batches import KeyBatch, check_keys
from headgate.state.descriptors import StateDescriptor, StateKind, merge_descriptors
from headgate.state.errors import ForeignKeyGroup, RestoreGap, SessionClosed, StateError, UnknownState
from headgate.state.key_groups import KeyGroupRange, hash_bounds, key_group
from headgate.state.versions import (
    LocalFile,
    RestoredPiece,
    StateFile,
    StateVersion,
    check_files,
    collect_garbage,
    local_files,
)

__all__ = [
    "KeyBatch",
    "LocalFile",
    "RestoredPiece",
    "StateBackend",
    "StateDescriptor",
    "StateFile",
    "StateKind",
    "StateSession",
    "StateTable",
    "StateVersion",
    "collect_garbage",
    "local_files",
]

Found = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class StateTable(ABC):
    """One keyed state within a session. Reads see the session's own earlier writes."""

    descriptor: StateDescriptor

    @abstractmethod
    def get(self, batch: KeyBatch) -> tuple[pa.Table, Found]:
        """The value columns, row for row with `batch` (null where nothing is stored), and whether each was found."""

    @abstractmethod
    def put(self, batch: KeyBatch, values: pa.Table | pa.RecordBatch) -> None:
        """Store the values under the keys, each of which stands in the batch once.

        A row whose value columns are all null removes the entry, unless the state is a MAP.
        """

    @abstractmethod
    def delete(self, batch: KeyBatch) -> None:
        """Remove the entries of the keys; a key that has none is no error."""

    @abstractmethod
    def entries(self, batch: KeyBatch) -> tuple[Rows, pa.Table]:
        """All entries of the given keys, over all of their map keys and namespaces.

        `batch` has the key columns only, without map keys; with namespaces only entries in these are meant, without
        all of them. Returns rows as a scan has them, and for each the row of `batch` that it answers, ascending.
        """

    @abstractmethod
    def scan(self, key_groups: KeyGroupRange | None = None) -> Iterator[pa.RecordBatch]:
        """Every live entry once, ascending by hash: `descriptor.entry` is the schema.

        Shows the table as it is at the call; the session may write while the iterator is in use.
        """

    @abstractmethod
    def count(self) -> int:
        """The number of live entries."""


class StateSession(ABC):
    """The writable view of one attempt on an immutable parent. For one thread."""

    def __init__(
        self, descriptors: Sequence[StateDescriptor], key_groups: KeyGroupRange, max_parallelism: int, identity: str
    ) -> None:
        self.descriptors = tuple(descriptors)
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.identity = identity
        self.hash_bounds = hash_bounds(key_groups, max_parallelism)
        self._closed = ""

    @abstractmethod
    def table(self, name: str) -> StateTable:
        """The table of a declared state."""

    def seal(self) -> StateVersion:
        """Make everything written so far a new immutable version and end the session.

        The parent's files are never touched. A session that wrote nothing yields a version with the parent's files.
        """
        self.check_open()
        try:
            version = self._seal()
        except BaseException:
            self.discard()
            raise
        self._closed = "sealed"
        self._release()
        return version

    def discard(self) -> None:
        """End the session and delete whatever it wrote. May be called again, and after `seal`, which keeps it."""
        if not self._closed:
            self._closed = "discarded"
            self._release()

    @abstractmethod
    def _seal(self) -> StateVersion: ...

    @abstractmethod
    def _release(self) -> None:
        """Give up what the session holds; delete its files unless it was sealed."""

    def check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"state session {self.identity!r} was {self._closed}", hint="open a new one")

    def check_owned(self, descriptor: StateDescriptor, batch: KeyBatch) -> None:
        """Refuse a batch with a row whose key group belongs to another subtask."""
        if not len(batch):
            return
        low, high = self.hash_bounds
        for hash in (int(batch.hashes[0]), int(batch.hashes[-1])):
            if not low <= hash <= high:
                raise ForeignKeyGroup(
                    f"a row for state {descriptor.name!r} has key group {key_group(hash, self.max_parallelism)}, "
                    f"this subtask owns {self.key_groups}",
                    hint="the shuffle and the subtask disagree about the hash or the max-parallelism",
                )

    def check_batch(self, descriptor: StateDescriptor, batch: KeyBatch) -> None:
        self.check_open()
        check_keys(descriptor, batch, descriptor.storage_key)
        self.check_owned(descriptor, batch)

    def check_range(self, key_groups: KeyGroupRange | None) -> KeyGroupRange:
        self.check_open()
        if key_groups is None:
            return self.key_groups
        if not self.key_groups.covers(key_groups):
            raise ForeignKeyGroup(f"key groups {key_groups} were asked for, this subtask owns {self.key_groups}")
        return key_groups

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


class StateBackend(ABC):
    """Keeps keyed state in local files. Holds no state of its own: one instance serves all subtasks."""

    name: ClassVar[str]

    def open(
        self,
        parent: StateVersion | None,
        descriptors: Sequence[StateDescriptor],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path,
        identity: str,
    ) -> StateSession:
        """Open a session on exactly `parent` (None: on nothing), whose files lie in `directory`.

        Raises MissingStateFile if one of them does not, or has another length; StateMigrationError if a state was
        stored with another schema than declared. States in the parent that are not declared are carried along.
        """
        if parent is None:
            parent = self.empty((), key_groups, max_parallelism, identity)
        self._check_parent(parent, key_groups, max_parallelism)
        merged = merge_descriptors(parent.descriptors, descriptors)
        check_files(parent, directory)
        return self._open(parent, merged, directory, identity)

    def empty(
        self, descriptors: Sequence[StateDescriptor], key_groups: KeyGroupRange, max_parallelism: int, identity: str
    ) -> StateVersion:
        """The version of a subtask that has stored nothing: it has no files."""
        return StateVersion(self.name, identity, key_groups, max_parallelism, (), tuple(descriptors))

    def restore(
        self,
        pieces: Sequence[RestoredPiece],
        descriptors: Sequence[StateDescriptor],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path,
        identity: str,
    ) -> StateVersion:
        """Build a subtask's first version in `directory` from the files of the old subtasks that had its key groups.

        The pieces together must cover the key groups exactly once (more than these is fine); no pieces at all are
        the empty version. The pieces' own files are not changed.
        """
        pieces = check_pieces(pieces, key_groups, max_parallelism)
        merged = merge_descriptors(*(piece.version.descriptors for piece in pieces), descriptors)
        for piece in pieces:
            self._check_backend(piece.version)
            check_files(piece.version, piece.directory)
        return self._restore(pieces, merged, key_groups, max_parallelism, directory, identity)

    @abstractmethod
    def _open(
        self, parent: StateVersion, descriptors: tuple[StateDescriptor, ...], directory: Path, identity: str
    ) -> StateSession: ...

    @abstractmethod
    def _restore(
        self,
        pieces: Sequence[RestoredPiece],
        descriptors: tuple[StateDescriptor, ...],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path,
        identity: str,
    ) -> StateVersion: ...

    def _check_parent(self, parent: StateVersion, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        self._check_backend(parent)
        if (parent.key_groups, parent.max_parallelism) != (key_groups, max_parallelism):
            raise ForeignKeyGroup(
                f"version {parent.identity!r} holds key groups {parent.key_groups} of {parent.max_parallelism}, "
                f"this subtask owns {key_groups} of {max_parallelism}",
                hint="key groups can only be moved by a restore",
            )

    def _check_backend(self, version: StateVersion) -> None:
        if version.backend != self.name:
            raise StateError(
                f"version {version.identity!r} was written by backend {version.backend!r}, not by {self.name!r}",
                hint="change the backend by a restore: headgate.state.backends.restore",
            )


def check_pieces(
    pieces: Sequence[RestoredPiece], key_groups: KeyGroupRange, max_parallelism: int
) -> list[RestoredPiece]:
    """The pieces that have a share in the key groups, in their order; together they cover them exactly once."""
    needed = sorted(
        (piece for piece in pieces if piece.version.key_groups.intersect(key_groups)),
        key=lambda piece: piece.version.key_groups,
    )
    for piece in pieces:
        if piece.version.max_parallelism != max_parallelism:
            raise ForeignKeyGroup(
                f"version {piece.version.identity!r} was written with max-parallelism {piece.version.max_parallelism}, "
                f"the stream has {max_parallelism}",
                hint="max-parallelism is fixed for a stream's life: set it back",
            )
    if not pieces:
        return []
    at = key_groups.start
    for number, piece in enumerate(needed):
        here = piece.version.key_groups
        if here.start > at or (here.start < at and number > 0):
            break
        at = here.end + 1
    else:
        if at > key_groups.end:
            return needed
    held = ", ".join(str(piece.version.key_groups) for piece in needed) or "none of them"
    raise RestoreGap(
        f"key groups {key_groups} cannot be restored: the pieces given hold {held}",
        hint="give each old subtask's version once",
    )


def named_descriptor(descriptors: Mapping[str, StateDescriptor], name: str) -> StateDescriptor:
    """The declared state of a name, or an error with the nearest one."""
    try:
        return descriptors[name]
    except KeyError:
        near = difflib.get_close_matches(name, descriptors, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"declared are: {', '.join(sorted(descriptors)) or 'none'}"
        raise UnknownState(f"no state {name!r} is declared", hint=hint) from None
