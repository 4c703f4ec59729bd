"""Operator state in a step: what a function reads and writes, and what the writes of all subtasks add up to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.job.job import Job
from headgate.step.operator_state import LARGEST, SubtaskStates, no_state, states_after
from headgate.step.operators import Keyed, ProcessOperator
from headgate_contract.errors import BatchFailed, JobInvalid
from headgate_contract.operator_state import OperatorState, OperatorStateKind
from tests.runtime.step.vertex import Vertex, scratch

LIST, UNION, BROADCAST, SINGLE = OperatorStateKind
USERS = pa.schema({"user": pa.string()})
EVERYBODY = tuple("abcdefgh")
Function = Callable[[pa.Table, Keyed], Any]


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


def step(function: Function, kinds: dict[str, str], directory: Path, parallelism: int = 2) -> Vertex:
    operator = ProcessOperator.of("notes", function, USERS, {}, kinds)
    return Vertex(operator, ("user",), "hashmap", directory, parallelism)


def users(*names: str) -> pa.Table:
    return pa.table({"user": pa.array(names, pa.string())})


def own(kind: OperatorStateKind, *parts: Any, subtask: int = 0) -> Any:
    return SubtaskStates("notes", subtask, {"it": OperatorState(kind, parts)}).named("it")


# ---- what a function reads and writes


def test_a_list_holds_what_its_subtask_added(directory: Path) -> None:
    def note(rows: pa.Table, keyed: Keyed) -> None:
        for user in rows.column("user").to_pylist():
            keyed.operator_state("noted").add(user)

    vertex = step(note, {"noted": "list"}, directory)
    vertex.batch(users(*EVERYBODY))
    first = vertex.states["noted"].parts
    assert all(first), "each subtask had some"
    vertex.batch(users("a"))
    parts = vertex.states["noted"].parts
    assert sorted(user for part in parts for user in part) == sorted((*EVERYBODY, "a"))
    assert [part[: len(before)] for part, before in zip(parts, first, strict=True)] == list(first)
    assert sum(part == before for part, before in zip(parts, first, strict=True)) == 1, "one of them had no records"


def test_a_list_can_be_replaced() -> None:
    state = own(LIST, [1, 2], [3])
    state.update([5])
    state.add(6)
    assert state.get() == [5, 6]


def test_everybody_reads_the_union_and_writes_his_own_part() -> None:
    state = own(UNION, [1], [2, 3], [4], subtask=1)
    assert state.get() == [2, 3]
    assert state.get_all() == [1, 2, 3, 4]
    state.add(9)
    assert state.get_all() == [1, 2, 3, 9, 4]
    assert state.changes() == [2, 3, 9]


def test_what_is_broadcast_is_there_for_everybody_with_the_next_micro_batch_and_not_before(directory: Path) -> None:
    seen: list[dict[str, int]] = []

    def look(rows: pa.Table, keyed: Keyed) -> None:
        rules = keyed.operator_state("rules")
        if "a" in rows.column("user").to_pylist():
            rules.put("limit", (rules.get("limit") or 0) + 1)
        seen.append(rules.entries())

    vertex = step(look, {"rules": "broadcast"}, directory)
    for _ in range(3):
        vertex.batch(users(*EVERYBODY))
    assert seen == [{}, {}, {"limit": 1}, {"limit": 1}, {"limit": 2}, {"limit": 2}]


def test_a_broadcast_entry_can_be_removed() -> None:
    states = {"rules": OperatorState(BROADCAST, ({"a": 1, "b": None},))}
    after = states_after("notes", states, {0: {"rules": {"a": []}}, 1: {"rules": {"c": [3]}}})
    assert after["rules"].parts == ({"b": None, "c": 3},)


def test_subtasks_that_agree_about_an_entry_may_both_put_it() -> None:
    states = {"rules": no_state(BROADCAST, 2)}
    both = {0: {"rules": {"a": [{"x": 1, "y": 2}]}}, 1: {"rules": {"a": [{"y": 2, "x": 1}]}}}
    assert states_after("notes", states, both)["rules"].parts == ({"a": {"x": 1, "y": 2}},)


@pytest.mark.parametrize("other", [[2], [], [True], [1.0]])
def test_subtasks_that_disagree_about_an_entry_fail_the_batch_by_name(other: list[Any]) -> None:
    changes = {0: {"rules": {"a": [1]}}, 3: {"rules": {"a": other}}}
    with pytest.raises(BatchFailed, match="subtasks 0 and 3 would change the entry 'a' of the broadcast state 'rules'"):
        states_after("notes", {"rules": no_state(BROADCAST, 4)}, changes)


def test_a_single_value_is_that_of_its_subtask(directory: Path) -> None:
    def count(rows: pa.Table, keyed: Keyed) -> None:
        total = keyed.operator_state("total")
        total.update((total.value() or 0) + rows.num_rows)

    vertex = step(count, {"total": "single"}, directory)
    vertex.batch(users(*EVERYBODY))
    vertex.batch(users("a"))
    assert sum(vertex.states["total"].parts) == 9
    assert all(vertex.states["total"].parts)


def test_a_single_value_can_be_set_back_to_none() -> None:
    states = {"total": OperatorState(SINGLE, (5, 6))}
    named = SubtaskStates("notes", 1, states)
    named.named("total").update(None)
    assert states_after("notes", states, {0: {}, 1: named.changes()})["total"].parts == (5, None)


# ---- attempts


def test_f104_what_a_function_does_to_values_that_it_was_given_is_in_no_state(directory: Path) -> None:
    def spoil(rows: pa.Table, keyed: Keyed) -> None:
        kept = {"spoilt": True}
        keyed.operator_state("noted").get().append("not added")
        keyed.operator_state("noted").add(kept)
        kept["spoilt"] = "later"  # type: ignore[assignment]
        keyed.operator_state("noted").get()[0]["spoilt"] = "through what was read"
        keyed.operator_state("rules").entries()["x"] = 1

    vertex = step(spoil, {"noted": "list", "rules": "broadcast"}, directory, parallelism=1)
    vertex.batch(users("a"))
    at_the_barrier = vertex.states
    vertex.batch(users("a"))
    assert at_the_barrier["noted"].parts == ([{"spoilt": True}],)
    assert at_the_barrier["rules"].parts == ({},)
    assert vertex.states["noted"].parts == ([{"spoilt": True}] * 2,)


def test_an_attempt_that_does_not_count_leaves_nothing(directory: Path) -> None:
    def note(rows: pa.Table, keyed: Keyed) -> None:
        keyed.operator_state("noted").add(len(keyed.operator_state("noted").get()))
        if "bad" in rows.column("user").to_pylist():
            raise ValueError("bad")

    vertex = step(note, {"noted": "list"}, directory, parallelism=1)
    vertex.batch(users("a"))
    with pytest.raises(BatchFailed):
        vertex.run(users("bad"))
    vertex.run(users("a"))  # another attempt wins
    vertex.batch(users("a"))
    assert vertex.states["noted"].parts == ([0, 1],)


def test_a_batch_that_changes_nothing_keeps_the_very_states() -> None:
    states = {"noted": OperatorState(LIST, ([1], [2]))}
    assert states_after("notes", states, {0: {}, 1: {}}) is states


writes = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 2), st.lists(st.integers(0, 9), max_size=3)),  # what each subtask adds
        st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9))),  # what is put; None: removed
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(writes)
def test_whatever_the_subtasks_write_the_states_are_what_plain_lists_and_a_dict_would_be(
    batches: list[tuple[dict[int, list[int]], dict[str, int | None]]],
) -> None:
    states = {"list": no_state(LIST, 3), "union": no_state(UNION, 3), "map": no_state(BROADCAST, 3)}
    lists: list[list[int]] = [[], [], []]
    entries: dict[str, int] = {}
    for added, put in batches:
        changes = {}
        for subtask in range(3):
            own = SubtaskStates("notes", subtask, states)
            for element in added.get(subtask, []):
                own.named("list").add(element)
                own.named("union").add(element)
            for key, value in put.items():
                if ord(key) % 3 == subtask:  # as if the records that decide about it shared a key
                    if value is None:
                        own.named("map").remove(key)
                    else:
                        own.named("map").put(key, value)
            changes[subtask] = json.loads(json.dumps(own.changes()))
        states = dict(states_after("notes", states, changes))
        for subtask, elements in added.items():
            lists[subtask] += elements
        entries = {key: value for key, value in {**entries, **put}.items() if value is not None}
        assert states["list"].parts == states["union"].parts == tuple(lists)
        assert states["map"].parts == (entries,)
        for subtask in range(3):
            assert SubtaskStates("notes", subtask, states).named("union").get_all() == [*lists[0], *lists[1], *lists[2]]


# ---- what is refused


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1: 2}, float("nan"), np.int64(1), b"bytes", {"x": {1, 2}}, [pa.scalar(1)], object()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("kind", [LIST, UNION, BROADCAST, SINGLE])
def test_what_would_not_come_back_as_it_was_is_refused_by_name(kind: OperatorStateKind, value: Any) -> None:
    state = own(kind, *no_state(kind, 1).parts)
    put = {LIST: "add", UNION: "add", BROADCAST: "put", SINGLE: "update"}[kind]
    with pytest.raises(BatchFailed, match="operator state 'it' cannot hold"):
        getattr(state, put)(*(["key", value] if kind is BROADCAST else [value]))
    assert state.changes() is None


def test_a_list_is_a_list_and_an_entrys_key_is_text() -> None:
    with pytest.raises(BatchFailed, match="operator state 'it' is a list of elements, not 7"):
        own(LIST, []).update(7)
    with pytest.raises(BatchFailed, match="operator state 'it' has keys that are text, not 7"):
        own(BROADCAST, {}).put(7, 1)


def test_a_state_that_was_not_declared_is_named(directory: Path) -> None:
    vertex = step(lambda rows, keyed: keyed.operator_state("other"), {"noted": "list"}, directory)
    with pytest.raises(BatchFailed, match="step 'counts' has no operator state 'other'"):
        vertex.batch(users("a"))


def test_what_is_not_small_is_refused_with_its_size_in_the_step_and_over_all_subtasks(directory: Path) -> None:
    def hoard(rows: pa.Table, keyed: Keyed) -> None:
        keyed.operator_state("noted").add("x" * LARGEST)

    message = f"its operator states have {LARGEST + 4} bytes, the largest is 'noted' with {LARGEST + 4}; at most"
    with pytest.raises(BatchFailed, match=message):
        step(hoard, {"noted": "list", "rules": "broadcast"}, directory).run(users("a"))
    half = {"noted": ["x" * (LARGEST // 2)]}
    states = {"noted": no_state(LIST, 2)}
    assert states_after("notes", states, {0: half})["noted"].parts[0] == half["noted"]
    with pytest.raises(BatchFailed, match="the largest is 'noted'"):
        states_after("notes", states, {0: half, 1: half})


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"noted": "lists"}, "operator state 'noted' is of kind 'lists'; it is one of list, union, broadcast, single"),
        ({"": "list"}, "an operator state's name is a text, not ''"),
        ({"count": "list"}, "has a keyed state and an operator state called 'count'"),
        (["noted"], r"operator_state is a kind for each name, not \['noted'\]"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_made(declared: Any, why: str) -> None:
    import headgate

    rows = Job("notes").source("rows", headgate.sources.files("in"))
    with pytest.raises(JobInvalid, match=f"process 'notes'.*{why}"):
        rows.key_by("user").process(
            "notes",
            lambda rows, keyed: None,
            output=USERS,
            state={"count": pa.schema({"n": pa.int64()})},
            operator_state=declared,
        )
