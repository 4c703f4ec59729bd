"""What a sink is: a description, a writer that lives within one task, and a committer that lives on the driver.

Two-phase commit. The writer stages, in the task; its handles travel in the acks. `prepare` makes them durable before
the checkpoint is acked; `commit` makes a group of them visible after the checkpoint's completion slot exists. A
group's identity is (stream, checkpoint id), never an epoch or a batch, whose boundaries change in a replay.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headgate_contract.errors import SinkFailed
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.restore import Rollback

Handle = dict[str, Any]
"""What a writer staged, as JSON. If it names something that lies on storage, its key `staged` holds the name."""

Group = tuple[CheckpointId, Sequence[Mapping[str, Any]]]
"""The handles that were completed by one checkpoint."""


class OutputState(enum.Enum):
    """The life of a group's output, from its writer's task on."""

    STAGED = "staged"
    PREPARED = "prepared"
    COMMITTED = "committed"
    RETRACTED = "retracted"
    DELETED = "deleted"


LEGAL = {
    OutputState.STAGED: {OutputState.PREPARED, OutputState.DELETED},
    OutputState.PREPARED: {OutputState.COMMITTED, OutputState.RETRACTED, OutputState.DELETED},
    OutputState.COMMITTED: {OutputState.RETRACTED},
    OutputState.RETRACTED: {OutputState.COMMITTED},
    OutputState.DELETED: set[OutputState](),
}
"""Retracted output comes back when a restore returns to its branch: it is reinstated. What was published stays."""

Guarantee = Literal["exactly-once", "at-least-once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTask:
    """One attempt at one subtask's work. All of it goes into staged names: no two attempts ever share one."""

    stream: StreamName
    sink: VertexUid
    generation: int
    restart: int
    attempt: int
    """The attempt at the whole micro-batch."""
    epoch: int
    subtask: int
    task_attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginReport:
    """What a sink did at the start of a life; for history and for people."""

    committed: tuple[CheckpointId, ...] = ()
    """Carried groups, made visible (again)."""
    retracted: tuple[CheckpointId, ...] = ()
    """Groups that this restore went back behind, hidden now."""
    reinstated: tuple[CheckpointId, ...] = ()
    """Groups that an earlier restore had hidden and that belong to this history again."""
    deleted: int = 0
    """Staged things of earlier lives that no snapshot can ask for any more."""

    @property
    def told(self) -> str:
        """In words, for the driver's log."""
        done = {
            "published": self.committed,
            "taken back": self.retracted,
            "shown again": self.reinstated,
        }
        parts = [f"{what}: {', '.join(map(str, groups))}" for what, groups in done.items() if groups]
        parts += [f"{self.deleted} staged files of earlier lives deleted"] if self.deleted else []
        return "; ".join(parts) or "goes on as it was"


class Sink(ABC):
    """A frozen, picklable description that a job's author makes. Making it does no I/O."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def rollback(self) -> Rollback:
        """What it can do about effects that a restore goes back behind."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What it promises when everything before it is exactly-once."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the plan shows of it, as JSON; no secrets."""

    @abstractmethod
    def check(self) -> None:
        """Raise if it cannot be written to. Called on the driver before the first batch; may create the target."""

    @abstractmethod
    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer for this attempt. Called in the task."""

    @abstractmethod
    def committer(self, stream: StreamName, sink: VertexUid, generation: Generation, history: str) -> SinkCommitter:
        """The driver's half. One per life; not for use by several threads at once.

        `history` is the same for all generations of a stream, and another for a stream of its name on another root.
        """


class SinkWriter(ABC):
    """Stages one attempt's rows. Ends by `finish` or by `abort`."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Stage these rows; all batches of one writer have one schema."""

    @abstractmethod
    def finish(self) -> tuple[Handle, ...]:
        """End the staging; none if there were no rows. What the handles name is whole, but perhaps not yet durable."""

    @abstractmethod
    def abort(self) -> None:
        """Drop everything that this writer staged. Also allowed after `finish`, and twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFault:
    """A record of the sink's own that cannot be read, or is gone."""

    path: str
    why: str
    becomes: str
    """What the first start behind a repair makes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkHoldings:
    """What a sink holds of a stream, whoever published it."""

    history: str
    """Whose it is, as it says itself."""
    generation: int
    """The newest that has begun there."""
    groups: Mapping[int, tuple[str, ...]]
    """The newest groups, and the staged names that each was made of."""
    hidden: tuple[int, ...] = ()
    """Those of them that were taken back: nobody sees them."""
    staged: tuple[str, ...] = ()
    """What waits for being published, by its staged names."""
    faults: tuple[SinkFault, ...] = ()


class SinkCommitter(ABC):
    """Makes groups visible and takes them back. A StorageError is worth another try; a SinkFailed is not."""

    def expect(self, published: CheckpointId | None = None) -> None:
        """An earlier life has written to this very target: raise SinkFailed if nothing there shows that it did.

        `published`: a group of which the log says that it is committed there; SinkDamaged if it is not. Called before
        anything is made there. A mount that dropped leaves an empty folder, into which the output would go on, and an
        older copy that is put in its place lacks what was published since. Most sinks have nothing to look for.
        """
        return

    @abstractmethod
    def begin(
        self,
        lineage: Set[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        """Bring the sink to the snapshot that this life starts from; before its first batch.

        `lineage`: every checkpoint that the snapshot stands on, itself included; empty for a start without state.
        `carried`: the snapshot's own committables; those in the lineage are committed (again).
        `abandoned`: committables that other retained snapshots carry; they can never become visible in this life, not
        even by a frozen driver's late commit, but are kept for a later restore to their branch.
        `protected`: the staged names that any retained snapshot carries (`staged_names`); they are not deleted.
        None: not all are known, so that nothing staged is deleted.
        Published groups outside the lineage are retracted, retracted groups of the lineage reinstated, every other
        staged thing of earlier lives deleted. May be repeated, also after a crash within it. Raises Fenced if a newer
        generation has begun, and SinkFailed before anything is changed if something that it needs is gone.
        """

    @abstractmethod
    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        """Make staged things durable, before the checkpoint that completes them is acked. May be repeated.

        Returns what stands for them in the group from then on: these very handles, or, if they are `joinable`, others
        with the same output. Those given stay as they are until the group is committed: if the checkpoint comes to
        nothing, they are given again, with what was staged since.
        """

    @abstractmethod
    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        """Make the group visible, all of it.

        Called at least once and only after its completion slot exists; may repeat, also by a frozen driver that
        wakes up long after. Raises Fenced if a newer generation has gone back behind the group.
        """

    @abstractmethod
    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Drop what a failed attempt staged. Never called for handles of a completed checkpoint."""

    def holdings(self, *, whole: bool = False) -> SinkHoldings | None:
        """What is there now; None: it keeps nothing that could tell. Changes nothing.

        `whole`: look at every record that it has, however old, for damage.
        """
        return None

    def take_over(self, groups: Sequence[Group], shown: Set[CheckpointId] = frozenset()) -> tuple[CheckpointId, ...]:
        """Behind a repair of the log, before `begin`: what the log says that these groups consist of is true.

        What others have published under their ids is taken back and kept aside, and what of the sink's own records is
        damaged or gone is made again; of which ids that was. Those that are to be `shown`, and of which files are gone,
        are shown as far as they are there: the repair gave up the rest. May be repeated, by nobody but the newest
        generation.
        """
        return ()

    def aborted(self, checkpoint: CheckpointId) -> None:
        """This snapshot came to nothing, for whatever reason. Most sinks have nothing to do.

        It is called in another thread than `prepare`, which may still be running, or may never have been called for it.
        What was staged and prepared for it stays: it goes into the group of a later one.
        """
        return


def staged_names(handles: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The names of staged things among `handles`: what `begin` wants to be told as protected."""
    return frozenset(str(handle["staged"]) for handle in handles if "staged" in handle)


def not_made_by(sink: VertexUid) -> SinkFailed:
    """For a committer that is given another kind's handles: they would be lost without a word."""
    return SinkFailed(
        f"the handles of sink {sink} were made by another kind of sink than it is now",
        hint="give the new sink a uid of its own; stop the stream with a savepoint before a sink is removed, so that "
        "nothing of it is left to commit",
    )
