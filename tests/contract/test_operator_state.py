"""Whether a step can go on from stored operator state: what is declared otherwise or cannot be split is named."""

from __future__ import annotations

import pytest

from headgate_contract.operator_state import OperatorState, OperatorStateKind, misfit

LIST, UNION, BROADCAST, SINGLE = OperatorStateKind
STORED = {
    "late": OperatorState(LIST, ([1], [2])),
    "seen": OperatorState(UNION, ([], [])),
    "rules": OperatorState(BROADCAST, ({},)),
}
DECLARED = {"late": LIST, "seen": UNION, "rules": BROADCAST}


def single(*parts: object) -> dict[str, OperatorState]:
    return {"next": OperatorState(SINGLE, parts)}


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_what_can_be_split_fits_at_any_parallelism(parallelism: int) -> None:
    assert misfit(STORED, DECLARED, parallelism) is None


def test_a_state_that_is_new_in_the_job_hinders_nothing() -> None:
    assert misfit({}, {**DECLARED, "next": SINGLE}, 3) is None


@pytest.mark.parametrize("parallelism", [1, 3])
def test_f155_state_that_cannot_be_split_refuses_another_parallelism_by_name(parallelism: int) -> None:
    assert misfit(single(5, None), {"next": SINGLE}, 2) is None
    assert misfit(single(5, None), {"next": SINGLE}, parallelism) == (
        f"has the operator state 'next' of 2 subtasks, which cannot be split over {parallelism}: it is of kind single",
        "set parallelism.default back to 2",
    )


def test_where_none_of_it_was_ever_written_there_is_nothing_to_split() -> None:
    assert misfit(single(None, None), {"next": SINGLE}, 3) is None


def test_a_state_that_is_declared_no_more_or_otherwise_is_refused_by_name() -> None:
    assert misfit(STORED, {"late": LIST, "rules": BROADCAST}, 2) == (
        "has the operator state 'seen', which the job no longer declares",
        "declare it as it was: one that is not used costs nothing",
    )
    assert misfit(STORED, {**DECLARED, "seen": LIST}, 2) == (
        "has the operator state 'seen' as union, the job declares it as list",
        "declare it as it was, and another one under a new name",
    )
