"""Finds a state backend by the name that a job or a setting gives, and moves state from one backend to another."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headgate.state.base import StateBackend, StateSession, check_pieces
from headgate.state.batches import KeyBatch
from headgate.state.descriptors import StateDescriptor, merge_descriptors
from headgate.state.errors import UnknownBackend
from headgate.state.hashmap import HashMapBackend
from headgate.state.key_groups import KeyGroupRange
from headgate.state.rocksdb import RocksDBBackend
from headgate.state.versions import RestoredPiece, StateVersion

BACKENDS: dict[str, type[StateBackend]] = {
    HashMapBackend.name: HashMapBackend,
    RocksDBBackend.name: RocksDBBackend,
}


def backend_named(name: str) -> StateBackend:
    """The backend of that name, or an error with the nearest one."""
    try:
        return BACKENDS[name]()
    except KeyError:
        near = difflib.get_close_matches(name, BACKENDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of: {', '.join(sorted(BACKENDS))}"
        raise UnknownBackend(f"no state backend {name!r} exists", hint=hint) from None


def restore(
    backend: StateBackend,
    pieces: Sequence[RestoredPiece],
    descriptors: Sequence[StateDescriptor],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    directory: Path,
    identity: str,
) -> StateVersion:
    """`StateBackend.restore`, from pieces that any backend has written.

    To the `hashmap` backend this is also how a canonical savepoint is made of another backend's versions.
    """
    if all(piece.version.backend == backend.name for piece in pieces):
        return backend.restore(pieces, descriptors, key_groups, max_parallelism, directory, identity)
    pieces = check_pieces(pieces, key_groups, max_parallelism)
    merged = merge_descriptors(*(piece.version.descriptors for piece in pieces), descriptors)
    with backend.open(None, merged, key_groups, max_parallelism, directory, identity) as target:
        for piece in pieces:
            version = piece.version
            source = backend_named(version.backend).open(
                version, version.descriptors, version.key_groups, max_parallelism, piece.directory, identity
            )
            with source:
                _transfer(source, target, key_groups)
        return target.seal()


def _transfer(source: StateSession, target: StateSession, key_groups: KeyGroupRange) -> None:
    shared = source.key_groups.intersect(key_groups)
    for state in source.descriptors:
        for batch in source.table(state.name).scan(shared):
            columns = batch.columns
            behind_keys = 1 + len(state.storage_key)
            keys = pa.RecordBatch.from_arrays(columns[1:behind_keys], schema=state.storage_key)
            namespaces = None if state.namespace is None else columns[behind_keys]
            values = pa.RecordBatch.from_arrays(columns[len(columns) - len(state.value) :], schema=state.value)
            target.table(state.name).put(KeyBatch(columns[0].to_numpy(), keys, namespaces), values)
