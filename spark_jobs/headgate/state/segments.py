"""Immutable sorted segments: the unit of the hashmap backend's versions, and the canonical format of a savepoint.

A segment is an Arrow IPC file (the random-access format), uncompressed, little-endian, with exactly one record batch:

    __hash        int64            the signed hash of the key columns
    __subhash     int64            the fingerprint (keys.py) of map-key and namespace columns; only in states with these
    <key>...                       the key columns, for a MAP followed by its map-key columns
    __namespace                    only in states with a namespace
    <value>...                     the value columns
    __tombstone   bool             true: the entry was deleted, its values are null

Rows ascend by (__hash, __subhash), so a range of key groups is a contiguous slice; a row is identified by hash, key
columns and namespace, and stands in a segment once. A state is a sequence of segments: the newest that knows a row
decides. The schema's metadata holds `headgate.segment` (the format version, now 1; a newer one is refused), and
`headgate.state` (the descriptor as JSON), so that a file can be read without its snapshot.

In memory a segment is the same record batch, or a slice of it; files are mapped, never read whole.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.state.descriptors import HASH, NAMESPACE, SUBHASH, TOMBSTONE, StateDescriptor
from headgate.state.errors import DamagedStateFile, StateFormatTooNew, StateWriteFailed
from headgate.state.key_groups import Hashes
from headgate.state.keys import Mask, flatten
from headgate.state.lookup import SortedKeys

SEGMENT_FORMAT = 1
_FORMAT_KEY = b"headgate.segment"
_STATE_KEY = b"headgate.state"
_CACHED_FILES = 512
_READS_BETWEEN_SWEEPS = 64


class Layout:
    """Where the columns of a state stand in its segments."""

    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor = descriptor
        subhash = [pa.field(SUBHASH, pa.int64())] if descriptor.has_subkey else []
        namespace = [pa.field(NAMESPACE, descriptor.namespace)] if descriptor.namespace is not None else []
        self.first_key = 1 + len(subhash)
        self.first_subkey = self.first_key + len(descriptor.key)
        self.first_value = self.first_key + len(descriptor.storage_key) + len(namespace)
        self.tombstone = self.first_value + len(descriptor.value)
        fields = [pa.field(HASH, pa.int64()), *subhash, *descriptor.storage_key, *namespace, *descriptor.value]
        self.plain_schema = pa.schema([*fields, pa.field(TOMBSTONE, pa.bool_())])

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of a file, with its metadata."""
        state = json.dumps(self.descriptor.to_json(), sort_keys=True)
        return self.plain_schema.with_metadata({_FORMAT_KEY: str(SEGMENT_FORMAT), _STATE_KEY: state})


class Segment:
    """A sorted record batch in a segment's layout."""

    def __init__(self, layout: Layout, batch: pa.RecordBatch) -> None:
        self.layout = layout
        self.batch = batch
        self.hashes: Hashes = batch.column(0).to_numpy()

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def keys(self) -> SortedKeys:
        """What identifies its rows."""
        subhashes = self.batch.column(1).to_numpy() if self.layout.descriptor.has_subkey else None
        columns = self.batch.columns[self.layout.first_key : self.layout.first_value]
        return SortedKeys(self.hashes, subhashes, flatten(columns))

    @cached_property
    def tombstones(self) -> Mask | None:
        """Which rows are deletions; None when none is."""
        column = self.batch.column(self.layout.tombstone)
        return column.to_numpy(zero_copy_only=False) if column.true_count else None

    @cached_property
    def weight(self) -> int:
        """Its size in rows of at most 64 bytes."""
        return max(len(self), int(self.batch.nbytes) // 64)

    def slice(self, start: int, stop: int) -> Segment:
        """The rows from `start` to before `stop`, zero-copy."""
        if start == 0 and stop == len(self):
            return self
        return Segment(self.layout, self.batch.slice(start, stop - start))

    def between(self, low: int, high: int) -> Segment:
        """The rows whose hash lies in [low, high], zero-copy."""
        return self.slice(*self.span(low, high))

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Where the rows whose hash lies in [low, high] start, and where they end."""
        if not len(self) or (low <= int(self.hashes[0]) and int(self.hashes[-1]) <= high):
            return 0, len(self)
        start = int(np.searchsorted(self.hashes, low, "left"))
        return start, int(np.searchsorted(self.hashes, high, "right"))


def write_segment(segment: Segment, path: Path) -> int:
    """Write a segment to a new file, without waiting for the disk, and return its length."""
    schema = segment.layout.schema
    try:
        with pa.OSFile(str(path), "wb") as sink:
            with pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays(segment.batch.columns, schema=schema))
            length: int = sink.tell()
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StateWriteFailed(
            f"state file {path} cannot be written: {error}", hint="make room on the disk of the working directory"
        ) from error
    return length


def read_segment(path: Path, layout: Layout) -> Segment:
    """Map a segment file into memory; its key columns and values must be those of the layout."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        schema = reader.schema
        _check_format(schema, path)
        if reader.num_record_batches != 1:
            raise DamagedStateFile(f"state file {path} holds {reader.num_record_batches} record batches instead of 1")
        batch = reader.get_batch(0)
    except pa.ArrowInvalid as error:
        raise DamagedStateFile(
            f"state file {path} is no segment: {error}", hint="restore the stream from an older checkpoint"
        ) from error
    if not schema.equals(layout.plain_schema):
        raise DamagedStateFile(
            f"state file {path} holds other columns than its version says: "
            f"{schema.remove_metadata()} instead of {layout.plain_schema}"
        )
    return Segment(layout, batch)


def _check_format(schema: pa.Schema, path: Path) -> None:
    version = (schema.metadata or {}).get(_FORMAT_KEY)
    if version is None or not version.isdigit():
        raise DamagedStateFile(
            f"state file {path} is an Arrow file, but no segment: its schema lacks 'headgate.segment'"
        )
    if int(version) > SEGMENT_FORMAT:
        raise StateFormatTooNew(
            f"state file {path} has segment format {int(version)}, this release reads up to {SEGMENT_FORMAT}",
            hint="restore with the release that wrote it, or a newer one",
        )


class SegmentCache:
    """Keeps the most recently used files mapped, because workers are reused. Files are immutable, names unique.

    A deleted file would take up the disk for as long as it is mapped: now and then those are looked for and let go.
    """

    def __init__(self, capacity: int = _CACHED_FILES) -> None:
        self._capacity = capacity
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._lock = threading.Lock()
        self._reads = 0

    def __len__(self) -> int:
        return len(self._segments)

    def read(self, path: Path, layout: Layout) -> Segment:
        """The segment of a file, which must exist."""
        key = str(path)
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None and segment.layout.descriptor == layout.descriptor:
                self._segments.move_to_end(key)
                return segment
        segment = read_segment(path, layout)
        with self._lock:
            self._segments[key] = segment
            self._reads += 1
            if self._reads % _READS_BETWEEN_SWEEPS == 0:
                for gone in [path for path in self._segments if not os.path.exists(path)]:
                    del self._segments[gone]
            while len(self._segments) > self._capacity:
                self._segments.popitem(last=False)
        return segment


MAPPED = SegmentCache()


def empty_segment(layout: Layout) -> Segment:
    return Segment(layout, pa.RecordBatch.from_pylist([], schema=layout.plain_schema))
