"""Merges segments, the newest row of each key winning, and plans which ones to merge: by size tiers.

A tier holds weights that differ by less than a factor of 4. As soon as `fanout` segments of one tier have gathered,
they are merged, together with everything newer. So a state of n rows, each write of which brings b of them, has at most
about fanout * log4(n / 1024) segments over each key group, and a row is rewritten about log4(n / b) times in its life.
As soon as the newer segments weigh `most_above` times the oldest one, everything is merged: rows that no reader finds
any more cost room, and would go up with the next checkpoint. One plan stays within a budget: a merge that is larger is
done in part, over some key groups, and the next plan goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.state.key_groups import KeyGroupRange
from headgate.state.keys import Mask
from headgate.state.lookup import SortedKeys, older_duplicates
from headgate.state.segments import Layout, Segment, empty_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPolicy:
    """When segments are merged, and how much at a time. Weights count rows of at most 64 bytes."""

    fanout: int = 4
    """How many segments of one tier may lie above each other."""
    smallest_tier: int = 1024
    """Segments up to four times this weight are one tier."""
    most_above: float = 1.5
    """How much the segments above the oldest one may weigh, in its weights."""
    merge_budget: int = 1_000_000
    merge_factor: int = 8
    """One `seal` merges at most `merge_budget`, plus `merge_factor` times the weight that it was given to write."""
    scan_rows: int = 65_536
    """How many stored rows a batch of a scan is made from."""

    def tier(self, weight: int) -> int:
        """The size class of a segment."""
        return max(0, ((weight // self.smallest_tier).bit_length() - 1) // 2)


def merge(layout: Layout, newest_first: Sequence[Segment], *, drop_tombstones: bool) -> Segment:
    """One segment with the newest row of each key; without its deletions if nothing older exists."""
    sources = [segment for segment in newest_first if len(segment)]
    if not sources:
        return empty_segment(layout)
    if len(sources) == 1:
        return _without_tombstones(sources[0]) if drop_tombstones else sources[0]
    order, keys = _sorted_keys([segment.keys for segment in sources])
    keep = ~older_duplicates(keys)
    if drop_tombstones and any(segment.tombstones is not None for segment in sources):
        keep &= ~np.concatenate([_tombstones(segment) for segment in sources])[order]
    order = order[keep]
    if len(order) == len(sources[0]) and int(order.max(initial=-1)) == len(order) - 1:
        return sources[0]  # it covers all older ones
    indices = pa.array(order)
    columns = zip(*(segment.batch.columns for segment in sources), strict=True)
    merged = [pa.concat_arrays(column).take(indices) for column in columns]
    return Segment(layout, pa.RecordBatch.from_arrays(merged, schema=layout.plain_schema))


def _sorted_keys(sources: Sequence[SortedKeys]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], SortedKeys]:
    hashes = np.concatenate([source.hashes for source in sources])
    columns = [pa.concat_arrays(column) for column in zip(*(source.columns for source in sources), strict=True)]
    subhashes = [source.subhashes for source in sources if source.subhashes is not None]
    if subhashes:
        all_subhashes = np.concatenate(subhashes)
        order = np.lexsort((all_subhashes, hashes))
        return order, SortedKeys(hashes, all_subhashes, columns).take(order)
    order = np.argsort(hashes, kind="stable")
    return order, SortedKeys(hashes, None, columns).take(order)


def _without_tombstones(segment: Segment) -> Segment:
    if segment.tombstones is None:
        return segment
    return Segment(segment.layout, segment.batch.filter(pa.array(~segment.tombstones)))


def _tombstones(segment: Segment) -> Mask:
    return np.zeros(len(segment), dtype=np.bool_) if segment.tombstones is None else segment.tombstones


@dataclass(frozen=True, slots=True)
class Stack:
    """Key groups over which the same segments lie, with the weight that each has there, newest first."""

    key_groups: KeyGroupRange
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge the `depth` newest segments over these key groups."""

    key_groups: KeyGroupRange
    depth: int


def merge_depth(weights: Sequence[int], policy: SegmentPolicy) -> int:
    """How many of the newest segments should be merged now; 0 for none."""
    depth = highest = in_tier = 0
    for number, weight in enumerate(weights, start=1):
        if policy.tier(weight) > highest:
            highest, in_tier = policy.tier(weight), 0
        in_tier += 1
        if in_tier >= policy.fanout:
            depth = number
    if len(weights) > 1 and sum(weights[:-1]) >= policy.most_above * weights[-1]:
        return len(weights)
    return depth


def plan_merges(stacks: Sequence[Stack], written: int, policy: SegmentPolicy) -> list[Merge]:
    """What to merge now, ascending by key group: the highest stacks first, as long as the budget lasts.

    `written` is the weight of what the session wrote. At least one merge is planned if any is due.
    """
    budget = policy.merge_budget + policy.merge_factor * written
    wanted = [(stack, merge_depth(stack.weights, policy)) for stack in stacks]
    wanted = [(stack, depth) for stack, depth in wanted if depth]
    wanted.sort(key=lambda choice: (-len(choice[0].weights), choice[0].key_groups.start))
    plan: list[Merge] = []
    for stack, depth in wanted:
        cost = sum(stack.weights[:depth])
        if cost > budget:
            if plan:
                continue
            share = max(1, len(stack.key_groups) * budget // cost)
            start = stack.key_groups.start
            return [Merge(KeyGroupRange(start, min(stack.key_groups.end, start + share - 1)), depth)]
        budget -= cost
        plan.append(Merge(stack.key_groups, depth))
    return sorted(plan, key=lambda merge: merge.key_groups)
