"""Takes snapshots in the simulation: uploads what shared storage lacks, each participant as a task of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headgate.coordinator.messages import Acknowledged, Declined, TakeSnapshot
from headgate.state.key_groups import subtask_range
from headgate.testing.simulation.job import MAX_PARALLELISM, NUMBERS, OUT, RECORDS, SINK, SOURCE, STATE, STREAM
from headgate_contract import wire
from headgate_contract.errors import CheckpointFailed, HeadgateError, StorageError
from headgate_contract.ids import CheckpointId
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import SnapshotMetadata, SourceState, StateHandle, SubtaskState, VertexState

if TYPE_CHECKING:
    from headgate.testing.simulation.life import SimulatedLife


class SimulatedTaker:
    """Uploads what shared storage lacks: the participants of a snapshot, as tasks."""

    def __init__(self, life: SimulatedLife) -> None:
        self._life = life
        self._uploaded: dict[CheckpointId, list[str]] = {}

    def take(self, action: TakeSnapshot) -> None:
        life = self._life
        self._uploaded[action.checkpoint] = []
        base = {} if action.name is not None else life.shared.confirmed()
        life.shared.register(action.checkpoint, base.values())
        for participant, part in ((STATE, self._state), (SOURCE, self._source), (SINK, self._sink)):
            life.host.spawn(f"{participant} of {action.checkpoint}", self._work(action, participant, part, base))

    def confirm(self, metadata: SnapshotMetadata) -> None:
        self._life.shared.confirm(metadata.handles())

    def forget(self, checkpoint: CheckpointId) -> None:
        self._uploaded.pop(checkpoint, None)

    def discard(self, checkpoint: CheckpointId) -> None:
        for path in (*self._uploaded.pop(checkpoint, []), *self._life.shared.release(checkpoint)):
            self._delete(path)

    def close(self) -> None:
        """What is being uploaded is given up: it is deleted when it is there."""
        self._uploaded.clear()

    def _work(
        self,
        action: TakeSnapshot,
        participant: str,
        part: Callable[[TakeSnapshot, Mapping[str, StateHandle]], Acknowledged],
        base: Mapping[str, StateHandle],
    ) -> Callable[[], None]:
        def work() -> None:
            try:
                self._life.post(part(action, base))
            except HeadgateError as error:
                self._life.post(Declined(checkpoint=action.checkpoint, participant=participant, cause=str(error)))

        return work

    def _state(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        life = self._life
        parallelism = life.parallelism
        subtasks = []
        for subtask, version in sorted(action.cut.versions.get(NUMBERS, {}).items()):
            handles = tuple(base.get(name) or self._upload(action, name) for name in version["segments"])
            groups = subtask_range(subtask, parallelism, MAX_PARALLELISM)
            subtasks.append(SubtaskState(subtask, groups.start, groups.end, dict(version), handles))
        state = VertexState("numbers", parallelism, "model", (), tuple(subtasks), action.cut.epoch)
        return Acknowledged(checkpoint=action.checkpoint, participant=STATE, vertices={NUMBERS: state})

    def _source(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        self._life.host.pause("source: acknowledges")
        state = SourceState("records", "model", dict(action.cut.positions[RECORDS]))
        return Acknowledged(checkpoint=action.checkpoint, participant=SOURCE, sources={RECORDS: state})

    def _sink(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        self._life.sink.prepare(action.staged.get(OUT, ()))
        return Acknowledged(checkpoint=action.checkpoint, participant=SINK)

    def _upload(self, action: TakeSnapshot, name: str) -> StateHandle:
        life = self._life
        data = json.dumps(life.segments[name]).encode()
        if action.name is None:
            path = where = StreamPaths(STREAM).shared_file(f"{name}.c{action.checkpoint}g{life.generation}")
        else:
            folder = StreamPaths(STREAM).savepoint(action.name, action.checkpoint, life.generation)
            path, where = f"state/{name}", f"{folder}/state/{name}"
        if action.checkpoint in self._uploaded:
            self._uploaded[action.checkpoint].append(where)
        try:
            life.store.replace(where, data)
        finally:
            over = action.checkpoint not in self._uploaded
            if over and not life.host.dead:
                self._delete(where)
        if over:
            raise CheckpointFailed(f"checkpoint {action.checkpoint} was given up meanwhile")
        return StateHandle(name, path, len(data), wire.sha256(data))

    def _delete(self, path: str) -> None:
        try:
            self._life.store.delete(path)
        except StorageError:
            return  # the next life sweeps it
