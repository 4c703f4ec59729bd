"""The file sink's committer is killed before each of its store calls in turn; the next life makes it good."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runtime.sink.stepping_store import KillAt, Killed
from tests.runtime.sink.world import World

ALL = (1, 2, 3)
Before = Callable[[str], None]
Act = Callable[[World, Before], object]


@pytest.fixture
def world() -> Iterator[World]:
    """Generation 1 has published group 1 and completed 2 and 3; of a fourth checkpoint something is staged.

    A move is broken off between copy and delete too: what a store with a rename can be left with is among that.
    """
    yield from history(World(split_moves=True))


def history(world: World) -> Iterator[World]:
    world.begin(1, [])
    for group in ALL:
        world.complete(1, group)
    world.commit(1, 1)
    world.stage(1, [999])
    yield world
    world.forget()


def each_kill(world: World, act: Act) -> Iterator[World]:
    """Copies of `world` in which `act` was killed before its call 0, 1, 2, ...; the last one has got through."""
    for at in itertools.count():
        copy = world.copy()
        try:
            act(copy, KillAt(at))
        except Killed:
            yield copy
            copy.forget()
            continue
        assert at > 5, "the act made hardly any call: this tested nothing"
        yield copy
        copy.forget()
        return


def commit_two_and_three(world: World, before: Before) -> None:
    world.commit(1, 2, before)
    world.commit(1, 3, before)


def go_on(world: World, before: Before | None = None, *, generation: int = 2) -> None:
    """Begin from checkpoint 3, which carries 2 and 3."""
    world.begin(generation, ALL, carried=(2, 3), before=before)


def go_back(world: World, before: Before | None = None, *, generation: int = 2) -> None:
    """Begin from checkpoint 1, which carries itself; 2 and 3 are given up."""
    world.begin(generation, (1,), carried=(1,), abandoned=(2, 3), before=before)


def assert_all(world: World) -> None:
    assert world.visible() == world.rows(*ALL)
    assert world.staged() == []


def assert_first(world: World) -> None:
    assert world.visible() == world.rows(1)
    assert world.staged() == []


def test_a_commit_killed_anywhere_is_completed_by_the_next_life(world: World) -> None:
    for after in each_kill(world, commit_two_and_three):
        assert set(world.rows(1)) <= set(after.visible()) <= set(world.rows(*ALL))
        go_on(after)
        assert_all(after)


def test_a_commit_killed_anywhere_can_be_gone_back_behind(world: World) -> None:
    for after in each_kill(world, commit_two_and_three):
        go_back(after)
        assert_first(after)


def test_a_beginning_killed_anywhere_is_repeated_by_the_next_life(world: World) -> None:
    for after in each_kill(world, go_on):
        go_on(after, generation=3)
        assert_all(after)


@pytest.mark.parametrize("published", [(), (2,), (2, 3)])
def test_a_rollback_killed_anywhere_is_completed_by_the_next_life(world: World, published: tuple[int, ...]) -> None:
    for group in published:
        world.commit(1, group)
    for after in each_kill(world, go_back):
        go_back(after, generation=3)
        assert_first(after)


@pytest.mark.parametrize("published", [(), (2,), (2, 3)])
def test_a_rollback_killed_anywhere_can_itself_be_taken_back(world: World, published: tuple[int, ...]) -> None:
    for group in published:
        world.commit(1, group)
    for after in each_kill(world, go_back):
        go_on(after, generation=3)
        assert_all(after)


def test_a_reinstatement_killed_anywhere_is_completed_by_the_next_life(world: World) -> None:
    world.commit(1, 2)
    go_back(world)
    for after in each_kill(world, lambda world, before: go_on(world, before, generation=3)):
        go_on(after, generation=4)
        assert_all(after)


def test_a_reinstatement_killed_anywhere_can_be_rolled_back_again(world: World) -> None:
    world.commit(1, 2)
    go_back(world)
    for after in each_kill(world, lambda world, before: go_on(world, before, generation=3)):
        go_back(after, generation=4)
        assert_first(after)


def test_back_and_forth_for_many_generations_ends_with_the_truth(world: World) -> None:
    for generation in range(2, 12, 2):
        go_back(world, generation=generation)
        assert_first(world)
        go_on(world, generation=generation + 1)
        assert_all(world)


def test_on_local_files_a_commit_killed_anywhere_can_be_gone_back_behind_and_taken_up_again(tmp_path: Path) -> None:
    for world in history(World(url=(tmp_path / "out").as_uri())):
        for after in each_kill(world, commit_two_and_three):
            go_back(after)
            assert_first(after)
            go_on(after, generation=3)
            assert_all(after)
