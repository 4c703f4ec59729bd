"""The `rocksdb` backend: working state in RocksDB, one column family per state; a version is a set of its files.

A session opens a database of its own: a folder in which the parent's table files (SST, immutable) appear as hard links
and its MANIFEST and CURRENT as copies. Writes go without a log into the memtable; `seal` flushes it, stops the
database and gives each new file a unique name beside the others, so that the parent is never touched and two attempts
from one parent cannot see each other, though both make their own `000012.sst`. The folder goes; nothing is cached.
RocksDB's OPTIONS are not part of a version: they come from here.

The bytes of an entry are described in codec.py. The default column family holds its format version, `headgate.codec`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headgate.state.base import Found, Rows, StateBackend, StateSession, StateTable, named_descriptor
from headgate.state.batches import (
    KeyBatch,
    as_batch,
    check_partial_keys,
    check_values,
    clearing_rows,
    refuse_duplicates,
)
from headgate.state.codec import RowCodec, decode_hashes, decode_keys, encode_keys
from headgate.state.descriptors import StateDescriptor
from headgate.state.key_groups import KeyGroupRange
from headgate.state.rocksdb_database import TABLE_SUFFIX, Database, open_database
from headgate.state.versions import RestoredPiece, StateFile, StateVersion, link_or_copy, unique_name

SCAN_ROWS = 65_536
"""How many entries a batch of a scan holds at most."""
_COPY_ROWS = 10_000


class RocksDBTable(StateTable):
    """One column family."""

    def __init__(self, session: RocksDBSession, database: Database, descriptor: StateDescriptor) -> None:
        self._session = session
        self._database = database
        self._rows = RowCodec(descriptor.value)
        self.descriptor = descriptor

    def get(self, batch: KeyBatch) -> tuple[pa.Table, Found]:
        self._session.check_batch(self.descriptor, batch)
        values = self._database.get(self.descriptor.name, self._keys(batch))
        found: Found = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
        columns = self._rows.decode([value for value in values if value is not None])
        if not found.all():
            positions = pa.array(np.cumsum(found) - 1, mask=~found)
            columns = [column.take(positions) for column in columns]
        return pa.Table.from_arrays(columns, schema=self.descriptor.value), found

    def put(self, batch: KeyBatch, values: pa.Table | pa.RecordBatch) -> None:
        self._session.check_batch(self.descriptor, batch)
        values = as_batch(values)
        check_values(self.descriptor, batch, values)
        keys = self._keys(batch)
        refuse_duplicates(self.descriptor, len(keys) - len(set(keys)), len(keys))
        cleared = clearing_rows(self.descriptor, values.columns, len(batch)).tolist()
        rows = self._rows.encode(values.columns, len(batch))
        writes = self._database.batch(self.descriptor.name)
        for key, row, clears in zip(keys, rows, cleared, strict=True):
            if clears:
                writes.delete(key)
            else:
                writes.put(key, row)
        self._database.write(writes)

    def delete(self, batch: KeyBatch) -> None:
        self._session.check_batch(self.descriptor, batch)
        keys = self._keys(batch)
        refuse_duplicates(self.descriptor, len(keys) - len(set(keys)), len(keys))
        writes = self._database.batch(self.descriptor.name)
        for key in keys:
            writes.delete(key)
        self._database.write(writes)

    def entries(self, batch: KeyBatch) -> tuple[Rows, pa.Table]:
        self._session.check_open()
        check_partial_keys(self.descriptor, batch)
        self._session.check_owned(self.descriptor, batch)
        columns = [*batch.keys.columns, *([batch.namespaces] if batch.namespaces is not None else [])]
        prefixes = encode_keys(batch.hashes, columns, self._session.max_parallelism)
        found = list(self._database.starting_with(self.descriptor.name, prefixes))
        owners = np.fromiter((owner for owner, _, _ in found), dtype=np.int64, count=len(found))
        return owners, pa.Table.from_batches([self._entries([(key, value) for _, key, value in found])])

    def scan(self, key_groups: KeyGroupRange | None = None) -> Iterator[pa.RecordBatch]:
        items = self._database.items(self.descriptor.name, self._session.check_range(key_groups))
        return (self._entries(chunk) for chunk in iter(lambda: list(islice(items, SCAN_ROWS)), []))

    def count(self) -> int:
        return sum(1 for _ in self._database.items(self.descriptor.name, self._session.check_range(None)))

    def _keys(self, batch: KeyBatch) -> list[bytes]:
        columns = list(batch.keys.columns)
        if batch.namespaces is not None:
            columns.insert(len(self.descriptor.key), batch.namespaces)
        return encode_keys(batch.hashes, columns, self._session.max_parallelism)

    def _entries(self, items: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        state = self.descriptor
        keys = [key for key, _ in items]
        namespace = [] if state.namespace is None else [state.namespace]
        columns = decode_keys(keys, [*state.key.types, *namespace, *state.storage_key.types[len(state.key) :]])
        if namespace:
            columns.append(columns.pop(len(state.key)))
        columns += self._rows.decode([value for _, value in items])
        return pa.RecordBatch.from_arrays([pa.array(decode_hashes(keys)), *columns], schema=state.entry)


class RocksDBSession(StateSession):
    """One attempt's database, opened when it is first needed."""

    def __init__(
        self, parent: StateVersion, descriptors: tuple[StateDescriptor, ...], directory: Path, identity: str
    ) -> None:
        super().__init__(descriptors, parent.key_groups, parent.max_parallelism, identity)
        self._parent = parent
        self._directory = directory
        self._by_name = {descriptor.name: descriptor for descriptor in descriptors}
        self._database: Database | None = None
        self._folder: Path | None = None
        self._tables: dict[str, RocksDBTable] = {}
        self._new_paths: list[Path] = []

    def table(self, name: str) -> RocksDBTable:
        self.check_open()
        if name not in self._tables:
            descriptor = named_descriptor(self._by_name, name)
            self._tables[name] = RocksDBTable(self, self.database(), descriptor)
        return self._tables[name]

    def database(self) -> Database:
        """The working database, made from links to the parent's files."""
        if self._database is None:
            self._folder = self._directory / unique_name(self.identity, ".work")
            self._database = open_database(self._parent.files, self._directory, self._folder, list(self._by_name))
        return self._database

    def _seal(self) -> StateVersion:
        files = self._parent.files
        if self._database is not None and self._database.written:
            known = {file.local_name: file for file in files if file.local_name.endswith(TABLE_SUFFIX)}
            self._tables.clear()
            names = self._database.finish()
            files = tuple(known.get(name) or self._publish(self._database.folder / name) for name in names)
        return StateVersion(
            self._parent.backend, self.identity, self.key_groups, self.max_parallelism, files, self.descriptors
        )

    def _publish(self, made: Path) -> StateFile:
        path = self._directory / unique_name(self.identity, f"-{made.name}")
        self._new_paths.append(path)
        link_or_copy(made, path)
        return StateFile(path.name, path.stat().st_size, "", self.key_groups, local_name=made.name)

    def _release(self) -> None:
        self._tables.clear()
        if self._database is not None:
            self._database.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._closed != "sealed":
            for path in self._new_paths:
                path.unlink(missing_ok=True)


class RocksDBBackend(StateBackend):
    """Keyed state in RocksDB."""

    name: ClassVar[str] = "rocksdb"

    def _open(
        self, parent: StateVersion, descriptors: tuple[StateDescriptor, ...], directory: Path, identity: str
    ) -> RocksDBSession:
        return RocksDBSession(parent, descriptors, directory, identity)

    def _restore(
        self,
        pieces: Sequence[RestoredPiece],
        descriptors: tuple[StateDescriptor, ...],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path,
        identity: str,
    ) -> StateVersion:
        if len(pieces) == 1 and pieces[0].version.key_groups == key_groups:
            for file in pieces[0].version.files:
                link_or_copy(pieces[0].directory / file.name, directory / file.name)
            return StateVersion(self.name, identity, key_groups, max_parallelism, pieces[0].version.files, descriptors)
        empty = self.empty((), key_groups, max_parallelism, identity)
        with self._open(empty, descriptors, directory, identity) as target:
            for piece in pieces:
                shared = piece.version.key_groups.intersect(key_groups)
                if piece.version.files and shared is not None:
                    _copy(piece, shared, target.database(), directory / unique_name(identity, ".work"))
            return target.seal()


def _copy(piece: RestoredPiece, key_groups: KeyGroupRange, target: Database, folder: Path) -> None:
    """Copy the entries of some key groups, whose bytes do not depend on the parallelism."""
    states = [descriptor.name for descriptor in piece.version.descriptors]
    try:
        source = open_database(piece.version.files, piece.directory, folder, states)
        for state in states:
            items = source.items(state, key_groups)
            while chunk := list(islice(items, _COPY_ROWS)):
                writes = target.batch(state)
                for key, value in chunk:
                    writes.put(key, value)
                target.write(writes)
            del items
        source.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
