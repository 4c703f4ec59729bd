"""A snapshot taker over a vertex with real state: what a barrier sets going, without a coordinator."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate
from headgate.coordinator.cut import Cut
from headgate.coordinator.messages import Acknowledged, Declined, Event, TakeSnapshot, Tick
from headgate.driver.checkpoint_meter import CheckpointMeter, now_ms
from headgate.driver.shared_state import SharedFiles
from headgate.driver.snapshots import SnapshotTaker
from headgate.source.positions import PositionBook
from headgate.state.vertex import StatefulVertex
from headgate.step.operators import AggregateOperator
from headgate_contract.ids import CheckpointId, Generation, SavepointName, VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata, SourceState, StateHandle, VertexState
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.driver.ledger_world import LINES, OUT, STREAM, Faults, ListCommitter
from tests.runtime.driver.waiting import PATIENCE_S
from tests.runtime.sink.stepping_store import SteppingStore
from tests.runtime.step.vertex import COUNTS, MAX_PARALLELISM, Vertex

OPERATOR = AggregateOperator.of("counts", ("user",), {"n": headgate.count()})
PARTS = (f"state {COUNTS}", f"source {LINES}", f"sink {OUT}")


class PreparingCommitter(ListCommitter):
    """Keeps what it was told to make durable."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[list[Mapping[str, Any]]] = []

    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        if self.failures:
            raise self.failures.pop(0)
        self.prepared.append(list(handles))
        return handles


class Stage:
    """A vertex with state, a source and a sink, and a taker that uploads to memory."""

    def __init__(
        self,
        directory: Path,
        book: PositionBook,
        backend: str = "hashmap",
        *,
        parallelism: int = 2,
        store: ObjectStore | None = None,
    ) -> None:
        self.vertex = Vertex(OPERATOR, ("user",), backend, directory, parallelism)
        self.plain = store or open_store(f"memory://{uuid.uuid4().hex}")
        self.faults = Faults()
        self.sink = PreparingCommitter()
        self.shared = SharedFiles()
        self.meter = CheckpointMeter()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.position: dict[str, Any] = {"batch": 0}
        self.taker = SnapshotTaker(
            store=SteppingStore(self.plain, self.faults.before),
            paths=StreamPaths(STREAM),
            generation=Generation(3),
            vertices={
                COUNTS: StatefulVertex(
                    uid=COUNTS,
                    name="Counts",
                    parallelism=parallelism,
                    max_parallelism=MAX_PARALLELISM,
                    backend=backend,
                    directory=directory,
                )
            },
            books={LINES: book},
            sinks={OUT: self.sink},
            shared=self.shared,
            post=self.events.put,
            meter=self.meter,
        )

    def batch(self, *users: str) -> None:
        self.vertex.batch(pa.table({"user": users}))

    def take(self, number: int, name: str | None = None) -> None:
        """The barrier of a snapshot has passed."""
        action = TakeSnapshot(
            checkpoint=CheckpointId(number),
            kind=SnapshotKind.SAVEPOINT if name else SnapshotKind.CHECKPOINT,
            name=SavepointName(name) if name else None,
            cut=Cut(
                epoch=self.vertex.epoch,
                versions={COUNTS: dict(self.vertex.versions)},
                positions={LINES: dict(self.position)},
            ),
            staged={OUT: ({"staged": f"file-{number}"},)},
            parts=frozenset(PARTS),
        )
        self.meter.saw(Tick(), [action], now_ms())
        self.taker.take(action)()

    def answers(self) -> dict[str, Acknowledged | Declined]:
        """What each part of one snapshot has to say."""
        found: dict[str, Acknowledged | Declined] = {}
        for _ in PARTS:
            event = self.events.get(timeout=PATIENCE_S)
            assert isinstance(event, (Acknowledged, Declined))
            found[event.participant] = event
        return found

    def complete(self, number: int, name: str | None = None, *, confirm: bool = True) -> Snapshot:
        """A whole snapshot, up to what the ledger does when its slot exists."""
        self.take(number, name)
        answers = self.answers()
        assert set(answers) == set(PARTS)
        acks = [answer for answer in answers.values() if isinstance(answer, Acknowledged)]
        assert len(acks) == len(PARTS), answers
        cost = self.meter.completed(CheckpointId(number))
        assert cost is not None
        snapshot = Snapshot(number, acks, cost.uploaded_bytes)
        if confirm:
            self.taker.forget(CheckpointId(number))
            if name is None:
                self.taker.confirm(snapshot.metadata)
            self.shared.register(CheckpointId(number), snapshot.handles if name is None else ())
        return snapshot

    def files(self, folder: str = "") -> list[str]:
        return [info.path for info in self.plain.list(folder)]


class Snapshot:
    """What the acks of a snapshot add up to."""

    def __init__(self, number: int, acks: list[Acknowledged], uploaded: int) -> None:
        self.uploaded = uploaded
        self.vertices: dict[VertexUid, VertexState] = {
            uid: state for ack in acks for uid, state in ack.vertices.items()
        }
        self.sources: dict[VertexUid, SourceState] = {uid: state for ack in acks for uid, state in ack.sources.items()}
        self.metadata = SnapshotMetadata(
            stream=STREAM,
            id=CheckpointId(number),
            generation=Generation(3),
            kind=SnapshotKind.CHECKPOINT,
            max_parallelism=MAX_PARALLELISM,
            created_ms=0,
            sources=self.sources,
            vertices=self.vertices,
        )

    @property
    def handles(self) -> list[StateHandle]:
        return list(self.metadata.handles())

    @property
    def paths(self) -> list[str]:
        return sorted(handle.path for handle in self.handles)
