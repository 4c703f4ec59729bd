"""A life of a job with channels in the simulation: each source and each task is a task of the host, at its own pace."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import BatchResult, Cut, Json
from headgate.coordinator.messages import Action, BatchFailed, SourceEnded, TakeSnapshot, TaskAction
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate.driver.graph_running import in_flight_of, watermarks_of
from headgate.driver.loop import Afterwards
from headgate.driver.restoring import Restored
from headgate.driver.setup import LifeSetup
from headgate.gate.channel import Capacity
from headgate.gate.coordinator import GraphCoordinator
from headgate.gate.elements import Batch
from headgate.gate.messages import BatchTaken, ElementDone, FinishTask, HandedOver, RunElement, SourcesRun
from headgate.recovery.fetch import SnapshotFiles
from headgate.source.positions import InlineBook
from headgate.state.vertex import StatefulVertex
from headgate.testing.simulation.database import SimulatedCommitter
from headgate.testing.simulation.graph_job import GraphJob, last_word, of_source, sink_of
from headgate.testing.simulation.job import MAX_PARALLELISM, STREAM
from headgate.testing.simulation.laws import Moment
from headgate.testing.simulation.life import SimulatedLife
from headgate.testing.simulation.taker import SimulatedTaker
from headgate.testing.simulation.turns import Task
from headgate_contract import wire
from headgate_contract.errors import StorageError
from headgate_contract.fitting import JobShape
from headgate_contract.ids import VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import SnapshotMetadata, StateHandle

if TYPE_CHECKING:
    from headgate.testing.simulation.driver import SimulatedDriver

Counts = dict[str, int]


class GraphTaker(SimulatedTaker):
    """Uploads state and what is in flight."""

    def __init__(self, life: GraphLife) -> None:
        super(SimulatedTaker, self).__init__(
            store=life.store,
            paths=StreamPaths(STREAM),
            generation=life.generation,
            vertices={
                task: StatefulVertex(
                    uid=task,
                    name=task,
                    parallelism=life.parallelism,
                    max_parallelism=MAX_PARALLELISM,
                    backend="model",
                    directory=Path(),
                )
                for task in life.job.tasks
            },
            books={source: InlineBook(source, "model") for source in life.job.topology.sources},
            sinks=life.sinks,
            shared=life.shared,
            post=life.post,
            meter=CheckpointMeter(lambda cost: None),
        )
        self._life: GraphLife = life

    def _upload(self, action: TakeSnapshot, name: str, local: Path, reader: str = "") -> StateHandle:
        data = json.dumps(self._life.channel_files[name]).encode()
        path, where = self._place(action, f"{name}{reader}.c{action.checkpoint}g{self._generation}")
        with self._uploading(action, where):
            self._store.replace(where, data)
        return StateHandle(name, path, len(data), wire.sha256(data))


class GraphLife(SimulatedLife):
    """As SimulatedLife; the step of a task counts its records, and tells its sink each."""

    def __init__(self, driver: SimulatedDriver, setup: LifeSetup) -> None:
        super().__init__(driver, setup)
        assert self.model.graph is not None
        self.job: GraphJob = self.model.graph
        self.channel_files: dict[str, list[str]] = {}
        """What each file of a channel holds."""
        self.counted: dict[str, Counts] = {}
        """The segments of the state."""
        self._work: dict[VertexUid, deque[RunElement | FinishTask]] = {task: deque() for task in self.job.tasks}
        self._taken: dict[VertexUid, bool] = dict.fromkeys(self.job.topology.sources, True)
        self._positions: dict[VertexUid, int] = {}
        self._attempts = 0
        self._consumed: dict[VertexUid, set[str]] = {task: set() for task in self.job.tasks}
        pace = random.Random(f"{setup.started.launch}/{setup.restart}")
        actors = (*self.job.tasks, *self.job.topology.sources)
        self._pace = {each: pace.choice((0, 0, 0, 1, 3)) for each in actors}
        """How many turns each takes for an element, besides what it calls."""

    def _make_sinks(self) -> dict[VertexUid, SimulatedCommitter]:
        graph = self.model.graph
        assert graph is not None
        return {
            sink: SimulatedCommitter(self.driver.databases[sink], self.host, self.generation) for sink in graph.sinks
        }

    def shape(self) -> JobShape:
        return JobShape(
            max_parallelism=MAX_PARALLELISM,
            keyed=set(self.job.tasks),
            sources=dict.fromkeys(self.job.topology.sources, "model"),
            sinks=set(self.job.sinks),
            channels={str(id) for ids in self.job.topology.inputs.values() for id in ids},
        )

    def first_cut(self) -> Cut:
        return Cut(epoch=0, positions={source: {"next": 0} for source in self.job.topology.sources})

    def load(self, files: SnapshotFiles, metadata: SnapshotMetadata) -> Cut:
        """The snapshot's state, cut anew for this life's parallelism, and what was in flight."""
        versions: dict[VertexUid, dict[int, Json]] = {}
        for task, state in metadata.vertices.items():
            everything: Counts = {}
            for old in state.subtasks:
                for handle in old.files:
                    everything.update(json.loads(files.read(handle)))
            versions[task] = {}
            for subtask in range(self.parallelism):
                name = f"{self.prefix}.restored.{task}.s{subtask}"
                self.counted[name] = {
                    record: times for record, times in everything.items() if self._owner(_key(record)) == subtask
                }
                versions[task][subtask] = {"segments": [name]}
        for task_state in metadata.tasks.values():
            for held in task_state.inputs.values():
                for element in held.in_flight:
                    for handle in element.files:
                        self.channel_files[handle.name] = json.loads(files.read(handle))
        positions = {source: dict(state.position) for source, state in metadata.sources.items()}
        return Cut(
            epoch=1,
            versions=versions,
            positions=positions,
            records=metadata.records,
            finished=frozenset(metadata.finished),
        )

    def segment(self, name: str) -> Counts:
        return self.counted[name]

    def _make_taker(self) -> SimulatedTaker:
        return self.model.graph_taker_class(self)

    def _make_coordinator(self, restored: Restored) -> Coordinator:
        topology = self.job.topology
        flow = self.model.flow_class(
            topology,
            restored.cut.positions,
            exactly_once=self.job.exactly_once,
            capacity=Capacity(elements=self.job.capacity),
            watermarks=watermarks_of(topology, restored.tasks, restored.cut.watermark_ms),
            in_flight=in_flight_of(topology, restored.tasks),
        )
        self._positions = {source: int(position["next"]) for source, position in restored.cut.positions.items()}
        parts = self.job.parts
        return self.model.graph_coordinator_class(
            **self._beginning(restored),
            participants=frozenset(name for task, own in parts.items() for name in own.all(task)),
            flow=flow,
            tasks=parts,
            idle_after_ms={source: idle for source in self.job.timed if (idle := self.job.idle_after_ms) is not None},
        )

    def has_read_all(self) -> bool:
        assert isinstance(self.coordinator, GraphCoordinator)
        read = all(at >= self.job.records for at in self._positions.values())
        return read and self.coordinator.is_dry and self.coordinator.through >= self.job.ending

    def moment(self) -> Moment:
        coordinator = self.coordinator
        assert isinstance(coordinator, GraphCoordinator)
        held: dict[str, Counter[str]] = {}
        for task, gate in coordinator.flow.gates.items():
            for id, channel in gate.channels.items():
                written = [batch for batch in channel.batches if batch.before is None]
                running = coordinator.flow.at(task, id)
                written += [running] if running is not None and running.before is None else []
                records = [r for batch in written for file in batch.content for r in self.channel_files[file["name"]]]
                if records:
                    held[str(id)] = Counter(records)
        return Moment(
            states={task: self._state(coordinator.cuts[task], task) for task in self.job.tasks},
            finished=frozenset(task for task in self.job.tasks if task in coordinator.cuts[task].finished),
            in_flight=held,
            watermarks_ms={task: coordinator.flow.watermark_ms(task) for task in self.job.tasks},
        )

    def _state(self, cut: Cut, task: VertexUid) -> Counter[str]:
        counts: Counts = {}
        for version in cut.versions.get(task, {}).values():
            for segment in version["segments"]:
                counts.update(self.counted[segment])
        return Counter(counts)

    # ---- sources and tasks

    def _start_engine(self) -> list[Task]:
        self.post(SourcesRun())
        feeds = [self.host.spawn(f"source {each}", partial(self._feed, each)) for each in self._taken]
        return feeds + [self.host.spawn(f"task {each}", partial(self._run, each)) for each in self._work]

    def _perform(self, action: Action) -> Afterwards | None:
        if not isinstance(action, TaskAction):
            return super()._perform(action)
        match action:
            case RunElement(task=task) | FinishTask(task=task):
                self._work[task].append(action)
            case BatchTaken(source=source):
                self._taken[source] = True
        return None

    def _feed(self, source: VertexUid) -> None:
        while not self.ended:
            if source in self.job.bounded and self._taken[source] and self._positions[source] >= self.job.records:
                self.post(SourceEnded(source=source))
                return
            self.host.pause("waits to hand over", lambda: self.ended or self._may_go_on(source))
            if self.ended or not self._may_hand_over(source):
                continue
            for _ in range(self._pace[source]):
                self.host.pause("reads")
            first = self._positions[source]
            behind = min(first + self.job.batch, self.job.records)
            self._positions[source], self._taken[source] = behind, False
            numbers = range(first, behind)
            batch = Batch(of_source(source, numbers), len(numbers), 1, {"next": first}, {"next": behind})
            self.post(HandedOver(source=source, batch=batch))

    def _may_go_on(self, source: VertexUid) -> bool:
        return self._taken[source] and (source in self.job.bounded or self._may_hand_over(source))

    def _may_hand_over(self, source: VertexUid) -> bool:
        return self._taken[source] and self._positions[source] < self.job.records

    def _run(self, task: VertexUid) -> None:
        work = self._work[task]
        while not self.ended:
            self.host.pause("waits for an element", lambda: bool(work) or self.ended)
            if not work or self.ended:
                continue
            action = work.popleft()
            try:
                done = self._element(action) if isinstance(action, RunElement) else self._finish(action)
            except StorageError as error:
                self.post(BatchFailed(cause=f"task {task} failed: {error}"))
                return
            self.post(done)

    def _finish(self, action: FinishTask) -> ElementDone:
        """How many records it has had is said to its sink and to those behind it."""
        task, cut = action.task, action.cut
        self._attempts += 1
        name = f"{self.prefix}.a{self._attempts}.{task}"
        state = (self.counted[each] for version in cut.versions.get(task, {}).values() for each in version["segments"])
        counts: Counts = {}
        for segment in state:
            counts.update(segment)
        word = last_word(task, sum(counts.values()))
        staged = self.sinks[sink_of(task)].stage(f"{sink_of(task)}/{name}", [(word, 1)])
        self._end_step()
        result = BatchResult(
            epoch=cut.epoch + 1,
            versions={},
            positions={},
            staged={sink_of(task): (dict(staged),)},
            records=0,
            finished=frozenset({task}),
        )
        return ElementDone(task=task, result=result, made=self._hand_on(task, name, [word]))

    def _hand_on(self, task: VertexUid, name: str, records: list[str]) -> dict[VertexUid, Batch]:
        made: dict[VertexUid, Batch] = {}
        handed = list(self.job.hands_on(task, Counter(records)).elements())
        for producer in self.job.topology.ends[task] if handed else ():
            self.channel_files[name] = handed
            made[producer] = Batch(({"name": name, "rows": len(handed), "bytes": 1},), len(handed), 1)
        return made

    def _element(self, action: RunElement) -> ElementDone:
        task, cut, batch = action.task, action.cut, action.batch
        self._collect(task)
        is_fed = batch.before is not None
        records = list(batch.content) if is_fed else [r for f in batch.content for r in self.channel_files[f["name"]]]
        if not is_fed:
            self._consumed[task].update(str(file["name"]) for file in batch.content)
        self._attempts += 1
        name = f"{self.prefix}.a{self._attempts}.{task}"
        versions = {
            subtask: self._version(cut, task, subtask, f"{name}.s{subtask}", records)
            for subtask in range(self.parallelism)
        }
        for _ in range(self._pace[task]):
            self.host.pause("engine: works")
        staged = self.sinks[sink_of(task)].stage(f"{sink_of(task)}/{name}", [(record, 1) for record in records])
        self._end_step()
        result = BatchResult(
            epoch=cut.epoch + 1,
            versions={task: versions},
            positions={},
            staged={sink_of(task): (dict(staged),)},
            records=len(records) if is_fed else 0,
            watermark_ms=self.job.watermark(action.channel.producer, batch.after["next"]) if batch.after else None,
        )
        return ElementDone(task=task, result=result, made=self._hand_on(task, name, records))

    def _collect(self, task: VertexUid) -> None:
        """As production's tasks delete their scratch: what is gone cannot be uploaded any more."""
        for name in self._consumed[task] - self.coordinator.pinned_files():
            self.channel_files.pop(name, None)
            self._consumed[task].discard(name)

    def _version(self, cut: Cut, task: VertexUid, subtask: int, name: str, records: list[str]) -> Json:
        parent = list(cut.versions.get(task, {}).get(subtask, {"segments": []})["segments"])
        mine = Counter(record for record in records if self._owner(_key(record)) == subtask)
        if not mine:
            return {"segments": parent}
        counts: Counts = {}
        for segment in parent:
            counts.update(self.counted[segment])
        changed = {record: counts.get(record, 0) + times for record, times in mine.items()}
        if len(parent) >= 3:  # merged
            self.counted[name], parent = {**counts, **changed}, []
        else:
            self.counted[name] = changed
        return {"segments": [*parent, name]}


def _key(record: str) -> int:
    return zlib.crc32(record.encode())
