"""Two committers at once: an old one is frozen before each of its store calls in turn, while a newer one runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate_contract.errors import Fenced
from tests.runtime.sink.stepping_store import FreezeAt, Killed, Turns
from tests.runtime.sink.world import CALM, World

ALL = (1, 2, 3)
Before = Callable[[str], None]
Act = Callable[[World, Before | None], object]


def commit_two_and_three(world: World, before: Before | None = None) -> None:
    """Generation 1's own."""
    world.commit(1, 2, before)
    world.commit(1, 3, before)


def to_three(generation: int) -> Act:
    return lambda world, before=None: world.begin(generation, ALL, carried=(2, 3), before=before)


def to_one(generation: int) -> Act:
    return lambda world, before=None: world.begin(generation, (1,), carried=(1,), abandoned=(2, 3), before=before)


def to_two(generation: int) -> Act:
    return lambda world, before=None: world.begin(generation, (1, 2), carried=(2,), abandoned=(3,), before=before)


def to_one_unaware(generation: int) -> Act:
    """The newest snapshots are damaged: nobody knows what they carried."""
    return lambda world, before=None: world.begin(generation, (1,), carried=(1,), retained=(1,), before=before)


CASES = {
    "commit, then a plain restart": ((), commit_two_and_three, to_three(2), ALL),
    "commit, then a rollback": ((), commit_two_and_three, to_one(2), (1,)),
    "commit, then a rollback of half": ((), commit_two_and_three, to_two(2), (1, 2)),
    "commit, then a rollback that knows nothing of it": ((), commit_two_and_three, to_one_unaware(2), (1,)),
    "late commit of what was retracted": ((to_one(2),), commit_two_and_three, to_one(3), (1,)),
    "late commit of what was reinstated": ((to_one(2),), commit_two_and_three, to_three(3), ALL),
    "restart, then a restart": ((), to_three(2), to_three(3), ALL),
    "restart, then a rollback": ((), to_three(2), to_one(3), (1,)),
    "rollback, then its reversal": ((commit_two_and_three,), to_one(2), to_three(3), ALL),
    "rollback of the unpublished, then its reversal": ((), to_one(2), to_three(3), ALL),
    "rollback, then the same again": ((commit_two_and_three,), to_one(2), to_one(3), (1,)),
    "reversal, then a rollback": ((commit_two_and_three, to_one(2)), to_three(3), to_one(4), (1,)),
    "reversal, then a rollback of half": ((commit_two_and_three, to_one(2)), to_three(3), to_two(4), (1, 2)),
}


def make(history: Iterable[Act] = (), *, files: int = 2) -> World:
    """Generation 1 has published group 1, and completed 2 and 3; then came `history`."""
    world = World(split_moves=True)
    world.begin(1, [])
    for group in ALL:
        world.complete(1, group, files=files)
    world.commit(1, 1)
    for act in history:
        act(world, None)
    return world


@pytest.mark.parametrize("case", CASES)
def test_a_frozen_committer_changes_nothing_when_it_wakes(case: str) -> None:
    history, old, new, truth = CASES[case]
    world = make(history)
    for at in itertools.count():
        copy = world.copy()

        def meanwhile(copy: World = copy) -> None:
            new(copy, None)
            assert copy.visible() == copy.rows(*truth), "right, even if the frozen one never wakes"

        freeze = FreezeAt(at, meanwhile)
        with suppress(Fenced):
            old(copy, freeze)
        if not freeze.froze:
            break
        assert copy.visible() == copy.rows(*truth)
        copy.forget()
    assert at > 2, "the old one made hardly any call: this tested nothing"


@pytest.mark.parametrize("case", CASES)
def test_a_frozen_committer_that_wakes_and_is_killed_at_once_changes_nothing(case: str) -> None:
    history, old, new, truth = CASES[case]
    world = make(history, files=1)
    for at, more in ((at, more) for at in itertools.count() for more in (2, 3)):
        copy = world.copy()
        freeze = FreezeAt(at, lambda copy=copy: new(copy, None), then_kill_after=more)
        with suppress(Fenced, Killed):
            old(copy, freeze)
        if not freeze.froze:
            break
        assert copy.visible() == copy.rows(*truth), f"frozen before call {at}, killed {more} calls later"
        copy.forget()


@pytest.mark.parametrize("published", [(), (2,), (2, 3)])
def test_a_driver_that_is_frozen_within_a_commit_is_told_that_it_is_fenced(published: tuple[int, ...]) -> None:
    world = make()
    for group in published:
        world.commit(1, group)
    calls: list[str] = []
    world.copy().commit(1, 3, calls.append)
    last_look = max(at for at, call in enumerate(calls) if "/lives/" in call)
    for at in range(last_look + 1):
        copy = world.copy()
        with pytest.raises(Fenced, match="generation 2 has gone back behind group 3"):
            copy.commit(1, 3, FreezeAt(at, lambda copy=copy: to_one(2)(copy, None)))
        assert copy.visible() == copy.rows(1)
        copy.forget()


@settings(CALM, max_examples=50)
@example(case="rollback of the unpublished, then its reversal", turns=[1, 2])
@given(case=st.sampled_from(sorted(CASES)), turns=st.lists(st.integers(1, 25), min_size=2, max_size=8))
def test_two_committers_by_turns_end_with_the_truth(case: str, turns: list[int]) -> None:
    history, old, new, truth = CASES[case]
    world = make(history, files=1)
    game = Turns()
    game.actor("old", lambda: old(world, game.before("old")))
    game.actor("new", lambda: new(world, game.before("new")))
    for actor, calls in zip(itertools.cycle(["old", "new"]), turns, strict=False):
        game.run(actor, calls)
    game.finish()
    assert set(game.errors) <= {"old"}, game.errors
    assert all(isinstance(error, Fenced) for error in game.errors.values()), game.errors
    assert world.visible() == world.rows(*truth)
    world.forget()


def test_a_commit_that_copies_while_its_successor_cleans_up_hides_the_copy() -> None:
    """Without a rename the staged file is deleted and visible: nobody but the old driver itself can know."""
    world = make(files=1)
    new = to_one_unaware(2)
    theirs: list[str] = []
    mine: list[str] = []
    world.copy().commit(1, 2, theirs.append)
    new(world.copy(), mine.append)

    def until(calls: list[str], start: str) -> int:
        return next(at for at, call in enumerate(calls) if call.startswith(start))

    game = Turns()
    game.actor("old", lambda: world.commit(1, 2, game.before("old")))
    game.actor("new", lambda: new(world, game.before("new")))
    game.run("old", until(theirs, "create"))
    game.run("new", until(mine, "delete"))
    game.run("old", until(theirs, "delete after copy") - until(theirs, "create"))
    game.run("new")
    assert world.visible() == world.rows(1, 2), "the hole is there"
    game.finish()
    assert isinstance(game.errors["old"], Fenced)
    assert world.visible() == world.rows(1)


def test_a_frozen_driver_cannot_publish_what_was_retracted() -> None:
    world = make()
    commit_two_and_three(world)
    to_one(2)(world, None)
    with pytest.raises(Fenced, match=r"generation 1 of stream orders .* generation 2 has gone back behind group 2"):
        world.commit(1, 2)
    assert world.visible() == world.rows(1)


def test_a_frozen_driver_may_repeat_what_its_successor_stands_on() -> None:
    world = make()
    to_three(2)(world, None)
    commit_two_and_three(world)
    assert world.visible() == world.rows(*ALL)


def test_a_frozen_driver_cannot_publish_what_its_successor_never_heard_of() -> None:
    world = make()
    world.begin(2, (1,), carried=(1,))
    with pytest.raises(Fenced, match="gone back behind group 2"):
        world.commit(1, 2)
    assert world.visible() == world.rows(1)


def test_an_older_generation_cannot_begin_after_a_newer_one() -> None:
    world = make()
    to_three(3)(world, None)
    with pytest.raises(Fenced, match=r"generation 2 of stream orders .* generation 3 has begun"):
        to_one(2)(world, None)
    assert world.visible() == world.rows(*ALL)
