"""The `hashmap` backend: a version is a list of immutable sorted segments, newest first; no directory, no links.

A step reads the mapped segments of its parent and writes one new one, into which it merges what the size tiers say
(merging.py). Merges happen in `seal`, within a budget. After a rescale a segment is shared: each new subtask's version
names it with its own slice of the key groups, and nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from headgate.state.base import StateBackend, StateSession, named_descriptor
from headgate.state.batches import as_batch
from headgate.state.descriptors import StateDescriptor
from headgate.state.key_groups import KeyGroupRange, hash_bounds
from headgate.state.merging import Merge, SegmentPolicy, Stack, merge, plan_merges
from headgate.state.segment_table import Part, SegmentTable
from headgate.state.segments import MAPPED, Layout, Segment, write_segment
from headgate.state.versions import RestoredPiece, StateFile, StateVersion, link_or_copy, unique_name


class HashMapSession(StateSession):
    """Writes one new segment for each state that it changed."""

    def __init__(
        self,
        parent: StateVersion,
        descriptors: tuple[StateDescriptor, ...],
        directory: Path,
        identity: str,
        policy: SegmentPolicy,
    ) -> None:
        super().__init__(descriptors, parent.key_groups, parent.max_parallelism, identity)
        self._parent = parent
        self._directory = directory
        self._policy = policy
        self._by_name = {descriptor.name: descriptor for descriptor in descriptors}
        self._tables: dict[str, SegmentTable] = {}
        self._new_paths: list[Path] = []

    def table(self, name: str) -> SegmentTable:
        self.check_open()
        if name not in self._tables:
            layout = Layout(named_descriptor(self._by_name, name))
            parts = [self._part(file, layout) for file in self._files_of(name)]
            self._tables[name] = SegmentTable(self, layout, parts, self._policy)
        return self._tables[name]

    def _files_of(self, name: str) -> list[StateFile]:
        return [file for file in self._parent.files if file.table == name]

    def _part(self, file: StateFile, layout: Layout) -> Part:
        segment = MAPPED.read(self._directory / file.name, layout)
        return Part(segment.between(*self._bounds(file.key_groups)), file.key_groups, file)

    def _bounds(self, key_groups: KeyGroupRange) -> tuple[int, int]:
        return hash_bounds(key_groups, self.max_parallelism)

    def _seal(self) -> StateVersion:
        files: list[StateFile] = []
        for name in self._by_name:
            table = self._tables.get(name)
            files += self._seal_table(table) if table is not None and table.written else self._files_of(name)
        return StateVersion(
            self._parent.backend, self.identity, self.key_groups, self.max_parallelism, tuple(files), self.descriptors
        )

    def _seal_table(self, table: SegmentTable) -> list[StateFile]:
        fresh = merge(table.layout, table.written, drop_tombstones=not table.parts)
        parts = [Part(fresh, self.key_groups), *table.parts] if len(fresh) else table.parts
        plan = plan_merges(self._stacks(parts), fresh.weight, self._policy)
        merged = [self._run(run, parts, table.layout) for run in _adjacent(plan)]
        files = [file for file in merged if file is not None]
        for part in parts:
            taken = [step.key_groups for step in plan if part in _covering(parts, step.key_groups)[: step.depth]]
            left = part.key_groups.without(taken)
            if left:
                file = part.file or self._write(part.segment, part.key_groups)
                for key_groups in left:
                    files += clip(file, part.segment, key_groups, self.max_parallelism, self._policy)
        return files

    def _stacks(self, parts: Sequence[Part]) -> list[Stack]:
        """The key groups, cut so that each stretch lies under the same segments."""
        edges = sorted({edge for part in parts for edge in (part.key_groups.start, part.key_groups.end + 1)})
        stacks = []
        for start, behind in pairwise(edges):
            key_groups = KeyGroupRange(start, behind - 1)
            bounds = self._bounds(key_groups)
            weights = [part.segment.between(*bounds).weight for part in _covering(parts, key_groups)]
            if weights:
                stacks.append(Stack(key_groups, tuple(weights)))
        return stacks

    def _run(self, steps: Sequence[Merge], parts: Sequence[Part], layout: Layout) -> StateFile | None:
        """Carry out adjacent merges into one file; None if nothing is left of the rows."""
        merged: list[pa.RecordBatch] = []
        for step in steps:
            covering = _covering(parts, step.key_groups)
            bounds = self._bounds(step.key_groups)
            sources = [part.segment.between(*bounds) for part in covering[: step.depth]]
            merged.append(merge(layout, sources, drop_tombstones=step.depth == len(covering)).batch)
        segment = Segment(layout, as_batch(pa.Table.from_batches(merged)) if len(merged) > 1 else merged[0])
        if not len(segment):
            return None
        return self._write(segment, KeyGroupRange(steps[0].key_groups.start, steps[-1].key_groups.end))

    def _write(self, segment: Segment, key_groups: KeyGroupRange) -> StateFile:
        name = unique_name(self.identity, ".arrow")
        path = self._directory / name
        self._new_paths.append(path)
        length = write_segment(segment, path)
        table = segment.layout.descriptor.name
        return StateFile(name, length, table, key_groups, len(segment), self._policy.tier(segment.weight))

    def _release(self) -> None:
        if self._closed != "sealed":
            for path in self._new_paths:
                path.unlink(missing_ok=True)
        self._tables.clear()


class HashMapBackend(StateBackend):
    """Keyed state in sorted, memory-mapped Arrow segments."""

    name: ClassVar[str] = "hashmap"

    def __init__(self, policy: SegmentPolicy | None = None) -> None:
        self._policy = policy or SegmentPolicy()

    def _open(
        self, parent: StateVersion, descriptors: tuple[StateDescriptor, ...], directory: Path, identity: str
    ) -> HashMapSession:
        return HashMapSession(parent, descriptors, directory, identity, self._policy)

    def _restore(
        self,
        pieces: Sequence[RestoredPiece],
        descriptors: tuple[StateDescriptor, ...],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        directory: Path,
        identity: str,
    ) -> StateVersion:
        layouts = {descriptor.name: Layout(descriptor) for descriptor in descriptors}
        files: list[StateFile] = []
        for piece in pieces:
            for file in piece.version.files:
                shared = file.key_groups.intersect(key_groups)
                if shared is None:
                    continue
                path = directory / file.name
                link_or_copy(piece.directory / file.name, path)
                if shared == file.key_groups:
                    files.append(file)
                else:
                    files += clip(file, MAPPED.read(path, layouts[file.table]), shared, max_parallelism, self._policy)
        return StateVersion(self.name, identity, key_groups, max_parallelism, tuple(files), descriptors)


def clip(
    file: StateFile, segment: Segment, key_groups: KeyGroupRange, max_parallelism: int, policy: SegmentPolicy
) -> list[StateFile]:
    """The slice of a file over some of its key groups; nothing if no row lies there."""
    if key_groups == file.key_groups:
        return [file]
    inside = segment.between(*hash_bounds(key_groups, max_parallelism))
    if not len(inside):
        return []
    return [StateFile(file.name, file.length, file.table, key_groups, len(inside), policy.tier(inside.weight))]


def _covering(parts: Sequence[Part], key_groups: KeyGroupRange) -> list[Part]:
    return [part for part in parts if part.key_groups.covers(key_groups)]


def _adjacent(plan: Iterable[Merge]) -> list[list[Merge]]:
    """The merges of a plan in runs of neighbouring key groups."""
    runs: list[list[Merge]] = []
    for step in plan:
        if runs and runs[-1][-1].key_groups.end + 1 == step.key_groups.start:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs
