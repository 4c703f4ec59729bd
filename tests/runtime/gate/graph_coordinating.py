"""A coordinator of a small job with channels, and everybody around it: s0 and s1 feed `a`, whose records `b` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    Cleaned,
    CommitGroups,
    Committed,
    Event,
    NotifyComplete,
    SourceEnded,
    Stored,
    StoreSnapshot,
    TakeSnapshot,
    Tick,
    Trigger,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.gate.coordinator import GraphCoordinator, TaskParts
from headgate.gate.elements import Batch, ChannelId
from headgate.gate.flow import Flow, Topology
from headgate.gate.messages import BatchTaken, ElementDone, FinishTask, HandedOver, RunElement, SourcesRun
from headgate_contract.ids import CheckpointId, Generation, RequestId, SlotNumber, VertexUid
from headgate_contract.snapshot import SnapshotKind, SnapshotRef, SourceState, TaskState, VertexState

S0, S1, A, B = (VertexUid(name) for name in ("s0", "s1", "a", "b"))
OUT_A, OUT_B = VertexUid("out-a"), VertexUid("out-b")
FROM_S0, FROM_S1, A_TO_B = ChannelId(S0, A), ChannelId(S1, A), ChannelId(A, B)
PARTS = {A: TaskParts(state=A, sources=(S0, S1), sinks=(OUT_A,)), B: TaskParts(state=B, sinks=(OUT_B,))}

T = TypeVar("T")


class Job:
    """The job, its coordinator, and what that wants done. Nothing happens by itself."""

    def __init__(
        self,
        *,
        exactly_once: bool = True,
        idle_after_ms: int | None = None,
        sources_run: bool = True,
        flow_class: type[Flow] = Flow,
        begins_as: SnapshotRef | None = None,
        finished: frozenset[VertexUid] = frozenset(),
        **options: Any,
    ) -> None:
        topology = Topology({S0: FROM_S0, S1: FROM_S1}, {A: (FROM_S0, FROM_S1), B: (A_TO_B,)}, {A: (A,), B: ()})
        start = {S0: {"next": 0}, S1: {"next": 0}}
        self.coordinator = GraphCoordinator(
            options=CheckpointOptions(**{"interval_ms": None, **options}),
            participants=frozenset(name for uid, parts in PARTS.items() for name in parts.all(uid)),
            cut=Cut(epoch=0, positions=start, finished=finished),
            next_id=CheckpointId(1) if begins_as is None else begins_as.id.next(),
            retained=[] if begins_as is None else [begins_as],
            begins_as=None if begins_as is None else begins_as.id,
            groups=[],
            started_ms=0,
            flow=flow_class(topology, start, exactly_once=exactly_once),
            tasks=PARTS,
            idle_after_ms={} if idle_after_ms is None else dict.fromkeys((S0, S1), idle_after_ms),
        )
        self.last_word = False
        """Whether `a` has something to say to `b` when it finishes."""
        self.silent = False
        """Whether it has nothing to say before."""
        self.now = 0
        if sources_run:
            self.coordinator.handle(SourcesRun(), 0)
        self.done: list[Action] = []
        """All that was wanted, in order."""
        self.running: dict[VertexUid, RunElement | FinishTask] = {}
        self._next = {S0: 0, S1: 0}

    # ---- what happens

    def tell(self, event: Event) -> list[Action]:
        actions = self.coordinator.handle(event, self.now)
        self.done += actions
        for action in actions:
            if isinstance(action, (RunElement, FinishTask)):
                assert action.task not in self.running, f"{action.task} is given an element while it is at one"
                self.running[action.task] = action
        return actions

    def hand_over(self, source: VertexUid) -> bool:
        """One record, numbered; whether it was taken."""
        number = self._next[source]
        self._next[source] += 1
        batch = Batch([f"{source}.{number}"], 1, 1, {"next": number}, {"next": number + 1})
        return BatchTaken(source=source) in self.tell(HandedOver(source=source, batch=batch))

    def end(self, source: VertexUid) -> list[Action]:
        """It has handed over all that it has."""
        return self.tell(SourceEnded(source=source))

    def finish(self, task: VertexUid, watermark_ms: int | None = None) -> list[Action]:
        """The task is done with what it is at, and has handed it on; the records tell how far event time has come."""
        action = self.running.pop(task)
        made, staged = {}, {}
        if isinstance(action, RunElement):
            speaks = task == A and not self.silent
            made = {A: Batch(({"name": f"{action.batch.content}"},), 1, 1)} if speaks else {}
        elif task == A and self.last_word:
            made = {A: Batch(({"name": "last"},), 1, 1)}
        if isinstance(action, RunElement):
            staged = {OUT_A if task == A else OUT_B: ({"staged": f"{action.batch.content}"},)}
        versions = {task: {0: {"epoch": action.cut.epoch + 1}}}
        records = 1 if task == A and isinstance(action, RunElement) else 0
        result = BatchResult(
            epoch=action.cut.epoch + 1,
            versions=versions,
            positions={},
            staged=staged,
            records=records,
            watermark_ms=watermark_ms,
            finished=frozenset({task} if isinstance(action, FinishTask) else ()),
        )
        return self.tell(ElementDone(task=task, result=result, made=made))

    def run_dry(self) -> None:
        while self.running:
            self.finish(next(iter(self.running)))

    def trigger(self, **what: Any) -> list[Action]:
        """Somebody asks for a checkpoint, or for what is said."""
        return self.tell(Trigger(**(what or {"request": RequestId(f"request-{len(self.done)}")})))

    def wait(self, ms: int) -> list[Action]:
        self.now += ms
        return self.tell(Tick())

    def acknowledge(self, take: TakeSnapshot) -> None:
        """All parts of one task's snapshot."""
        for part in sorted(take.parts):
            kind, _, name = part.partition(" ")
            uid = VertexUid(name)
            self.tell(
                Acknowledged(
                    checkpoint=take.checkpoint,
                    participant=part,
                    vertices={uid: VertexState(uid, 1, "hashmap", (), (), take.cut.epoch)} if kind == "state" else {},
                    sources={uid: SourceState(uid, "files", dict(take.cut.positions[uid]))} if kind == "source" else {},
                    tasks={uid: TaskState({})} if kind == "inputs" else {},
                )
            )

    def acknowledge_all(self) -> None:
        for take in self.all(TakeSnapshot):
            self.acknowledge(take)

    def complete(self) -> None:
        """What is to be stored is stored, and committed; what it has retired is deleted."""
        stored = self.all(StoreSnapshot)[-1]
        ref = SnapshotRef(
            stored.checkpoint, SnapshotKind.CHECKPOINT, Generation(1), f"chk-{stored.checkpoint}", 1, "00", stored.name
        )
        actions = self.tell(Stored(checkpoint=stored.checkpoint, snapshot=ref, slot=SlotNumber(int(stored.checkpoint))))
        for action in actions:
            if isinstance(action, CommitGroups):
                self.tell(Committed(groups=tuple(group.id for group in action.groups)))
            if isinstance(action, NotifyComplete):
                for retired in action.retired:
                    self.tell(Cleaned(checkpoint=retired))

    # ---- what was wanted

    def all(self, kind: type[T]) -> list[T]:
        return [action for action in self.done if isinstance(action, kind)]

    def parts(self, checkpoint: int) -> set[str]:
        """Whose parts of a checkpoint have been asked for."""
        takes = [take for take in self.all(TakeSnapshot) if take.checkpoint == checkpoint]
        return {part for take in takes for part in take.parts}

    def take_of(self, checkpoint: int, holds: Callable[[TakeSnapshot], bool]) -> TakeSnapshot:
        (found,) = (take for take in self.all(TakeSnapshot) if take.checkpoint == checkpoint and holds(take))
        return found
