"""Takes snapshots in the simulation: production's taker, each participant a task of its own, the state a dictionary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.coordinator.messages import Acknowledged, TakeSnapshot
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate.driver.snapshots import SnapshotTaker
from headgate.source.positions import InlineBook, PositionBook
from headgate.state.key_groups import subtask_range
from headgate.state.vertex import StatefulVertex
from headgate.testing.simulation.job import MAX_PARALLELISM, NUMBERS, RECORDS, STREAM
from headgate_contract import wire
from headgate_contract.ids import VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import StateHandle, SubtaskState, VertexState

if TYPE_CHECKING:
    from headgate.testing.simulation.life import SimulatedLife


class SimulatedTaker(SnapshotTaker):
    """Uploads what shared storage lacks."""

    def __init__(self, life: SimulatedLife) -> None:
        super().__init__(
            store=life.store,
            paths=StreamPaths(STREAM),
            generation=life.generation,
            vertices={
                NUMBERS: StatefulVertex(
                    uid=NUMBERS,
                    name="numbers",
                    parallelism=life.parallelism,
                    max_parallelism=MAX_PARALLELISM,
                    backend="model",
                    directory=Path(),
                )
            },
            books={RECORDS: InlineBook("records", "model")},
            sinks=life.sinks,
            shared=life.shared,
            post=life.post,
            meter=CheckpointMeter(lambda cost: None),
        )
        self._life = life

    def _start(self, name: str, work: Callable[[], None], pool: object) -> None:
        self._life.host.spawn(name, work)

    def _position(self, action: TakeSnapshot, source: VertexUid, book: PositionBook) -> Acknowledged:
        self._life.host.pause("source: acknowledges")
        return super()._position(action, source, book)

    def _state(self, action: TakeSnapshot, vertex: StatefulVertex, base: Mapping[str, StateHandle]) -> Acknowledged:
        subtasks = []
        for subtask, version in sorted(action.cut.versions.get(vertex.uid, {}).items()):
            handles = tuple(base.get(name) or self._upload_segment(action, name) for name in version["segments"])
            groups = subtask_range(subtask, vertex.parallelism, vertex.max_parallelism)
            subtasks.append(SubtaskState(subtask, groups.start, groups.end, dict(version), handles))
        state = VertexState(vertex.name, vertex.parallelism, vertex.backend, (), tuple(subtasks), action.cut.epoch)
        return Acknowledged(
            checkpoint=action.checkpoint, participant=f"state {vertex.uid}", vertices={vertex.uid: state}
        )

    def _upload_segment(self, action: TakeSnapshot, name: str) -> StateHandle:
        data = json.dumps(self._life.segment(name)).encode()
        path, where = self._place(action, f"{name}.c{action.checkpoint}g{self._generation}")
        with self._uploading(action, where):
            self._store.replace(where, data)
        return StateHandle(name, path, len(data), wire.sha256(data))
