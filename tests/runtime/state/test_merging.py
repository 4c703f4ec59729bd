"""When segments are merged: bounded in number, in rewriting, and in work at a time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.state.key_groups import KeyGroupRange
from headgate.state.merging import Merge, SegmentPolicy, Stack, merge_depth, plan_merges

POLICY = SegmentPolicy()
WHOLE = KeyGroupRange(0, 127)


def simulate(batch: int, keys: int, seals: int, overlap: bool) -> tuple[int, float]:
    """The largest number of segments, and how often a written row was rewritten, over many seals."""
    weights: list[int] = []
    most = rewritten = 0
    for _ in range(seals):
        weights.insert(0, batch)
        for plan in plan_merges([Stack(WHOLE, tuple(weights))], batch, POLICY):
            total = sum(weights[: plan.depth])
            merged = min(keys, total) if overlap else total
            rewritten += merged
            weights[: plan.depth] = [merged]
        most = max(most, len(weights))
    return most, rewritten / (batch * seals)


@pytest.mark.parametrize("batch", [1, 100, 5_000])
def test_segments_and_rewrites_grow_with_the_logarithm_of_a_growing_state(batch: int) -> None:
    seals = 2_000
    most, rewrites = simulate(batch, 10**9, seals, overlap=False)
    tiers = 1 + max(0.0, math.log(batch * seals / 1024, 4))
    assert most <= POLICY.fanout * (tiers + 1)
    if batch >= 1024:
        assert rewrites <= math.log(seals, 4) + 1


@pytest.mark.parametrize("batch", [2_000, 50_000, 1_000_000])
def test_segments_and_rewrites_are_bounded_however_long_a_stream_runs(batch: int) -> None:
    keys = 1_000_000
    most, rewrites = simulate(batch, keys, 2_000, overlap=True)
    assert most <= POLICY.fanout * (2 + math.log(keys / 1024, 4))
    assert rewrites <= math.log(max(keys / batch, 1), 4) + 2


@given(st.lists(st.integers(0, 10**7), max_size=60))
def test_what_is_left_unmerged_is_no_tier_too_many(weights: list[int]) -> None:
    rounds = 0
    while depth := merge_depth(weights, POLICY):
        weights = [sum(weights[:depth]), *weights[depth:]]
        rounds += 1
    assert rounds <= 20
    tiers = [POLICY.tier(weight) for weight in weights]
    highest = [max(tiers[: i + 1]) for i in range(len(tiers))]
    assert all(highest.count(tier) < POLICY.fanout for tier in highest)
    assert len(weights) < 2 or sum(weights[:-1]) < POLICY.most_above * weights[-1]


def test_a_state_that_is_written_again_and_again_takes_little_more_room_than_its_rows() -> None:
    keys, weights, room = 500_000, [500_000], []
    for _ in range(500):
        weights.insert(0, 50_000)
        for plan in plan_merges([Stack(WHOLE, tuple(weights))], 50_000, POLICY):
            weights[: plan.depth] = [min(keys, sum(weights[: plan.depth]))]
        room.append(sum(weights))
    assert sum(room) / len(room) < 2 * keys
    assert max(room) < (1 + POLICY.most_above) * keys


def test_a_tier_is_a_factor_of_four() -> None:
    assert [POLICY.tier(weight) for weight in (0, 1, 4095, 4096, 16383, 16384, 10**6)] == [0, 0, 0, 1, 1, 2, 4]


@st.composite
def stacks(draw: st.DrawFn) -> list[Stack]:
    edges = sorted(draw(st.sets(st.integers(1, 127), max_size=6)))
    starts, ends = [0, *edges], [*(edge - 1 for edge in edges), 127]
    weights = st.lists(st.integers(0, 10**6), max_size=12).map(tuple)
    return [Stack(KeyGroupRange(start, end), draw(weights)) for start, end in zip(starts, ends, strict=True)]


@given(stacks(), st.integers(0, 10**5), st.integers(1, 10**6))
def test_a_plan_stays_within_its_budget_and_moves_on(some: list[Stack], written: int, budget: int) -> None:
    policy = SegmentPolicy(merge_budget=budget, merge_factor=2)
    plan = plan_merges(some, written, policy)
    due = [stack for stack in some if merge_depth(stack.weights, policy)]
    assert bool(plan) == bool(due)
    cost = 0.0
    for step in plan:
        (stack,) = [stack for stack in due if stack.key_groups.covers(step.key_groups)]
        assert step.depth == merge_depth(stack.weights, policy)
        cost += sum(stack.weights[: step.depth]) * len(step.key_groups) / len(stack.key_groups)
    one_key_group = max((sum(stack.weights) / len(stack.key_groups) for stack in due), default=0)
    assert cost <= max(budget + 2 * written, one_key_group)
    assert plan == sorted(plan, key=lambda step: step.key_groups)


def test_a_merge_beyond_the_budget_is_done_for_some_key_groups_first() -> None:
    policy = SegmentPolicy(merge_budget=1000, merge_factor=0)
    stack = Stack(KeyGroupRange(0, 99), (1000, 1000, 1000, 1000))
    assert plan_merges([stack], 0, policy) == [Merge(KeyGroupRange(0, 24), 4)]


def test_the_highest_stack_is_merged_first() -> None:
    policy = SegmentPolicy(merge_budget=10, merge_factor=0)
    low, high = Stack(KeyGroupRange(0, 4), (2,) * 4), Stack(KeyGroupRange(5, 9), (2,) * 5)
    assert plan_merges([low, high], 0, policy) == [Merge(KeyGroupRange(5, 9), 5)]
