"""Key groups: which part of the key space a row belongs to, and which subtask owns it.

The hash is a signed 64-bit integer (Spark's xxhash64 of the key columns, carried in the row). Its upper 32 bits,
shifted to be unsigned, are scaled to [0, max_parallelism). The key group therefore grows with the signed hash:
rows sorted by hash are sorted by key group, and a range of key groups is one contiguous slice of them.
Subtasks own contiguous ranges of key groups, by Flink's formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from headgate.state.errors import ForeignKeyGroup

MIN_HASH = -(2**63)
MAX_HASH = 2**63 - 1
MAX_PARALLELISM_LIMIT = 2**15
"""The largest max-parallelism, as in Flink; a stored key gives the key group two bytes."""

Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupRange:
    """The key groups from `start` to `end`, both included."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"key groups {self.start}..{self.end} are no range: 0 <= start <= end must hold")

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, key_group: int) -> bool:
        return self.start <= key_group <= self.end

    def __str__(self) -> str:
        return f"{self.start}..{self.end}"

    def covers(self, other: KeyGroupRange) -> bool:
        return self.start <= other.start and other.end <= self.end

    def intersect(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """The key groups in both, or None when there are none."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else None

    def without(self, holes: Iterable[KeyGroupRange]) -> list[KeyGroupRange]:
        """What is left of the range when others, ascending, are taken out of it."""
        left: list[KeyGroupRange] = []
        start = self.start
        for hole in holes:
            if start < hole.start:
                left.append(KeyGroupRange(start, min(hole.start - 1, self.end)))
            start = max(start, hole.end + 1)
        if start <= self.end:
            left.append(KeyGroupRange(start, self.end))
        return left


@overload
def key_group(hash: int, max_parallelism: int) -> int: ...
@overload
def key_group(hash: Hashes, max_parallelism: int) -> Hashes: ...
def key_group(hash: int | Hashes, max_parallelism: int) -> int | Hashes:
    """The key group of a signed 64-bit hash, or of each hash of an int64 array."""
    return (((hash >> 32) + 2**31) * max_parallelism) >> 32


def subtask_range(index: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """The key groups that subtask `index` of `parallelism` owns."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= index < parallelism:
        raise ForeignKeyGroup(
            f"subtask {index} does not exist at parallelism {parallelism}", hint=f"use 0 to {parallelism - 1}"
        )
    start = (index * max_parallelism + parallelism - 1) // parallelism
    end = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


@overload
def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> int: ...
@overload
def subtask_of(key_group: Hashes, parallelism: int, max_parallelism: int) -> Hashes: ...
def subtask_of(key_group: int | Hashes, parallelism: int, max_parallelism: int) -> int | Hashes:
    """The subtask that owns a key group, or each key group of an array."""
    return key_group * parallelism // max_parallelism


def hash_bounds(key_groups: KeyGroupRange, max_parallelism: int) -> tuple[int, int]:
    """The smallest and the largest signed hash (both included) whose key group lies in the range."""
    if key_groups.end >= max_parallelism:
        raise ForeignKeyGroup(
            f"key groups {key_groups} do not exist at max-parallelism {max_parallelism}",
            hint=f"the last one is {max_parallelism - 1}",
        )
    first = -(-(key_groups.start << 32) // max_parallelism)
    behind = -(-((key_groups.end + 1) << 32) // max_parallelism)
    return (first - 2**31) << 32, ((behind - 2**31) << 32) - 1


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse a parallelism that leaves a subtask without key groups, or more key groups than a stored key can name."""
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ForeignKeyGroup(
            f"max-parallelism {max_parallelism} is not possible", hint=f"use 1 to {MAX_PARALLELISM_LIMIT}"
        )
    if not 1 <= parallelism <= max_parallelism:
        raise ForeignKeyGroup(
            f"parallelism {parallelism} is not possible with max-parallelism {max_parallelism}",
            hint=f"use 1 to {max_parallelism}",
        )
