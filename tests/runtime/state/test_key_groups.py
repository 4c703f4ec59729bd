"""Key groups: the hash decides the key group, the key group the subtask, and all three ascend together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.state.errors import ForeignKeyGroup
from headgate.state.key_groups import (
    MAX_HASH,
    MIN_HASH,
    KeyGroupRange,
    check_parallelism,
    hash_bounds,
    key_group,
    subtask_of,
    subtask_range,
)

hashes = st.integers(MIN_HASH, MAX_HASH)
max_parallelisms = st.integers(1, 2**15)


@st.composite
def parallelisms(draw: st.DrawFn) -> tuple[int, int]:
    max_parallelism = draw(max_parallelisms)
    return draw(st.integers(1, max_parallelism)), max_parallelism


@given(hashes, hashes, max_parallelisms)
def test_a_larger_hash_never_has_a_smaller_key_group(one: int, other: int, max_parallelism: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= key_group(low, max_parallelism) <= key_group(high, max_parallelism) < max_parallelism


@given(st.lists(hashes), max_parallelisms)
def test_an_array_of_hashes_gives_what_each_hash_gives(some: list[int], max_parallelism: int) -> None:
    groups = key_group(np.array(some, dtype=np.int64), max_parallelism)
    assert groups.tolist() == [key_group(hash, max_parallelism) for hash in some]


@given(parallelisms(), st.data())
def test_the_subtask_of_a_key_group_is_the_one_whose_range_holds_it(
    sizes: tuple[int, int], data: st.DataObject
) -> None:
    parallelism, max_parallelism = sizes
    group = data.draw(st.integers(0, max_parallelism - 1))
    owner = subtask_of(group, parallelism, max_parallelism)
    assert group in subtask_range(owner, parallelism, max_parallelism)
    assert subtask_of(np.array([group]), parallelism, max_parallelism).tolist() == [owner]


@given(parallelisms())
def test_the_ranges_of_all_subtasks_are_the_key_groups_once_and_even(sizes: tuple[int, int]) -> None:
    parallelism, max_parallelism = sizes
    parallelism = min(parallelism, 200)
    ranges = [subtask_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert ranges[0].start == 0
    assert ranges[-1].end == max_parallelism - 1
    assert all(left.end + 1 == right.start for left, right in pairwise(ranges))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_ten_key_groups_fall_to_subtasks_as_in_flink() -> None:
    """F78: 10 key groups over 1, 2 and 3 subtasks."""
    spread = [[str(subtask_range(i, n, 10)) for i in range(n)] for n in (1, 2, 3)]
    assert spread == [["0..9"], ["0..4", "5..9"], ["0..3", "4..6", "7..9"]]


@given(max_parallelisms, st.data())
def test_the_bounds_of_a_range_are_its_first_and_last_hash(max_parallelism: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, max_parallelism - 1))
    end = data.draw(st.integers(start, max_parallelism - 1))
    low, high = hash_bounds(KeyGroupRange(start, end), max_parallelism)
    assert (key_group(low, max_parallelism), key_group(high, max_parallelism)) == (start, end)
    assert low == MIN_HASH if start == 0 else key_group(low - 1, max_parallelism) == start - 1
    assert high == MAX_HASH if end == max_parallelism - 1 else key_group(high + 1, max_parallelism) == end + 1


def test_ranges_intersect_and_cover() -> None:
    whole, low, high = KeyGroupRange(0, 9), KeyGroupRange(0, 4), KeyGroupRange(5, 9)
    assert whole.intersect(high) == high
    assert low.intersect(high) is None
    assert KeyGroupRange(3, 6).intersect(low) == KeyGroupRange(3, 4)
    assert whole.covers(low)
    assert not low.covers(whole)
    assert (len(low), 4 in low, 5 in low) == (5, True, False)
    with pytest.raises(ValueError, match=r"5\.\.4"):
        KeyGroupRange(5, 4)


@given(st.integers(0, 20), st.integers(0, 20), st.sets(st.integers(0, 40)))
def test_a_range_without_holes_is_the_key_groups_that_are_in_none(start: int, length: int, taken: set[int]) -> None:
    whole = KeyGroupRange(start, start + length)
    holes: list[KeyGroupRange] = []
    for group in sorted(taken):
        if holes and holes[-1].end + 1 == group and group % 3:
            holes[-1] = KeyGroupRange(holes[-1].start, group)
        else:
            holes.append(KeyGroupRange(group, group))
    inside = [hole for hole in holes if hole.intersect(whole)]
    left = [group for piece in whole.without(inside) for group in range(piece.start, piece.end + 1)]
    assert left == [group for group in range(start, start + length + 1) if group not in taken]


@pytest.mark.parametrize("sizes", [(0, 128), (129, 128), (1, 0), (1, 2**15 + 1)])
def test_an_impossible_parallelism_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ForeignKeyGroup, match="use 1 to"):
        check_parallelism(*sizes)


def test_a_subtask_or_key_group_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ForeignKeyGroup, match="use 0 to 1"):
        subtask_range(2, 2, 128)
    with pytest.raises(ForeignKeyGroup, match="the last one is 127"):
        hash_bounds(KeyGroupRange(0, 128), 128)
