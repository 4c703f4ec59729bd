"""Frozen dataclasses to plain JSON values and back, strictly: a field that is unknown, missing or mistyped is named."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union

from headgate_contract.errors import CorruptObject, HeadgateError

T = TypeVar("T")


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
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return plain
    if origin in (Union, types.UnionType):
        return _from_union(typing.get_args(kind), plain, where)
    if origin is tuple:
        return tuple(
            from_plain(typing.get_args(kind)[0], item, f"{where}[{index}]")
            for index, item in enumerate(_expect(plain, list, where))
        )
    if origin is frozenset:
        return frozenset(from_plain(typing.get_args(kind)[0], item, where) for item in _expect(plain, list, where))
    if origin in (dict, Mapping):
        key_kind, item_kind = typing.get_args(kind)
        return {
            from_plain(key_kind, key, where): from_plain(item_kind, item, f"{where}.{key}")
            for key, item in _expect(plain, dict, where).items()
        }
    if kind is dict:
        return _expect(plain, dict, where)
    if dataclasses.is_dataclass(kind):
        return _from_fields(kind, _expect(plain, dict, where), where)
    return _from_scalar(kind, plain, where)


def _expect(plain: object, kind: type[T], where: str) -> T:
    if not isinstance(plain, kind):
        raise CorruptObject(f"{where} should be a {kind.__name__}, not {type(plain).__name__}")
    return plain


def _from_union(kinds: tuple[Any, ...], plain: object, where: str) -> Any:
    if plain is None and type(None) in kinds:
        return None
    members = [kind for kind in kinds if kind is not type(None)]
    if len(members) == 1:
        return from_plain(members[0], plain, where)
    tagged = {kind.TYPE: kind for kind in members if hasattr(kind, "TYPE")}
    if tagged:
        tag = _expect(plain, dict, where).get("type")
        if not isinstance(tag, str) or tag not in tagged:
            raise CorruptObject(f"{where} has the type {tag!r}, known are {', '.join(sorted(tagged))}")
        return from_plain(tagged[tag], plain, where)
    for kind in members:
        if isinstance(kind, type) and isinstance(plain, kind):
            return plain
    raise CorruptObject(f"{where} is a {type(plain).__name__}, which is none of those allowed")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _from_fields(kind: Any, plain: dict[str, Any], where: str) -> Any:
    hints = _hints(kind)
    names = {field.name: field for field in dataclasses.fields(kind)}
    tag = getattr(kind, "TYPE", None)
    if tag is not None and plain.get("type", tag) != tag:
        raise CorruptObject(f"{where} has the type {plain['type']!r}, not {tag!r}")
    unknown = set(plain) - set(names) - ({"type"} if tag is not None else set())
    if unknown:
        raise CorruptObject(f"{where} has unknown fields: {', '.join(sorted(unknown))}")
    values = {}
    for name, field in names.items():
        if name in plain:
            values[name] = from_plain(hints[name], plain[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CorruptObject(f"{where} lacks the field {name!r}")
    try:
        return kind(**values)
    except (ValueError, HeadgateError) as error:
        raise CorruptObject(f"{where}: {error}") from error


def _from_scalar(kind: Any, plain: object, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(plain)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise CorruptObject(f"{where} is {plain!r}, allowed are {allowed}") from None
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    for base in (bool, int, float, str):
        if issubclass(kind, base):
            if not isinstance(plain, base) or (isinstance(plain, bool) and base is not bool):
                raise CorruptObject(f"{where} should be a {kind.__name__}, not {type(plain).__name__}")
            if kind is base:
                return plain
            try:
                return kind(plain)
            except HeadgateError as error:
                raise CorruptObject(f"{where}: {error}") from error
    raise TypeError(f"{where}: no JSON form for {kind!r}")
