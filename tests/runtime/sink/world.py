"""A stream's history as a sink sees it, and what an outsider sees of the sink."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from hypothesis import HealthCheck, settings

from headgate.sink.base import BeginReport, SinkTask, staged_names
from headgate.sink.files import FilesSink
from headgate.sink.files_committer import FilesCommitter
from headgate.sink.files_layout import SinkLayout
from headgate.sink.files_writer import FilesWriter
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.sink.stepping_store import SteppingStore

STREAM = StreamName("orders")
SINK = VertexUid("out")
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For tests with random data: a busy machine is no failure."""

Handle = dict[str, Any]


def visible_ids(url: str, format: str = "parquet", options: Mapping[str, Any] | None = None) -> list[int]:
    """The column `id` of all rows that a plain reader of the folder finds, sorted, with repeats."""
    if url.startswith("file://"):
        filesystem, path = pafs.LocalFileSystem(), url.removeprefix("file://")
        there = Path(path).exists()
    else:
        scheme, _, path = url.partition("://")
        path = f"/{path}" if scheme == "memory" else path
        remote = fsspec.filesystem(scheme, **({"use_listings_cache": False, **options} if options else {}))
        filesystem, there = pafs.PyFileSystem(pafs.FSSpecHandler(remote)), remote.exists(path)
    if not there:
        return []
    table = ds.dataset(path, filesystem=filesystem, format=format).to_table(use_threads=False)
    return sorted(table["id"].to_pylist()) if "id" in table.column_names else []


def batch(ids: Iterable[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids)})


def task(generation: int = 1, *, epoch: int = 1, subtask: int = 0, restart: int = 0) -> SinkTask:
    return SinkTask(
        stream=STREAM,
        sink=SINK,
        generation=generation,
        restart=restart,
        attempt=0,
        epoch=epoch,
        subtask=subtask,
        task_attempt=0,
    )


def begun(sink: FilesSink) -> FilesSink:
    """Its target as the beginning of a life leaves it for the tasks."""
    sink._store().make()
    sink._store().make_folder(SinkLayout(STREAM, SINK).staged)
    return sink


@dataclass
class World:
    """A target with groups of known rows: group n holds the ids n*100, n*100+1, ... one for each of its files."""

    url: str = field(default_factory=lambda: f"memory://{uuid.uuid4().hex}")
    groups: dict[int, tuple[Handle, ...]] = field(default_factory=dict)
    split_moves: bool = False
    sink: VertexUid = SINK
    options: Mapping[str, Any] = field(default_factory=dict)
    history: str = "first"

    @cached_property
    def store(self) -> ObjectStore:
        store = open_store(self.url, self.options)
        store.make()
        return store

    def copy(self) -> World:
        """The same, in another place."""
        other = World(f"{self.url}-{uuid.uuid4().hex}", dict(self.groups), self.split_moves, self.sink, self.options)
        other.history = self.history
        if self.url.startswith("file://"):
            shutil.copytree(self.url.removeprefix("file://"), other.url.removeprefix("file://"))
            return other
        for info in self.store.list(""):
            other.store.replace(info.path, self.store.read(info.path))
        return other

    def forget(self) -> None:
        """Take it out of memory: fsspec's memory file system is slow when there is much in it."""
        if not self.url.startswith("memory://"):
            return
        memory = fsspec.filesystem("memory")
        for path in [path for path in memory.store if path.startswith("/" + self.url.removeprefix("memory://"))]:
            del memory.store[path]

    def stage(self, generation: int, ids: Iterable[int], *, subtask: int = 0) -> tuple[Handle, ...]:
        writer = FilesWriter(
            self.store, replace(task(generation, subtask=subtask), sink=self.sink), "parquet", "snappy"
        )
        writer.write(batch(ids))
        return writer.finish()

    def complete(self, generation: int, group: int, *, files: int = 2) -> None:
        """Stage a group and prepare it; its checkpoint is complete."""
        handles = [handle for n in range(files) for handle in self.stage(generation, [group * 100 + n], subtask=n)]
        self.committer(generation).prepare(handles)
        self.groups[group] = tuple(handles)

    def committer(
        self, generation: int, before: Callable[[str], object] | None = None, *, threads: int = 1
    ) -> FilesCommitter:
        store = self.store if before is None else SteppingStore(self.store, before, split_moves=self.split_moves)
        return FilesCommitter(store, STREAM, self.sink, Generation(generation), self.history, threads=threads)

    def begin(
        self,
        generation: int,
        lineage: Iterable[int],
        *,
        carried: Iterable[int] = (),
        abandoned: Iterable[int] = (),
        retained: Iterable[int] | None = None,
        before: Callable[[str], object] | None = None,
    ) -> BeginReport:
        """`retained`: the groups whose handles some retained snapshot carries; None: all of them."""
        kept = self.groups if retained is None else retained
        return self.committer(generation, before).begin(
            frozenset(CheckpointId(id) for id in lineage),
            [(CheckpointId(id), self.groups[id]) for id in carried],
            [(CheckpointId(id), self.groups[id]) for id in abandoned],
            staged_names(handle for id in kept for handle in self.groups[id]),
        )

    def commit(self, generation: int, group: int, before: Callable[[str], object] | None = None) -> None:
        self.committer(generation, before).commit(CheckpointId(group), self.groups[group])

    def rows(self, *groups: int) -> list[int]:
        """The truth."""
        return sorted(group * 100 + n for group in groups for n in range(len(self.groups[group])))

    def visible(self) -> list[int]:
        return visible_ids(self.url, options=self.options)

    def staged(self) -> list[str]:
        return [info.path for info in self.store.list(f"_headgate/{STREAM}/{self.sink}/staged")]
