"""A ledger over a store in memory that a test can break, and a sink that keeps what was committed."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.coordinator.cut import Cut, Group
from headgate.coordinator.messages import Event, NotifyAborted, NotifyComplete, Reply, Stored, StoreSnapshot
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.driver.ledger import Action, Ledger
from headgate.driver.points import KillPoints
from headgate.driver.shared_state import SharedFiles
from headgate.sink.base import BeginReport, SinkCommitter
from headgate.sink.base import Group as SinkGroup
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import StorageError
from headgate_contract.history import read_history
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName, VertexUid
from headgate_contract.mailbox import Answer, Mailbox
from headgate_contract.paths import METADATA
from headgate_contract.records import GenerationStarted, SlotRecord, slot_log
from headgate_contract.restore import StartFresh
from headgate_contract.snapshot import SavepointOrigin, SnapshotKind, SourceState, StateHandle
from headgate_contract.store import open_store
from tests.runtime.driver.waiting import PATIENCE_S
from tests.runtime.sink.stepping_store import SteppingStore

STREAM = StreamName("orders")
CHECKPOINT_1 = f"streams/{STREAM}/checkpoints/chk-1-g1/{METADATA}"
OUT = VertexUid("out")
COPY = VertexUid("copy")
LINES = VertexUid("lines")


class ListCommitter(SinkCommitter):
    """Keeps the groups that it was told to commit; fails as often as a test has asked for."""

    def __init__(self) -> None:
        self.committed: list[CheckpointId] = []
        self.failures: list[Exception] = []
        self.before: Callable[[CheckpointId], object] = lambda group: None

    def begin(
        self,
        lineage: frozenset[CheckpointId],
        carried: Sequence[SinkGroup],
        abandoned: Sequence[SinkGroup],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        return BeginReport()

    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        """Nothing was staged."""
        return handles

    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        self.before(group)
        if self.failures:
            raise self.failures.pop(0)
        self.committed.append(group)

    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Nothing was staged."""


class QuickLedger(Ledger):
    """Does not make a test wait between two tries, and says when it has carried everything out."""

    PAUSE_S = 0.0

    def settle(self) -> None:
        for pool in (self._pool, self.cleaner.executor):  # in this order: the first one gives the second one work
            pool.submit(lambda: None).result(PATIENCE_S)


@dataclass
class Faults:
    """Which store calls fail, and when: `call` begins with the name of the call."""

    refused: list[str] = field(default_factory=list)
    times: int = 1_000_000
    act: Callable[[str], object] = lambda call: None

    def before(self, call: str) -> None:
        self.act(call)
        if self.times > 0 and any(call.startswith(start) for start in self.refused):
            self.times -= 1
            raise StorageError(f"cannot {call}: no space left on device")


class LossyStore(SteppingStore):
    """Of some objects it says that they could not be written, when they have been."""

    lost: tuple[str, ...] = ()

    def create(self, path: str, data: bytes) -> bool:
        done = super().create(path, data)
        if path in self.lost:
            self.lost = ()
            raise StorageError(f"no answer to the creation of {path}")
        return done


class LedgerWorld:
    """Generation 1 of a stream, right after its start."""

    def __init__(self) -> None:
        self.plain = open_store(f"memory://{uuid.uuid4().hex}")
        self.faults = Faults()
        self.store = LossyStore(self.plain, self.faults.before)
        self.slots = slot_log(self.store, STREAM)
        self.start(1)
        self.sinks = {OUT: ListCommitter(), COPY: ListCommitter()}
        self.shared = SharedFiles()
        self.folders: dict[CheckpointId, str] = {}
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.ends: list[BaseException | None] = []
        self.slots.read()
        self.ledger = QuickLedger(
            store=self.store,
            stream=STREAM,
            generation=Generation(1),
            slots=self.slots,
            newest=self.catalogue.slots[0].number,
            max_parallelism=16,
            sinks=self.sinks,
            shared=self.shared,
            folders=self.folders,
            post=self.events.put,
            end=self.ends.append,
            points=KillPoints(),
        )

    def start(self, generation: int) -> None:
        """A launch appends its start, behind whatever is there."""
        self.append(
            GenerationStarted(
                generation=Generation(generation),
                decision=StartFresh("for a test"),
                first_checkpoint=CheckpointId(100 * (generation - 1) + 1),
                deployed=1,
                by="ann",
                host="elsewhere",
                at_ms=0,
                launch=f"launch-{generation}",
                log="",
            )
        )

    def append(self, record: SlotRecord) -> None:
        """Somebody else writes the next slot."""
        log = slot_log(self.plain, STREAM)
        found = log.read()
        log.append(found[-1].number if found else None, record)

    @property
    def catalogue(self) -> Catalogue:
        return read_catalogue(self.plain, STREAM)

    @property
    def records(self) -> list[SlotRecord]:
        return [slot.record for slot in self.catalogue.slots]

    def do(self, *actions: Action) -> None:
        """Let the ledger carry out these actions; return when it has."""
        for action in actions:
            self.ledger.perform(action)
        self.ledger.settle()

    def event(self) -> Any:
        """The next thing that the coordinator is told."""
        return self.events.get(timeout=PATIENCE_S)

    def told(self) -> list[Event]:
        """Everything that the coordinator has been told since it was last looked at."""
        found: list[Event] = []
        while not self.events.empty():
            found.append(self.events.get())
        return found

    def answer(self, request: str) -> Answer | None:
        return Mailbox(self.plain, STREAM).answer(RequestId(request))

    def history(self) -> list[tuple[str, str]]:
        return [(event.what, event.text) for event in read_history(self.plain, STREAM)]

    @property
    def commits(self) -> dict[str, list[CheckpointId]]:
        return {str(uid): sink.committed for uid, sink in self.sinks.items()}


def snapshot(
    number: int,
    name: str | None = None,
    *,
    groups: Sequence[int] | None = None,
    committed: Sequence[int] = (),
    retires: Sequence[int] = (),
    files: Sequence[StateHandle] = (),
    request: str | None = None,
) -> StoreSnapshot:
    """What the coordinator wants stored once all acks are there."""
    return StoreSnapshot(
        checkpoint=CheckpointId(number),
        kind=SnapshotKind.SAVEPOINT if name else SnapshotKind.CHECKPOINT,
        name=SavepointName(name) if name else None,
        origin=SavepointOrigin.PERSON if name else None,
        request=RequestId(request) if request else None,
        cut=Cut(epoch=number, records=10 * number, watermark_ms=7),
        vertices={},
        sources={LINES: SourceState("lines", "files", {"batch": number}, tuple(files))},
        groups=tuple(group(id) for id in (groups if groups is not None else [number])),
        committed=tuple(CheckpointId(id) for id in committed),
        retires=tuple(CheckpointId(id) for id in retires),
    )


def group(number: int) -> Group:
    return Group(id=CheckpointId(number), sinks={OUT: ({"staged": f"file-{number}"},)})


def handle(path: str) -> StateHandle:
    return StateHandle(path.rsplit("/", 1)[-1], path, 1, "00")


def reply(request: str, why: str = "") -> Reply:
    return Reply(request=RequestId(request), done=not why, why=why, result={} if why else {"snapshot": 1})


def aborted(number: int, latest: CheckpointId | None = None) -> NotifyAborted:
    reason = CheckpointFailureReason.CHECKPOINT_EXPIRED
    return NotifyAborted(checkpoint=CheckpointId(number), reason=reason, cause="it expired", latest_completed=latest)


def complete(world: LedgerWorld, number: int, retired: tuple[int, ...] = ()) -> NotifyComplete:
    """Store a checkpoint; the notice that follows."""
    action = snapshot(number)
    world.do(action)
    event = world.event()
    assert isinstance(event, Stored)
    retires = tuple(CheckpointId(id) for id in retired)
    return NotifyComplete(checkpoint=action.checkpoint, snapshot=event.snapshot, cut=action.cut, retired=retires)
