"""The books of a coordinator's harness: what was wanted and done so far, and the laws that each action must keep.

They are kept from what the coordinator was told and has answered, and look at none of its fields but the public ones.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut, Group
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    CommitGroups,
    Event,
    FailStream,
    FinishOperators,
    NotifyAborted,
    NotifyComplete,
    NotifyCurrent,
    Reply,
    StoreSnapshot,
    TakeSnapshot,
    Trigger,
    WriteStopped,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, VertexUid
from headgate_contract.snapshot import SnapshotKind, SnapshotRef, SourceState, VertexState

COUNTS = VertexUid("counts")
LINES = VertexUid("lines")
OUT = VertexUid("out")
STATE, SOURCE, SINK = f"state {COUNTS}", f"source {LINES}", f"sink {OUT}"
PARTICIPANTS = (SINK, SOURCE, STATE)


def checkpoint_ref(number: int) -> SnapshotRef:
    return SnapshotRef(CheckpointId(number), SnapshotKind.CHECKPOINT, Generation(1), f"chk-{number}", 1, "00")


def savepoint_ref(number: int, name: str) -> SnapshotRef:
    kind = SnapshotKind.SAVEPOINT
    return SnapshotRef(CheckpointId(number), kind, Generation(1), f"savepoints/{name}", 1, "00", SavepointName(name))


def ack_of(checkpoint: int, participant: str, epoch: int = 0) -> Acknowledged:
    """A participant's part of a snapshot; it tells after which micro-batch it was taken."""
    vertices = {COUNTS: VertexState("counts", 1, "hashmap", (), (), epoch)} if participant == STATE else {}
    sources = {LINES: SourceState("lines", "files", {"batch": epoch})} if participant == SOURCE else {}
    return Acknowledged(
        checkpoint=CheckpointId(checkpoint), participant=participant, vertices=vertices, sources=sources
    )


@dataclass
class Attempt:
    """One snapshot as the world knows it."""

    take: TakeSnapshot
    trigger: Trigger
    begun_ms: int
    staged_up_to: int
    """How many things had been staged when the barrier passed."""
    acks: dict[str, Acknowledged] = field(default_factory=dict)
    state: str = "open"
    """open, storing, stored or aborted."""


@dataclass
class CoordinatorBooks:
    """What has become of a stream of one keyed vertex between one source and one sink."""

    options: CheckpointOptions
    retained: list[SnapshotRef] = field(default_factory=list)
    carried: tuple[Group, ...] = ()
    now_ms: int = 1_000
    flowing: bool = False
    """Something has come whenever time passes: no periodic checkpoint would repeat the one before."""
    begins_as: int | None = None
    """The checkpoint of its own that this life has restored."""

    def __post_init__(self) -> None:
        self.next_id = max((ref.id for ref in self.retained), default=0) + 1
        self.cut = Cut(epoch=0, positions={LINES: {"batch": 0}})
        self.coordinator = Coordinator(
            options=self.options,
            participants=frozenset(PARTICIPANTS),
            cut=self.cut,
            next_id=CheckpointId(self.next_id),
            retained=list(self.retained),
            groups=list(self.carried),
            started_ms=self.now_ms,
            begins_as=CheckpointId(self.begins_as) if self.begins_as is not None else None,
        )
        self.whole: dict[CheckpointId, tuple[Cut, int]] = {}
        """Of each completed checkpoint of its own the cut, and how many things had been staged."""
        if self.begins_as is not None:
            self.whole[CheckpointId(self.begins_as)] = (self.cut, 0)
        self.current: list[CheckpointId] = []
        """The checkpoints that were said to be current, one for each that was not taken."""
        self.looked_ms: int | None = None
        """When the source last looked and found nothing."""
        self.busy = False
        self.finishing = False
        """The operators were told to finish."""
        self.staged: list[int] = []
        self.attempts: dict[CheckpointId, Attempt] = {}
        self.ledger: deque[Action] = deque()
        self.inbox: deque[Event] = deque()
        self.disposal: deque[CheckpointId] = deque()
        self.slots: list[StoreSnapshot | WriteStopped] = []
        self.commits: list[CheckpointId] = []
        self.noted: list[CheckpointId] = []
        self.told_committed = {group.id for group in self.carried}
        self.requests: set[RequestId] = set()
        self.spared: set[CheckpointId] = set()
        self.replies: dict[RequestId, Reply | WriteStopped] = {}
        self.notices: list[NotifyComplete | NotifyAborted] = []
        self.failures: list[FailStream] = []

    # ---- the laws

    def check(self, action: Action, event: Event) -> None:
        match action:
            case FinishOperators():
                self._check_finishing(action)
            case TakeSnapshot():
                self._check_barrier(action)
            case StoreSnapshot():
                self._check_store(action)
            case CommitGroups(groups=groups):
                stored = {slot.checkpoint for slot in self.completed}
                assert all(group.id in stored for group in groups), "nothing is committed that has no slot"
                assert list(groups) == sorted(groups, key=lambda group: group.id)
            case NotifyAborted():
                self._check_aborted(action)
            case NotifyCurrent():
                self._check_current(action)
            case WriteStopped(snapshot=snapshot):
                assert not self.ended, "a stream ends once"
                if snapshot is not None:
                    completed = {slot.checkpoint for slot in self.completed}
                    newest = max([*completed, *(ref.id for ref in self.retained)])
                    assert snapshot == newest, "a stream stops with its newest snapshot"
                    everything = completed | {group.id for group in self.carried}
                    assert {*self.noted, *action.committed} == everything, "all that completed is committed and noted"
            case FailStream():
                assert not self.ended, "a stream fails once"

    def _check_finishing(self, action: FinishOperators) -> None:
        """The last step of a drain: between two micro-batches, after which no other begins."""
        assert not self.busy, "the operators finish when no step runs"
        assert not self.finishing, "the operators finish once"
        assert not self.open_attempts, "the operators finish when all before is complete"
        assert not self.coordinator.may_begin
        assert action.cut == self.cut, "they finish on the newest cut"
        self.busy = self.finishing = True

    def _check_barrier(self, take: TakeSnapshot) -> None:
        assert not self.busy, "a barrier passes between two micro-batches"
        assert not self.ended
        assert take.cut == self.cut, "the cut is that of the barrier"
        assert take.checkpoint == self.next_id, "ids are unique and grow by one"
        self.next_id += 1
        pending = self.coordinator.pending[take.checkpoint]
        self.attempts[take.checkpoint] = Attempt(take, pending.trigger, self.now_ms, len(self.staged))
        assert not pending.trigger.drain or self.finishing or self.cut.finished, "a drain's comes behind the finishing"
        assert pending.trigger.drain or not self.finishing, "and no other does"
        if pending.trigger.stop:
            assert not [other for other in self.open_attempts if other.take != take], "the last barrier comes alone"
        else:
            assert len(self.disposal) <= self.options.max_concurrent, "not while too many are being cleaned"
        if pending.trigger.reason == "interval":
            running = [attempt for attempt in self.open_attempts if attempt.take.name is None]
            assert len(running) <= self.options.concurrent
            assert not self.coordinator.stop
        assert _numbers(take.staged) == self.staged[self._completed_up_to() :]

    def _check_store(self, action: StoreSnapshot) -> None:
        assert not [other for other in self.attempts.values() if other.state == "storing"], "one at a time"
        attempt = self.attempts[action.checkpoint]
        assert attempt.state == "open"
        attempt.state = "storing"
        assert set(attempt.acks) == set(PARTICIPANTS), "stored with the acks of all participants"
        assert action.cut == attempt.take.cut, "what is stored is the cut of the barrier"
        assert action.vertices == {k: v for ack in attempt.acks.values() for k, v in ack.vertices.items()}
        assert action.sources == {k: v for ack in attempt.acks.values() for k, v in ack.sources.items()}
        *earlier, own = action.groups
        assert own.id == action.checkpoint
        assert _numbers(own.sinks) == self.staged[self._completed_up_to() : attempt.staged_up_to]
        done = [slot.checkpoint for slot in self.completed]
        open_groups = [id for id in done if id not in self.told_committed]
        assert [group.id for group in earlier] == open_groups, "it carries what is not committed yet"
        self._check_retired(action)

    def _check_retired(self, action: StoreSnapshot) -> None:
        """Of the checkpoints there are, with this one, the newest `retained` stay; savepoints all do."""
        kept = self.kept_checkpoints
        if action.kind is SnapshotKind.CHECKPOINT:
            repeated = [id for id in self._repeated_by(action) if id in kept and id not in self.spared]
            kept = [id for id in kept if id not in repeated]
            too_many = sorted([*kept, action.checkpoint])[: -self.options.retained]
            expected = sorted([*(id for id in too_many if id not in self.spared), *repeated])
        else:
            expected = []
        assert list(action.retires) == expected

    def _repeated_by(self, action: StoreSnapshot) -> list[CheckpointId]:
        """The newest of the checkpoints that it has taken, if both are periodic and hold the same."""
        newest = max(self.whole, default=None)
        if newest not in self.attempts or self.whole[newest][0] != action.cut:
            return []
        both = (self.attempts[each].trigger for each in (newest, action.checkpoint))
        return [newest] if all(trigger.is_periodic for trigger in both) else []

    def _check_current(self, action: NotifyCurrent) -> None:
        """It restores to what there is now, and will be there."""
        assert not self.busy, "a barrier would not have passed"
        assert not self.ended
        assert self.whole[action.checkpoint] == (self.cut, len(self.staged)), "nothing has come since"
        assert action.checkpoint == max(self.whole), "there is no newer one"
        assert action.checkpoint in self.kept_checkpoints, "no slot has retired it"
        assert not [each for each in self.open_attempts if each.take.name is None], "and none is about to"
        with_output = {slot.checkpoint for slot in self.completed if _numbers(slot.groups[-1].sinks)}
        with_output |= {group.id for group in self.carried if _numbers(group.sinks)}
        assert not (with_output & self.told_committed) - set(self.noted), "of what is committed a slot says so"
        assert action.as_of_ms == self.looked_ms, "no later than the sources have looked"
        self.current.append(action.checkpoint)

    def _check_aborted(self, action: NotifyAborted) -> None:
        if action.checkpoint not in self.attempts:
            assert self.busy, "only a running step lets no barrier pass"
            assert action.checkpoint == self.next_id
            assert action.cause.startswith("it expired after")
            self.next_id += 1
            return
        attempt = self.attempts[action.checkpoint]
        assert attempt.state in ("open", "storing"), "each attempt ends once"
        attempt.state = "aborted"
        if attempt.take.name is not None or attempt.trigger.stop or attempt.trigger.request:
            assert action.reason is not CheckpointFailureReason.CHECKPOINT_SUBSUMED

    def _completed_up_to(self) -> int:
        """How many staged things belong to completed snapshots, as far as the coordinator has been told."""
        stored = [attempt.staged_up_to for attempt in self.attempts.values() if attempt.state == "stored"]
        return max(stored, default=0)

    # ---- what there is

    @property
    def ended(self) -> bool:
        """Has the coordinator asked for the stream's end?"""
        ends = (WriteStopped, FailStream)
        return bool(self.failures) or any(isinstance(action, ends) for action in (*self.slots, *self.ledger))

    @property
    def completed(self) -> list[StoreSnapshot]:
        return [slot for slot in self.slots if isinstance(slot, StoreSnapshot)]

    @property
    def open_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.state in ("open", "storing")]

    @property
    def kept_checkpoints(self) -> list[CheckpointId]:
        """The checkpoints that no slot has retired."""
        before = [ref.id for ref in self.retained if ref.kind is SnapshotKind.CHECKPOINT]
        own = [slot.checkpoint for slot in self.completed if slot.kind is SnapshotKind.CHECKPOINT]
        retired = {id for slot in self.completed for id in slot.retires}
        return [id for id in (*before, *own) if id not in retired]

    @property
    def pending(self) -> list[int]:
        return sorted(int(id) for id in self.coordinator.pending)

    def groups(self) -> dict[int, list[int]]:
        """What each completed snapshot's own group holds."""
        return {int(slot.checkpoint): _numbers(slot.groups[-1].sinks) for slot in self.completed}

    def reasons(self) -> dict[int, CheckpointFailureReason]:
        return {int(notice.checkpoint): notice.reason for notice in self.notices if isinstance(notice, NotifyAborted)}

    def aborted(self) -> dict[int, str]:
        """The attempts that came to nothing, and why."""
        return {int(notice.checkpoint): notice.cause for notice in self.notices if isinstance(notice, NotifyAborted)}


def _numbers(sinks: Any) -> list[int]:
    """The staged things of a group, in order."""
    return [handle["staged"] for handle in sinks.get(OUT, ())]
