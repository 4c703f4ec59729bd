"""Frozen dataclasses to plain JSON values and back, strictly: a field that is unknown, missing or mistyped is named."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union

from headgate_contract.errors import CorruptObject, HeadgateError

T = TypeVar("T")
Reader = Callable[[object, str], Any]
"""Builds a value from a plain one; the text names the object in errors."""


def to_plain(value: object) -> Any:
    """`value` as dicts, lists, strings, numbers and None. Members of a tagged union carry their `type`.

    Raises TypeError for what has no JSON form; a number that is none (NaN, infinity) has none.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        tag = getattr(type(value), "TYPE", None)
        return {"type": tag, **plain} if tag is not None else plain
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (frozenset, set)):
        return sorted(to_plain(item) for item in value)
    return _plain_scalar(value)


def _plain_scalar(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON form")


def from_plain(kind: Any, plain: object, where: str) -> Any:
    """Build a `kind` from `plain`; `where` names the object in errors."""
    return _reader(kind)(plain, where)


def _expect(plain: object, kind: type[T], where: str) -> T:
    if not isinstance(plain, kind):
        raise CorruptObject(f"{where} should be a {kind.__name__}, not {type(plain).__name__}")
    return plain


@cache
def _reader(kind: Any) -> Reader:
    """What builds a `kind`, found out once: a summary has a hundred thousand values of a few kinds."""
    if kind is Any or kind is object:
        return lambda plain, where: plain
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(typing.get_args(kind))
    if origin is tuple:
        each = _reader(typing.get_args(kind)[0])
        return lambda plain, where: tuple(
            [each(item, f"{where}[{index}]") for index, item in enumerate(_expect(plain, list, where))]
        )
    if origin is frozenset:
        each = _reader(typing.get_args(kind)[0])
        return lambda plain, where: frozenset(each(item, where) for item in _expect(plain, list, where))
    if origin in (dict, Mapping):
        key_of, item_of = map(_reader, typing.get_args(kind))
        return lambda plain, where: {
            key_of(key, where): item_of(item, f"{where}.{key}") for key, item in _expect(plain, dict, where).items()
        }
    if kind is dict:
        return lambda plain, where: _expect(plain, dict, where)
    if dataclasses.is_dataclass(kind):
        return lambda plain, where: _from_fields(kind, _expect(plain, dict, where), where)
    return _scalar_reader(kind)


def _union_reader(kinds: tuple[Any, ...]) -> Reader:
    members = [kind for kind in kinds if kind is not type(None)]
    if len(members) == 1:
        read = _reader(members[0])
    elif any(hasattr(kind, "TYPE") for kind in members):
        read = _tagged_reader({kind.TYPE: _reader(kind) for kind in members if hasattr(kind, "TYPE")})
    else:
        read = _untagged_reader(tuple(kind for kind in members if isinstance(kind, type)))
    if len(members) == len(kinds):
        return read
    return lambda plain, where: None if plain is None else read(plain, where)


def _tagged_reader(tagged: Mapping[str, Reader]) -> Reader:
    def read(plain: object, where: str) -> Any:
        tag = _expect(plain, dict, where).get("type")
        if not isinstance(tag, str) or tag not in tagged:
            raise CorruptObject(f"{where} has the type {tag!r}, known are {', '.join(sorted(tagged))}")
        return tagged[tag](plain, where)

    return read


def _untagged_reader(kinds: tuple[type, ...]) -> Reader:
    def read(plain: object, where: str) -> Any:
        if not isinstance(plain, kinds):
            raise CorruptObject(f"{where} is a {type(plain).__name__}, which is none of those allowed")
        return plain

    return read


@dataclasses.dataclass(frozen=True, slots=True)
class _Fields:
    """What is known of a dataclass."""

    readers: Mapping[str, Reader]
    needed: frozenset[str]
    tag: str | None

    @classmethod
    @cache
    def of(cls, kind: Any) -> _Fields:
        hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
        missing = dataclasses.MISSING
        needed = [each.name for each in fields if each.default is missing and each.default_factory is missing]
        readers = {each.name: _reader(hints[each.name]) for each in fields}
        return cls(readers, frozenset(needed), getattr(kind, "TYPE", None))


def _from_fields(kind: Any, plain: dict[str, Any], where: str) -> Any:
    known = _Fields.of(kind)
    readers, tag = known.readers, known.tag
    if tag is not None and plain.get("type", tag) != tag:
        raise CorruptObject(f"{where} has the type {plain['type']!r}, not {tag!r}")
    unknown = plain.keys() - readers.keys() - ({"type"} if tag is not None else set())
    if unknown:
        raise CorruptObject(f"{where} has unknown fields: {', '.join(sorted(unknown))}")
    values = {name: read(plain[name], f"{where}.{name}") for name, read in readers.items() if name in plain}
    if len(values) < len(readers) and not known.needed <= values.keys():
        lacks = next(name for name in readers if name in known.needed and name not in values)
        raise CorruptObject(f"{where} lacks the field {lacks!r}")
    try:
        return kind(**values)
    except (ValueError, HeadgateError) as error:
        raise CorruptObject(f"{where}: {error}") from error


def _scalar_reader(kind: Any) -> Reader:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda plain, where: _from_enum(kind, plain, where)
    base = next((each for each in (bool, int, float, str) if isinstance(kind, type) and issubclass(kind, each)), None)

    def read(plain: object, where: str) -> Any:
        if base is None:
            raise TypeError(f"{where}: no JSON form for {kind!r}")
        if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
            return float(plain)
        if not isinstance(plain, base) or (isinstance(plain, bool) and base is not bool):
            raise CorruptObject(f"{where} should be a {kind.__name__}, not {type(plain).__name__}")
        if kind is base:
            return plain
        try:
            return kind(plain)
        except HeadgateError as error:
            raise CorruptObject(f"{where}: {error}") from error

    return read


def _from_enum(kind: type[enum.Enum], plain: object, where: str) -> Any:
    try:
        return kind(plain)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise CorruptObject(f"{where} is {plain!r}, allowed are {allowed}") from None
