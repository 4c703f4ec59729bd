"""A backend at work in a directory, in the words that its tests use."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate.state.base import (
    RestoredPiece,
    StateBackend,
    StateDescriptor,
    StateSession,
    StateVersion,
)
from headgate.state.key_groups import KeyGroupRange
from tests.runtime.state.samples import (
    KEYS,
    MAX_PARALLELISM,
    STATES,
    VALUES,
    WHOLE,
    Model,
    Row,
    batch_of,
    content,
    freeze,
    owned,
    put_in_model,
    values_of,
)

HASHES = 7
"""So few that different keys share a hash."""


@contextmanager
def memory_directory(otherwise: Path) -> Iterator[Path]:
    """A fresh directory in memory, where there is such a thing: RocksDB's fsyncs cost nothing there."""
    shared_memory = Path("/dev/shm")
    parent = shared_memory if os.access(shared_memory, os.W_OK) else otherwise
    with tempfile.TemporaryDirectory(prefix="headgate-state-", dir=parent) as folder:
        yield Path(folder)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """What a full disk does to a writer: every file of this process ends at `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Run:
    """A backend and a directory, and short words for what tests do with them."""

    def __init__(self, backend: StateBackend, directory: Path) -> None:
        self.backend = backend
        self.directory = directory
        self._attempts = self._count()

    @staticmethod
    def _count() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"attempt-{number}"

    def open(
        self, parent: StateVersion | None, states: Sequence[StateDescriptor] = STATES, identity: str = ""
    ) -> StateSession:
        key_groups = WHOLE if parent is None else parent.key_groups
        identity = identity or next(self._attempts)
        return self.backend.open(parent, states, key_groups, MAX_PARALLELISM, self.directory, identity)

    def put(self, session: StateSession, state: StateDescriptor, rows: Sequence[Row], values: Sequence[Row]) -> None:
        batch, ordered = batch_of(state, rows, HASHES)
        at = {id(row): number for number, row in enumerate(rows)}
        session.table(state.name).put(batch, values_of(state, [values[at[id(row)]] for row in ordered]))

    def delete(self, session: StateSession, state: StateDescriptor, rows: Sequence[Row]) -> None:
        session.table(state.name).delete(batch_of(state, rows, HASHES)[0])

    def write(
        self,
        parent: StateVersion | None,
        state: StateDescriptor,
        rows: Sequence[Row],
        values: Sequence[Row],
        identity: str = "",
    ) -> StateVersion:
        with self.open(parent, identity=identity) as session:
            self.put(session, state, rows, values)
            return session.seal()

    def read(self, version: StateVersion, state: StateDescriptor) -> Model:
        with self.open(version) as session:
            return content(state, session.table(state.name))

    def restore(
        self,
        versions: Sequence[StateVersion],
        key_groups: KeyGroupRange,
        states: Sequence[StateDescriptor] = STATES,
        fetched: Path | None = None,
    ) -> StateVersion:
        pieces = [RestoredPiece(version, fetched or self.directory) for version in versions]
        identity = next(self._attempts)
        return self.backend.restore(pieces, states, key_groups, MAX_PARALLELISM, self.directory, identity)

    def write_shares(
        self, version: StateVersion, key_groups: KeyGroupRange, step: int, model: dict[str, Model]
    ) -> StateVersion:
        """Write and delete, in each state, some of the rows of a subtask."""
        with self.open(version) as session:
            for state in STATES:
                mine = owned(state, KEYS[state.name], key_groups, HASHES)
                rows = mine[step % 2 :: 2]
                values = [VALUES[state.name][(step + i) % len(VALUES[state.name])] for i in range(len(rows))]
                self.put(session, state, rows, values)
                put_in_model(state, model[state.name], rows, values)
                gone = mine[step::5]
                self.delete(session, state, gone)
                for row in gone:
                    model[state.name].pop(freeze(row), None)
            return session.seal()
