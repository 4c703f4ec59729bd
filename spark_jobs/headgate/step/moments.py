"""Moments in a step are in UTC: what state and sinks hold does not depend on the time zone of the session."""

from __future__ import annotations

import pyarrow as pa


def in_utc(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same moments; the columns that carry another time zone carry UTC. Values are not touched."""
    schema = pa.schema([field.with_type(_utc(field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz is not None else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_utc(kind.key_type)), kind.item_field.with_type(_utc(kind.item_type)))
    return kind
