"""States to test with, and the plain dict that says what each of them must hold."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.state.base import KeyBatch, StateDescriptor, StateKind, StateTable
from headgate.state.key_groups import KeyGroupRange, key_group

MAX_PARALLELISM = 16
WHOLE = KeyGroupRange(0, MAX_PARALLELISM - 1)

Row = tuple[Any, ...]
"""The key columns, map-key columns and namespace of an entry, as Python values."""
Model = dict[Row, Row]

WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])

COUNTS = StateDescriptor(
    "counts", StateKind.VALUE, pa.schema([("word", pa.string())]), pa.schema([("n", pa.int64()), ("note", pa.string())])
)
TOTALS = StateDescriptor(
    "totals",
    StateKind.REDUCING,
    pa.schema([("shop", pa.int64()), ("day", pa.timestamp("us"))]),
    pa.schema([("total", pa.decimal128(20, 2))]),
    namespace=WINDOW,
)
VISITS = StateDescriptor(
    "visits",
    StateKind.MAP,
    pa.schema([("word", pa.string())]),
    pa.schema([("hits", pa.float64())]),
    map_key=pa.schema([("page", pa.int32()), ("query", pa.binary())]),
)
RECENT = StateDescriptor(
    "recent",
    StateKind.LIST,
    pa.schema([("flag", pa.bool_())]),
    pa.schema([("items", pa.list_(pa.struct([("at", pa.date32()), ("what", pa.string())])))]),
    namespace=pa.int16(),
)
CLICKS = StateDescriptor(
    "clicks",
    StateKind.MAP,
    pa.schema([("user", pa.int32())]),
    pa.schema([("n", pa.int64()), ("last", pa.string())]),
    namespace=pa.string(),
    map_key=pa.schema([("page", pa.string())]),
)
STATES = (COUNTS, TOTALS, VISITS, RECENT, CLICKS)

_NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_WORDS = (
    None,
    "",
    "a",
    "b",
    "a\0",
    "a\0b",
    "\0",
    "a word that is longer than any inline string, by far " * 2,
    "ä",
    "c",
    "d",
)
KEYS: Mapping[str, Sequence[Row]] = {
    "counts": [(word,) for word in _WORDS],
    "totals": [
        (shop, day, window)
        for shop in (None, 0, -1, 2**62)
        for day in (None, dt.datetime(1969, 5, 5), dt.datetime(2026, 1, 1))  # noqa: DTZ001 - the column has no zone
        for window in (
            None,
            {"start": _NOON, "end": _NOON + dt.timedelta(hours=1)},
            {"start": _NOON, "end": None},
            {"start": None, "end": None},
        )
    ],
    "visits": [
        (word, page, query)
        for word in _WORDS[:5]
        for page in (None, 0, -7, 2**30)
        for query in (None, b"", b"\0\0", b"q" * 33, b"q" * 34)
    ],
    "clicks": [
        (user, page, window)
        for user in (None, 1, 2, 3)
        for page in (None, "", "a", "ab")
        for window in (None, "", "a", "b")
    ],
    "recent": [(flag, namespace) for flag in (None, False, True) for namespace in (None, -3, 0, 3)],
}
VALUES: Mapping[str, Sequence[Row]] = {
    "counts": [(None, None), (1, None), (None, "x"), (-5, ""), (2**40, "longer than sixteen bytes")],
    "totals": [(None,), (Decimal("0.00"),), (Decimal("-12345678901.25"),), (Decimal("7.10"),)],
    "visits": [(None,), (0.0,), (-1.5,), (float("inf"),)],
    "clicks": [(None, None), (1, None), (None, "x"), (3, "y")],
    "recent": [
        (None,),
        ([],),
        ([{"at": dt.date(2026, 1, 1), "what": "in"}, {"at": None, "what": None}],),
        ([None],),
    ],
}


def hash_of(key: Row, hashes: int) -> int:
    """A signed hash of the key columns: one of few, so that different keys share one."""
    one = zlib.crc32(repr(key).encode()) % hashes
    return -(2**63) + (2**64 // hashes) * one + one


def frozen(value: Any) -> Any:
    """A Python value that can be a dict's key."""
    if isinstance(value, dict):
        return tuple((name, frozen(item)) for name, item in value.items())
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def freeze(row: Row) -> Row:
    return tuple(frozen(value) for value in row)


def batch_of(state: StateDescriptor, rows: Sequence[Row], hashes: int) -> tuple[KeyBatch, list[Row]]:
    """A batch of the rows, and the rows in its order."""
    hashed = np.array([hash_of(row[: len(state.key)], hashes) for row in rows], dtype=np.int64)
    keys = pa.Table.from_arrays(
        [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(state.storage_key)],
        schema=state.storage_key,
    )
    namespaces = None if state.namespace is None else pa.array([row[-1] for row in rows], state.namespace)
    batch, permutation = KeyBatch.of(hashed, keys, namespaces)
    return batch, [rows[i] for i in permutation]


def keys_of(state: StateDescriptor, keys: Sequence[Row], hashes: int) -> tuple[KeyBatch, list[Row]]:
    """A batch of key columns alone, as `entries` takes it, and the keys in its order."""
    hashed = np.array([hash_of(key, hashes) for key in keys], dtype=np.int64)
    columns = [pa.array([key[i] for key in keys], field.type) for i, field in enumerate(state.key)]
    batch, permutation = KeyBatch.of(hashed, pa.Table.from_arrays(columns, schema=state.key))
    return batch, [keys[i] for i in permutation]


def values_of(state: StateDescriptor, rows: Sequence[Row]) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(state.value)]
    return pa.Table.from_arrays(columns, schema=state.value)


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The rows of a table, frozen."""
    columns = [column.to_pylist() for column in table.columns]
    return [freeze(row) for row in zip(*columns, strict=True)]


def owned(state: StateDescriptor, rows: Iterable[Row], key_groups: KeyGroupRange, hashes: int) -> list[Row]:
    """Those of the rows whose key group lies in the range."""
    return [row for row in rows if key_group(hash_of(row[: len(state.key)], hashes), MAX_PARALLELISM) in key_groups]


def put_in_model(state: StateDescriptor, model: Model, rows: Sequence[Row], values: Sequence[Row]) -> None:
    for row, value in zip(rows, values, strict=True):
        if state.null_clears and all(item is None for item in value):
            model.pop(freeze(row), None)
        else:
            model[freeze(row)] = freeze(value)


def content(state: StateDescriptor, table: StateTable, key_groups: KeyGroupRange | None = None) -> Model:
    """What a table holds, by a scan, each of whose promises is checked on the way."""
    model: Model = {}
    last = -(2**63)
    width = len(state.storage_key)
    for batch in table.scan(key_groups):
        assert batch.schema == state.entry
        hashes = batch.column(0).to_pylist()
        assert hashes, "no batch of a scan is empty"
        assert hashes == sorted(hashes)
        assert hashes[0] >= last, "a scan ascends from batch to batch"
        last = hashes[-1]
        for _, *row in rows_of(batch):
            namespace = 0 if state.namespace is None else 1
            key, value = tuple(row[: width + namespace]), tuple(row[width + namespace :])
            assert key not in model, "a scan shows each entry once"
            model[key] = value
    return model
