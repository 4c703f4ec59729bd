"""What runs micro-batches, as the driver sees it: Spark, or a stand-in that keeps Spark's promises without it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.job.tasks import GraphPlan, Task, TaskInput
from headgate.source.place import Place
from headgate.source.positions import PositionBook
from headgate.step.task import StepAck, StepTask
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.settings import Settings
from headgate_contract.store import ObjectStore

Json = dict[str, Any]

_log = logging.getLogger(__name__)


def log_only(text: str) -> None:
    _log.warning("%s", text)


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch that a source hands over: the engine's own number, and whatever the engine reads it by."""

    number: int
    content: Any
    source: VertexUid
    origin: tuple[str, ...] = ()
    """What of the source it is made of, for people: the files, if they are files."""
    until: str = ""
    """Where in the source it ends, for people."""


@dataclass(frozen=True)
class Written:
    """A micro-batch that a task has written for others."""

    directory: Path
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EngineSetup:
    """What an engine is made from."""

    stream: StreamName
    generation: Generation
    plan: GraphPlan
    settings: Settings
    directory: Path
    """Its private scratch folder, new in every generation."""
    root: ObjectStore | None = None
    """The storage root: a source that keeps a log of its own puts it below."""
    log: str = ""
    say: Callable[[str], None] = log_only
    """Tells people what they should know of a source that runs."""


class Engine(ABC):
    """Calls `handler` for one micro-batch of a source after the other, from a thread of each source's own.

    It is opened once and stopped once; in between it begins and halts once for each life.
    """

    @property
    @abstractmethod
    def books(self) -> Mapping[VertexUid, PositionBook]:
        """The positions of each source, in the life that has begun or is about to."""

    @abstractmethod
    def open(self) -> None:
        """Start what is slow to start, and check the plan against it; nothing if it is open. Raises JobInvalid."""

    @abstractmethod
    def schema(self, task: VertexUid) -> pa.Schema | None:
        """The columns that reach the step of a task, by its first input, known when `open` has returned.

        None if only the records will tell.
        """

    @abstractmethod
    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        """Hand over the micro-batches of each source from its position on, by queries that nobody has used before."""

    @abstractmethod
    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        """Run the step on the micro-batch, once; called by the handler, or later in any thread."""

    @abstractmethod
    def run_written(self, batch: Written, task: Task, way: TaskInput, step: StepTask) -> list[StepAck]:
        """Run the step on what has come by `way`, once, in any thread."""

    @abstractmethod
    def finish(self, uid: VertexUid, task: StepTask) -> list[StepAck]:
        """Run the step of the task of that uid without records, for its operators to finish.

        In any thread, and no element of the task runs then.
        """

    def find(self, batch: MicroBatch, task: StepTask, error: BaseException) -> str:
        """The record of the micro-batch that has made its step fail so, for people; empty if nobody knows."""
        return ""

    def find_behind(self, origin: Place, task: Task, way: TaskInput, step: StepTask, error: BaseException) -> str:
        """The same of what has come to the task by `way`, and is made of the records of `origin`."""
        return ""

    @abstractmethod
    def position_after(self, batch: MicroBatch) -> Json:
        """S_n right behind the micro-batch; called once, by the handler, in the source's thread."""

    @abstractmethod
    def ended(self) -> frozenset[VertexUid]:
        """The bounded sources whose last micro-batch the handler has had; of those whose position says so, at once."""

    @abstractmethod
    def failure(self) -> str | None:
        """Why no more micro-batches come, or None while they do."""

    def blamed(self) -> VertexUid | None:
        """The source whose folder cannot be read as it stands, if that is the failure: it will come again."""
        return None

    @abstractmethod
    def halt(self) -> bool:
        """Hand over nothing more, and forget the life's positions; False if that cannot be brought about.

        When it returns True no step runs any more, `books` are new ones, and `begin` may be called again.
        """

    @abstractmethod
    def stop(self) -> None:
        """End, without waiting for more than the running callback. May be called at any time, and twice."""

    def signs(self) -> Mapping[VertexUid, Hashable | None]:
        """Of each source a sign that changes while its thread moves; None while that has nothing to do, or the handler.

        Asked now and then, and cheap. May hang with the engine itself.
        """
        return {}

    def looked_ms(self) -> Mapping[VertexUid, int]:
        """By `clock.steady_ms`, of each source a moment at which its last look for records had not begun yet.

        A look counts that has ended, found nothing and was of this life; not told of a source that has had none, nor of
        one that cannot tell. The handler has returned from all that had come to the source by then. Asked like `signs`.
        """
        return {}

    def folders(self) -> tuple[Path, ...]:
        """What it has made outside of its scratch folder and cannot do without. Costs nothing."""
        return ()

    def facts(self) -> dict[str, str]:
        """What people may want to know: the address of a UI, for instance."""
        return {}
