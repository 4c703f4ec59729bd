"""Two copies of a root, a driver on each, one output folder: a repair has what the other one published taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from headgate_contract.errors import Fenced, HeadgateError, SinkFailed
from headgate_contract.ids import CheckpointId
from tests.runtime.sink.stepping_store import KillAt, Killed
from tests.runtime.sink.world import World

Begin = Callable[[World], object]


def haunted(split_moves: bool = False) -> tuple[World, World]:
    """This log's world, and the phantom's: both go on from group 3 as generation 2, and both complete group 4.

    The phantom is quicker: its group 4 is published, and its group 5, which are the same records again.
    """
    own = World(split_moves=split_moves)
    own.begin(1, [])
    for group in (1, 2, 3):
        own.complete(1, group)
        own.commit(1, group)
    phantom = replace(own, groups=dict(own.groups))
    for world in (own, phantom):
        world.begin(2, [1, 2, 3])
    for group in (4, 5):
        phantom.complete(2, group)
        phantom.commit(2, group)
    own.complete(2, 4)
    return own, phantom


def take_over(world: World, generation: int, groups: Iterable[int], before: Callable[[str], object] | None = None):  # type: ignore[no-untyped-def]
    return world.committer(generation, before).take_over([(CheckpointId(id), world.groups[id]) for id in groups])


WAYS: dict[str, tuple[Begin, tuple[int, ...]]] = {
    "start": (lambda world: world.begin(3, [1, 2, 3, 4], carried=[4]), (1, 2, 3, 4)),
    "an older one": (lambda world: world.begin(3, [1, 2, 3], abandoned=[4]), (1, 2, 3)),
    "fresh": (lambda world: world.begin(3, [], abandoned=[4]), ()),
}


@pytest.mark.parametrize("way", WAYS)
def test_without_a_repair_every_way_on_is_refused_and_says_which_one_there_is(way: str) -> None:
    own, _ = haunted()
    with pytest.raises(SinkFailed, match="holds other files than group 4"):
        own.commit(2, 4)
    with pytest.raises(SinkFailed, match=r"another copy of the root.*`headgate repair orders` tells"):
        WAYS[way][0](own)


@pytest.mark.parametrize("way", WAYS)
def test_behind_a_repair_what_the_phantom_published_is_taken_back_and_every_record_is_there_once(way: str) -> None:
    own, phantom = haunted()
    begin, shown = WAYS[way]
    assert take_over(own, 3, [4]) == (4,)
    begin(own)
    assert own.visible() == own.rows(*shown)
    own.complete(3, 6)
    own.commit(3, 6)
    assert own.visible() == own.rows(*shown, 6)
    kept = [info.path for info in own.store.list("_headgate/orders/out/retracted")]
    assert len(kept) == {"start": 4, "an older one": 6, "fresh": 12}[way], "nothing of it was deleted"
    assert [info.path for info in own.store.list("_headgate/orders/out/aside")], "its manifest neither"
    for late in (4, 5):
        with pytest.raises(HeadgateError):
            phantom.commit(2, late)
    assert own.visible() == own.rows(*shown, 6)


def test_a_phantom_that_wakes_with_a_new_group_behind_a_repair_is_fenced() -> None:
    own, phantom = haunted()
    phantom.complete(2, 7)
    take_over(own, 3, [4])
    own.begin(3, [1, 2, 3, 4], carried=[4])
    with pytest.raises(Fenced):
        phantom.commit(2, 7)
    assert own.visible() == own.rows(1, 2, 3, 4)


def test_it_may_be_repeated_and_takes_nothing_over_twice() -> None:
    own, _ = haunted()
    assert take_over(own, 3, [1, 2, 3, 4]) == (4,)
    assert take_over(own, 3, [1, 2, 3, 4]) == ()
    own.begin(3, [1, 2, 3, 4], carried=[4])
    assert take_over(own, 3, [1, 2, 3, 4]) == ()
    assert own.visible() == own.rows(1, 2, 3, 4)


def test_a_group_that_is_empty_here_shows_nothing_of_the_other_one() -> None:
    own, _ = haunted()
    own.groups[4] = ()
    assert take_over(own, 3, [4]) == (4,)
    own.begin(3, [1, 2, 3, 4], carried=[4])
    assert own.visible() == own.rows(1, 2, 3)


def test_a_newer_generation_than_ours_is_not_taken_over() -> None:
    own, phantom = haunted()
    phantom.begin(7, [1, 2, 3, 4, 5])
    with pytest.raises(Fenced, match=r"generation 7 has begun; .*`headgate repair orders`"):
        take_over(own, 3, [4])
    assert take_over(own, 8, [4]) == (4,)
    with pytest.raises(SinkFailed, match="restore a snapshot older than 4"):
        own.begin(8, [1, 2, 3, 4], carried=[4])  # the other one has deleted what was only staged
    own.begin(8, [1, 2, 3], abandoned=[4])
    assert own.visible() == own.rows(1, 2, 3)


@pytest.mark.parametrize("split_moves", [False, True])
def test_it_may_be_broken_off_anywhere(split_moves: bool) -> None:
    calls: list[str] = []
    take_over(haunted(split_moves)[0], 3, [4], before=calls.append)
    for at in range(len(calls)):
        own, _ = haunted(split_moves)
        with pytest.raises(Killed):
            take_over(own, 3, [4], before=KillAt(at))
        take_over(own, 3, [4])
        own.begin(3, [1, 2, 3, 4], carried=[4])
        assert own.visible() == own.rows(1, 2, 3, 4), calls[at]
        own.forget()


def test_what_was_taken_back_is_told_as_that() -> None:
    own, _ = haunted()
    own.begin(3, [1, 2, 3])  # a root that was put back, of which nobody has said so
    held = own.committer(3).holdings()
    assert held is not None
    assert (sorted(held.groups), held.hidden) == ([1, 2, 3, 4, 5], (4, 5))
    assert own.visible() == own.rows(1, 2, 3)


def test_what_is_there_is_told_without_a_change_whoever_asks() -> None:
    own, phantom = haunted()
    before = sorted(info.path for info in own.store.list(""))
    held = replace(own, history="").committer(1).holdings()
    assert held is not None
    assert (held.history, held.generation, sorted(held.groups)) == ("first", 2, [1, 2, 3, 4, 5])
    assert set(held.groups[5]) == {handle["staged"] for handle in phantom.groups[5]}
    assert sorted(info.path for info in own.store.list("")) == before
    assert World().committer(1).holdings() is not None
