"""The bytes of an entry in RocksDB: they hold every value, tell all keys apart and keep them in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.state.codec import (
    RowCodec,
    decode_hashes,
    decode_keys,
    encode_keys,
    range_start,
)
from headgate.state.key_groups import MAX_HASH, MIN_HASH, key_group
from tests.runtime.state.typed import KEY_SAMPLES, VALUE_SAMPLES, array_of, same_values

KEY_TYPES = [pytest.param(type, id=str(type)) for type in KEY_SAMPLES]
hashes = st.integers(MIN_HASH, MAX_HASH)


def keys(column: pa.Array) -> list[bytes]:
    return encode_keys(np.zeros(len(column), dtype=np.int64), [column], 128)


@pytest.mark.parametrize("type", KEY_TYPES)
def test_a_key_column_comes_back(type: pa.DataType) -> None:
    column = array_of(type, KEY_SAMPLES[type])
    (again,) = decode_keys(keys(column), [type])
    assert same_values(again, column)


def ascending(type: pa.DataType) -> Sequence[Any]:
    values = KEY_SAMPLES[type]
    if all(isinstance(value, str | bytes) for value in values):
        return sorted(values, key=lambda value: value.encode() if isinstance(value, str) else value)
    return values


@pytest.mark.parametrize("type", [type for type in KEY_SAMPLES if not pa.types.is_struct(type)], ids=str)
def test_stored_keys_are_different_and_in_the_order_of_the_values_null_first(type: pa.DataType) -> None:
    stored = keys(array_of(type, ascending(type))[:-1])
    assert stored == sorted(stored)
    assert len(set(stored)) == len(stored)


def test_no_key_is_a_prefix_of_another_so_columns_cannot_run_into_each_other() -> None:
    words = ["", "\0", "a", "a\0", "\0a", "\xff", "a\0\0", None]
    pairs = list(itertools.product(words, words))
    stored = encode_keys(
        np.zeros(len(pairs), dtype=np.int64),
        [pa.array([one for one, _ in pairs]), pa.array([two for _, two in pairs])],
        1,
    )
    assert len(set(stored)) == len(pairs)
    assert not any(other.startswith(one) for one, other in itertools.permutations(stored, 2))
    first = encode_keys(np.zeros(1, dtype=np.int64), [pa.array(["a"])], 1)[0]
    assert [pair[0] for pair, key in zip(pairs, stored, strict=True) if key.startswith(first)] == ["a"] * len(words)


@given(st.lists(hashes, min_size=1), st.integers(1, 2**15))
def test_keys_ascend_with_key_group_and_hash(some: list[int], max_parallelism: int) -> None:
    some = sorted(some)
    stored = encode_keys(np.array(some, dtype=np.int64), [pa.nulls(len(some), pa.int8())], max_parallelism)
    assert stored == sorted(stored)
    assert decode_hashes(stored).tolist() == some
    for hash, key in zip(some, stored, strict=True):
        group = key_group(hash, max_parallelism)
        assert range_start(group) <= key < range_start(group + 1)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=5), st.none() | st.integers(-(2**31), 2**31 - 1)), unique=True)
)
def test_keys_of_two_columns_come_back(rows: list[tuple[bytes | None, int | None]]) -> None:
    columns = [pa.array([row[0] for row in rows], pa.binary()), pa.array([row[1] for row in rows], pa.int32())]
    stored = encode_keys(np.zeros(len(rows), dtype=np.int64), columns, 128)
    assert len(set(stored)) == len(rows)
    assert decode_keys(stored, [pa.binary(), pa.int32()]) == columns


@pytest.mark.parametrize("type", VALUE_SAMPLES, ids=str)
def test_a_value_column_comes_back(type: pa.DataType) -> None:
    column = array_of(type, VALUE_SAMPLES[type])
    codec = RowCodec(pa.schema([("v", type)]))
    (again,) = codec.decode(codec.encode([column], len(column)))
    assert same_values(again, column)


def test_a_row_of_all_types_comes_back() -> None:
    columns = [array_of(type, values) for type, values in VALUE_SAMPLES.items()]
    rows = min(len(column) for column in columns)
    columns = [column[:rows] for column in columns]
    codec = RowCodec(pa.schema([(str(i), column.type) for i, column in enumerate(columns)]))
    again = codec.decode(codec.encode(columns, rows))
    assert all(same_values(left, right) for left, right in zip(again, columns, strict=True))
    assert all(len(column) == 0 for column in codec.decode([]))


def test_a_set_has_empty_values() -> None:
    codec = RowCodec(pa.schema([]))
    assert codec.encode([], 3) == [b""] * 3
    assert codec.decode([b""] * 3) == []


def test_the_bytes_are_frozen() -> None:
    """Changed bytes need a new format version: stored databases have these."""
    stored = encode_keys(
        np.array([-2, 2**62], dtype=np.int64), [pa.array([1, None], pa.int16()), pa.array(["a\0", None])], 128
    )
    assert [key.hex(" ") for key in stored] == [
        "00 3f 7f ff ff ff ff ff ff fe 01 80 01 01 61 00 ff 00 00",
        "00 60 c0 00 00 00 00 00 00 00 00 00 00 00",
    ]
    columns = [pa.array([1, None], pa.int16()), pa.array(["xy", None]), pa.array([None, True]), pa.array([b"", b"z"])]
    codec = RowCodec(pa.schema([(str(i), column.type) for i, column in enumerate(columns)]))
    assert [value.hex(" ") for value in codec.encode(columns, 2)] == [
        "04 01 00 00 02 00 00 00 00 00 00 00 78 79",
        "03 00 00 01 00 00 00 00 01 00 00 00 7a",
    ]
