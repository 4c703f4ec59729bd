"""A job's graph, cut into tasks: chains that run as one Spark job for each element, with channels only between them.

Linear stretches stay together. A chain ends where the graph needs a channel: before a step with several inputs, behind
what several others read, before DataFrame code or a further shuffle behind a step, and where the author asks for it.
What stands before the step of a chain is DataFrame code; behind it stand Arrow functions, in the same task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate.gate.elements import ChannelId
from headgate.job.graph import (
    ArrowVertex,
    ConnectedVertex,
    EventTime,
    KeyedVertex,
    SinkVertex,
    SourceVertex,
    TransformVertex,
    UnionVertex,
    Vertex,
    WatermarkVertex,
)
from headgate.job.job import Job
from headgate_contract.errors import JobInvalid
from headgate_contract.ids import VertexUid

if TYPE_CHECKING:
    from headgate.step.operators import KeyedOperator


@dataclass(frozen=True)
class TaskInput:
    """A way into a task: from a source, whose micro-batches are read where they are, or from another task's files."""

    producer: VertexUid
    """The vertex whose records come."""
    source: SourceVertex | None
    """The source itself, if no other task stands before it."""
    transforms: tuple[TransformVertex, ...] = ()
    time: EventTime | None = None
    """What tells how far event time has come; sources' only."""
    port: int = 0
    """Which input of the step it is: 1 is the second of two that are connected."""
    paced: bool = False
    """The author wants a channel here."""
    channel: ChannelId | None = None
    """None in a linear job: the source's own thread runs the task."""


@dataclass(frozen=True)
class Port:
    """What a step does with the records that come by one way."""

    uid: VertexUid
    """That of the step."""
    keys: tuple[str, ...]
    """Their key columns."""
    operator: KeyedOperator
    broadcast: bool = False
    """They belong to no key."""


@dataclass(frozen=True)
class SinkEnd:
    """A sink and the Arrow functions between the task's step and it."""

    vertex: SinkVertex
    functions: tuple[ArrowVertex, ...] = ()


@dataclass(frozen=True)
class ChannelEnd:
    """What leaves a task for others: written once, read by each of them."""

    producer: VertexUid
    functions: tuple[ArrowVertex, ...] = ()
    channels: tuple[ChannelId, ...] = ()


@dataclass(frozen=True)
class Task:
    """One Spark job for each element: inputs -> DataFrame code -> a step, or none -> Arrow functions -> its ends."""

    uid: VertexUid
    """That of its step; of a task without one, of the vertex that it was cut behind."""
    inputs: tuple[TaskInput, ...]
    step: KeyedVertex | ConnectedVertex | None
    sinks: tuple[SinkEnd, ...] = ()
    channels: tuple[ChannelEnd, ...] = ()

    @property
    def is_fused(self) -> bool:
        """Whether it is one chain from a source on, without a channel."""
        return len(self.inputs) == 1 and self.inputs[0].channel is None

    @property
    def operator(self) -> KeyedOperator | None:
        """The step's; of one with two inputs that of the first, which declares all of its state."""
        step = self.step
        return step.operator.first if isinstance(step, ConnectedVertex) else step.operator if step is not None else None

    def port(self, way: TaskInput) -> Port | None:
        """What the step does with what comes by `way`; None without a step."""
        step = self.step
        if step is None:
            return None
        if isinstance(step, KeyedVertex):
            return Port(step.uid, step.keys, step.operator)
        keys = step.keys[way.port]
        return Port(step.uid, keys or (), step.operator.port(way.port, step.keys[0]), broadcast=keys is None)

    def way(self, channel: ChannelId) -> TaskInput:
        """The input that is this channel."""
        return next(each for each in self.inputs if each.channel == channel)


@dataclass(frozen=True)
class GraphPlan:
    """The tasks of a job, each behind those that it reads from."""

    job: str
    sources: tuple[SourceVertex, ...]
    tasks: tuple[Task, ...]

    @property
    def is_linear(self) -> bool:
        return len(self.tasks) == 1 and self.tasks[0].is_fused

    @property
    def steps(self) -> tuple[KeyedVertex | ConnectedVertex, ...]:
        """Those that keep state."""
        return tuple(task.step for task in self.tasks if task.step is not None)

    def reader(self, source: VertexUid) -> tuple[Task, TaskInput]:
        """The task that a source feeds, and by which way."""
        ways = ((task, way) for task in self.tasks for way in task.inputs if way.source is not None)
        return next((task, way) for task, way in ways if way.producer == source)

    @property
    def sinks(self) -> tuple[SinkEnd, ...]:
        return tuple(end for task in self.tasks for end in task.sinks)

    @property
    def channels(self) -> tuple[ChannelId, ...]:
        return tuple(each.channel for task in self.tasks for each in task.inputs if each.channel is not None)

    def written(self, channel: ChannelId) -> bool:
        """Whether what it holds stands in files of its own: else a source has it, and it is read there."""
        return all(each.source is None for task in self.tasks for each in task.inputs if each.channel == channel)


# ---- how a graph is cut


@dataclass(frozen=True)
class _Open:
    """A chain without a step so far: more DataFrame code may follow."""

    inputs: tuple[TaskInput, ...]


@dataclass
class _Building:
    """A task whose ends are not all known."""

    uid: VertexUid
    inputs: tuple[TaskInput, ...]
    step: KeyedVertex | ConnectedVertex | None
    sinks: list[SinkEnd] = field(default_factory=list)
    channels: list[ChannelEnd] = field(default_factory=list)


@dataclass(frozen=True)
class _Behind:
    """What leaves a task, by these Arrow functions."""

    task: _Building
    functions: tuple[ArrowVertex, ...]


def graph_plan(job: Job) -> GraphPlan:
    """The tasks of `job`. Raises JobInvalid, naming the vertex, for a graph that cannot run."""
    sources = tuple(vertex for vertex in job.vertices.values() if isinstance(vertex, SourceVertex))
    if not sources:
        raise JobInvalid(f"job {job.name!r} has no source", hint="add one with job.source(...)")
    if not any(isinstance(vertex, SinkVertex) for vertex in job.vertices.values()):
        raise JobInvalid(f"job {job.name!r} has no sink", hint="end the stream with .sink(...)")
    return GraphPlan(job.name, sources, _Cutter(job).tasks())


class _Cutter:
    """Goes through the vertices in the order in which they were added: inputs first."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._readers: dict[VertexUid, list[Vertex]] = {uid: [] for uid in job.vertices}
        for vertex in job.vertices.values():
            for uid in vertex.inputs:
                self._readers[uid].append(vertex)
        self._flows: dict[VertexUid, _Open | _Behind] = {}
        self._tasks: list[_Building] = []

    def tasks(self) -> tuple[Task, ...]:
        for vertex in self._job.vertices.values():
            if not isinstance(vertex, SinkVertex) and not self._readers[vertex.uid]:
                raise JobInvalid(
                    f"nothing reads what vertex {vertex.uid!r} of job {self._job.name!r} makes",
                    hint="send it to a sink",
                )
            self._place(vertex)
        return tuple(self._finished())

    def _place(self, vertex: Vertex) -> None:
        match vertex:
            case SourceVertex():
                flow: _Open | _Behind = _Open((TaskInput(vertex.uid, vertex),))
            case TransformVertex():
                inputs = self._inputs(vertex, vertex.inputs[0])
                flow = _Open(tuple(replace(each, transforms=(*each.transforms, vertex)) for each in inputs))
            case WatermarkVertex():
                inputs = self._inputs(vertex, vertex.inputs[0])
                self._check_watermark(vertex, inputs)
                flow = _Open(tuple(replace(each, time=vertex.time) for each in inputs))
            case UnionVertex():
                flow = _Open(tuple(each for uid in vertex.inputs for each in self._inputs(vertex, uid)))
            case KeyedVertex():
                flow = self._begin(vertex.uid, self._inputs(vertex, vertex.inputs[0]), vertex)
            case ConnectedVertex():
                ports = (
                    replace(each, port=port)
                    for port, uid in enumerate(vertex.inputs)
                    for each in self._inputs(vertex, uid)
                )
                flow = self._begin(vertex.uid, tuple(ports), vertex)
            case ArrowVertex():
                behind = self._behind(vertex, vertex.inputs[0])
                flow = replace(behind, functions=(*behind.functions, vertex))
            case SinkVertex():
                behind = self._behind(vertex, vertex.inputs[0])
                behind.task.sinks.append(SinkEnd(vertex, behind.functions))
                return
        self._flows[vertex.uid] = self._materialised(vertex.uid, flow)

    def _begin(
        self, uid: VertexUid, inputs: tuple[TaskInput, ...], step: KeyedVertex | ConnectedVertex | None
    ) -> _Behind:
        self._check_inputs(uid, inputs)
        self._tasks.append(_Building(uid, inputs, step))
        return _Behind(self._tasks[-1], ())

    def _check_inputs(self, uid: VertexUid, inputs: tuple[TaskInput, ...]) -> None:
        for producer, times in Counter(each.producer for each in inputs).items():
            if times > 1:
                raise JobInvalid(
                    f"{uid!r} of job {self._job.name!r} reads {producer!r} twice",
                    hint="put a map_arrow in front of one of the two",
                )

    def _check_watermark(self, vertex: WatermarkVertex, inputs: tuple[TaskInput, ...]) -> None:
        if any(each.source is None for each in inputs):
            raise JobInvalid(
                f"with_watermark behind {vertex.inputs[0]!r} of job {self._job.name!r} stands behind another task",
                hint="sources tell how far event time has come: put it before the first step, and what branches off",
            )

    def _materialised(self, uid: VertexUid, flow: _Open | _Behind) -> _Open | _Behind:
        """DataFrame code that several read, not all of them in one task, is run once: what it makes is written."""
        readers = self._readers[uid]
        apart = any(not isinstance(reader, (ArrowVertex, SinkVertex)) or reader.new_chain for reader in readers)
        return self._begin(uid, flow.inputs, None) if isinstance(flow, _Open) and len(readers) > 1 and apart else flow

    def _behind(self, reader: ArrowVertex | SinkVertex, uid: VertexUid) -> _Behind:
        """What `reader` goes on from, in the same task unless it wants a chain of its own."""
        if reader.new_chain:
            return self._begin(reader.uid, self._inputs(reader, uid), None)
        flow = self._flows[uid]
        if isinstance(flow, _Open):
            flow = self._flows[uid] = self._begin(uid, flow.inputs, None)
        return flow

    def _inputs(self, reader: Vertex, uid: VertexUid) -> tuple[TaskInput, ...]:
        """What `reader` reads when it begins a chain, or goes on with DataFrame code."""
        flow = self._flows[uid]
        if isinstance(flow, _Open):
            return self._own_pace(uid, flow) if getattr(reader, "new_chain", False) else flow.inputs
        return self._written(uid)

    def _written(self, uid: VertexUid) -> tuple[TaskInput, ...]:
        """What leaves a task, for others to read."""
        flow = self._flows[uid]
        assert isinstance(flow, _Behind)
        if all(end.producer != uid for end in flow.task.channels):
            flow.task.channels.append(ChannelEnd(uid, flow.functions))
        return (TaskInput(uid, None),)

    def _own_pace(self, uid: VertexUid, flow: _Open) -> tuple[TaskInput, ...]:
        """A channel where there would be none: behind a source that is its micro-batches, else files."""
        if len(flow.inputs) == 1 and flow.inputs[0].source is not None:
            return (replace(flow.inputs[0], paced=True),)
        self._flows[uid] = self._begin(uid, flow.inputs, None)
        return self._written(uid)

    # ---- the tasks when all is known

    def _finished(self) -> Iterator[Task]:
        linear = len(self._tasks) == 1
        tasks = [_with_channels(built, linear) for built in self._tasks]
        consumers = [(each.producer, each.channel) for inputs in tasks for each in inputs if each.source is None]
        for built, inputs in zip(self._tasks, tasks, strict=True):
            ends = (
                replace(end, channels=tuple(id for producer, id in consumers if producer == end.producer and id))
                for end in built.channels
            )
            yield Task(built.uid, inputs, built.step, tuple(built.sinks), tuple(ends))


def _with_channels(built: _Building, linear: bool) -> tuple[TaskInput, ...]:
    """The ways into a task, each with its channel: the only one into the only task, from a source, needs none."""
    alone = linear and len(built.inputs) == 1 and built.inputs[0].source is not None and not built.inputs[0].paced
    return tuple(each if alone else replace(each, channel=ChannelId(each.producer, built.uid)) for each in built.inputs)
