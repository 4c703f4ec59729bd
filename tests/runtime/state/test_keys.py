"""Equality and fingerprints of keys."""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.keys import equal_rows, fingerprint, flatten, take_columns
from tests.runtime.state.typed import KEY_SAMPLES, array_of

CONTEXT = decimal.Context(prec=50)
TYPES = [pytest.param(type, id=str(type)) for type in KEY_SAMPLES]


@pytest.mark.parametrize("type", TYPES)
def test_a_key_equals_itself_and_no_other(type: pa.DataType) -> None:
    column = array_of(type, KEY_SAMPLES[type])
    rows = len(column)
    left = column.take(pa.array(np.repeat(np.arange(rows), rows)))
    right = column.take(pa.array(np.tile(np.arange(rows), rows)))
    equal = equal_rows(flatten([left]), flatten([right])).reshape(rows, rows)
    expected = np.eye(rows, dtype=bool)
    expected[0, -1] = expected[-1, 0] = True  # null stands at both ends
    assert equal.tolist() == expected.tolist()


@pytest.mark.parametrize("type", TYPES)
def test_fingerprints_of_different_keys_differ(type: pa.DataType) -> None:
    column = array_of(type, KEY_SAMPLES[type])
    prints = fingerprint(flatten([column]), len(column)).tolist()
    assert prints[0] == prints[-1], "null at both ends"
    assert len(set(prints)) == len(prints) - 1


@pytest.mark.parametrize("type", TYPES)
def test_a_fingerprint_does_not_depend_on_the_rest_of_the_batch(type: pa.DataType) -> None:
    column = array_of(type, KEY_SAMPLES[type])
    whole = fingerprint(flatten([column]), len(column)).tolist()
    alone = [int(fingerprint(flatten([column[i : i + 1]]), 1)[0]) for i in range(len(column))]
    copied = [int(fingerprint(flatten([column.take(pa.array([i]))]), 1)[0]) for i in range(len(column))]
    assert whole == alone == copied


def test_the_order_of_columns_counts() -> None:
    one, two = pa.array([1]), pa.array([2])
    assert fingerprint([one, two], 1) != fingerprint([two, one], 1)
    assert equal_rows([one, two], [one, one]).tolist() == [False]


def test_fingerprints_are_frozen_into_stored_segments() -> None:
    """They are part of the segment format: changed numbers need a new format version."""
    columns = [
        pa.array([7, None, -1], pa.int32()),
        pa.array(["a", "b" * 40, None]),
        pa.array([0.5, -0.0, float("nan")]),
    ]
    assert fingerprint(columns, 3).tolist() == [by_the_book(row) for row in zip(*columns, strict=True)]
    assert fingerprint(columns, 3).tolist() == [8683274897689227609, 7314502278318161837, 2878717610088016611]


@pytest.mark.parametrize("type", TYPES)
def test_fingerprints_are_what_the_format_says(type: pa.DataType) -> None:
    column = array_of(type, KEY_SAMPLES[type])
    columns = flatten([column])
    assert fingerprint(columns, len(column)).tolist() == [by_the_book(row) for row in zip(*columns, strict=True)]


def by_the_book(row: Sequence[pa.Scalar]) -> int:
    """The fingerprint of one row, from the words of the format's description."""
    h = 0
    for scalar in row:
        for word in words(scalar):
            h = (h ^ word) * 0x9E3779B97F4A7C15 % 2**64
            h ^= h >> 32
    return h - 2**64 if h >= 2**63 else h


def words(scalar: pa.Scalar) -> list[int]:
    if not scalar.is_valid:
        return [0x6E756C6C]
    if pa.types.is_floating(scalar.type):
        value = scalar.as_py()
        return [0x7FF8000000000000 if math.isnan(value) else int.from_bytes(struct.pack("<d", value + 0.0), "little")]
    if pa.types.is_decimal(scalar.type):
        whole = int(scalar.as_py().scaleb(scalar.type.scale, CONTEXT)) % 2**128
        return [whole % 2**64, whole >> 64]
    if isinstance(scalar.as_py(), str | bytes):
        data = scalar.as_py().encode() if isinstance(scalar.as_py(), str) else scalar.as_py()
        ends = data[:32] if len(data) <= 32 else [*little_endian(data[:32]), *little_endian(data[-32:])]
        return [len(data), *(little_endian(ends) if isinstance(ends, bytes) else ends)]
    integer = scalar.cast(pa.int8()) if pa.types.is_boolean(scalar.type) else scalar
    return [int(integer.as_py() if isinstance(integer.as_py(), int) else integer.value) % 2**64]


def little_endian(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def test_zeros_of_either_sign_are_one_and_all_nans() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    for left, right in ((0.0, -0.0), nans):
        columns = pa.array([left, right])
        assert equal_rows([columns[:1]], [columns[1:]]).tolist() == [True]
        assert len(set(fingerprint([columns], 2).tolist())) == 1


def test_contiguous_rows_are_taken_without_a_copy() -> None:
    column = pa.array(range(100))
    (taken,) = take_columns([column], np.arange(10, 20))
    assert taken.buffers()[1].address == column.buffers()[1].address
    (picked,) = take_columns([column], np.array([3, 3, 5]))
    assert picked.to_pylist() == [3, 3, 5]
    (empty,) = take_columns([column], np.empty(0, np.int64))
    assert len(empty) == 0
