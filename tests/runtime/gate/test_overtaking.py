"""Barriers that overtake: at once (unaligned), or when they have waited long enough."""

from __future__ import annotations

from headgate.gate.effects import TakeState
from headgate.gate.states import Aligning, Flowing, Overtaking
from tests.runtime.gate.script import Script


def test_f128_the_state_is_taken_at_the_first_barrier_and_just_what_was_overtaken_is_in_flight() -> None:
    gate = Script("abc")
    assert gate("a1 b1 b2 c1 > a!1") == "a1 [1]", "nothing of a was before its barrier any more"
    assert gate("a2 b3 >> b!1 b4") == "b1 c1 a2 b2 b3", "what is processed meanwhile is in flight all the same"
    assert gate("c!1 >>") == "{1 b1 b2 b3 c1} b4"
    assert isinstance(gate.gate.state, Flowing)


def test_f128_an_input_without_data_has_nothing_in_flight() -> None:
    assert Script()("a!1 b!1 a1 b1 >>") == "[1] {1} a1 b1"


def test_f128_what_the_task_is_at_was_overtaken_too() -> None:
    gate = Script()
    assert gate("a1 a2 b1 ( a!1 b!1") == "a1 [1] {1 a1 a2 b1}", "its parent is the state, before anything in flight"
    assert gate(") >>") == "b1 a2"


def test_a_barrier_that_has_overtaken_does_so_at_every_gate_behind() -> None:
    gate = Script()
    gate("a?1 +100")
    (taken,) = [effect for effect in gate.effects if isinstance(effect, TakeState)]
    assert taken.barrier.may_overtake(0)
    assert taken.barrier.checkpoint == 1


def test_f129_after_an_abort_nothing_in_flight_remains() -> None:
    gate = Script()
    assert gate("b1 a!1") == "[1]"
    assert isinstance(gate.gate.state, Overtaking)
    assert gate("x1 b2 >> b!1 >>") == "b1 b2"
    assert gate("a!2 b3 b!2") == "[2] {2 b3}", "of its own alone"
    assert gate.gave_up == []


def test_f129_a_barrier_that_comes_after_the_abort_takes_no_state() -> None:
    assert Script("a")("a1 x1 a!1 a2 a!2") == "[2] {2 a1 a2}"


def test_f130_the_end_of_an_input_aborts_the_checkpoint_that_waits_for_its_barrier_and_says_so() -> None:
    gate = Script()
    assert gate("b1 a!1 b2 b. >>") == "[1] x1 b1 b2"
    assert gate.gave_up == [(1, "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM")]
    assert gate("a1 a!2 >>") == "[2] {2 a1} a1"


def test_an_input_that_had_ended_before_is_not_waited_for() -> None:
    gate = Script()
    assert gate("b1 b. a!1") == "[1] {1 b1}", "what it brought last is in flight"
    assert gate(">>") == "b1"


def test_f131_a_checkpoint_that_has_timed_out_is_followed_by_one_that_aligns_again() -> None:
    gate = Script()
    assert gate("a1 b1 a?1 >>") == "a1 b1"
    assert gate("a2 b2 +99") == ""
    assert isinstance(gate.gate.state, Aligning)
    assert gate("+1") == "[1]", "100 ms are over"
    assert gate("b?1@0") == "{1 b2}"
    assert gate(">>") == "b2 a2"
    assert gate("a?2 a3 b3 >>") == "b3"
    assert isinstance(gate.gate.state, Aligning)
    assert gate("b?2 >>") == "[2] {2} a3"


def test_f132_the_timer_runs_from_the_start_of_the_checkpoint_also_for_a_barrier_that_nobody_has_met() -> None:
    gate = Script()
    assert gate("+70 a1 a?1@10 b1") == ""
    assert gate.gate.next_deadline() == 110
    assert gate("+39") == ""
    assert gate("+1 b?1@10") == "[1] {1 a1 b1}"
    assert gate.gate.next_deadline() is None


def test_f132_a_barrier_that_comes_late_switches_without_the_timer() -> None:
    gate = Script()
    gate.now = 500
    assert gate("b1 a1 a?1@100") == "[1]"
    assert gate("b?1@100") == "{1 a1 b1}"


def test_f132_an_alignment_that_is_done_in_time_overtakes_nothing() -> None:
    gate = Script()
    assert gate("a1 a?1 b1 b?1 >>") == "a1 b1 [1] {1}"
    assert gate.gate.next_deadline() is None
    assert gate("a2 +1000 b2") == ""


def test_f132_what_an_aligned_input_holds_back_is_behind_its_barrier_and_not_in_flight() -> None:
    gate = Script()
    assert gate("a?1 a1 b1 b2 ( +100") == "b1 [1]"
    assert gate(") b3 b?1@0 >>") == "{1 b1 b2 b3} a1 b2 b3"


def test_f134_f143_a_savepoint_aligns_whatever_it_waits_for_and_has_nothing_in_flight() -> None:
    gate = Script()
    assert gate("a1 a!1 b1 b!1") == "[1] {1 a1 b1}"
    assert gate("a|2 a2 b2 >> +100000") == "a1 b1 b2"
    assert isinstance(gate.gate.state, Aligning)
    assert gate("b3 b|2 >>") == "b3 [2] {2} a2"


def test_a_barrier_overtakes_no_other_barrier() -> None:
    gate = Script()
    assert gate("a|1 a!2 b1 >>") == "b1", "the savepoint's alignment goes on"
    assert gate("b|1 b2 b!2 >>") == "[1] {1} [2] {2 b2} b2", "then it is the next one's turn, at once"
    assert Script()("a!1 a|2 b1 b2 > a1 b!1 >>") == "[1] b1 {1 b1 b2} b2"


def test_f135_a_barrier_of_an_older_checkpoint_takes_no_state() -> None:
    gate = Script()
    assert gate("a!2 b!2") == "[2] {2}"
    assert gate("a1 a!1 b!1 b1 >>") == "a1 b1"


def test_f136_a_newer_checkpoint_ends_the_older_one_and_stays_open_itself() -> None:
    gate = Script()
    assert gate("a1 b1 a!42") == "[42]"
    assert gate("b2 b!43") == "x42 [43]"
    assert gate.gave_up == [(42, "CHECKPOINT_DECLINED_SUBSUMED")]
    assert gate("a2 a!43 >>") == "{43 a1 a2 b1 b2} a1 b1 a2 b2"


def test_f136_an_aligned_checkpoint_whose_barrier_is_missing_is_given_up_for_one_that_overtakes() -> None:
    gate = Script()
    assert gate("a|1 a1 b1 b!2") == "x1 [2]"
    assert gate.gave_up == [(1, "CHECKPOINT_DECLINED_SUBSUMED")]
    assert gate("a!2 >>") == "{2 a1 b1} b1 a1"


def test_aborts_reach_a_checkpoint_whose_barriers_still_stand_in_channels() -> None:
    gate = Script()
    assert gate("a1 a?1 b1 x1 +1000 >>") == "a1 b1"
    assert gate.gate.next_deadline() is None
