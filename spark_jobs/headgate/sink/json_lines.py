"""Arrow batches as JSON lines, in the forms that Spark reads back.

Moments, dates and times are ISO 8601, binary is base64, decimals are numbers with all their digits, structs and maps
are objects, NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity", null is null.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring as _quote
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

Spell = Callable[[Any], str]
"""Turns a value of one Arrow type, never null, into JSON text."""


class JsonLines:
    """Encodes batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [(_quote(field.name) + ":", spell_of(field.type)) for field in schema]

    def encode(self, rows: pa.RecordBatch) -> Iterator[str]:
        """One line for each row, with its newline."""
        columns = [
            [head + ("null" if value is None else spell(value)) for value in values(column, _as_number)]
            for (head, spell), column in zip(self._columns, rows.columns, strict=True)
        ]
        for cells in zip(*columns, strict=True):
            yield "{" + ",".join(cells) + "}\n"


def values(column: pa.Array, instead: Callable[[pa.DataType], pa.DataType]) -> list[Any]:
    """The column's values; `instead` of a column of moments beyond Python's years 1 to 9999 the values of that type."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = column.cast(_without_moments(column.type, instead)).to_pylist()
    return found


def _without_moments(kind: pa.DataType, instead: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_without_moments(field.type, instead))

    if types.is_timestamp(kind) or types.is_date(kind):
        return instead(kind)
    if types.is_struct(kind):
        return pa.struct([inner(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(inner(kind.value_field))
    if types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    return kind


def _as_number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if types.is_date32(kind) else pa.int64()


def spell_of(kind: pa.DataType) -> Spell:
    """How values of `kind` are spelled."""
    if types.is_timestamp(kind) or types.is_date(kind):
        return _moment(kind)
    for holds, spell in _SCALARS:
        if holds(kind):
            return spell
    if types.is_dictionary(kind):
        return spell_of(kind.value_type)
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_map(kind):
        return _map(kind)
    if types.is_nested(kind):
        return _list(kind)
    return lambda value: _quote(str(value))


def _number(value: float) -> str:
    if math.isfinite(value):
        return float.__repr__(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _moment(kind: pa.DataType) -> Spell:
    unit: Any = kind.unit if types.is_timestamp(kind) else "D" if types.is_date32(kind) else "ms"
    zone = "+00:00" if types.is_timestamp(kind) and kind.tz is not None else ""

    def spell(value: Any) -> str:
        if isinstance(value, int):
            return _quote(f"{np.datetime64(value, unit)}{zone}")
        return _quote(value.isoformat())

    return spell


def _base64(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Spell], ...] = (
    (types.is_boolean, lambda value: "true" if value else "false"),
    (types.is_integer, str),
    (types.is_floating, _number),
    (types.is_decimal, lambda value: format(value, "f")),
    (types.is_time, lambda value: _quote(value.isoformat())),
    (_is_binary, _base64),
)


def _struct(kind: pa.DataType) -> Spell:
    fields = [(field.name, _quote(field.name) + ":", _nullable(field.type)) for field in kind]
    return lambda value: "{" + ",".join(head + spell(value[name]) for name, head, spell in fields) + "}"


def _map(kind: pa.DataType) -> Spell:
    key, item = spell_of(kind.key_type), _nullable(kind.item_type)

    def spell(pairs: list[tuple[Any, Any]]) -> str:
        return "{" + ",".join(f"{_as_key(key(name))}:{item(value)}" for name, value in pairs) + "}"

    return spell


def _as_key(text: str) -> str:
    """An object's key is a string, whatever the map's key is."""
    return text if text.startswith('"') else _quote(text)


def _list(kind: pa.DataType) -> Spell:
    item = _nullable(kind.value_type)
    return lambda values: "[" + ",".join(map(item, values)) + "]"


def _nullable(kind: pa.DataType) -> Spell:
    spell = spell_of(kind)
    return lambda value: "null" if value is None else spell(value)
