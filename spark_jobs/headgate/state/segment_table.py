"""One keyed state as a stack of sorted segments, newest first: lookups, writes and scans on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.state.base import StateSession, StateTable
from headgate.state.batches import (
    KeyBatch,
    as_batch,
    check_partial_keys,
    check_values,
    clearing_rows,
    refuse_duplicates,
)
from headgate.state.descriptors import StateDescriptor
from headgate.state.key_groups import Hashes, KeyGroupRange, hash_bounds
from headgate.state.keys import Mask, Positions, fingerprint, flatten, take_columns
from headgate.state.lookup import SortedKeys, older_duplicates
from headgate.state.merging import SegmentPolicy, merge, merge_depth
from headgate.state.segments import Layout, Segment
from headgate.state.versions import StateFile


@dataclass(frozen=True, slots=True)
class Part:
    """A segment over some key groups, and the file in which it lies; None: not yet written."""

    segment: Segment
    key_groups: KeyGroupRange
    file: StateFile | None = None


class SegmentTable(StateTable):
    """One state: the parent's segments, and in front of them what the session wrote."""

    def __init__(self, session: StateSession, layout: Layout, parts: list[Part], policy: SegmentPolicy) -> None:
        self._session = session
        self.layout = layout
        self.descriptor = layout.descriptor
        self.parts = parts
        self._policy = policy
        self.written: list[Segment] = []

    def get(self, batch: KeyBatch) -> tuple[pa.Table, Mask]:
        self._session.check_batch(self.descriptor, batch)
        segments = self._segments()
        origin, positions = _locate(segments, self._keys(batch))
        found: Mask = origin >= 0
        for number, segment in enumerate(segments):
            if segment.tombstones is not None:
                rows = np.flatnonzero(origin == number)
                found[rows] = ~segment.tombstones[positions[rows]]
        stored = [segment.batch.columns[self.layout.first_value : self.layout.tombstone] for segment in segments]
        values = _gather(self.descriptor, stored, origin, positions)
        return pa.Table.from_arrays(values, schema=self.descriptor.value), found

    def put(self, batch: KeyBatch, values: pa.Table | pa.RecordBatch) -> None:
        self._session.check_batch(self.descriptor, batch)
        values = as_batch(values)
        check_values(self.descriptor, batch, values)
        cleared = clearing_rows(self.descriptor, values.columns, len(batch))
        self._write(batch, values.columns, cleared)

    def delete(self, batch: KeyBatch) -> None:
        self._session.check_batch(self.descriptor, batch)
        nothing = [pa.nulls(len(batch), field.type) for field in self.descriptor.value]
        self._write(batch, nothing, np.ones(len(batch), dtype=np.bool_))

    def entries(self, batch: KeyBatch) -> tuple[Positions, pa.Table]:
        self._session.check_open()
        in_namespace = batch.namespaces is not None
        check_partial_keys(self.descriptor, batch)
        self._session.check_owned(self.descriptor, batch)
        columns = [*batch.keys.columns, *([batch.namespaces] if in_namespace else [])]
        wanted = SortedKeys(batch.hashes, None, flatten(columns))
        matches = [_with_hashes(segment, batch.hashes) for segment in self._segments()]
        merged = merge(self.layout, matches, drop_tombstones=True)
        rows, owners = wanted.locate(self._partial_keys(merged, in_namespace))
        order = np.argsort(owners, kind="stable")
        table = pa.Table.from_batches([self._entry(merged)]).take(pa.array(rows[order]))
        return owners[order], table

    def scan(self, key_groups: KeyGroupRange | None = None) -> Iterator[pa.RecordBatch]:
        return (self._entry(segment) for segment in self._merged(key_groups))

    def count(self) -> int:
        return sum(len(segment) for segment in self._merged(None))

    def _segments(self) -> list[Segment]:
        return [*self.written, *(part.segment for part in self.parts)]

    def _keys(self, batch: KeyBatch) -> SortedKeys:
        columns = list(batch.keys.columns)
        if batch.namespaces is not None:
            columns.append(batch.namespaces)
        subhashes = None
        if self.descriptor.has_subkey:
            subhashes = fingerprint(flatten(columns[len(self.descriptor.key) :]), len(batch))
        return SortedKeys(batch.hashes, subhashes, flatten(columns))

    def _write(self, batch: KeyBatch, values: Sequence[pa.Array], cleared: Mask) -> None:
        if not len(batch):
            return
        keys = self._keys(batch)
        columns = [pa.array(batch.hashes)]
        if keys.subhashes is not None:
            columns.append(pa.array(keys.subhashes))
        columns += batch.keys.columns
        if batch.namespaces is not None:
            columns.append(batch.namespaces)
        columns += [*values, pa.array(cleared)]
        if keys.subhashes is not None:
            order = np.lexsort((keys.subhashes, keys.hashes))
            keys, columns = keys.take(order), take_columns(columns, order)
        refuse_duplicates(self.descriptor, int(older_duplicates(keys).sum()), len(batch))
        segment = Segment(self.layout, pa.RecordBatch.from_arrays(columns, schema=self.layout.plain_schema))
        self.written.insert(0, segment)
        depth = merge_depth([segment.weight for segment in self.written], self._policy)
        if depth:
            self.written[:depth] = [merge(self.layout, self.written[:depth], drop_tombstones=False)]

    def _partial_keys(self, segment: Segment, in_namespace: bool) -> SortedKeys:
        """The keys of a segment's rows without map keys, and without namespaces unless asked for."""
        columns = segment.batch.columns[self.layout.first_key : self.layout.first_subkey]
        if in_namespace:
            columns.append(segment.batch.column(self.layout.first_value - 1))
        return SortedKeys(segment.hashes, None, flatten(columns))

    def _merged(self, key_groups: KeyGroupRange | None) -> Iterator[Segment]:
        low, high = hash_bounds(self._session.check_range(key_groups), self._session.max_parallelism)
        segments = [segment.between(low, high) for segment in self._segments()]
        return _merge_in_chunks(self.layout, [segment for segment in segments if len(segment)], self._policy)

    def _entry(self, segment: Segment) -> pa.RecordBatch:
        columns = segment.batch.columns
        kept = [columns[0], *columns[self.layout.first_key : self.layout.tombstone]]
        return pa.RecordBatch.from_arrays(kept, schema=self.descriptor.entry)


def _with_hashes(segment: Segment, hashes: Hashes) -> Segment:
    """The rows of a segment that have one of the hashes."""
    hashes = np.unique(hashes)
    starts = np.searchsorted(segment.hashes, hashes, "left")
    lengths = np.searchsorted(segment.hashes, hashes, "right") - starts
    rows = np.arange(int(lengths.sum())) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return Segment(segment.layout, segment.batch.take(pa.array(rows)))


def _locate(segments: Sequence[Segment], wanted: SortedKeys) -> tuple[Positions, Positions]:
    """For each wanted row the newest segment that knows it (-1: none), and where it is there."""
    origin = np.full(len(wanted), -1, dtype=np.int64)
    positions = np.zeros(len(wanted), dtype=np.int64)
    pending: Positions | None = None
    for number, segment in enumerate(segments):
        rows, at = segment.keys.locate(wanted)
        if not len(rows):
            continue
        hits = rows if pending is None else pending[rows]
        origin[hits] = number
        positions[hits] = at
        if len(rows) == len(wanted):
            break
        left: Mask = np.ones(len(wanted), dtype=np.bool_)
        left[rows] = False
        rest = np.flatnonzero(left)
        pending = rest if pending is None else pending[rest]
        wanted = wanted.take(rest)
    return origin, positions


def _gather(
    descriptor: StateDescriptor, columns: Sequence[list[pa.Array]], origin: Positions, positions: Positions
) -> list[pa.Array]:
    """The value columns of the rows that were located, null where there are none."""
    counts = np.bincount(origin + 1, minlength=len(columns) + 1)[1:]
    used = np.flatnonzero(counts)
    if not len(used):
        return [pa.nulls(len(origin), field.type) for field in descriptor.value]
    if counts[used[0]] == len(origin):
        return take_columns(columns[used[0]], positions)
    indices = np.zeros(len(origin), dtype=np.int64)
    parts = []
    taken = 0
    for number in used.tolist():
        rows = np.flatnonzero(origin == number)
        indices[rows] = np.arange(taken, taken + len(rows))
        taken += len(rows)
        parts.append(take_columns(columns[number], positions[rows]))
    order = pa.array(indices, mask=origin < 0)
    return [pa.concat_arrays(column).take(order) for column in zip(*parts, strict=True)]


def _merge_in_chunks(layout: Layout, segments: Sequence[Segment], policy: SegmentPolicy) -> Iterator[Segment]:
    """The live rows of the segments, some thousands at a time, ascending by hash."""
    rows = sum(len(segment) for segment in segments)
    if not rows:
        return
    largest = max(segments, key=len)
    step = max(1, len(largest) * policy.scan_rows // rows)
    bounds = [int(hash) for hash in np.unique(largest.hashes[step::step])]
    starts = [0] * len(segments)
    for bound in [*bounds, None]:
        ends = [
            len(segment) if bound is None else int(np.searchsorted(segment.hashes, bound, "left"))
            for segment in segments
        ]
        chunk = [segment.slice(start, end) for segment, start, end in zip(segments, starts, ends, strict=True)]
        merged = merge(layout, chunk, drop_tombstones=True)
        if len(merged):
            yield merged
        starts = ends
