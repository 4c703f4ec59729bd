"""When a source that is silent becomes idle."""

from __future__ import annotations

from headgate.gate.silence import Silence
from headgate_contract.ids import VertexUid

A, B = VertexUid("a"), VertexUid("b")


def test_a_source_becomes_idle_once_in_each_silence_that_is_long_enough() -> None:
    silence = Silence({A: 100})
    silence.counts = True
    assert [silence.look(A, now, silent=True) for now in (0, 99, 100, 101)] == [False, False, True, False]
    assert silence.next_deadline() is None
    assert not silence.look(A, 150, silent=False)
    assert [silence.look(A, now, silent=True) for now in (200, 299, 300)] == [False, False, True]


def test_the_next_deadline_is_that_of_the_first_to_become_idle() -> None:
    silence = Silence({A: 100, B: 30})
    assert silence.next_deadline() is None, "neither is silent"
    silence.counts = True
    silence.look(A, 0, silent=True)
    silence.look(B, 50, silent=True)
    assert silence.next_deadline() == 80
    assert silence.look(B, 80, silent=True)
    assert silence.next_deadline() == 100


def test_silence_before_the_sources_run_does_not_count() -> None:
    silence = Silence({A: 100})
    assert not silence.look(A, 0, silent=True)
    assert not silence.look(A, 1000, silent=True)
    silence.counts = True
    assert not silence.look(A, 1050, silent=True)
    assert silence.look(A, 1150, silent=True)
