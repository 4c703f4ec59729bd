"""Makes a step's task out of a cut, and the result of a micro-batch out of the step's acks."""

from __future__ import annotations

import random

from headgate.coordinator.cut import BatchResult, Cut, Json
from headgate.driver import clock
from headgate.driver.setup import LifeSetup
from headgate.state.vertex import StatefulVertex
from headgate.step.operator_state import states_after
from headgate.step.operators import StepClock
from headgate.step.task import BatchIdentity, KeyedStage, SinkStage, StepAck, StepTask
from headgate_contract.errors import StreamFailed
from headgate_contract.ids import VertexUid


class Steps:
    """The micro-batches of one life, as the step sees them and as the coordinator does."""

    def __init__(self, setup: LifeSetup, vertex: StatefulVertex | None) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._vertex = vertex
        self._attempt = 0

    def task(self, cut: Cut, *, finishing: bool = False) -> StepTask:
        """What the next attempt at the micro-batch behind `cut` is to do, or the last step of a drain."""
        self._attempt += 1
        identity = BatchIdentity(
            stream=self._setup.stream,
            generation=self._setup.started.generation,
            restart=self._setup.restart,
            epoch=cut.epoch + 1,
            attempt=self._attempt,
        )
        keyed = None
        if self._vertex is not None and self._plan.keyed is not None:
            parents = cut.versions.get(self._vertex.uid, {})
            keyed = KeyedStage(
                uid=self._vertex.uid,
                operator=self._plan.keyed.operator,
                keys=self._plan.keyed.keys,
                parallelism=self._vertex.parallelism,
                max_parallelism=self._vertex.max_parallelism,
                backend=self._vertex.backend,
                directory=str(self._vertex.directory),
                parents=tuple(parents.get(subtask) for subtask in range(self._vertex.parallelism)),
                operator_states=cut.operator_states.get(self._vertex.uid, {}),
            )
        return StepTask(
            identity=identity,
            keyed=keyed,
            sinks=tuple(
                SinkStage(
                    uid=end.vertex.uid,
                    sink=end.vertex.sink,
                    functions=tuple(vertex.function for vertex in end.functions),
                    storage_uid=end.vertex.storage_uid,
                )
                for end in self._plan.sinks
            ),
            clock=StepClock(now_ms=clock.wall_ms(), seed=random.SystemRandom().getrandbits(63)),
            finishing=finishing,
        )

    def result(self, cut: Cut, acks: list[StepAck], position: Json) -> BatchResult:
        """What the acks add up to. Raises StreamFailed if they are not those of all subtasks, each once."""
        subtasks = [ack.subtask for ack in acks]
        if len(set(subtasks)) != len(subtasks):
            raise StreamFailed(f"the step acknowledged a subtask twice: {sorted(subtasks)}")
        if self._vertex is not None and set(subtasks) != set(range(self._vertex.parallelism)):
            raise StreamFailed(f"of {self._vertex.parallelism} subtasks the step acknowledged only {sorted(subtasks)}")
        versions: dict[VertexUid, dict[int, Json]] = {}
        operator_states = {}
        if self._vertex is not None:
            uid = self._vertex.uid
            versions[uid] = {ack.subtask: ack.version for ack in acks if ack.version is not None}
            changes = {ack.subtask: ack.operator_states for ack in acks}
            operator_states[uid] = states_after(uid, cut.operator_states.get(uid, {}), changes)
        staged: dict[VertexUid, tuple[Json, ...]] = {}
        for ack in sorted(acks, key=lambda ack: ack.subtask):
            for sink, handles in ack.sinks.items():
                staged[VertexUid(sink)] = (*staged.get(VertexUid(sink), ()), *handles)
        return BatchResult(
            epoch=cut.epoch + 1,
            versions=versions,
            operator_states=operator_states,
            positions={self._plan.source.uid: position},
            staged=staged,
            records=sum(ack.rows_in for ack in acks),
        )
