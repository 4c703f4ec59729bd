"""Declares a keyed state: its name, kind and Arrow schemas, and whether a stored one can still be read.

As JSON a schema is kept twice: `arrow` is the base64 of its Arrow IPC message (exact), `text` is for people.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headgate.state.errors import StateMigrationError, StateSchemaMismatch
from headgate.state.keys import check_key_type, check_value_type
from headgate_contract.errors import RestoreRefused

HASH = "__hash"
SUBHASH = "__subhash"
NAMESPACE = "__namespace"
TOMBSTONE = "__tombstone"


class StateKind(enum.Enum):
    """What the author sees; the storage differs only in that a MAP stores one row per map key."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"


@dataclass(frozen=True)
class StateDescriptor:
    """One keyed state.

    `key` holds the key columns, in the order in which they were hashed; `value` the stored columns (one list column
    for a LIST). `namespace` is the type of what separates values of one key from each other, a window for instance;
    None is the void namespace. `map_key` are the further key columns of a MAP, which are not part of the hash.
    Nullability and metadata of the top-level fields do not belong to the declaration and are dropped.
    `meanings` says for each value column what it adds up, if that is not the author's own business: a least value and
    a greatest one have the same type. Empty where nobody said, as in snapshots of older releases.
    """

    name: str
    kind: StateKind
    key: pa.Schema
    value: pa.Schema
    namespace: pa.DataType | None = None
    map_key: pa.Schema | None = None
    meanings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _plain(self.key))
        object.__setattr__(self, "value", _plain(self.value))
        if self.map_key is not None:
            object.__setattr__(self, "map_key", _plain(self.map_key))
        self._check()

    def _check(self) -> None:
        if not self.name:
            raise StateSchemaMismatch("a state needs a name", hint="give each state of a vertex its own")
        if (self.kind is StateKind.MAP) != (self.map_key is not None and len(self.map_key) > 0):
            raise StateSchemaMismatch(
                f"state {self.name!r} is declared as {self.kind.value} with map-key columns {self.map_key}",
                hint="a map state needs map-key columns, no other kind has them",
            )
        if len(self.key) == 0 or (len(self.value) == 0 and self.kind is not StateKind.MAP):
            raise StateSchemaMismatch(
                f"state {self.name!r} lacks columns", hint="declare at least one key column and one value column"
            )
        names = [*self.storage_key.names, *self.value.names]
        for name in names:
            if name.startswith("__") or names.count(name) > 1:
                raise StateSchemaMismatch(
                    f"state {self.name!r} cannot have a column {name!r}",
                    hint="rename it: names must differ between key, map key and value, and not begin with '__'",
                )
        for field in self.storage_key:
            check_key_type(field.type, f"key column {field.name!r} of state {self.name!r}")
        for field in self.value:
            check_value_type(field.type, f"value column {field.name!r} of state {self.name!r}")
        assert len(self.meanings) in (0, len(self.value))
        if self.namespace is not None:
            check_key_type(self.namespace, f"the namespace of state {self.name!r}")

    @cached_property
    def storage_key(self) -> pa.Schema:
        """The key columns and, for a MAP, the map-key columns behind them: what a KeyBatch of this state holds."""
        return pa.schema([*self.key, *(self.map_key or ())])

    @property
    def has_subkey(self) -> bool:
        """Whether many rows can share one hash by design, because a namespace or a map key tells them apart."""
        return self.namespace is not None or self.map_key is not None

    @property
    def null_clears(self) -> bool:
        """Whether writing a row of nulls removes the entry; a MAP keeps null as a value."""
        return self.kind is not StateKind.MAP

    @cached_property
    def entry(self) -> pa.Schema:
        """The schema of a scan: hash, key columns, namespace (unless void), value columns."""
        namespace = [pa.field(NAMESPACE, self.namespace)] if self.namespace is not None else []
        return pa.schema([pa.field(HASH, pa.int64()), *self.storage_key, *namespace, *self.value])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind.value,
            "key": _schema_to_json(self.key),
            "value": _schema_to_json(self.value),
            "namespace": None if self.namespace is None else _schema_to_json(_wrap(self.namespace)),
            "map_key": None if self.map_key is None else _schema_to_json(self.map_key),
            **({"meanings": list(self.meanings)} if self.meanings else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StateDescriptor:
        return cls(
            name=data["name"],
            kind=StateKind(data["kind"]),
            key=_schema_from_json(data["key"]),
            value=_schema_from_json(data["value"]),
            namespace=None if data["namespace"] is None else _schema_from_json(data["namespace"]).field(0).type,
            map_key=None if data["map_key"] is None else _schema_from_json(data["map_key"]),
            meanings=tuple(data.get("meanings", ())),
        )


def check_compatible(old: StateDescriptor, new: StateDescriptor) -> None:
    """Refuse to read state that was stored as `old` through a declaration `new` that differs from it."""
    if old.name != new.name:
        raise StateMigrationError(f"state {old.name!r} cannot be read as state {new.name!r}")
    if old.kind is not new.kind:
        raise _refusal(old.name, "its kind", old.kind.value, new.kind.value)
    for part, was, now in (
        ("key", old.key, new.key),
        ("map key", old.map_key or pa.schema([]), new.map_key or pa.schema([])),
        ("value", old.value, new.value),
    ):
        _check_columns(old.name, part, was, now)
    if old.namespace != new.namespace:
        raise _refusal(old.name, "its namespace", old.namespace or "void", new.namespace or "void")
    if old.meanings and new.meanings:
        for field, was, now in zip(new.value, old.meanings, new.meanings, strict=True):
            if was != now:
                raise _refusal(old.name, f"what value column {field.name!r} holds", was, now)


def check_restorable(vertex: str, stored: Iterable[Mapping[str, Any]], declared: Iterable[StateDescriptor]) -> None:
    """Raise RestoreRefused if the step `vertex`, which declares these states, cannot go on from those of a snapshot.

    To be asked before anything starts: a session would refuse the same, but only with the first record.
    """
    try:
        merge_descriptors(map(StateDescriptor.from_json, stored), declared)
    except StateMigrationError as error:
        raise RestoreRefused(f"step {vertex!r}: {error.what}", hint=error.hint) from error


def merge_descriptors(*groups: Iterable[StateDescriptor]) -> tuple[StateDescriptor, ...]:
    """All descriptors, each name once, those of later groups behind; the same name twice must be compatible.

    Of two the one that says what its columns mean stands.
    """
    merged: dict[str, StateDescriptor] = {}
    for group in groups:
        for descriptor in group:
            if descriptor.name in merged:
                check_compatible(merged[descriptor.name], descriptor)
            if descriptor.name not in merged or descriptor.meanings:
                merged[descriptor.name] = descriptor
    return tuple(merged.values())


def _check_columns(state: str, part: str, was: pa.Schema, now: pa.Schema) -> None:
    for field in was:
        position = now.get_field_index(field.name)
        if position < 0:
            raise _refusal(state, f"{part} column {field.name!r}", field.type, "absent")
        if now.field(position).type != field.type:
            raise _refusal(state, f"{part} column {field.name!r}", field.type, now.field(position).type)
    for field in now:
        if was.get_field_index(field.name) < 0:
            raise _refusal(state, f"{part} column {field.name!r}", "absent", field.type)
    if was.names != now.names:
        raise _refusal(state, f"the order of its {part} columns", ", ".join(was.names), ", ".join(now.names))


def _refusal(state: str, what: str, old: object, new: object) -> StateMigrationError:
    return StateMigrationError(
        f"state {state!r}: {what} is {old} in the snapshot and {new} in the job",
        hint="declare it as it was, or give the changed step a new uid and start with --fresh",
    )


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _wrap(namespace: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("namespace", namespace)])


def _schema_to_json(schema: pa.Schema) -> dict[str, str]:
    text = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return {"arrow": base64.b64encode(schema.serialize().to_pybytes()).decode("ascii"), "text": text}


def _schema_from_json(data: Mapping[str, str]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["arrow"])))
