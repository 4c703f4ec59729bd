"""Exactly once, without overtaking: an input whose barrier has come is held back until all have."""

from __future__ import annotations

import pytest

from headgate.gate.states import Aligning, Flowing
from tests.runtime.gate.script import Script


def test_f120_inputs_that_have_brought_the_barrier_are_held_back_until_the_last_has() -> None:
    gate = Script("abc")
    assert gate("a1 b1 c1 >>") == "a1 b1 c1"
    assert gate("a|1 a2 b2 b|1 b3 c2 >>") == "b2 c2"
    assert isinstance(gate.gate.state, Aligning)
    assert gate("c3 c|1 c4 >>") == "c3 [1] {1} a2 b3 c4", "what was held back is not in the state"
    assert isinstance(gate.gate.state, Flowing)


def test_f120_inputs_without_any_data_align_too() -> None:
    assert Script("abc")("a|1 b|1 >> c|1 >> a|2 b|2 c|2 >>") == "[1] {1} [2] {2}"


def test_one_input_needs_no_alignment() -> None:
    assert Script("a")("a1 a|1 a2 a|2 a|3 a3 >>") == "a1 [1] {1} a2 [2] {2} [3] {3} a3"


def test_f122_an_abort_at_the_first_barrier_lets_everything_go_on_and_the_next_checkpoint_works() -> None:
    gate = Script()
    assert gate("a|1 a1 b1 >>") == "b1"
    assert gate("x1 >>") == "a1"
    assert gate("b|1 b2 >>") == "b2", "the barrier of an aborted checkpoint holds nothing back"
    assert gate("a|2 a3 b3 >> b|2 >>") == "b3 [2] {2} a3"


def test_f122_an_abort_before_any_barrier_and_several_aborts_in_a_row() -> None:
    gate = Script()
    assert gate("x1 x2 a|1 a1 b|1 b1 a|2 a2 b|2 >>") == "a1 b1 a2"
    assert gate("a|3 b|3 >>") == "[3] {3}"


def test_f122_an_abort_of_what_is_whole_changes_nothing() -> None:
    gate = Script()
    assert gate("a|1 b|1 >>") == "[1] {1}"
    assert gate("x1 a1 b1 >> a|2 b|2 >>") == "a1 b1 [2] {2}"


def test_f123_an_abort_of_a_checkpoint_that_is_subsumed_already_does_nothing() -> None:
    gate = Script()
    assert gate("a|1 a1 >> b|2 b2 >>") == "x1 a1", "a newer barrier came, and its own did not: the older one is over"
    assert gate.gave_up == [(1, "CHECKPOINT_DECLINED_SUBSUMED")]
    assert gate("x1 b3 >>") == "", "the newer one's alignment goes on"
    assert gate("a|2 >>") == "[2] {2} b2 b3"


def test_f124_the_end_of_an_input_counts_as_its_barrier() -> None:
    gate = Script()
    assert gate("a|1 a1 b1 b. >>") == "b1 [1] {1} a1"
    assert gate("a2 a|2 a3 >>") == "a2 [2] {2} a3", "who has ended is waited for no more"
    assert gate("a. >>") == "."
    assert gate.gate.finished


def test_f124_inputs_that_end_in_the_middle_of_an_alignment_never_leave_it_hanging() -> None:
    assert Script("abc")("a|1 a1 a. b. >> c1 c. >>") == "c1 [1] {1} a1 ."


def test_f135_a_barrier_of_an_older_checkpoint_is_ignored_and_holds_nothing_back() -> None:
    gate = Script()
    assert gate("a|2 b|2 >>") == "[2] {2}"
    assert gate("a|1 a1 b1 b|1 b2 >>") == "a1 b1 b2"


def test_f135_an_older_barrier_in_the_middle_of_a_newer_alignment_is_ignored() -> None:
    gate = Script("abc")
    assert gate("a|2 a1 >> b|1 b1 >>") == "x1 b1"
    assert gate("c|1 c1 b|2 c|2 >>") == "c1 [2] {2} a1"
    assert gate.gave_up == [(1, "CHECKPOINT_DECLINED_SUBSUMED")], "once"


def test_what_a_task_is_at_is_in_the_state_that_is_taken_behind_it() -> None:
    gate = Script()
    assert gate("a1 a|1 b|1 (") == "a1"
    assert gate("> >") == "", "the barriers wait for the step"
    assert gate(") >>") == "[1] {1}"


def test_several_checkpoints_may_stand_in_the_channels() -> None:
    gate = Script()
    assert gate("a|1 a1 a|2 a2 b|1 b1 >>") == "[1] {1} a1 b1"
    assert gate("b|2 >>") == "[2] {2} a2"


def test_f141_aborted_checkpoints_are_not_remembered_for_ever() -> None:
    gate = Script()
    gate(" ".join(f"x{checkpoint}" for checkpoint in range(1, 1000)))
    assert len(gate.gate._aborted) <= 64
    assert gate("a|2000 b|2000 >>") == "[2000] {2000}"
    assert gate.gate._aborted == [], "all older than what has completed"


@pytest.mark.parametrize("inputs", [1, 2, 5])
def test_every_input_has_its_turn(inputs: int) -> None:
    names = "abcde"[:inputs]
    gate = Script(names)
    gate(" ".join(f"{name}{number}" for name in names for number in range(1, 4)))
    assert gate(">>").split() == [f"{name}{number}" for number in range(1, 4) for name in names]


def test_what_was_in_flight_comes_first() -> None:
    gate = Script()
    gate.inject("a", ["a1", "a2"])
    assert gate("a3 b1 >>") == "a1 b1 a2 a3"
