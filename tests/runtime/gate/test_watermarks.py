"""The watermark of several inputs, alone and on its way through a gate."""

from __future__ import annotations

from headgate.gate.elements import Watermark
from headgate.gate.watermarks import Watermarks
from tests.runtime.gate.script import Script, channel


def test_f188_the_tasks_watermark_is_the_least_of_its_inputs_and_is_told_when_that_moves() -> None:
    gate = Script("abc")
    assert gate("a~5 b~3 >>") == "", "c has told of none"
    assert gate("c~1 >>") == "~1"
    assert gate("c~4 >>") == "~3"
    assert gate("b~9 >>") == "~4"
    assert gate("a~9 >>") == ""


def test_f189_a_watermark_never_goes_back() -> None:
    gate = Script("a")
    assert gate("a~5 a~3 a~5 >> a~6 >>") == "~5 ~6"
    assert Script()("a~5 b~6 >> a~2 b~3 >>") == "~5"


def test_f190_an_idle_input_holds_up_nobody() -> None:
    gate = Script("abc")
    assert gate("a~5 b~3 c~1 >>") == "~1"
    assert gate("c~- >>") == "~3"
    assert gate("b~- >>") == "~5"
    assert gate("b~4 >>") == "", "who comes back behind what was passed holds up nobody until it has caught up"
    assert gate("a~8 >>") == "~8"
    assert gate("b~9 a~12 >>") == "~9"


def test_f190_when_all_are_idle_whatever_anybody_has_said_holds_and_idleness_is_passed_on() -> None:
    gate = Script()
    assert gate("a~5 b~9 >>") == "~5"
    assert gate("b~- >>") == ""
    assert gate("a~- >>") == "~9"
    assert gate("a~10 >> a~- >>") == "~10 ~-"
    assert gate("b~- >>") == "", "that is known"


def test_an_input_that_has_ended_holds_up_nobody() -> None:
    assert Script()("a~5 b~9 >> a. >>") == "~5 ~9"
    assert Script()("a~5 b. >> a. >>") == "~5 ."
    assert Script("a")("a~5 >> a~- >> a. >>") == "~5 ~- .", (
        "behind the end of all nothing is told, were all idle or not"
    )


def test_watermarks_keep_their_place_among_the_batches() -> None:
    assert Script("a")("a1 a~5 a2 a|1 a~6 >>") == "a1 ~5 a2 [1] {1} ~6"


def test_a_watermark_that_was_overtaken_is_in_flight_as_its_input_brought_it_and_not_in_the_state() -> None:
    gate = Script()
    gate("a~5 b~3 >>")
    assert gate("b~7 (") == "~5", "the task is at it"
    assert gate("a!1 b!1") == "[1] {1 ~7}"
    taken = gate.effects[-2]
    assert taken.watermarks.passed == 3  # type: ignore[union-attr]
    assert gate(") >>") == ""

    restored = Script(watermarks=taken.watermarks)  # type: ignore[union-attr]
    restored.gate.inject(channel("b"), [Watermark(7)])
    assert restored(">>") == "~5", "told once more: the timers behind it are in the state"


def test_watermarks_are_values() -> None:
    before = Watermarks.of([channel("a"), channel("b")])
    after = before.after(channel("a"), Watermark(5)).after(channel("b"), Watermark(7))
    assert before.passed is None
    assert (after.passed, after.news_since(before)) == (5, (Watermark(5),))
    assert after.news_since(after) == ()


def test_f190_those_behind_are_told_of_both_when_the_last_input_that_was_waited_for_becomes_idle() -> None:
    before = Watermarks({channel("a"): 5, channel("b"): 9}, frozenset([channel("b")]), 5)
    idle = before.after(channel("a"), Watermark(None))
    assert idle.news_since(before) == (Watermark(9), Watermark(None))
    back = idle.after(channel("b"), Watermark(9))
    assert back.news_since(idle) == (Watermark(9),), "it is waited for again"
