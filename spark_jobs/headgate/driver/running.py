"""How a life runs its micro-batches: here as one chain, from the source to the sinks' writers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut, Json
from headgate.coordinator.messages import BatchDone, FinishOperators, TaskAction
from headgate.coordinator.messages import BatchFailed as StepFailed
from headgate.driver import parts
from headgate.driver.engine import Engine, MicroBatch
from headgate.driver.loop import CoordinatorLoop, StreamEnding
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.restoring import Restored
from headgate.driver.steps import Steps
from headgate.driver.under_way import UnderWay
from headgate.job.tasks import GraphPlan
from headgate.source.place import Place
from headgate.state.versions import StateVersion, collect_garbage
from headgate.state.vertex import StatefulVertex
from headgate.step.task import StepTask
from headgate_contract.errors import HeadgateError, RecordFailed
from headgate_contract.heartbeats import Progress
from headgate_contract.ids import VertexUid

_CLEARING_UP_MS = 10
"""How long the workers of a batch may take to clear up behind it: meanwhile a barrier would wait for a processor."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a life runs with."""

    plan: GraphPlan
    engine: Engine
    steps: Steps
    vertices: Mapping[VertexUid, StatefulVertex]
    heart: Heart
    points: KillPoints
    channels: Path
    """Where the files of written channels are."""
    under_way: UnderWay = field(default_factory=UnderWay)


def source_place(batch: MicroBatch, since: Json) -> Place:
    """Where in its source a micro-batch stands."""
    where = f"source {batch.source!r}"
    return Place(where=where, source=batch.source, parts=batch.origin, since=since, until=batch.until)


class Running(ABC):
    """The micro-batches of one life. The coordinator decides about them in turns of the loop."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._engine = means.engine
        self._steps = means.steps
        self._loop: CoordinatorLoop | None = None
        self.error: BaseException | None = None
        """What a step has failed with."""
        self.place: Place | None = None
        """Where that was, if the records were to blame."""

    @abstractmethod
    def coordinator(self, plain: Coordinator, restored: Restored) -> Coordinator:
        """The coordinator for this way of running, beginning as `plain` would."""

    def attach(self, loop: CoordinatorLoop) -> None:
        """Before the loop starts: whom to tell. It may be wanted to finish at once, before it takes in anything."""
        self._loop = loop

    @abstractmethod
    def begin(self, cut: Cut) -> None:
        """Take in records from `cut` on."""

    @abstractmethod
    def perform(self, action: FinishOperators | TaskAction) -> None:
        """Let it be done by a thread of its own: this is the loop's turn."""

    def look(self) -> None:
        """Some time has passed: note what people may want to know of it."""
        return

    @abstractmethod
    def close(self) -> None:
        """Begin nothing more; whoever waits for leave is sent away. Before the engine is halted."""

    @abstractmethod
    def has_ended(self, within_s: float) -> bool:
        """Whether no thread of its own runs any more. Behind the engine's halt."""

    @property
    def loop(self) -> CoordinatorLoop:
        assert self._loop is not None
        return self._loop

    def working(self, what: str) -> AbstractContextManager[None]:
        """Around one piece of a task's work, which may take as long as the settings say."""
        return self._means.under_way.during(parts.working(what))

    def failed(self, what: str, error: BaseException, place: Place | None = None) -> None:
        gone = self._engine.failure()  # then the error is only how the step has noticed
        if self.error is None:  # what follows from it is not the cause
            self.error = error
            self.place = place if gone is None and isinstance(error, RecordFailed) else None
        said = f"{error}" if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
        where = f"; {place}" if place is not None else ""
        self.loop.post(StepFailed(cause=gone or f"{what}: {said}{where}"))

    def blame(self, source: VertexUid | None, cut: Cut, cause: str) -> None:
        """What stands in this source, if in any, behind the cut fails the life, before any of it is handed over."""
        if source is not None and self.error is None:
            self.error = RecordFailed(cause)
            self.place = Place(where=f"source {source!r}", since=cut.positions[source])

    def place_of(self, batch: MicroBatch, since: Json, task: StepTask | None, error: BaseException) -> Place:
        """Where in its source a micro-batch stands that has failed; of what is in it, only if that is to blame."""
        found = ""
        if task is not None and self.is_to_be_found(error):
            with self.working(f"the search for what has failed micro-batch {batch.number} of source {batch.source}"):
                found = self._engine.find(batch, task, error)
        return replace(source_place(batch, since), found=found)

    def is_to_be_found(self, error: BaseException) -> bool:
        """Whether a record is to blame for it, which the engine can be asked for."""
        return isinstance(error, RecordFailed) and self._engine.failure() is None

    def note(self, records: int) -> None:
        """One more micro-batch of the sources is behind the stream."""

        def change(progress: Progress) -> Progress:
            return replace(progress, batches=progress.batches + 1, records=progress.records + records)

        self._means.heart.note(change)

    def collect_garbage(self, vertex: StatefulVertex, cuts: Iterable[Cut]) -> None:
        """Delete local state files that none of these cuts needs; no step is running on the vertex now."""
        held = [cut.versions.get(vertex.uid, {}) for cut in cuts]
        for subtask in range(vertex.parallelism):
            live = [StateVersion.from_json(versions[subtask]) for versions in held if versions.get(subtask) is not None]
            collect_garbage(vertex.directory / str(subtask), live)


class ChainRunning(Running):
    """One chain: the source's own thread runs each micro-batch, and a barrier passes between two."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        (self._task,) = means.plan.tasks
        (self._way,) = self._task.inputs
        self._source = self._way.producer
        self._finishing: threading.Thread | None = None

    def coordinator(self, plain: Coordinator, restored: Restored) -> Coordinator:
        return plain

    def begin(self, cut: Cut) -> None:
        self._engine.begin({self._source: dict(cut.positions[self._source])}, self._on_batch)

    def perform(self, action: FinishOperators | TaskAction) -> None:
        assert isinstance(action, FinishOperators)
        self._finishing = threading.Thread(target=self._finish, args=(action.cut,), name="finish", daemon=True)
        self._finishing.start()

    def close(self) -> None:
        return  # the loop sends away who asks for leave

    def has_ended(self, within_s: float) -> bool:
        if self._finishing is not None:
            self._finishing.join(within_s)
        return self._finishing is None or not self._finishing.is_alive()

    def _on_batch(self, batch: MicroBatch) -> None:
        """One micro-batch, in the source's thread: leave, step, acks, position, done."""
        grant = self.loop.begin_batch()
        self._means.points.reach("before-batch")
        step = None
        try:
            with self.working(f"micro-batch {batch.number} of source {self._source}"):
                step = self._steps.task(self._task, self._way, grant.cut)
                acks = self._engine.run(batch, step)
                self._means.points.reach("after-step")
                positions = {self._source: self._engine.position_after(batch)}
                records = sum(ack.rows_in for ack in acks)
                result = self._steps.result(self._task, step, grant.cut, acks, positions, records)
        except StreamEnding:
            raise
        except Exception as error:
            place = self.place_of(batch, grant.cut.positions[self._source], step, error)
            self.failed(f"micro-batch {batch.number} failed", error, place)
            raise
        cut = grant.cut.after(result)
        self._collect(cut)
        self.loop.post(BatchDone(result=result), within_ms=_CLEARING_UP_MS)
        self.note(result.records)
        if self._way.time is not None:
            self._means.heart.note(lambda progress: replace(progress, watermark_ms=cut.watermark_ms))

    def _finish(self, cut: Cut) -> None:
        """The last step of a drain, in a thread of its own: the source stays where it is."""
        try:
            with self.working(f"the last step of task {self._task.uid}"):
                step = self._steps.task(self._task, self._way, cut, finishing=True)
                acks = self._engine.finish(self._task.uid, step)
            self._means.points.reach("after-finish")
            result = self._steps.result(self._task, step, cut, acks, {}, sum(ack.rows_in for ack in acks))
        except Exception as error:  # noqa: BLE001 - the stream fails of it, and says so
            self.failed("the operators could not finish", error)
        else:
            self._collect(cut.after(result))
            self.loop.post(BatchDone(result=result))

    def _collect(self, cut: Cut) -> None:
        for vertex in self._means.vertices.values():
            self.collect_garbage(vertex, [cut, *self.loop.pinned_cuts()])
