"""The bytes of one entry in an ordered key-value store (the `rocksdb` backend): format 1.

Key, injective, and in the order of (key group, hash, columns):

    key group   2 bytes, big-endian
    hash        8 bytes, big-endian, sign bit flipped
    columns     the key columns, then the namespace (nothing for the void one), then the map-key columns

A column is one byte, 1, or 0 for null, and then
    boolean, integers, dates, times, timestamps, durations    big-endian in the type's width, sign bit flipped if signed
    floats           big-endian bits; the sign bit flipped if positive, all bits if negative; one zero, one NaN
    decimal          16 bytes big-endian, sign bit flipped
    fixed binary     its bytes
    strings, binary  each 0x00 as 0x00 0xff, then 0x00 0x00
A null of a fixed width has zeros behind its 0; a null string has nothing. A struct is its validity, as a boolean that
is never null, and its fields. A column says itself where it ends, so the key columns are a prefix of their map entries.

Value:

    nulls       one bit per column, least significant first, set for null
    fixed       the columns of fixed width, as Arrow has them, little-endian (a boolean is one byte); zeros for null
    lengths     4 bytes, little-endian, for each further column
    data        the further columns: strings and binaries as they are; lists, maps and structs as the Arrow IPC message
                (no schema) of a record batch with this one column and row; nothing for null
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.state.key_groups import Hashes, key_group
from headgate.state.keys import byte_ranges, doubles, fixed_bytes, flatten, integers, is_bytes_like

CODEC_FORMAT = 1
Matrix = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.unsignedinteger]
Offsets = npt.NDArray[np.int64]
PREFIX = 10


def encode_keys(hashes: Hashes, columns: Sequence[pa.Array], max_parallelism: int) -> list[bytes]:
    """The stored key of each row: `columns` are key columns, namespace if there is one, map-key columns."""
    groups = key_group(hashes, max_parallelism).astype(">u2")
    prefix = np.concatenate([_bytes_of(groups, 2), _bytes_of(_ordered(hashes, 8), 8)], axis=1)
    return _join_rows(len(hashes), [prefix, *(_encode_column(column) for column in flatten(columns))])


def decode_hashes(keys: Sequence[bytes]) -> Hashes:
    joined = np.frombuffer(b"".join(key[2:PREFIX] for key in keys), dtype=">u8")
    return _unordered(joined, 8)


def decode_keys(keys: Sequence[bytes], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns of stored keys, as Arrow arrays of these types."""
    reader = _KeyReader(keys)
    return [reader.read(type) for type in types]


def range_start(key_group: int) -> bytes:
    """The smallest possible key of a key group, and greater than all keys of the groups before it."""
    return key_group.to_bytes(2, "big")


def _encode_column(column: pa.Array) -> Matrix | list[bytes]:
    if is_bytes_like(column.type) and not pa.types.is_fixed_size_binary(column.type):
        values = column.cast(pa.large_binary()).to_pylist()
        return [b"\0" if value is None else b"\1" + value.replace(b"\0", b"\0\xff") + b"\0\0" for value in values]
    data = _ordered_bytes(column)
    marker = np.ones((len(column), 1), dtype=np.uint8)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        marker[:, 0] = valid
        data = np.where(valid[:, None], data, np.uint8(0))
    return np.concatenate([marker, data], axis=1)


def _ordered_bytes(column: pa.Array) -> Matrix:
    type, width = column.type, _width(column.type)
    if pa.types.is_decimal(type):
        data = fixed_bytes(column, width)[:, ::-1].copy()
        data[:, 0] ^= 0x80
        return data
    if pa.types.is_fixed_size_binary(type):
        return fixed_bytes(column, width)
    if pa.types.is_floating(type):
        bits = doubles(column).astype(f"<f{width}").view(f"<u{width}")
        sign = bits.dtype.type(1 << (8 * width - 1))
        flipped = np.where(bits & sign, ~bits, bits | sign)
        return _bytes_of(flipped.astype(f">u{width}"), width)
    values = integers(column)
    if _is_unsigned(type):
        return _bytes_of(values.view(np.uint64).astype(f">u{width}"), width)
    return _bytes_of(_ordered(values, width), width)


def _ordered(values: npt.NDArray[np.int64], width: int) -> Unsigned:
    unsigned: Unsigned = values.astype(f"<i{width}").view(f"<u{width}")
    flipped: Unsigned = unsigned ^ unsigned.dtype.type(1 << (8 * width - 1))
    return flipped.astype(f">u{width}")


def _unordered(values: Unsigned, width: int) -> npt.NDArray[np.int64]:
    unsigned: Unsigned = values.astype(f"<u{width}")
    flipped: Unsigned = unsigned ^ unsigned.dtype.type(1 << (8 * width - 1))
    return flipped.view(f"<i{width}").astype(np.int64)


def _is_unsigned(type: pa.DataType) -> bool:
    return bool(pa.types.is_unsigned_integer(type) or pa.types.is_boolean(type))


def _width(type: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(type) else int(type.bit_width) // 8


def _bytes_of(values: Unsigned, width: int) -> Matrix:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)


def _join_rows(rows: int, pieces: Sequence[Matrix | list[bytes]]) -> list[bytes]:
    """Row by row, the concatenation of the pieces; neighbouring matrices are joined as one."""
    columns: list[list[bytes]] = []
    fixed: list[Matrix] = []
    for piece in [*pieces, None]:
        if isinstance(piece, np.ndarray):
            fixed.append(piece)
            continue
        if fixed:
            columns.append(_rows_of(np.concatenate(fixed, axis=1), rows))
            fixed = []
        if piece is not None:
            columns.append(piece)
    return columns[0] if len(columns) == 1 else [b"".join(row) for row in zip(*columns, strict=True)]


def _rows_of(matrix: Matrix, rows: int) -> list[bytes]:
    width = matrix.shape[1]
    data = matrix.tobytes()
    return [data[at : at + width] for at in range(0, rows * width, width)]


class _KeyReader:
    """Reads the columns of many stored keys, one column after the other."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._joined = b"".join(keys)
        self._data = np.frombuffer(self._joined, dtype=np.uint8)
        lengths = np.fromiter((len(key) for key in keys), dtype=np.int64, count=len(keys))
        self._at: Offsets = np.cumsum(lengths) - lengths + PREFIX

    def read(self, type: pa.DataType) -> pa.Array:
        if pa.types.is_struct(type):
            valid = self.read(pa.bool_())
            fields = [self.read(field.type) for field in type]
            return pa.StructArray.from_arrays(fields, fields=list(type), mask=pc.invert(valid))
        if is_bytes_like(type) and not pa.types.is_fixed_size_binary(type):
            return self._read_bytes(type)
        width = _width(type)
        valid = self._data[self._at] == 1
        data = self._data[(self._at + 1)[:, None] + np.arange(width)]
        self._at = self._at + 1 + width
        return _array(type, _from_ordered(type, width, data), valid)

    def _read_bytes(self, type: pa.DataType) -> pa.Array:
        values: list[bytes | None] = []
        ends = []
        for at in self._at.tolist():
            if self._joined[at] == 0:
                values.append(None)
                ends.append(at + 1)
            else:
                end = self._joined.index(b"\0\0", at + 1)
                values.append(self._joined[at + 1 : end].replace(b"\0\xff", b"\0"))
                ends.append(end + 2)
        self._at = np.array(ends, dtype=np.int64)
        return pa.array(values, pa.large_binary()).cast(type)


def _from_ordered(type: pa.DataType, width: int, data: Matrix) -> Matrix:
    """The bytes that Arrow has for values that were written by `_ordered_bytes`."""
    if pa.types.is_decimal(type):
        data = data.copy()
        data[:, 0] ^= 0x80
        return np.ascontiguousarray(data[:, ::-1])
    if pa.types.is_fixed_size_binary(type):
        return np.ascontiguousarray(data)
    stored = np.ascontiguousarray(data).view(f">u{width}")[:, 0]
    if pa.types.is_floating(type):
        bits = stored.astype(f"<u{width}")
        sign = bits.dtype.type(1 << (8 * width - 1))
        return _bytes_of(np.where(bits & sign, bits ^ sign, ~bits), width)
    if _is_unsigned(type):
        return _bytes_of(stored.astype(f"<u{width}"), width)
    return _bytes_of(_unordered(stored, width).astype(f"<i{width}"), width)


def _array(type: pa.DataType, data: Matrix, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """An Arrow array from the little-endian bytes of a type of fixed width."""
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(type):
        return pa.Array.from_buffers(
            type, len(data), [bitmap, pa.py_buffer(np.packbits(data[:, 0], bitorder="little"))]
        )
    return pa.Array.from_buffers(type, len(data), [bitmap, pa.py_buffer(np.ascontiguousarray(data))])


class RowCodec:
    """Encodes and decodes the values of a state."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fixed = [i for i, field in enumerate(schema) if _is_fixed(field.type)]
        self._further = [i for i, field in enumerate(schema) if not _is_fixed(field.type)]
        self._null_bytes = (len(schema) + 7) // 8
        self._fixed_bytes = sum(_width(schema.field(i).type) for i in self._fixed)
        self._header = self._null_bytes + self._fixed_bytes + 4 * len(self._further)

    def encode(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        """The stored value of each row."""
        nulls = np.zeros((rows, self._null_bytes * 8), dtype=np.uint8)
        for number, column in enumerate(columns):
            if column.null_count:
                nulls[:, number] = column.is_null().to_numpy(zero_copy_only=False)
        header = [np.packbits(nulls, axis=1, bitorder="little")]
        for number in self._fixed:
            column = columns[number]
            if pa.types.is_boolean(column.type):
                data = integers(column).astype(np.uint8)[:, None]
            else:
                data = fixed_bytes(column, _width(column.type))
            header.append(np.where(nulls[:, number, None], np.uint8(0), data) if column.null_count else data)
        further = [_to_bytes(columns[number]) for number in self._further]
        for values in further:
            lengths = np.fromiter((len(value) for value in values), dtype="<u4", count=rows)
            header.append(lengths.view(np.uint8).reshape(rows, 4))
        if not self._header:
            return [b""] * rows
        return _join_rows(rows, [*header, *further])

    def decode(self, values: Sequence[bytes]) -> list[pa.Array]:
        """The columns of stored values."""
        data = np.frombuffer(b"".join(values), dtype=np.uint8)
        sizes = np.fromiter((len(value) for value in values), dtype=np.int64, count=len(values))
        starts = np.cumsum(sizes) - sizes
        header = data[starts[:, None] + np.arange(self._header)]
        nulls = np.unpackbits(header[:, : self._null_bytes], axis=1, bitorder="little") == 1
        columns: dict[int, pa.Array] = {}
        at = self._null_bytes
        for number in self._fixed:
            type = self._schema.field(number).type
            width = _width(type)
            columns[number] = _array(type, header[:, at : at + width], ~nulls[:, number])
            at += width
        position = starts + self._header
        for number in self._further:
            lengths = np.ascontiguousarray(header[:, at : at + 4]).view("<u4")[:, 0].astype(np.int64)
            pieces = _slices(data, position, lengths)
            columns[number] = _from_bytes(pieces, nulls[:, number], self._schema.field(number))
            position = position + lengths
            at += 4
        return [columns[number] for number in range(len(self._schema))]


def _is_fixed(type: pa.DataType) -> bool:
    try:
        return int(type.bit_width) % 8 == 0 or pa.types.is_boolean(type)
    except ValueError:
        return False


def _slices(data: Matrix, starts: Offsets, lengths: Offsets) -> Iterator[bytes]:
    joined = data.tobytes()
    return (joined[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True))


def _to_bytes(column: pa.Array) -> list[bytes]:
    if is_bytes_like(column.type):
        data, starts, ends = byte_ranges(column)
        return list(_slices(data, starts, ends - starts))
    batch = pa.RecordBatch.from_arrays([column], names=["value"])
    valid = column.is_valid().to_pylist()
    return [batch.slice(row, 1).serialize().to_pybytes() if valid[row] else b"" for row in range(len(column))]


def _from_bytes(values: Iterator[bytes], nulls: npt.NDArray[np.bool_], field: pa.Field) -> pa.Array:
    if is_bytes_like(field.type):
        binary = pa.array(
            (None if null else value for value, null in zip(values, nulls, strict=True)), pa.large_binary()
        )
        return binary.cast(field.type)
    schema = pa.schema([pa.field("value", field.type)])
    rows = [
        pa.nulls(1, field.type) if null else pa.ipc.read_record_batch(pa.py_buffer(value), schema).column(0)
        for value, null in zip(values, nulls, strict=True)
    ]
    return pa.concat_arrays(rows) if rows else pa.nulls(0, field.type)
