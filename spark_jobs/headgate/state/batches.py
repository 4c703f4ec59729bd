"""A batch of keys, sorted by hash: what every call on a state table takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.state.descriptors import StateDescriptor
from headgate.state.errors import DuplicateKey, StateSchemaMismatch
from headgate.state.key_groups import Hashes
from headgate.state.keys import Mask

Permutation = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyBatch:
    """Keys with their hashes, in ascending order of the (signed) hash.

    `keys` holds the key columns of the state (for a MAP followed by its map-key columns), `namespaces` the namespace
    of each row, or None for the void namespace. A row is identified by (hash, key, namespace); a batch that is
    written must hold each once.
    """

    hashes: Hashes
    keys: pa.RecordBatch
    namespaces: pa.Array | None = None

    @classmethod
    def of(
        cls, hashes: Hashes, keys: pa.RecordBatch | pa.Table, namespaces: pa.Array | pa.ChunkedArray | None = None
    ) -> tuple[KeyBatch, Permutation]:
        """Make a batch of rows in any order. Row i of the batch is row `permutation[i]` of the arguments."""
        hashes = np.ascontiguousarray(hashes, dtype=np.int64)
        keys = as_batch(keys)
        if isinstance(namespaces, pa.ChunkedArray):
            namespaces = namespaces.combine_chunks()
        if len(hashes) != keys.num_rows or (namespaces is not None and len(namespaces) != keys.num_rows):
            raise StateSchemaMismatch(
                f"a batch has {len(hashes)} hashes, {keys.num_rows} keys and "
                f"{'no' if namespaces is None else len(namespaces)} namespaces: their numbers must be equal"
            )
        if is_sorted(hashes):
            return cls(hashes, keys, namespaces), np.arange(len(hashes))
        permutation = np.argsort(hashes, kind="stable")
        indices = pa.array(permutation)
        namespaces = None if namespaces is None else namespaces.take(indices)
        return cls(hashes[permutation], keys.take(indices), namespaces), permutation

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Permutation) -> KeyBatch:
        """The rows at ascending positions."""
        indices = pa.array(rows)
        namespaces = None if self.namespaces is None else self.namespaces.take(indices)
        return KeyBatch(self.hashes[rows], self.keys.take(indices), namespaces)


def is_sorted(hashes: Hashes) -> bool:
    return bool((hashes[1:] >= hashes[:-1]).all())


def as_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """A table as one record batch, zero-copy if it has one chunk."""
    if isinstance(table, pa.RecordBatch):
        return table
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def check_keys(descriptor: StateDescriptor, batch: KeyBatch, columns: pa.Schema) -> None:
    """Refuse a batch whose key columns are not `columns`, or whose namespace is not that of the state."""
    if batch.keys.schema.names != columns.names or batch.keys.schema.types != columns.types:
        raise StateSchemaMismatch(
            f"state {descriptor.name!r} has the keys ({_text(columns)}), a batch came with ({_text(batch.keys.schema)})"
        )
    given = None if batch.namespaces is None else batch.namespaces.type
    if given != descriptor.namespace:
        raise StateSchemaMismatch(
            f"state {descriptor.name!r} has the namespace {descriptor.namespace or 'void'}, "
            f"a batch came with {given or 'void'}"
        )
    if not is_sorted(batch.hashes):
        raise StateSchemaMismatch(
            f"a batch for state {descriptor.name!r} is not sorted by hash", hint="make it with KeyBatch.of"
        )


def check_values(descriptor: StateDescriptor, batch: KeyBatch, values: pa.RecordBatch) -> None:
    """Refuse values whose columns or number are not those of the state and the batch."""
    if values.schema.names != descriptor.value.names or values.schema.types != descriptor.value.types:
        raise StateSchemaMismatch(
            f"state {descriptor.name!r} has the values ({_text(descriptor.value)}), "
            f"a batch came with ({_text(values.schema)})"
        )
    if values.num_rows != len(batch) and len(descriptor.value):
        raise StateSchemaMismatch(f"state {descriptor.name!r} was given {values.num_rows} values for {len(batch)} keys")


def check_partial_keys(descriptor: StateDescriptor, batch: KeyBatch) -> None:
    """Refuse a batch that is to find entries, unless it has the key columns alone, and namespaces only if known."""
    expected = descriptor if batch.namespaces is not None else replace(descriptor, namespace=None)
    check_keys(expected, batch, descriptor.key)


def clearing_rows(descriptor: StateDescriptor, values: Sequence[pa.Array], rows: int) -> Mask:
    """Which rows of a write remove the entry, because all of their values are null."""
    clears: Mask = np.zeros(rows, dtype=np.bool_)
    if descriptor.null_clears and all(column.null_count for column in values):
        clears |= True
        for column in values:
            clears &= column.is_null().to_numpy(zero_copy_only=False)
    return clears


def refuse_duplicates(descriptor: StateDescriptor, doubled: int, rows: int) -> None:
    """Raise if any row of a write has a key that another one has too."""
    if doubled:
        raise DuplicateKey(
            f"a batch for state {descriptor.name!r} writes {doubled} of {rows} keys more than once",
            hint="combine the rows of one key before the write",
        )


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
