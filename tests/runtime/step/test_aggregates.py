"""Ready aggregates against a plain dict: any rows, split into micro-batches anyhow, over any number of subtasks."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate
from headgate.state.descriptors import check_restorable
from headgate.state.errors import StateMigrationError
from headgate.step.aggregates import Aggregate
from headgate.step.operators import AggregateOperator
from headgate_contract.errors import BatchFailed, HeadgateError, JobInvalid, RestoreRefused
from tests.runtime.step.vertex import Vertex, scratch

BACKENDS = ("hashmap", "rocksdb")
ROWS = pa.schema(
    {
        "shop": pa.string(),
        "day": pa.int32(),
        "flag": pa.bool_(),
        "born": pa.date32(),
        "i": pa.int64(),
        "small": pa.int16(),
        "f": pa.float64(),
        "d": pa.decimal128(10, 2),
        "s": pa.string(),
        "t": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "b": pa.bool_(),
        "date": pa.date32(),
        "raw": pa.binary(),
    }
)
_NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_VALUES: dict[str, Sequence[Any]] = {
    "shop": ["", "a", "b", "ä long name that is stored apart from the others"],
    "day": [-1, 0, 2**31 - 1],
    "flag": [True, False],
    "born": [dt.date(1900, 1, 1), dt.date(2000, 1, 1)],
    "i": [None, 0, -7, 5, 2**40],
    "small": [None, -300, 300],
    "f": [None, 0.5, -1.25, 1e9],
    "d": [None, Decimal("0.00"), Decimal("-99999999.99"), Decimal("12.34")],
    "s": [None, "", "x", "äö", "a longer text than that"],
    "t": [None, _NOON, _NOON - dt.timedelta(days=40_000)],
    "local": [None, _NOON.replace(tzinfo=None)],
    "b": [None, True, False],
    "date": [None, dt.date(1969, 1, 1), dt.date(2026, 5, 5)],
    "raw": [None, b"", b"\0", b"\xff\0"],
}
Row = dict[str, Any]
rows = st.lists(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in _VALUES.items()}), max_size=40)
AGGREGATES: dict[str, Aggregate] = {
    "n": headgate.count(),
    "with_i": headgate.count("i"),
    "sum_i": headgate.sum("i"),
    "sum_small": headgate.sum("small"),
    "sum_f": headgate.sum("f"),
    "sum_d": headgate.sum("d"),
    "avg_i": headgate.avg("i"),
    "avg_d": headgate.avg("d"),
    **{f"min_{column}": headgate.min(column) for column in list(_VALUES)[4:]},
    **{f"max_{column}": headgate.max(column) for column in list(_VALUES)[4:]},
}


def expected(name: str, history: list[Row]) -> Any:
    """The aggregate `name` of all rows of a key, in plain Python."""
    aggregate = AGGREGATES[name]
    if aggregate.column is None:
        return len(history)
    values = [row[aggregate.column] for row in history if row[aggregate.column] is not None]
    if aggregate.kind == "count":
        return len(values)
    if not values:
        return None
    plain: dict[str, Callable[[list[Any]], Any]] = {
        "sum": sum,
        "min": min,
        "max": max,
        "avg": lambda numbers: float(sum(numbers)) / len(numbers),
    }
    return plain[aggregate.kind](values)


def same(got: Any, wanted: Any) -> bool:
    """Floats are added in another order than here."""
    if isinstance(wanted, float) and got is not None:
        return math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-6)
    return bool(got == wanted)


def check_against_the_model(
    backend: str, keys: tuple[str, ...], batches: list[list[Row]], parallelism: int, chunks: int
) -> None:
    histories: dict[tuple[Any, ...], list[Row]] = {}
    with scratch() as directory:
        vertex = Vertex(AggregateOperator.of("counts", keys, AGGREGATES), keys, backend, directory, parallelism)
        for batch in batches:
            for row in batch:
                histories.setdefault(tuple(row[key] for key in keys), []).append(row)
            out = vertex.batch(pa.Table.from_pylist(batch, schema=ROWS), chunks)
            touched = {tuple(row[key] for key in keys) for row in batch}
            assert sorted(tuple(row[key] for key in keys) for row in out) == sorted(touched), "a row for a key"
            for row in out:
                history = histories[tuple(row[key] for key in keys)]
                for name in AGGREGATES:
                    wanted = expected(name, history)
                    assert same(row[name], wanted), f"{name} of {row}: {wanted} was expected"


CALM = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
keys = st.sampled_from([("shop",), ("day", "shop"), ("shop", "day", "flag"), ("born",)])


def split(given: list[Row], sizes: list[int]) -> list[list[Row]]:
    """The rows as micro-batches of these sizes, some of them empty; the last takes the rest."""
    batches, at = [], 0
    for size in sizes:
        batches.append(given[at : at + size])
        at += size
    return [*batches, given[at:]]


class TestAgainstTheModel:
    @settings(CALM, max_examples=40)
    @given(rows, st.lists(st.integers(0, 12), max_size=4), keys, st.integers(1, 3), st.integers(1, 3))
    def test_hashmap(
        self, given: list[Row], sizes: list[int], keys: tuple[str, ...], parallelism: int, chunks: int
    ) -> None:
        self.check("hashmap", given, sizes, keys, parallelism, chunks)

    @settings(CALM, max_examples=8)
    @given(rows, st.lists(st.integers(0, 12), max_size=3), keys, st.integers(1, 2))
    def test_rocksdb(self, given: list[Row], sizes: list[int], keys: tuple[str, ...], parallelism: int) -> None:
        self.check("rocksdb", given, sizes, keys, parallelism, 1)

    def check(
        self, backend: str, given: list[Row], sizes: list[int], keys: tuple[str, ...], parallelism: int, chunks: int
    ) -> None:
        check_against_the_model(backend, keys, split(given, sizes), parallelism, chunks)


def one_key(
    aggregates: dict[str, Aggregate], kind: pa.DataType, *batches: Sequence[Any], backend: str = "hashmap"
) -> list[Row]:
    """What leaves the step after each batch of values `v` of one key."""
    with scratch() as directory:
        vertex = Vertex(AggregateOperator.of("counts", ("k",), aggregates), ("k",), backend, directory)
        return [
            vertex.batch(pa.table({"k": ["a"] * len(values), "v": pa.array(values, kind)}))[0] for values in batches
        ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sum_of_decimals_grows_over_batches(backend: str) -> None:
    """Arrow gives the sum of two decimals of 38 digits 39 of them, which no decimal has."""
    out = one_key(
        {"x": headgate.sum("v")}, pa.decimal128(38, 2), [Decimal("1.10")], [None], [Decimal("2.20")], backend=backend
    )
    assert [row["x"] for row in out] == [Decimal("1.10"), Decimal("1.10"), Decimal("3.30")]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 2**62),
        (pa.int64(), -(2**62) - 1),
        (pa.decimal128(38, 0), Decimal("5e37")),
        (pa.decimal128(20, 18), Decimal("99.000000000000000001")),
    ],
    ids=["int", "negative int", "decimal", "a decimal that fits"],
)
@pytest.mark.parametrize("in_one_batch", [True, False], ids=["in one batch", "over two batches"])
def test_a_sum_that_overflows_fails_the_batch_and_never_wraps_around(
    kind: pa.DataType, value: Any, in_one_batch: bool
) -> None:
    batches = [[value, value, None]] if in_one_batch else [[value], [value]]
    if pa.types.is_decimal(kind) and kind.scale:
        assert one_key({"x": headgate.sum("v")}, kind, *batches)[-1]["x"] == 2 * value
        return
    with pytest.raises(BatchFailed, match=rf"^step 'counts': x=sum\('v'\) overflows {re.escape(str(kind))}: "):
        one_key({"x": headgate.sum("v")}, kind, *batches)


def test_a_large_sum_that_fits_is_exact() -> None:
    out = one_key({"x": headgate.sum("v"), "y": headgate.avg("v")}, pa.int64(), [2**62, 2**62 - 1], [-(2**61)])
    assert [row["x"] for row in out] == [2**63 - 1, 2**63 - 1 - 2**61]


def test_values_that_were_all_null_are_null_and_count_nothing() -> None:
    out = one_key(
        {"n": headgate.count(), "x": headgate.sum("v"), "y": headgate.avg("v"), "z": headgate.min("v")},
        pa.int64(),
        [None, None],
        [3],
    )
    assert out == [
        {"k": "a", "n": 2, "x": None, "y": None, "z": None},
        {"k": "a", "n": 3, "x": 3, "y": 3.0, "z": 3},
    ]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_least_or_greatest_only_where_nothing_else_is(kind: pa.DataType) -> None:
    nan = float("nan")
    out = one_key({"low": headgate.min("v"), "high": headgate.max("v")}, kind, [nan], [1.0, nan], [nan], [-2.0])
    assert math.isnan(out[0]["low"])
    assert [(row["low"], row["high"]) for row in out[1:]] == [(1.0, 1.0), (1.0, 1.0), (-2.0, 1.0)]


ORDERED: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), False, True),
    "duration": (pa.duration("us"), dt.timedelta(seconds=1), dt.timedelta(days=2)),
    "time": (pa.time64("us"), dt.time(1), dt.time(2)),
    "date": (pa.date32(), dt.date(1960, 1, 1), dt.date(2026, 1, 1)),
    "timestamp": (pa.timestamp("us", "UTC"), _NOON, _NOON + dt.timedelta(microseconds=1)),
    "int8": (pa.int8(), -128, 127),
    "binary": (pa.binary(), b"", b"\0"),
    "decimal": (pa.decimal128(38, 10), Decimal("-1.5"), Decimal("1.5")),
}


@pytest.mark.parametrize("name", ORDERED)
def test_min_and_max_order_every_plain_type(name: str) -> None:
    kind, low, high = ORDERED[name]
    out = one_key({"low": headgate.min("v"), "high": headgate.max("v")}, kind, [low, high], [None], [high], [low])
    assert [(row["low"], row["high"]) for row in out] == [(low, high)] * 4


def test_two_aggregates_of_one_column_and_odd_names_do_not_disturb_each_other() -> None:
    aggregates = {"value 0": headgate.sum("v"), "hash_min": headgate.min("v"), "v": headgate.max("v")}
    assert one_key(aggregates, pa.int64(), [1, 2])[0] == {"k": "a", "value 0": 3, "hash_min": 1, "v": 2}


def test_a_key_may_be_called_what_arrow_would_call_a_fold() -> None:
    with scratch() as directory:
        operator = AggregateOperator.of("counts", ("v_sum",), {"x": headgate.sum("v")})
        vertex = Vertex(operator, ("v_sum",), "hashmap", directory)
        assert vertex.batch(pa.table({"v_sum": ["a"], "v": [5]})) == [{"v_sum": "a", "x": 5}]


SCHEMA = pa.schema(
    {"k": pa.string(), "v": pa.string(), "items": pa.list_(pa.int64()), "who": pa.struct({"a": pa.int64()})}
)


@pytest.mark.parametrize(
    ("keys", "aggregates", "message"),
    [
        (("k",), {}, "aggregate 'counts' keeps nothing"),
        (("k",), {"n": 5}, "aggregate 'counts': n=5 is not one of headgate.count, sum, min, max, avg"),
        (("k",), {"k": headgate.count()}, "aggregate 'counts': 'k' is a key's name as well"),
        (
            ("k",),
            {"x": headgate.avg("v"), "x_sum": headgate.count()},
            "aggregate 'counts' would keep two columns called 'x_sum'",
        ),
        (("x_count",), {"x": headgate.avg("v")}, "aggregate 'counts' would keep two columns called 'x_count'"),
        (("user",), {"n": headgate.count()}, "key_by of 'counts': there is no column 'user'"),
        (("k",), {"x": headgate.sum("price")}, r"'counts': x=sum\('price'\): there is no column 'price'"),
        (("k",), {"x": headgate.sum("v")}, "a column of type string cannot be summed"),
        (("k",), {"x": headgate.avg("v")}, "a column of type string cannot be summed"),
        (("k",), {"x": headgate.min("items")}, r"a column of type list<.*> has no least or greatest value"),
        (("who",), {"n": headgate.count()}, r"key_by of 'counts': the column 'who' is of type struct<.*>"),
        (("items",), {"n": headgate.count()}, r"key_by of 'counts': the column 'items' is of type list<.*>"),
    ],
)
def test_what_cannot_be_aggregated_is_refused_before_it_runs(
    keys: tuple[str, ...], aggregates: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobInvalid, match=message):
        AggregateOperator.of("counts", keys, aggregates).check(keys, SCHEMA)


@pytest.mark.parametrize("make", [headgate.sum, headgate.min, headgate.max, headgate.avg])
@pytest.mark.parametrize("column", [None, "", 5])
def test_an_aggregate_needs_the_name_of_a_column(make: Any, column: Any) -> None:
    with pytest.raises(HeadgateError, match=f"{make.__name__} needs the name of a column, not {column!r}"):
        make(column)


def test_an_aggregate_reads_no_more_columns_than_it_needs() -> None:
    operator = AggregateOperator.of(
        "counts", ("k",), {"n": headgate.count(), "x": headgate.sum("v"), "y": headgate.avg("v")}
    )
    assert operator.needed(("k",)) == ("k", "v")
    assert operator.state_names == ["aggregates"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (headgate.min("v"), headgate.max("v"), r"column 'x' holds is min\(v\) in the snapshot and max\(v\) in the job"),
        (headgate.count("v"), headgate.count("w"), r"column 'x' holds is count\(v\) in .* and count\(w\) in the job"),
        (headgate.count(), headgate.sum("v"), r"column 'x' holds is count_all\(\) in .* and sum\(v\) in the job"),
    ],
)
def test_an_aggregate_does_not_go_on_from_what_another_one_stored(
    backend: str, was: Aggregate, now: Aggregate, told: str
) -> None:
    rows = pa.table({"k": [1, 2], "v": [5, 6], "w": [5, None]})
    with scratch() as directory:
        vertex = Vertex(AggregateOperator.of("counts", ("k",), {"x": was}), ("k",), backend, directory, 1)
        vertex.batch(rows)
        vertex.operator = AggregateOperator.of("counts", ("k",), {"x": now})
        with pytest.raises(StateMigrationError, match=told):
            vertex.batch(rows)
        stored = vertex.versions[0]["descriptors"]
        with pytest.raises(RestoreRefused, match=told):
            check_restorable("counts", stored, vertex.operator.descriptors(("k",), rows.schema))
        check_restorable(
            "counts", stored, AggregateOperator.of("c", ("k",), {"x": was}).descriptors(("k",), rows.schema)
        )


def test_an_average_may_become_the_sum_and_the_count_that_it_keeps() -> None:
    rows = pa.table({"k": [1], "v": [5]})
    average, parts = {"x": headgate.avg("v")}, {"x_sum": headgate.sum("v"), "x_count": headgate.count("v")}
    with scratch() as directory:
        vertex = Vertex(AggregateOperator.of("counts", ("k",), average), ("k",), "hashmap", directory, 1)
        vertex.batch(rows)
        vertex.operator = AggregateOperator.of("counts", ("k",), parts)
        assert vertex.batch(rows) == [{"k": 1, "x_sum": 10, "x_count": 2}]
