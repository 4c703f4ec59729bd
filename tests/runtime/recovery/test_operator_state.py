"""How operator state is shared out over another number of subtasks, by kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.recovery.operator_state import redistributed, restored_states
from headgate.step.operator_state import SubtaskStates, no_state
from headgate_contract.operator_state import OperatorState, OperatorStateKind

LIST, UNION, BROADCAST, SINGLE = OperatorStateKind
CALM = settings(max_examples=80, deadline=None, derandomize=True)
parts = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=6).map(tuple)
parallelisms = st.integers(1, 7)


def held(state: OperatorState, subtask: int) -> Any:
    """The state as the step of a subtask finds it."""
    return SubtaskStates("step", subtask, {"it": state}).named("it")


def elements(parts: tuple[list[int], ...]) -> list[int]:
    return sorted(element for part in parts for element in part)


def test_f64_a_list_is_dealt_out_one_element_to_each_subtask_in_turn() -> None:
    state = OperatorState(LIST, ([1, 2, 3], [4, 5]))
    assert redistributed(state, 3).parts == ([1, 4], [2, 5], [3])
    assert redistributed(state, 1).parts == ([1, 2, 3, 4, 5],)
    assert redistributed(state, 7).parts == ([1], [2], [3], [4], [5], [], [])


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_f64_union_state_goes_whole_to_everybody(parallelism: int) -> None:
    state = redistributed(OperatorState(UNION, ([1, 2, 3], [4, 5])), parallelism)
    for subtask in range(parallelism):
        assert sorted(held(state, subtask).get_all()) == [1, 2, 3, 4, 5]
    assert sorted(element for subtask in range(parallelism) for element in held(state, subtask).get()) == [
        1,
        2,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_f64_broadcast_state_is_copied_from_one_to_every_subtask(parallelism: int) -> None:
    state = redistributed(OperatorState(BROADCAST, ({"limit": 3},)), parallelism)
    assert [held(state, subtask).entries() for subtask in range(parallelism)] == [{"limit": 3}] * parallelism


@pytest.mark.parametrize("kind", [LIST, UNION, SINGLE])
def test_f65_at_the_same_parallelism_each_subtask_has_exactly_its_own_operator_state(kind: OperatorStateKind) -> None:
    state = OperatorState(kind, ([1, 2, 3], [], [4]))
    assert redistributed(state, 3) == state


@CALM
@given(parts, parallelisms, st.sampled_from([LIST, UNION]))
def test_no_element_is_lost_or_doubled_and_no_subtask_has_two_more_than_another(
    parts: tuple[list[int], ...], parallelism: int, kind: OperatorStateKind
) -> None:
    after = redistributed(OperatorState(kind, parts), parallelism)
    assert len(after.parts) == parallelism
    assert elements(after.parts) == elements(parts)
    if parallelism != len(parts):
        sizes = [len(part) for part in after.parts]
        assert max(sizes) - min(sizes) <= 1


@CALM
@given(parts, st.lists(parallelisms, min_size=1, max_size=5))
def test_any_rescales_in_a_row_keep_every_element_once(parts: tuple[list[int], ...], path: list[int]) -> None:
    state = OperatorState(LIST, parts)
    for parallelism in path:
        state = redistributed(state, parallelism)
        assert len(state.parts) == parallelism
    assert elements(state.parts) == elements(parts)


@CALM
@given(st.dictionaries(st.text(max_size=3), st.integers()), parallelisms)
def test_a_broadcast_map_stays_as_it_is(entries: dict[str, int], parallelism: int) -> None:
    state = OperatorState(BROADCAST, (entries,))
    assert redistributed(state, parallelism) == state


def test_a_single_state_that_nobody_wrote_is_there_for_any_number_of_subtasks() -> None:
    assert redistributed(no_state(SINGLE, 2), 3) == no_state(SINGLE, 3)


def test_what_the_job_declares_is_there_and_what_is_new_begins_empty() -> None:
    stored = {"late": OperatorState(LIST, ([1], [2]))}
    declared = {"late": LIST, "rules": BROADCAST, "seen": UNION, "next": SINGLE}
    assert restored_states(stored, declared, 1) == {
        "late": OperatorState(LIST, ([1, 2],)),
        "rules": OperatorState(BROADCAST, ({},)),
        "seen": OperatorState(UNION, ([],)),
        "next": OperatorState(SINGLE, (None,)),
    }
