"""At least once: nothing is held back, and several checkpoints may be under way."""

from __future__ import annotations

from tests.runtime.gate.script import Script


def counting(channels: str = "ab") -> Script:
    return Script(channels, exactly_once=False)


def test_f126_nothing_is_held_back_and_the_state_is_taken_at_the_last_barrier() -> None:
    gate = counting("abc")
    assert gate("a|1 a1 b1 b|1 b2 c1 >>") == "b1 c1 a1 b2", "a1 and b2 come behind their barriers, and are in"
    assert gate("c|1 c2 >>") == "[1] {1} c2"


def test_f126_a_later_barrier_drops_no_checkpoint_that_is_under_way() -> None:
    gate = counting()
    assert gate("a|1 a|2 a|3 >>") == ""
    assert gate("b|1 >>") == "[1] {1}"
    assert gate("b|2 >> b|3 >>") == "[2] {2} [3] {3}"


def test_f126_a_later_checkpoint_that_is_whole_ends_the_earlier_ones() -> None:
    gate = counting()
    assert gate("a|1 a|2 b|2 >>") == "x1 [2] {2}"
    assert gate("b|1 >>") == "", "too late"
    assert gate.gave_up == [(1, "CHECKPOINT_DECLINED_SUBSUMED")]


def test_f127_checkpoints_that_are_aborted_in_any_order_are_over_once_each() -> None:
    gate = counting("abc")
    assert gate("a|1 a|2 b|2 >> x2 b|1 x1 x2 c|2 c|1 x1 >>") == ""
    assert gate("a|3 b|3 c|3 >>") == "[3] {3}"
    assert gate.gave_up == []


def test_f124_the_end_of_an_input_counts_as_all_of_its_barriers() -> None:
    assert counting()("a|1 a|2 b1 b. >>") == "b1 x1 [2] {2}"
    assert counting()("a. b|1 b. >>") == "[1] {1} ."
