"""Equality and fingerprints of key columns, whole Arrow arrays at a time.

Keys are compared as SQL groups them: null equals null, NaN equals NaN, 0.0 equals -0.0. A struct (a window, say) is
compared by its fields; lists and maps cannot be keys.

The fingerprint orders the rows that share a hash because only a namespace or a map key tells them apart. It is stored
in segment files, so it is part of their format. Over the flattened columns, all arithmetic modulo 2**64:

    h = 0; for each word w of each column: h = (h ^ w) * 0x9E3779B97F4A7C15; h ^= h >> 32

with these words: null is 0x6E756C6C alone; bool, integers, dates, times, timestamps and durations are their value,
sign-extended; floats the bits of the double, 0.0 for -0.0 and 0x7FF8000000000000 for NaN; a decimal the two
little-endian halves of its 128 bits; strings and binaries their length, then their first 32 bytes and, if they are
longer, their last 32 bytes, as little-endian words, missing bytes being zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.state.errors import StateSchemaMismatch

Columns = Sequence[pa.Array]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_NULL_WORD = np.uint64(0x6E756C6C)
_NAN_WORD = np.uint64(0x7FF8000000000000)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_ENDS = 32


def check_key_type(type: pa.DataType, what: str) -> None:
    """Refuse a type that cannot be a key or a namespace."""
    if pa.types.is_struct(type):
        for field in type:
            check_key_type(field.type, what)
        return
    allowed = is_integer_like(type) or pa.types.is_floating(type) or pa.types.is_decimal128(type) or is_bytes_like(type)
    if not allowed:
        raise StateSchemaMismatch(
            f"{what} has type {type}, which cannot be compared",
            hint="use a boolean, number, string, binary, date, time, timestamp, duration or a struct of these",
        )


def check_value_type(type: pa.DataType, what: str) -> None:
    """Refuse a type that not every backend can store."""
    if pa.types.is_nested(type) and not pa.types.is_union(type) and not pa.types.is_list_view(type):
        for number in range(type.num_fields):
            check_value_type(type.field(number).type, what)
        return
    if not (is_integer_like(type) or is_bytes_like(type) or pa.types.is_floating(type) or pa.types.is_decimal128(type)):
        raise StateSchemaMismatch(
            f"{what} has type {type}, which cannot be stored",
            hint="use booleans, numbers, strings, binaries, dates, times, durations, or lists, maps, structs of these",
        )


def is_integer_like(type: pa.DataType) -> bool:
    """Whether values of the type are stored as one integer (or one bit)."""
    return bool(pa.types.is_integer(type) or pa.types.is_temporal(type) or pa.types.is_boolean(type)) and not (
        pa.types.is_interval(type)
    )


def is_bytes_like(type: pa.DataType) -> bool:
    """Whether values of the type are strings of bytes."""
    return bool(
        pa.types.is_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_large_string(type)
        or pa.types.is_large_binary(type)
        or pa.types.is_fixed_size_binary(type)
    ) and not pa.types.is_decimal(type)


def flatten(columns: Iterable[pa.Array]) -> list[pa.Array]:
    """The columns with every struct replaced by its validity and its fields."""
    return list(_flatten(columns))


def _flatten(columns: Iterable[pa.Array]) -> Iterator[pa.Array]:
    for column in columns:
        if pa.types.is_struct(column.type):
            yield column.is_valid()
            yield from _flatten(column.flatten())
        else:
            yield column


def equal_rows(left: Columns, right: Columns) -> Mask:
    """For each row, whether all (flattened) columns are equal."""
    result: Mask | None = None
    for a, b in zip(left, right, strict=True):
        equal = _equal(a, b)
        result = equal if result is None else result & equal
    assert result is not None, "a key has at least one column"
    return result


def _equal(a: pa.Array, b: pa.Array) -> Mask:
    equal = pc.equal(a, b)
    if pa.types.is_floating(a.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    if equal.null_count:
        equal = pc.or_(equal.fill_null(False), pc.and_(a.is_null(), b.is_null()))
    mask: Mask = equal.to_numpy(zero_copy_only=False)
    return mask


def take_columns(columns: Columns, rows: Positions) -> list[pa.Array]:
    """The rows of each column, zero-copy when they are contiguous."""
    if _is_contiguous(rows):
        start, length = int(rows[0]) if len(rows) else 0, len(rows)
        return [column if len(column) == length else column.slice(start, length) for column in columns]
    indices = pa.array(rows)
    return [column.take(indices) for column in columns]


def _is_contiguous(rows: Positions) -> bool:
    if not len(rows):
        return True
    return bool(int(rows[-1]) - int(rows[0]) == len(rows) - 1 and (rows[1:] - rows[:-1] == 1).all())


def fingerprint(columns: Columns, rows: int) -> Positions:
    """The fingerprint of each row over the (flattened) columns."""
    h = np.zeros(rows, dtype=np.uint64)
    for column in columns:
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        if valid is not None:
            h = np.where(valid, h, _fold(h, _NULL_WORD))
        for word, present in _words(column):
            here = present if valid is None else valid if present is None else valid & present
            h = _fold(h, word) if here is None else np.where(here, _fold(h, word), h)
    return h.view(np.int64)


def _fold(h: Words, word: Words | np.uint64) -> Words:
    folded = (h ^ word) * _MULTIPLIER
    return folded ^ (folded >> _SHIFT)


def _words(column: pa.Array) -> Iterator[tuple[Words, Mask | None]]:
    """The words of a column and which rows have them (None: all that are not null)."""
    if is_integer_like(column.type):
        yield integers(column).view(np.uint64), None
    elif pa.types.is_floating(column.type):
        yield doubles(column).view(np.uint64), None
    elif pa.types.is_decimal(column.type):
        halves = fixed_bytes(column, 16).view("<u8")
        yield halves[:, 0], None
        yield halves[:, 1], None
    elif len(column):
        yield from _byte_words(column)


def integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """An integer-like column as int64, in an array of its own or zero-copy; what stands at a null is undefined."""
    type = column.type
    if pa.types.is_boolean(type):
        filled = column.fill_null(False) if column.null_count else column
        result: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64)
        return result
    signed = "u" if pa.types.is_unsigned_integer(type) else "i"
    width = type.bit_width // 8
    values = np.frombuffer(_data(column), dtype=f"<{signed}{width}")[column.offset : column.offset + len(column)]
    return values.view(np.int64) if width == 8 else values.astype(np.int64)


def doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    """A float column as float64 with one zero and one NaN; what stands at a null is undefined."""
    width = column.type.bit_width // 8
    values = np.frombuffer(_data(column), dtype=f"<f{width}")[column.offset : column.offset + len(column)]
    result = values.astype(np.float64)
    result[result == 0.0] = 0.0
    result[np.isnan(result)] = _NAN_WORD.view(np.float64)
    return result


def fixed_bytes(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """A column of fixed width as rows of bytes; what stands at a null is undefined."""
    data = np.frombuffer(_data(column), dtype=np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].reshape(len(column), width)


def _data(column: pa.Array) -> pa.Buffer:
    buffer = column.buffers()[1]
    return buffer if buffer is not None else pa.py_buffer(b"")


def byte_ranges(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Positions, Positions]:
    """A bytes-like column as its data, and where each value starts and ends; a null has length 0."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    type = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
    if not (pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(type)
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    return data, offsets[:-1], offsets[1:]


def _byte_words(column: pa.Array) -> Iterator[tuple[Words, Mask | None]]:
    data, starts, ends = byte_ranges(column)
    lengths = ends - starts
    yield lengths.astype(np.uint64), None
    first, last = int(starts[0]), int(ends[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    padded[: last - first] = data[first:last]
    words = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    longest = int(lengths.max())
    begin = starts - first
    for at in range(0, min(longest, _ENDS), 8):
        yield _word_at(words, begin + at, lengths - at), lengths > at
    if longest > _ENDS:
        tail = begin + np.maximum(lengths - _ENDS, 0)
        for at in range(0, _ENDS, 8):
            yield _word_at(words, tail + at, np.full_like(lengths, 8)), lengths > _ENDS


def _word_at(words: Words, positions: Positions, left: Positions) -> Words:
    """The 8 bytes at each position, of which only the first `left` count; rows with none left are undefined."""
    word = words[np.minimum(positions, len(words) - 1)]
    cut = ((8 - np.clip(left, 1, 8)) * 8).astype(np.uint64)
    return (word << cut) >> cut
