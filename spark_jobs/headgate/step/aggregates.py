"""Ready aggregates: how a micro-batch is folded by key, and how that is added to what is stored."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate_contract.errors import JobInvalid


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One stored column of an aggregate: `fold` is pyarrow's name of its grouped form, `merge` adds two of them."""

    suffix: str
    column: str | None
    fold: str
    merge: str
    type_of: Callable[[pa.DataType | None], pa.DataType]

    @property
    def meaning(self) -> str:
        """What the stored column adds up: equal ones may take each other's place. The fold implies `merge`."""
        return f"{self.fold}({self.column or ''})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over one column; made by count, sum, min, max and avg."""

    kind: str
    column: str | None
    accumulators: tuple[Accumulator, ...]

    def result(self, stored: list[Any]) -> Any:
        """The aggregate's value, out of its accumulators' columns."""
        if self.kind == "avg":
            total, number = (pc.cast(column, pa.float64(), safe=False) for column in stored)  # rounds beyond 2**53
            return pc.divide(total, pc.if_else(pc.equal(number, 0), None, number))
        return stored[0]


def _ordered(input_type: pa.DataType | None) -> pa.DataType:
    """What a least or greatest value is kept in: the column's own type."""
    assert input_type is not None
    if pa.types.is_nested(input_type) or pa.types.is_null(input_type) or pa.types.is_dictionary(input_type):
        raise JobInvalid(
            f"a column of type {input_type} has no least or greatest value", hint="take a plain column of it"
        )
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
    return Aggregate("min", _named("min", column), (Accumulator("", column, "min", "min", _ordered),))


def max(column: str) -> Aggregate:
    """The greatest value of a column."""
    return Aggregate("max", _named("max", column), (Accumulator("", column, "max", "max", _ordered),))


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


def prepare(accumulator: Accumulator, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type in which Arrow folds it rightly.

    Arrow's grouped sum wraps around without a word: where the greatest value times the number of rows might not fit,
    the sum is taken in a wider type, and the cast back tells. Some types Arrow can order only as numbers.
    """
    if accumulator.fold in ("min", "max"):
        return column.cast(_comparable(column.type))
    if accumulator.fold == "sum" and not pa.types.is_floating(column.type):
        return column.cast(_wide_enough(column))
    return column


def merge(how: str, stored: Any, folded: Any, kind: pa.DataType) -> Any:
    """Add a batch's folded column to the stored one; null is nothing on either side. An overflow is ArrowInvalid."""
    if how in ("min", "max"):
        choose = pc.min_element_wise if how == "min" else pc.max_element_wise
        plain = _comparable(kind)
        return pc.cast(choose(stored.cast(plain), folded.cast(plain)), kind)
    if stored.null_count == len(stored):
        return pc.cast(folded, kind)
    if pa.types.is_decimal(kind):  # Arrow refuses to add two of the greatest precision
        stored, folded = (column.cast(pa.decimal256(kind.precision, kind.scale)) for column in (stored, folded))
    total = pc.add_checked(stored, folded)
    if total.null_count:
        total = pc.coalesce(total, stored.cast(total.type), folded.cast(total.type))
    return pc.cast(total, kind)


def _comparable(kind: pa.DataType) -> pa.DataType:
    """The type in which Arrow compares values of `kind`."""
    as_number = pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return pa.int64() if as_number else kind


def _wide_enough(column: pa.ChunkedArray) -> pa.DataType:
    """A type that holds the sum of any of the column's values."""
    bounds = pc.min_max(column)
    if not bounds["min"].is_valid:
        return column.type
    greatest = builtins.max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    if pa.types.is_integer(column.type):
        return column.type if greatest * len(column) < 2**63 else pa.decimal128(38, 0)
    most = Decimal(10) ** (38 - column.type.scale)
    return column.type if greatest * len(column) < most else pa.decimal256(76, column.type.scale)
