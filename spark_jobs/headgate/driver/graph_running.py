"""How a life runs a job with channels: a thread for each task, which the coordinator gives one element at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from queue import SimpleQueue

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut, Json
from headgate.coordinator.messages import FinishOperators, TaskAction
from headgate.driver.engine import MicroBatch, Written
from headgate.driver.loop import StreamEnding
from headgate.driver.restoring import Restored
from headgate.driver.running import Means, Running, source_place
from headgate.driver.steps import batch_of
from headgate.gate.coordinator import GraphCoordinator, TaskParts
from headgate.gate.elements import Batch, ChannelId, Data, Watermark
from headgate.gate.flow import Flow, Topology
from headgate.gate.messages import BatchTaken, ElementDone, FinishTask, HandedOver, RunElement, SourcesRun
from headgate.gate.watermarks import Watermarks
from headgate.job.tasks import GraphPlan, Task
from headgate.source.place import Place
from headgate.step import channel_files
from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import InFlight, InputState, TaskState


class GraphRunning(Running):
    """Sources hand over and wait until there is room; tasks run what they are given, each in its own thread."""

    def __init__(self, means: Means, *, exactly_once: bool) -> None:
        super().__init__(means)
        self._exactly_once = exactly_once
        tasks, sources = means.plan.tasks, means.plan.sources
        self._work: dict[VertexUid, SimpleQueue[RunElement | FinishTask | None]]
        self._work = {task.uid: SimpleQueue() for task in tasks}
        self._taken: dict[VertexUid, SimpleQueue[bool]] = {source.uid: SimpleQueue() for source in sources}
        """Of each source: whether what it has handed over was taken."""
        self._consumed: dict[VertexUid, set[str]] = {task.uid: set() for task in tasks}
        """The channel files that each task has read, and that may be needed all the same."""
        self._began: dict[VertexUid, Json] = {}
        """S_n of each source when the life began."""
        self._reached: dict[VertexUid, Json] = {}
        """S_n behind what each source has handed over."""
        self._threads = [
            threading.Thread(target=self._run_task, args=(task,), name=f"task {task.uid}", daemon=True)
            for task in tasks
        ]
        self._closed = False
        self._coordinator: GraphCoordinator | None = None

    def coordinator(self, plain: Coordinator, restored: Restored) -> Coordinator:
        plan = self._means.plan
        topology = topology_of(plan)
        flow = Flow(
            topology,
            restored.cut.positions,
            exactly_once=self._exactly_once,
            watermarks=watermarks_of(topology, restored.tasks, restored.cut.watermark_ms),
            in_flight=in_flight_of(topology, restored.tasks),
        )
        own = {each.name: getattr(plain, each.name) for each in fields(plain) if each.init}
        own["participants"] = participants_of(plan)
        self._coordinator = GraphCoordinator(**own, flow=flow, tasks=parts_of(plan), idle_after_ms=idle_after(plan))
        return self._coordinator

    def begin(self, cut: Cut) -> None:
        self._began = {source.uid: dict(cut.positions[source.uid]) for source in self._means.plan.sources}
        self._reached = {source.uid: dict(cut.positions[source.uid]) for source in self._means.plan.sources}
        for thread in self._threads:
            thread.start()
        self._engine.begin({uid: dict(position) for uid, position in self._reached.items()}, self._on_batch)
        self.loop.post(SourcesRun())

    def perform(self, action: FinishOperators | TaskAction) -> None:
        match action:
            case RunElement(task=task) | FinishTask(task=task):
                self._work[task].put(action)
            case BatchTaken(source=source):
                self._taken[source].put(True)

    def look(self) -> None:
        self._note_channels()

    def close(self) -> None:
        self._closed = True
        for work in self._work.values():
            work.put(None)
        for taken in self._taken.values():
            taken.put(False)

    def has_ended(self, within_s: float) -> bool:
        for thread in self._threads:
            if thread.is_alive():  # a life that ended while it restored has begun none
                thread.join(within_s)
        return not any(thread.is_alive() for thread in self._threads)

    # ---- sources

    def _on_batch(self, batch: MicroBatch) -> None:
        """In the source's thread: hand over, and wait until there is room for it. The next one comes behind that."""
        if self._closed:
            raise StreamEnding
        self._means.points.reach("before-batch")
        try:
            with self.working(f"reading where micro-batch {batch.number} of source {batch.source} ends"):
                before, after = self._reached[batch.source], self._engine.position_after(batch)
        except Exception as error:
            self.failed(f"micro-batch {batch.number} of source {batch.source} failed", error)
            raise
        self._reached[batch.source] = after
        self.loop.post(HandedOver(source=batch.source, batch=Batch(content=batch, before=before, after=after)))
        if not self._taken[batch.source].get():
            raise StreamEnding

    # ---- tasks

    def _run_task(self, task: Task) -> None:
        work = self._work[task.uid]
        while (action := work.get()) is not None and not self._closed:
            try:
                with self.working(_piece(task, action)):
                    done = self._finish(task, action) if isinstance(action, FinishTask) else self._run(task, action)
            except BaseException as error:  # noqa: BLE001 - the stream fails of it, and says so
                place = self._place(task, action, error) if isinstance(action, RunElement) else None
                self.failed(f"task {task.uid} failed", error, place)
                return
            self.loop.post(done)
            self._note_channels()

    def _note_channels(self) -> None:
        """How full they were a moment ago: for people, who see by it which task holds up the others."""
        assert self._coordinator is not None
        filled = {f"channel {channel}": float(batches) for channel, batches in self._coordinator.filled.items()}
        watermark = self._coordinator.watermark_ms
        self._means.heart.note(
            lambda progress: replace(progress, watermark_ms=watermark, extra={**progress.extra, **filled})
        )

    def _run(self, task: Task, action: RunElement) -> ElementDone:
        self._collect(task, action.cut)
        way, cut = task.way(action.channel), action.cut
        step = self._steps.task(task, way, cut, origin=self._origin(action) if task.channels else None)
        if way.source is not None:
            acks = self._engine.run(action.batch.content, step)
        else:
            names = _names(action.batch)
            acks = self._engine.run_written(Written(self._means.channels, names), task, way, step)
            self._consumed[task.uid].update(names)
        self._means.points.reach("after-step")
        records = sum(ack.rows_in for ack in acks) if way.source is not None else 0
        result = self._steps.result(task, step, cut, acks, {}, records)
        if way.source is not None:
            self.note(records)
        return ElementDone(task=task.uid, result=result, made=self._steps.made(task, acks))

    def _place(self, task: Task, action: RunElement, error: BaseException) -> Place:
        content, way = action.batch.content, task.way(action.channel)
        step = self._steps.task(task, way, action.cut)
        if isinstance(content, MicroBatch):
            return self.place_of(content, action.batch.before or {}, step, error)
        where, origin = f"channel {action.channel}", self._origin(action)
        if origin is None:
            return Place(where=where, parts=_names(action.batch), behind=self._began)
        found = ""
        if self.is_to_be_found(error):
            with self.working(f"the search for what has failed task {task.uid}"):
                found = self._engine.find_behind(origin, task, way, step, error)
        return replace(origin, where=f"{where}, from {origin.where}", behind=self._began, found=found)

    def _origin(self, action: RunElement) -> Place | None:
        """Where the records of an element come from: its producers write it into the files of a channel."""
        batch = action.batch
        if isinstance(batch.content, MicroBatch):
            return source_place(batch.content, batch.before or {})
        told = channel_files.origin_of(self._means.channels, _names(batch))
        return Place.decode(told) if told else None

    def _finish(self, task: Task, action: FinishTask) -> ElementDone:
        self._collect(task, action.cut)
        step = self._steps.task(task, task.inputs[0], action.cut, finishing=True)
        acks = self._engine.finish(task.uid, step)
        self._means.points.reach("after-finish")
        result = self._steps.result(task, step, action.cut, acks, {}, 0)
        return ElementDone(task=task.uid, result=result, made=self._steps.made(task, acks))

    def _collect(self, task: Task, cut: Cut) -> None:
        """Delete what nobody needs, before the next element: what the one before has made is known to all by now."""
        if task.step is not None:
            vertex = self._means.vertices[task.step.uid]
            self.collect_garbage(vertex, [cut, *self.loop.pinned_cuts()])
        consumed = self._consumed[task.uid]
        for name in consumed - self.loop.pinned_files():
            (self._means.channels / name).unlink(missing_ok=True)
            consumed.discard(name)


def _names(batch: Batch) -> tuple[str, ...]:
    """The channel's files that a micro-batch stands in."""
    return tuple(str(handle["name"]) for handle in batch.content)


def _piece(task: Task, action: RunElement | FinishTask) -> str:
    if isinstance(action, FinishTask):
        return f"the last step of task {task.uid}"
    return f"a micro-batch of task {task.uid}, from {action.channel},"


# ---- the plan as the flow sees it


def topology_of(plan: GraphPlan) -> Topology:
    ways = [(way, way.channel) for task in plan.tasks for way in task.inputs if way.channel is not None]
    return Topology(
        sources={way.producer: channel for way, channel in ways if way.source is not None},
        inputs={task.uid: tuple(way.channel for way in task.inputs if way.channel) for task in plan.tasks},
        ends={task.uid: tuple(end.producer for end in task.channels) for task in plan.tasks},
    )


def idle_after(plan: GraphPlan) -> dict[VertexUid, int]:
    """How long each source that may be idle has to be silent for that."""
    ways = (plan.reader(source.uid)[1] for source in plan.sources)
    return {way.producer: way.time.idle_after_ms for way in ways if way.time and way.time.idle_after_ms is not None}


def parts_of(plan: GraphPlan) -> dict[VertexUid, TaskParts]:
    return {
        task.uid: TaskParts(
            state=task.step.uid if task.step is not None else None,
            sources=tuple(way.producer for way in task.inputs if way.source is not None),
            sinks=tuple(end.vertex.uid for end in task.sinks),
        )
        for task in plan.tasks
    }


def participants_of(plan: GraphPlan) -> frozenset[str]:
    """Whose parts a snapshot of a job with channels consists of."""
    return frozenset(name for uid, parts in parts_of(plan).items() for name in parts.all(uid))


# ---- what a snapshot has of it


def in_flight_of(topology: Topology, tasks: Mapping[VertexUid, TaskState]) -> dict[ChannelId, list[Data]]:
    """What was in flight in each channel."""
    ids = (id for ids in topology.inputs.values() for id in ids)
    return {id: [_element(each) for each in _held(tasks, id).in_flight] for id in ids}


def watermarks_of(
    topology: Topology, tasks: Mapping[VertexUid, TaskState], everywhere_ms: int | None
) -> dict[VertexUid, Watermarks]:
    """How far the inputs of each task had come; one that the snapshot does not know is as far as all of them were."""
    unknown = TaskState({}, everywhere_ms)
    return {uid: _watermarks(ids, tasks.get(uid, unknown)) for uid, ids in topology.inputs.items()}


def _held(tasks: Mapping[VertexUid, TaskState], channel: ChannelId) -> InputState:
    state = tasks.get(channel.consumer)
    return state.inputs.get(str(channel), InputState()) if state is not None else InputState()


def _element(held: InFlight) -> Data:
    if not held.files:
        return Watermark(held.watermark_ms)
    content = tuple({"name": handle.name, "rows": 0, "bytes": handle.length} for handle in held.files)
    return Batch(content=content, rows=held.rows, bytes=batch_of(content).bytes)


def _watermarks(channels: tuple[ChannelId, ...], state: TaskState) -> Watermarks:
    """Inputs that the snapshot does not know have told of nothing yet."""
    held = {id: state.inputs.get(str(id), InputState()) for id in channels}
    idle = frozenset(id for id, each in held.items() if each.idle)
    levels = {id: each.watermark_ms for id, each in held.items()}
    return Watermarks(levels, idle, state.watermark_ms, told_idle=len(idle) == len(channels))
