"""Makes a step's task out of a cut, and the result of an element out of the step's acks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path

from headgate.coordinator.cut import BatchResult, Cut, Json, latest
from headgate.driver import clock
from headgate.driver.setup import LifeSetup
from headgate.gate.elements import Batch
from headgate.job.graph import ArrowFunction, ArrowVertex
from headgate.job.tasks import Port, Task, TaskInput
from headgate.source.place import Place
from headgate.state.vertex import StatefulVertex
from headgate.step.channel_files import ChannelFiles
from headgate.step.operator_state import states_after
from headgate.step.operators import StepClock
from headgate.step.task import BatchIdentity, KeyedStage, SinkStage, StepAck, StepTask
from headgate_contract.errors import StreamFailed
from headgate_contract.ids import VertexUid


class Steps:
    """The elements of one life, as the step sees them and as the coordinator does. For any thread."""

    def __init__(self, setup: LifeSetup, vertices: Mapping[VertexUid, StatefulVertex], channels: Path) -> None:
        self._setup = setup
        self._vertices = vertices
        self._channels = channels
        """Where the files of written channels are."""
        self._attempts = itertools.count(1)

    def task(
        self, task: Task, way: TaskInput, cut: Cut, *, origin: Place | None = None, finishing: bool = False
    ) -> StepTask:
        """What the next attempt at the task's element behind `cut` is to do, or its last step in a drain.

        `origin`: where its records come from, for what it makes of them.
        """
        identity = BatchIdentity(
            stream=self._setup.stream,
            generation=self._setup.started.generation,
            restart=self._setup.restart,
            epoch=cut.epoch + 1,
            attempt=next(self._attempts),
        )
        port = task.port(way)
        return StepTask(
            identity=identity,
            keyed=self._stage(port, cut) if port is not None else None,
            sinks=(
                *(
                    SinkStage(
                        uid=end.vertex.uid,
                        sink=end.vertex.sink,
                        functions=_functions(end.functions),
                        storage_uid=end.vertex.storage_uid,
                    )
                    for end in task.sinks
                ),
                *(
                    SinkStage(
                        uid=end.producer,
                        sink=ChannelFiles(str(self._channels), origin.encode() if origin is not None else ""),
                        functions=_functions(end.functions),
                    )
                    for end in task.channels
                ),
            ),
            clock=StepClock(clock.wall_ms(), random.SystemRandom().getrandbits(63), cut.watermark_ms),
            time=way.time,
            finishing=finishing,
        )

    def _stage(self, port: Port, cut: Cut) -> KeyedStage:
        vertex = self._vertices[port.uid]
        parents = cut.versions.get(port.uid, {})
        return KeyedStage(
            uid=port.uid,
            operator=port.operator,
            keys=port.keys,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            backend=vertex.backend,
            directory=str(vertex.directory),
            parents=tuple(parents.get(subtask) for subtask in range(vertex.parallelism)),
            operator_states=cut.operator_states.get(port.uid, {}),
            broadcast=port.broadcast,
        )

    def result(
        self,
        task: Task,
        step: StepTask,
        cut: Cut,
        acks: list[StepAck],
        positions: Mapping[VertexUid, Json],
        records: int,
    ) -> BatchResult:
        """What the acks add up to. Raises StreamFailed if they are not those of all subtasks, each once."""
        subtasks = [ack.subtask for ack in acks]
        if len(set(subtasks)) != len(subtasks):
            raise StreamFailed(f"the step acknowledged a subtask twice: {sorted(subtasks)}")
        versions: dict[VertexUid, dict[int, Json]] = {}
        operator_states = {}
        if step.keyed is not None:
            uid = step.keyed.uid
            expected = {0} if step.keyed.broadcast else set(range(step.keyed.parallelism))
            if set(subtasks) != expected:
                raise StreamFailed(f"of {len(expected)} subtasks the step acknowledged only {sorted(subtasks)}")
            versions[uid] = {ack.subtask: ack.version for ack in acks if ack.version is not None}
            changes = {ack.subtask: ack.operator_states for ack in acks}
            operator_states[uid] = states_after(uid, cut.operator_states.get(uid, {}), changes)
        return BatchResult(
            epoch=cut.epoch + 1,
            versions=versions,
            operator_states=operator_states,
            positions=positions,
            staged=_handles(acks, [end.vertex.uid for end in task.sinks]),
            records=records,
            watermark_ms=_watermark(step, acks),
            finished=frozenset({task.uid}) if step.finishing else frozenset(),
        )

    def made(self, task: Task, acks: list[StepAck]) -> dict[VertexUid, Batch]:
        """What leaves the task for others, by the vertex that made it; nothing of those that made no records."""
        found = _handles(acks, [end.producer for end in task.channels])
        return {producer: batch_of(handles) for producer, handles in found.items() if handles}


def _watermark(step: StepTask, acks: list[StepAck]) -> int | None:
    """As Flink has it: what is as old as the watermark is late."""
    told = latest(*(ack.latest_ms for ack in acks))
    return None if told is None or step.time is None else told - step.time.delay_ms - 1


def batch_of(handles: tuple[Json, ...]) -> Batch:
    """A micro-batch in these files of a channel."""
    rows, size = (sum(handle[what] for handle in handles) for what in ("rows", "bytes"))
    return Batch(content=handles, rows=rows, bytes=size)


def _functions(vertices: tuple[ArrowVertex, ...]) -> tuple[ArrowFunction, ...]:
    return tuple(vertex.function for vertex in vertices)


def _handles(acks: list[StepAck], ends: list[VertexUid]) -> dict[VertexUid, tuple[Json, ...]]:
    """What all subtasks have staged at these ends, in the order of the subtasks."""
    found: dict[VertexUid, tuple[Json, ...]] = {}
    for ack in sorted(acks, key=lambda ack: ack.subtask):
        for uid in ends:
            found[uid] = (*found.get(uid, ()), *ack.sinks.get(uid, ()))
    return found
