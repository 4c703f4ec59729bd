"""Ready aggregates: how a micro-batch is folded by key, and how that is added to what is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate_contract.errors import JobInvalid

Column = pa.ChunkedArray | pa.Array


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One stored column of an aggregate: `fold` is pyarrow's name of its grouped form, `merge` adds two of them."""

    suffix: str
    column: str | None
    fold: str
    merge: str
    type_of: Callable[[pa.DataType | None], pa.DataType]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over one column; made by count, sum, min, max and avg."""

    kind: str
    column: str | None
    accumulators: tuple[Accumulator, ...]

    def result(self, stored: list[Any]) -> Any:
        """The aggregate's value, out of its accumulators' columns."""
        if self.kind == "avg":
            total, number = (pc.cast(column, pa.float64()) for column in stored)
            return pc.divide(total, pc.if_else(pc.equal(number, 0), None, number))
        return stored[0]

    def result_type(self, input_type: pa.DataType | None) -> pa.DataType:
        return pa.float64() if self.kind == "avg" else self.accumulators[0].type_of(input_type)


def _same(input_type: pa.DataType | None) -> pa.DataType:
    assert input_type is not None
    return input_type


def _wide(input_type: pa.DataType | None) -> pa.DataType:
    """What a sum over a column is kept in."""
    assert input_type is not None
    if pa.types.is_integer(input_type):
        return pa.int64()
    if pa.types.is_floating(input_type):
        return pa.float64()
    if pa.types.is_decimal(input_type):
        return pa.decimal128(38, input_type.scale)
    raise JobInvalid(f"a column of type {input_type} cannot be summed", hint="cast it to a number before key_by")


def _count_type(_: pa.DataType | None) -> pa.DataType:
    return pa.int64()


def _named(kind: str, column: str) -> str:
    if not isinstance(column, str) or not column:
        raise JobInvalid(f"{kind} needs the name of a column, not {column!r}")
    return column


def count(column: str | None = None) -> Aggregate:
    """How many records the key has had; with a column, how many of them had a value there."""
    fold = "count_all" if column is None else "count"
    return Aggregate("count", column, (Accumulator("", column, fold, "add", _count_type),))


def sum(column: str) -> Aggregate:
    """The sum of a column; null while every value was null. An overflow fails the stream."""
    return Aggregate("sum", _named("sum", column), (Accumulator("", column, "sum", "add", _wide),))


def min(column: str) -> Aggregate:
    """The least value of a column."""
    return Aggregate("min", _named("min", column), (Accumulator("", column, "min", "min", _same),))


def max(column: str) -> Aggregate:
    """The greatest value of a column."""
    return Aggregate("max", _named("max", column), (Accumulator("", column, "max", "max", _same),))


def avg(column: str) -> Aggregate:
    """The mean of a column's values."""
    return Aggregate(
        "avg",
        _named("avg", column),
        (
            Accumulator("_sum", column, "sum", "add", _wide),
            Accumulator("_count", column, "count", "add", _count_type),
        ),
    )


def merge(how: str, stored: Column, folded: Column, kind: pa.DataType) -> Any:
    """Add a batch's folded column to the stored one; null is nothing on either side."""
    if how == "min":
        return pc.min_element_wise(stored, folded)
    if how == "max":
        return pc.max_element_wise(stored, folded)
    if stored.null_count == len(stored):
        return pc.cast(folded, kind)
    total = pc.add_checked(stored, folded)
    if total.null_count:
        total = pc.coalesce(total, stored, folded)
    return pc.cast(total, kind)
