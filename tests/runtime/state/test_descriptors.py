"""Declarations of state: what they may hold, that they survive JSON exactly, and which changes are refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headgate.state.descriptors import (
    StateDescriptor,
    StateKind,
    check_compatible,
    check_restorable,
    merge_descriptors,
)
from headgate.state.errors import StateMigrationError, StateSchemaMismatch
from headgate_contract.errors import RestoreRefused
from tests.runtime.state.samples import COUNTS, RECENT, STATES, TOTALS, VISITS

KEY = pa.schema([("k", pa.int64())])
VALUE = pa.schema([("v", pa.int64())])


def declare(**changes: Any) -> StateDescriptor:
    return StateDescriptor(**{"name": "s", "kind": StateKind.VALUE, "key": KEY, "value": VALUE, **changes})


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_descriptor_survives_json(state: StateDescriptor) -> None:
    again = StateDescriptor.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert again.entry == state.entry


def test_json_shows_the_schema_to_people() -> None:
    assert TOTALS.to_json()["key"]["text"] == "shop: int64, day: timestamp[us]"


def test_nullability_and_metadata_are_no_part_of_a_declaration() -> None:
    strict = pa.schema([pa.field("k", pa.int64(), nullable=False, metadata={"a": "b"})], metadata={"c": "d"})
    assert declare(key=strict) == declare()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"key": pa.schema([])},
        {"value": pa.schema([])},
        {"value": KEY},
        {"key": pa.schema([("__hash", pa.int64())])},
        {"kind": StateKind.MAP},
        {"map_key": KEY},
        {"key": pa.schema([("k", pa.list_(pa.int64()))])},
        {"key": pa.schema([("k", pa.dictionary(pa.int8(), pa.string()))])},
        {"namespace": pa.map_(pa.int64(), pa.int64())},
        {"value": pa.schema([("v", pa.list_(pa.dictionary(pa.int8(), pa.string())))])},
        {"value": pa.schema([("v", pa.dense_union([pa.field("a", pa.int64())]))])},
        {"value": pa.schema([("v", pa.null())])},
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_when_it_is_declared(changes: dict[str, Any]) -> None:
    with pytest.raises(StateSchemaMismatch, match=r"state|needs a name"):
        declare(**changes)


def test_a_map_may_be_a_set() -> None:
    state = declare(kind=StateKind.MAP, map_key=pa.schema([("m", pa.string())]), value=pa.schema([]))
    assert state.entry.names == ["__hash", "k", "m"]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_an_equal_declaration_is_compatible(state: StateDescriptor) -> None:
    check_compatible(state, StateDescriptor.from_json(state.to_json()))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key": pa.schema([("k", pa.string())])}, "state 's': key column 'k' is int64 in the snapshot and string in"),
        ({"value": pa.schema([("v", pa.int32())])}, "value column 'v' is int64 in the snapshot and int32"),
        ({"value": pa.schema([("w", pa.int64())])}, "value column 'v' is int64 in the snapshot and absent"),
        ({"value": pa.schema([("v", pa.int64()), ("w", pa.int64())])}, "value column 'w' is absent .* int64"),
        ({"namespace": pa.int64()}, "its namespace is void in the snapshot and int64"),
        ({"kind": StateKind.LIST}, "its kind is value in the snapshot and list"),
        ({"kind": StateKind.MAP, "map_key": pa.schema([("m", pa.int64())])}, "its kind is value .* map"),
        ({"name": "t"}, "state 's' cannot be read as state 't'"),
    ],
)
def test_a_changed_declaration_is_refused_with_state_column_old_and_new_type(
    changes: dict[str, Any], told: str
) -> None:
    """F96, F116, F117: an incompatible schema is refused by name."""
    with pytest.raises(StateMigrationError, match=told):
        check_compatible(declare(), declare(**changes))


def test_a_changed_order_of_columns_is_refused() -> None:
    two = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(StateMigrationError, match=r"order of its key columns is a, b in .* b, a"):
        check_compatible(declare(key=two), declare(key=pa.schema([two.field(1), two.field(0)])))


def test_a_changed_map_key_is_refused() -> None:
    changed = StateDescriptor(
        "visits", StateKind.MAP, VISITS.key, VISITS.value, map_key=pa.schema([("page", pa.int64())])
    )
    with pytest.raises(StateMigrationError, match="map key column 'page' is int32"):
        check_compatible(VISITS, changed)


def test_groups_of_declarations_merge_by_name() -> None:
    assert merge_descriptors((COUNTS, RECENT), (RECENT, TOTALS)) == (COUNTS, RECENT, TOTALS)
    with pytest.raises(StateMigrationError, match="'s'"):
        merge_descriptors([declare()], [declare(namespace=pa.int64())])


def test_what_a_column_adds_up_is_part_of_its_declaration_where_somebody_said_it() -> None:
    unsaid, least, greatest = (declare(meanings=meanings) for meanings in ((), ("min(x)",), ("max(x)",)))
    assert StateDescriptor.from_json(json.loads(json.dumps(least.to_json()))) == least
    assert "meanings" not in unsaid.to_json()
    with pytest.raises(
        StateMigrationError, match=r"what value column 'v' holds is min\(x\) in the snapshot and max\(x\)"
    ):
        check_compatible(least, greatest)
    assert merge_descriptors([unsaid], [least], [unsaid]) == (least,)


def test_a_snapshot_that_the_job_cannot_read_is_refused_before_anything_starts() -> None:
    check_restorable("step", [declare().to_json()], [declare(), COUNTS])
    check_restorable("step", [declare().to_json(), COUNTS.to_json()], [declare()])
    with pytest.raises(
        RestoreRefused, match=r"step 'step': state 's': value column 'v' is .* declare it as it was, or"
    ):
        check_restorable("step", [declare().to_json()], [declare(value=pa.schema([("v", pa.string())]))])
