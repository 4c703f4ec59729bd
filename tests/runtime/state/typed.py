"""Arrow arrays of every type that state may hold, with hard values, nulls and odd offsets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_BYTES = [b"", b"\0", b"\0\0", b"\0\xff", b"\xff", b"a", b"a\0", b"a\0b", b"b" * 31, b"b" * 32, b"b" * 33, b"c" * 70]

KEY_SAMPLES: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-(2**15), -1, 0, 2**15 - 1],
    pa.int32(): [-(2**31), -1, 0, 2**31 - 1],
    pa.int64(): [-(2**63), -(2**40), -1, 0, 1, 2**40, 2**63 - 1],
    pa.uint8(): [0, 1, 255],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): [float("-inf"), -1.5, -1e-40, 0.0, 1e-40, 2.5, float("inf"), float("nan")],
    pa.float64(): [float("-inf"), -1e300, -1.5, 0.0, 5e-324, 2.5, float("inf"), float("nan")],
    pa.decimal128(38, 2): [Decimal("-9" * 1 + "9" * 35 + ".99"), Decimal("-0.01"), Decimal("0.00"), Decimal("12.34")],
    pa.date32(): [dt.date(1900, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 2, 3)],
    pa.time64("us"): [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): [dt.datetime(1969, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)],  # noqa: DTZ001
    pa.timestamp("us", "UTC"): [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    pa.duration("ms"): [dt.timedelta(-1), dt.timedelta(0), dt.timedelta(days=4)],
    pa.string(): [value.decode("latin-1") for value in _BYTES],
    pa.large_string(): ["", "a", "ä", "z" * 40],
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.binary(3): [b"\0\0\0", b"abc", b"\xff\xff\xff"],
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]): [
        {"a": 1, "b": None},
        {"a": None, "b": {"c": None}},
        {"a": None, "b": {"c": ""}},
        {"a": None, "b": None},
    ],
}

VALUE_SAMPLES: dict[pa.DataType, Sequence[Any]] = {
    **KEY_SAMPLES,
    pa.list_(pa.int64()): [[], [None], [1, 2, 3], [2**62] * 100],
    pa.map_(pa.string(), pa.float64()): [[], [("a", 1.0), ("b", None)]],
    pa.list_(pa.list_(pa.string())): [[], [None, []], [["a"], ["b", None]]],
}


def array_of(type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The values and a null at either end, in an array that is a slice of a longer one."""
    return pa.array([values[-1], None, *values, None, values[0]], type)[1:-1]


def same_values(left: pa.Array, right: pa.Array) -> bool:
    """Equality in which NaN equals NaN."""
    if pa.types.is_floating(left.type):
        a, b = (array.to_numpy(zero_copy_only=False) for array in (left, right))
        return left.type == right.type and bool(np.array_equal(a, b, equal_nan=True))
    return bool(left.equals(right))
