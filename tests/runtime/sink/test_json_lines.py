"""Each Arrow type as JSON: strict JSON always, and what a reader gets back."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sink.json_lines import JsonLines
from tests.runtime.sink.world import CALM


def lines(column: pa.Array) -> list[str]:
    rows = pa.RecordBatch.from_arrays([column], names=["v"])
    return list(JsonLines(rows.schema).encode(rows))


def far(kind: pa.DataType, number: int) -> pa.Array:
    """A moment that Python's own types cannot hold."""
    return pa.array([number], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)


UTC = dt.UTC
CASES: list[tuple[pa.Array, str]] = [
    (pa.array([True]), "true"),
    (pa.array([2**63 - 1]), "9223372036854775807"),
    (pa.array([0.1]), "0.1"),
    (pa.array([float("nan")]), '"NaN"'),
    (pa.array([float("-inf")]), '"-Infinity"'),
    (pa.array([float("inf")]), '"Infinity"'),
    (pa.array([Decimal("12345678901234567890.10")]), "12345678901234567890.10"),
    (pa.array([Decimal("0.00000001")]), "0.00000001"),
    (pa.array(['a "b" \\ \n ü €']), '"a \\"b\\" \\\\ \\n ü €"'),
    (pa.array(["x"]).dictionary_encode(), '"x"'),
    (pa.array([b"\x00\xff"]), '"AP8="'),
    (pa.array([dt.date(2024, 2, 29)]), '"2024-02-29"'),
    (pa.array([dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)]), '"2024-02-29T01:02:03.000004+00:00"'),
    (pa.array([dt.datetime(2024, 2, 29)]), '"2024-02-29T00:00:00"'),  # noqa: DTZ001 - a column without a zone
    (far(pa.date32(), 2_932_897), '"10000-01-01"'),
    (far(pa.date32(), 2**31 - 1), '"5881580-07-11"'),
    (far(pa.date64(), 253402300800000), '"10000-01-01T00:00:00.000"'),
    (far(pa.timestamp("us", "UTC"), 2**63 - 1), '"294247-01-10T04:00:54.775807+00:00"'),
    (far(pa.timestamp("us"), -62135596800000001), '"0000-12-31T23:59:59.999999"'),
    (pa.ListArray.from_arrays([0, 1], far(pa.date32(), 2_932_897)), '["10000-01-01"]'),
    (pa.StructArray.from_arrays([far(pa.date32(), 2_932_897)], ["d"]), '{"d":"10000-01-01"}'),
    (pa.MapArray.from_arrays([0, 1], ["a"], far(pa.date32(), 2_932_897)), '{"a":"10000-01-01"}'),
    (pa.array([dt.time(1, 2, 3)]), '"01:02:03"'),
    (pa.array([dt.timedelta(days=1, seconds=1)]), '"1 day, 0:00:01"'),
    (pa.array([[1, None]]), "[1,null]"),
    (pa.array([[1.0, float("nan")]], pa.list_(pa.float64(), 2)), '[1.0,"NaN"]'),
    (pa.array([{"a": 1, "b": None}]), '{"a":1,"b":null}'),
    (pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int64())), '{"k":1,"l":null}'),
    (pa.array([[(7, [True])]], pa.map_(pa.int64(), pa.list_(pa.bool_()))), '{"7":[true]}'),
    (pa.nulls(1), "null"),
    (pa.array([None], pa.int64()), "null"),
]


@pytest.mark.parametrize(("column", "text"), CASES, ids=[f"{n}-{column.type}" for n, (column, _) in enumerate(CASES)])
def test_a_value_is_spelled_as_spark_reads_it(column: pa.Array, text: str) -> None:
    (line,) = lines(column)
    assert line == '{"v":' + text + "}\n"
    json.loads(line, parse_constant=pytest.fail)


FLAT = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "s": st.text(),
    "f": st.floats(allow_nan=False, allow_infinity=False),
}
VALUES = st.recursive(
    st.fixed_dictionaries(FLAT),
    lambda inner: st.fixed_dictionaries({"inner": inner, "many": st.lists(st.text(), max_size=3)}),
    max_leaves=3,
)


@CALM
@given(VALUES)
def test_structs_and_lists_come_back_as_they_were(value: dict[str, Any]) -> None:
    (line,) = lines(pa.array([value]))
    assert json.loads(line) == {"v": value}
    assert line.count("\n") == 1
