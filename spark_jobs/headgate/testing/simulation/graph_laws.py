"""What must hold of a job with channels, told from storage and the sinks alone.

The law of cuts is a law of each channel. Exactly once, what a task has had by a channel and what is in flight in it are
together just what the task before it has handed on, or what the source had up to its position. At least once it is no
less.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.coordinator.cut import is_at_end
from headgate.testing.simulation.database import Database, Row
from headgate.testing.simulation.disk import Disk
from headgate.testing.simulation.graph_job import (
    GraphJob,
    Records,
    last_word,
    last_words,
    of_source,
    sink_of,
    without_last_words,
)
from headgate.testing.simulation.laws import Completed, LawBroken, Laws, Moment
from headgate.testing.simulation.lives import Steps
from headgate_contract import wire
from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import SnapshotMetadata, StateHandle


class GraphLaws(Laws):
    """As those of one chain; `position` is the sum over all sources."""

    def __init__(self, disk: Disk, databases: Mapping[VertexUid, Database], steps: Steps, job: GraphJob) -> None:
        self.job = job
        self.truth = job.truth()
        self.databases = databases
        self.in_flight = 0
        """Snapshots with a micro-batch in flight."""
        self.ended = 0
        """Snapshots in which a source has ended."""
        self.event_times = 0
        """Tasks in snapshots that had been told how far event time has come."""
        first = next(iter(databases.values()))
        super().__init__(disk, first, steps, job.records * len(job.topology.sources), 1)
        self._sources, self._tasks = frozenset(job.topology.sources), frozenset(job.tasks)

    def __post_init__(self) -> None:
        super().__post_init__()
        for database in self.databases.values():
            database.told = self._told

    def seen(self) -> Counter[str]:
        kind = "exactly once" if self.job.exactly_once else "at least once"
        return super().seen() + Counter(
            {
                f"graph: {kind}": 1,
                "graph: snapshots with batches in flight": self.in_flight,
                "graph: snapshots with an ended source": self.ended,
                "graph: tasks in snapshots that know the event time": self.event_times,
            }
        )

    def _last_words(self, own: Sequence[str]) -> list[Row]:
        return []  # those of tasks have a law of their own

    @property
    def _of_each_source(self) -> int:
        return self.job.records

    # ---- the cut

    def _check_cut(self, metadata: SnapshotMetadata, ref: dict[str, object], snapshot: Completed) -> None:
        states = {task: self._state(metadata, ref, snapshot, task) for task in self.job.tasks}
        said = {task: self._rows(self.lineage(snapshot.id), task, f"snapshot {snapshot.id}") for task in self.job.tasks}
        found_in_flight = False
        for task, ids in self.job.topology.inputs.items():
            held: Records = Counter()
            wanted: Records = Counter()
            for id in ids:
                if id in self.job.topology.sources.values():
                    position = int(metadata.sources[id.producer].position["next"])
                    wanted.update(of_source(id.producer, range(position)))
                    continue
                wanted.update(self.job.hands_on(id.producer, said[id.producer]))
                inputs = metadata.tasks[task].inputs if task in metadata.tasks else {}
                elements = inputs[str(id)].in_flight if str(id) in inputs else ()  # it may have ended
                for handle in (handle for element in elements for handle in element.files):
                    found_in_flight = True
                    held.update(self._read(ref, snapshot, metadata, handle))
            self._compare(f"snapshot {snapshot.id}: {task}", states[task] + held, wanted)
        self.in_flight += found_in_flight
        if self.job.exactly_once:
            self._check_event_time(metadata, f"snapshot {snapshot.id}")
        for task in self.job.tasks:
            self._check_said(f"snapshot {snapshot.id}: {task}", task, said[task], states[task], metadata)
        self.ended += any(is_at_end(dict(state.position)) for state in metadata.sources.values())

    def _check_said(
        self, what: str, task: VertexUid, said: Records, state: Records, metadata: SnapshotMetadata
    ) -> None:
        """Each record that it has had, and of each time that it has finished how many there were; that once."""
        words = last_words(task, said)
        if said - words != state:
            raise LawBroken(f"{what} has said {said - words - state} too much")
        now, finished = last_word(task, state.total()), task in metadata.finished
        if max(words.values(), default=0) > 1 or (words[now] != 1 and finished):
            raise LawBroken(f"{what} has {'' if finished else 'not '}finished behind {state.total()}, and said {words}")

    def _check_event_time(self, metadata: SnapshotMetadata, what: str) -> None:
        """Of event time, too, nothing is lost between two tasks, and nothing told that belongs behind the cut.

        An input that has ended, and is not kept any more, holds up nobody. In a later life it is there once more, and
        what it had told is not: it may hold up its task then, and never bring it on.
        """
        for task, state in metadata.tasks.items():
            ids = self.job.topology.inputs[task]
            ended = {id for id in ids if self._has_ended(metadata, id.producer)}
            for id in ids:
                if id in ended:
                    continue
                held = state.inputs[str(id)]
                told = [each.watermark_ms for each in held.in_flight if not each.files]
                level = max((ms for ms in (held.watermark_ms, *told) if ms is not None), default=None)
                if id in self.job.topology.sources.values():
                    wanted = self.job.watermark(id.producer, int(metadata.sources[id.producer].position["next"]))
                else:
                    wanted = metadata.tasks[id.producer].watermark_ms
                if level != wanted:
                    raise LawBroken(f"{what}: by {id} the event time {level} is told, and it is {wanted}")
            levels = [held.watermark_ms for id, held in state.inputs.items() if id not in map(str, ended)]
            known = [level for level in levels if level is not None]
            wanted = min(known, default=None) if len(known) == len(levels) else None
            kept = any(str(id) in state.inputs for id in ended)
            held_up = kept and (state.watermark_ms is None or (wanted is not None and state.watermark_ms < wanted))
            if levels and self.job.idle_after_ms is None and state.watermark_ms != wanted and not held_up:
                raise LawBroken(f"{what}: {task} has the event time {state.watermark_ms}, its inputs {levels}")
            self.event_times += state.watermark_ms is not None

    def _has_ended(self, metadata: SnapshotMetadata, producer: VertexUid) -> bool:
        if producer in metadata.sources:
            return is_at_end(dict(metadata.sources[producer].position))
        return all(self._has_ended(metadata, id.producer) for id in self.job.topology.inputs[producer])

    def _compare(self, what: str, found: Records, wanted: Records) -> None:
        lost, more = wanted - found, found - wanted
        if lost or (more and self.job.exactly_once):
            raise LawBroken(f"{what}: {sorted(lost)} are lost, {sorted(more)} are too much")

    def _state(
        self, metadata: SnapshotMetadata, ref: dict[str, object], snapshot: Completed, task: VertexUid
    ) -> Records:
        counts: dict[str, int] = {}
        if task in metadata.vertices:
            for subtask in metadata.vertices[task].subtasks:
                for handle in subtask.files:
                    counts.update(self._read(ref, snapshot, metadata, handle))
        return Counter(counts)

    def _read(
        self, ref: dict[str, object], snapshot: Completed, metadata: SnapshotMetadata, handle: StateHandle
    ) -> Any:
        path = self._place(metadata, ref, handle.path)
        data = self.disk.objects.get(path)
        if data is None or len(data) != handle.length or wire.sha256(data) != handle.sha256:
            raise LawBroken(f"snapshot {snapshot.id} is completed, and {path} is not there as it says")
        return json.loads(data)

    def _rows(self, lineage: list[int], task: VertexUid, what: str) -> Records:
        """What the sink of a task was given in these snapshots."""
        rows: Records = Counter()
        staged = self.databases[sink_of(task)].staged
        for name in (name for id in lineage for name in self.completed[id].own):
            if name.startswith(f"{sink_of(task)}/"):
                if name not in staged:
                    raise LawBroken(f"{what}: what was staged as {name} is gone")
                rows.update(str(record) for record, _ in staged[name])
        return rows

    def _restores_to(self, id: int) -> Moment:
        metadata, ref = self._snapshots[id]
        held: dict[str, Records] = {}
        for task in metadata.tasks.values():
            for channel, each in task.inputs.items():
                for handle in (handle for element in each.in_flight for handle in element.files):
                    records = self._read(ref, self.completed[id], metadata, handle)
                    held[channel] = held.get(channel, Counter()) + Counter(records)
        return replace(
            super()._restores_to(id),
            in_flight=held,
            watermarks_ms={task: state.watermark_ms for task, state in metadata.tasks.items()},
        )

    # ---- the sinks

    def check(self) -> None:
        changes = sum(database.changes for database in self.databases.values())
        if self.disk.changes != self._seen[0]:
            self._check_kept()
        if self._seen != (self.disk.changes, changes):
            self._check_effects()
        self._seen = (self.disk.changes, changes)

    def _check_effects(self) -> None:
        for task in self.job.tasks:
            database = self.databases[sink_of(task)]
            self._check_shown(database)
            rows = Counter(str(record) for record, _ in database.visible())
            if self.job.exactly_once:
                self._compare_shown(f"sink of {task}", rows, task)

    def _compare_shown(self, what: str, rows: Records, task: VertexUid) -> None:
        more = without_last_words(rows) - self.truth[task]
        if more:
            raise LawBroken(f"{what}: {sorted(more)} are visible, too often or at all")

    def check_end(self) -> None:
        self.check()
        for task in self.job.tasks:
            rows = Counter(str(record) for record, _ in self.databases[sink_of(task)].visible())
            self._compare(f"at the end: the sink of {task}", without_last_words(rows), self.truth[task])
