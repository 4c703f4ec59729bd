"""The coordinator alone by script: a clock by hand, and a ledger that carries out its actions one after the other.

Each step holds the coordinator to its laws; see docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Cancel,
    Cleaned,
    CommitGroups,
    Committed,
    Declined,
    Event,
    FailStream,
    Looked,
    NotifyAborted,
    NotifyComplete,
    NotifyCurrent,
    Reply,
    SourceEnded,
    Stored,
    StoreFailed,
    StoreSnapshot,
    TakeSnapshot,
    Tick,
    Trigger,
    WriteStopped,
)
from headgate.testing.coordinator_books import COUNTS, LINES, OUT, PARTICIPANTS, STATE, CoordinatorBooks, ack_of
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber, VertexUid
from headgate_contract.snapshot import SnapshotKind, SnapshotRef


class CoordinatorHarness(CoordinatorBooks):
    """A stream of one keyed vertex between one source and one sink: what may happen to its coordinator."""

    # ---- what happens

    def tell(self, event: Event) -> list[Action]:
        """Give the coordinator an event, and hold what it wants done to its laws."""
        over = self.ended
        if isinstance(event, (Trigger, Cancel)) and event.request is not None:
            self.requests.add(event.request)
        if isinstance(event, Acknowledged):
            self._count(event)
        actions = self.coordinator.handle(event, self.now_ms)
        if over:
            assert all(isinstance(action, Reply) for action in actions), "after its end it only answers"
        for action in actions:
            self.check(action, event)
            if not isinstance(action, (TakeSnapshot, NotifyCurrent)):
                self.ledger.append(action)
        return actions

    def begin(self) -> None:
        assert self.coordinator.may_begin
        self.busy = True
        self.tell(BatchBegun())

    def finish(self, staged: int = 1) -> None:
        """The micro-batch ends, or the finishing; each thing that it staged is a number that never comes again."""
        epoch = self.cut.epoch + 1
        handles = tuple({"staged": len(self.staged) + number} for number in range(staged))
        self.staged += [handle["staged"] for handle in handles]
        self.busy = False
        finished = frozenset({COUNTS}) if self.finishing else frozenset[VertexUid]()
        self.cut = Cut(
            epoch=epoch,
            versions={COUNTS: {0: {"epoch": epoch}}},
            positions={LINES: {**self.cut.positions[LINES], "batch": epoch}},
            records=self.cut.records + 10,
            finished=finished,
        )
        result = BatchResult(
            epoch=epoch,
            versions=self.cut.versions,
            positions=self.cut.positions,
            staged={OUT: handles} if handles else {},
            records=10,
            finished=finished,
        )
        self.tell(BatchDone(result=result))

    def end_source(self) -> list[Action]:
        """The source has handed over all that it has."""
        if not self.ended:
            self.cut = self.cut.at_end_of(LINES)
        return self.tell(SourceEnded(source=LINES))

    def fail_batch(self, cause: str = "the step failed") -> list[Action]:
        """The running micro-batch fails."""
        self.busy = False
        return self.tell(BatchFailed(cause=cause))

    def batch(self, staged: int = 1) -> None:
        self.begin()
        self.finish(staged)

    def pass_time(self, ms: int) -> list[Action]:
        if self.flowing and not self.busy and self.coordinator.may_begin:
            self.batch(staged=0)
        self.now_ms += ms
        actions = self.tell(Tick())
        deadline = self.coordinator.next_deadline()
        assert deadline is None or deadline > self.now_ms, "whoever waits for the next deadline waits for it"
        return actions

    def look(self) -> list[Action]:
        """The source looks, and finds nothing."""
        self.looked_ms = self.now_ms
        return self.tell(Looked(began_ms=self.now_ms))

    def request(
        self, id: str, name: str | None = None, *, stop: bool = False, drain: bool = False, keep: int | None = None
    ) -> list[Action]:
        """Somebody asks for a snapshot, for a savepoint if it has a name."""
        kind = SnapshotKind.SAVEPOINT if name else SnapshotKind.CHECKPOINT
        trigger = Trigger(
            kind=kind,
            name=SavepointName(name) if name else None,
            request=RequestId(id),
            stop=stop or drain,
            drain=drain,
            keep=CheckpointId(keep) if keep is not None else None,
            reason=id,
        )
        actions = self.tell(trigger)
        refused = any(isinstance(action, Reply) and action.request == id for action in actions)
        if keep is not None and not refused:
            self.spared.add(CheckpointId(keep))
        return actions

    def cancel(self, id: str | None = None) -> list[Action]:
        """Somebody wants the end at once, without a snapshot."""
        return self.tell(Cancel(request=RequestId(id) if id else None))

    def ack(self, checkpoint: int, *participants: str) -> list[Action]:
        """Some participants of a snapshot, or all of them, acknowledge."""
        actions = []
        for participant in participants or PARTICIPANTS:
            take = self.attempts[CheckpointId(checkpoint)].take
            actions += self.tell(ack_of(checkpoint, participant, take.cut.epoch))
        return actions

    def decline(self, checkpoint: int, participant: str = STATE, cause: str = "the disk is full") -> list[Action]:
        return self.tell(Declined(checkpoint=CheckpointId(checkpoint), participant=participant, cause=cause))

    def _count(self, ack: Acknowledged) -> None:
        """The first ack of each participant of a snapshot counts, and no other."""
        attempt = self.attempts.get(ack.checkpoint)
        if attempt is not None and attempt.state == "open" and ack.participant in PARTICIPANTS:
            attempt.acks.setdefault(ack.participant, ack)

    # ---- the ledger

    def carry_out(self, *, fail: bool = False) -> Action | None:
        """The ledger carries out one action; what it has to tell waits in the inbox."""
        if not self.ledger:
            return None
        action = self.ledger.popleft()
        match action:
            case StoreSnapshot() if fail:
                self.inbox.append(StoreFailed(checkpoint=action.checkpoint, cause="no space left"))
            case StoreSnapshot():
                self._complete(action)
            case CommitGroups(groups=groups):
                self.commits += [group.id for group in groups]
                self.inbox.append(Committed(groups=tuple(group.id for group in groups)))
            case WriteStopped():
                self._note(action.committed)
                self.slots.append(action)
                if action.request is not None:
                    self._answer(action.request, action)
                for reply in action.also:
                    self._answer(reply.request, reply)
            case Reply(request=request):
                self._answer(request, action)
            case NotifyComplete() | NotifyAborted():
                self.notices.append(action)
                self.disposal.extend(action.retired if isinstance(action, NotifyComplete) else ())
            case FailStream():
                self.failures.append(action)
        return action

    def deliver(self) -> list[Action]:
        """The oldest message of the ledger reaches the coordinator."""
        event = self.inbox.popleft()
        if isinstance(event, Committed):
            self.told_committed |= set(event.groups)
        if isinstance(event, Stored):
            attempt = self.attempts[event.checkpoint]
            attempt.state = "stored"
            if attempt.take.name is None:
                self.whole[event.checkpoint] = (attempt.take.cut, attempt.staged_up_to)
        return self.tell(event)

    def clean(self) -> None:
        """The cleaner has done with the oldest checkpoint that it was given."""
        self.inbox.append(Cleaned(checkpoint=self.disposal.popleft()))

    def settle(self, *, fail: bool = False, clean: bool = True) -> None:
        """Let the ledger work until nothing is left to do, and the cleaner too."""
        while self.ledger or self.inbox or (clean and self.disposal):
            self.carry_out(fail=fail)
            if clean and self.disposal:
                self.clean()
            while self.inbox:
                self.deliver()

    def complete(self, checkpoint: int) -> None:
        self.ack(checkpoint)
        self.settle()

    def _complete(self, action: StoreSnapshot) -> None:
        assert all(action.checkpoint > slot.checkpoint for slot in self.completed), "completed in barrier order"
        self.slots.append(action)
        self._note(action.committed)
        ref = SnapshotRef(
            action.checkpoint,
            action.kind,
            Generation(1),
            f"chk-{action.checkpoint}",
            1,
            "00",
            action.name,
            action.origin,
        )
        self.inbox.append(Stored(checkpoint=action.checkpoint, snapshot=ref, slot=SlotNumber(len(self.slots))))

    def _note(self, groups: Iterable[CheckpointId]) -> None:
        for group in groups:
            assert group in self.told_committed, "only what the sinks have committed is noted"
            assert group not in self.noted, f"group {group} is noted twice"
            self.noted.append(group)

    def _answer(self, request: RequestId, answer: Reply | WriteStopped) -> None:
        assert request not in self.replies, f"{request} is answered twice"
        self.replies[request] = answer
