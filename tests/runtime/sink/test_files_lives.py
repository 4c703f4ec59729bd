"""Which groups count: the places that lives move ids to, against a model that knows each id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.sink.files_layout import PUBLISHED
from headgate.sink.files_lives import UNBORN, Life, Span, next_life
from headgate_contract import wire
from headgate_contract.ids import CheckpointId, Generation
from tests.runtime.sink.world import CALM

LIVES = st.lists(st.tuples(st.frozensets(st.integers(1, 12), max_size=12), st.integers(0, 12)), max_size=8)


@CALM
@given(LIVES)
def test_each_life_moves_on_what_is_on_the_wrong_side_of_its_lineage_and_nothing_else(
    lives: list[tuple[frozenset[int], int]],
) -> None:
    life, places, known = UNBORN, dict.fromkeys(range(1, 20), PUBLISHED), 0
    for generation, (lineage, more) in enumerate(lives, start=1):
        known = max([known, *lineage, more])
        life = next_life(life, Generation(generation), map(CheckpointId, lineage), max([0, *lineage, more]))
        for id in range(1, known + 1):
            places[id] += (places[id] % 2 == 1) != (id in lineage)
        assert life.known == known
        assert {id: life.place(CheckpointId(id)) for id in places} == places
        assert all(span.place > PUBLISHED and span.first <= span.last <= known for span in life.moved)


@CALM
@given(LIVES)
def test_a_life_is_kept_and_read_back_whole(lives: list[tuple[frozenset[int], int]]) -> None:
    life = UNBORN
    for lineage, more in lives:
        life = next_life(life, Generation(1), map(CheckpointId, lineage), max([0, *lineage, more]))
    assert wire.decode("manifest", wire.encode("manifest", life), Life, "test") == life


def test_the_same_lineage_again_changes_nothing() -> None:
    life = next_life(UNBORN, Generation(1), map(CheckpointId, (1, 2, 5)), known=7)
    assert life.moved == (Span(3, 4, 2), Span(6, 7, 2))
    assert next_life(life, Generation(1), map(CheckpointId, (1, 2, 5)), known=7) == life


def test_a_long_history_without_a_rollback_is_small() -> None:
    life = next_life(UNBORN, Generation(9), map(CheckpointId, range(1, 100_001)), known=100_000)
    assert life == Life(Generation(9), 100_000, ())
