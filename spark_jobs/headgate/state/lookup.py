"""Finds the rows of one sorted set of keys in another, whole arrays at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.state.key_groups import Hashes
from headgate.state.keys import Mask, Positions, equal_rows, take_columns


class SortedKeys:
    """Keys in ascending order of (hash, subhash), with the flattened columns that decide when these are equal."""

    __slots__ = ("columns", "hashes", "subhashes")

    def __init__(self, hashes: Hashes, subhashes: Positions | None, columns: list[pa.Array]) -> None:
        self.hashes = hashes
        self.subhashes = subhashes
        self.columns = columns

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Positions) -> SortedKeys:
        subhashes = None if self.subhashes is None else self.subhashes[rows]
        return SortedKeys(self.hashes[rows], subhashes, take_columns(self.columns, rows))

    def slice(self, start: int, stop: int) -> SortedKeys:
        """The rows from `start` to before `stop`, zero-copy."""
        if start == 0 and stop == len(self):
            return self
        subhashes = None if self.subhashes is None else self.subhashes[start:stop]
        columns = [column.slice(start, stop - start) for column in self.columns]
        return SortedKeys(self.hashes[start:stop], subhashes, columns)

    def locate(self, wanted: SortedKeys) -> tuple[Positions, Positions]:
        """Which rows of `wanted` are here, ascending, and where each of them is. Here, each key must be unique."""
        if not len(self) or not len(wanted):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        start = int(np.searchsorted(wanted.hashes, self.hashes[0], "left"))
        stop = int(np.searchsorted(wanted.hashes, self.hashes[-1], "right"))
        rows, at = self._locate(wanted.slice(start, stop))
        return (rows + start if start else rows), at

    def _locate(self, wanted: SortedKeys) -> tuple[Positions, Positions]:
        positions = self._first_candidates(wanted)
        rows = np.flatnonzero(self._same_hash(wanted.hashes, wanted.subhashes, positions))
        found: list[tuple[Positions, Positions]] = []
        while len(rows):
            at = positions[rows]
            equal = equal_rows(take_columns(self.columns, at), take_columns(wanted.columns, rows))
            if equal.all():
                found.append((rows, at))
                break
            found.append((rows[equal], at[equal]))
            rows = rows[~equal]
            positions[rows] += 1
            subhashes = None if wanted.subhashes is None else wanted.subhashes[rows]
            rows = rows[self._same_hash(wanted.hashes[rows], subhashes, positions[rows])]
        if len(found) == 1:
            return found[0]
        all_rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in found)])
        all_at = np.concatenate([np.empty(0, np.int64), *(at for _, at in found)])
        order = np.argsort(all_rows, kind="stable")
        return all_rows[order], all_at[order]

    def _first_candidates(self, wanted: SortedKeys) -> Positions:
        positions = np.searchsorted(self.hashes, wanted.hashes, "left")
        if self.subhashes is None or wanted.subhashes is None:
            return positions
        ends = np.searchsorted(self.hashes, wanted.hashes, "right")
        rows = np.flatnonzero(positions < ends)
        while len(rows):  # a binary search in each run of equal hashes, all runs at once
            middle = (positions[rows] + ends[rows]) >> 1
            right = self.subhashes[middle] < wanted.subhashes[rows]
            positions[rows[right]] = middle[right] + 1
            ends[rows[~right]] = middle[~right]
            rows = rows[positions[rows] < ends[rows]]
        return positions

    def _same_hash(self, hashes: Hashes, subhashes: Positions | None, positions: Positions) -> Mask:
        inside = np.minimum(positions, len(self) - 1)
        same: Mask = (self.hashes[inside] == hashes) & (positions < len(self))
        if self.subhashes is not None and subhashes is not None:
            same &= self.subhashes[inside] == subhashes
        return same


def older_duplicates(keys: SortedKeys) -> Mask:
    """Which rows have an equal one before them. Rows of one (hash, subhash) stand newest first."""
    older: Mask = np.zeros(len(keys), dtype=np.bool_)
    same = keys.hashes[1:] == keys.hashes[:-1]
    if keys.subhashes is not None:
        same &= keys.subhashes[1:] == keys.subhashes[:-1]
    left = np.flatnonzero(same)
    if not len(left):
        return older
    equal = _mark(keys, left, 1, older)
    if equal.all():
        return older
    runs = np.concatenate([np.zeros(1, np.int64), np.cumsum(~same)])
    mixed = np.zeros(int(runs[-1]) + 1, dtype=np.bool_)  # runs in which different keys share a hash
    mixed[runs[left[~equal]]] = True
    left = np.flatnonzero(mixed[runs])
    distance = 2
    while len(left):
        left = left[left + distance < len(keys)]
        left = left[runs[left] == runs[left + distance]]
        _mark(keys, left, distance, older)
        distance += 1
    return older


def _mark(keys: SortedKeys, left: Positions, distance: int, older: Mask) -> Mask:
    if not len(left):
        return np.ones(0, dtype=np.bool_)
    right = left + distance
    equal = equal_rows(take_columns(keys.columns, left), take_columns(keys.columns, right))
    older[right[equal]] = True
    return equal
