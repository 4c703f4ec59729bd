"""A driver of the simulation: the coordinator and the ledger of production, between a model of a source and a step."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import BatchResult, Cut, Group
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Event,
    NotifyAborted,
    TakeSnapshot,
    Trigger,
)
from headgate.coordinator.pending import PendingCheckpoint, PendingState
from headgate.coordinator.policy import CheckpointOptions
from headgate.driver.ledger import Ledger
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.shared_state import SharedFiles
from headgate.driver.sweeping import leftovers
from headgate.recovery.fetch import SnapshotFiles
from headgate.recovery.sinks import begin_sinks, sink_history
from headgate.state.key_groups import subtask_range
from headgate.testing.simulation.database import Database, Row, SimulatedCommitter
from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.job import (
    MAX_PARALLELISM,
    NUMBERS,
    OUT,
    RECORDS,
    SINK,
    SOURCE,
    STATE,
    STREAM,
    Counts,
)
from headgate.testing.simulation.lives import Steps
from headgate.testing.simulation.taker import SimulatedTaker
from headgate.testing.simulation.turns import Host, Turns
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import Fenced, HeadgateError, SnapshotDamaged, StorageError
from headgate_contract.heartbeats import TERMINAL, StreamState
from headgate_contract.ids import CheckpointId, Generation, StreamName
from headgate_contract.records import slot_log
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef
from headgate_contract.store import ObjectStore

BETWEEN_STOPS_MS = 20
"""Until a stop by signal whose last snapshot failed is tried again."""


class SimulatedHeart(Heart):
    """Writes the heartbeat whenever the state changes, and holds it to its life-cycle."""

    def __init__(self, store: ObjectStore, stream: StreamName, generation: Generation, steps: Steps) -> None:
        super().__init__(store, stream, generation)
        self._steps = steps

    def become(self, state: StreamState, cause: str | None = None, *, given_up: bool = False) -> None:
        if state is not self.state and self.state not in TERMINAL:
            self._steps.take("driver", self.state.value, state.value)
        super().become(state, cause, given_up=given_up)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the drivers of one simulation have in common."""

    records: int
    keys: int
    options: CheckpointOptions
    parallelism: int
    batch: int
    """How many records a micro-batch has, at most."""
    look_ms: int
    """How often a driver looks whether a successor has begun."""
    ledger_class: type[Ledger] = Ledger
    shared_class: type[SharedFiles] = SharedFiles
    coordinator_class: type[Coordinator] = Coordinator
    taker_class: type[SimulatedTaker] = SimulatedTaker


@dataclass(eq=False)
class SimulatedDriver:
    """One generation, from its launch on."""

    host: Host
    disk: Disk
    database: Database
    model: Model
    generation: Generation
    launch: str
    clock: Callable[[], int]
    steps: Steps
    segments: dict[str, Counts] = field(default_factory=dict)
    inbox: deque[Event] = field(default_factory=deque)
    acks: list[Acknowledged] = field(default_factory=list)
    """All that were ever sent: the network may bring one again."""
    coordinator: Coordinator | None = None
    signalled: bool = False
    """SIGTERM has come."""
    batches: int | None = None
    """How many more micro-batches may begin, if somebody counts them."""
    step_fails: bool = False
    """The next micro-batch to end fails."""
    ended: bool = False
    """By itself: stopped, failed or fenced."""
    error: BaseException | None = None
    reached: int = 0
    """How many records its source has handed over."""

    def __post_init__(self) -> None:
        self.store = SimulatedStore(self.disk, self.host)
        self.sink = SimulatedCommitter(self.database, self.host, self.generation)
        self.shared = self.model.shared_class()
        self.folders: dict[CheckpointId, str] = {}
        self.parallelism = self.model.parallelism
        self.heart = SimulatedHeart(self.store, STREAM, self.generation, self.steps)
        self._stop_posted = False
        self._stop_again_at = self._look_at = 0
        self._watched: dict[CheckpointId, tuple[PendingCheckpoint, PendingState]] = {}
        self.host.spawn("main", self._main)

    # ---- what the simulation looks at

    @property
    def alive(self) -> bool:
        return not (self.ended or self.host.dead)

    @property
    def tick_is_due(self) -> bool:
        if self.coordinator is None or not self.alive or self.inbox:
            return False
        deadline = self.coordinator.next_deadline()
        return deadline is not None and deadline <= self.clock()

    @property
    def next_deadline(self) -> int | None:
        if self.coordinator is None or not self.alive:
            return None
        moments = [
            self.coordinator.next_deadline(),
            self._look_at,
            self._stop_again_at if self._wants_to_stop else None,
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def post(self, event: Event) -> None:
        self.inbox.append(event)
        if isinstance(event, Acknowledged):
            self.acks.append(event)

    # ---- the life

    def _main(self) -> None:
        """What the driver's process does: live, and tell how it ended."""
        try:
            self._live()
        except (HeadgateError, AssertionError) as error:
            self._end(error)
        if isinstance(self.error, Fenced):
            self.heart.become(StreamState.FENCED, str(self.error))
        elif self.error is not None:
            self.heart.become(StreamState.FAILED, str(self.error))
        else:
            self.heart.become(StreamState.STOPPING)
            self.heart.become(StreamState.STOPPED)

    def _live(self) -> None:
        self._restore()
        self.host.spawn("coordinator", self._coordinate)
        self.host.spawn("engine", self._run)
        self.heart.become(StreamState.RUNNING)
        while not self.ended:
            self.host.pause("waits for the end", lambda: self.ended or self._stop_is_due or self._look_is_due)
            if self._look_is_due and not self.ended:
                self._look_at = self.clock() + self.model.look_ms
                self.ledger.look()
            if self._stop_is_due and not self.ended:
                self._stop_posted = True
                self._stop_again_at = self.clock() + BETWEEN_STOPS_MS
                self.heart.become(StreamState.STOPPING)
                self.post(Trigger(stop=True, reason="SIGTERM"))

    @property
    def _look_is_due(self) -> bool:
        return self.clock() >= self._look_at

    @property
    def _wants_to_stop(self) -> bool:
        return self.signalled and not self._stop_posted

    @property
    def _stop_is_due(self) -> bool:
        return self._wants_to_stop and self.clock() >= self._stop_again_at

    def _end(self, error: BaseException | None) -> None:
        if not self.ended:
            self.ended, self.error = True, error

    def _restore(self) -> None:
        catalogue = read_catalogue(self.store, STREAM)
        own = catalogue.generation(self.generation)
        newest = catalogue.newest_generation
        if own is None or newest is None or own.launch != self.launch or newest.generation > self.generation:
            raise Fenced(f"generation {self.generation} came too late")
        assert catalogue.newest_slot is not None
        self.heart.become(StreamState.RESTORING)
        decision = own.decision
        ref = decision.snapshot if isinstance(decision, RestoreFrom) else None
        slots = slot_log(self.store, STREAM)
        ledger = self.model.ledger_class(
            store=self.store,
            stream=STREAM,
            generation=self.generation,
            slots=slots,
            newest=catalogue.newest_slot,
            max_parallelism=MAX_PARALLELISM,
            sinks={OUT: self.sink},
            shared=self.shared,
            folders=self.folders,
            post=self.post,
            end=self._end,
            points=KillPoints(),
            executor=lambda name: Turns(self.host, name),
        )
        ledger.PAUSE_S = 0.0  # its pauses would be real ones
        self.ledger = ledger
        files = SnapshotFiles(self.store, ref) if ref is not None else None
        metadata = files.metadata() if files is not None else None
        cut = Cut(epoch=0, positions={RECORDS: {"next": 0}})
        if files is not None and metadata is not None:
            cut = self._load(files, metadata)
        all_named = self._register(catalogue.snapshots)
        left = leftovers(self.store, catalogue, self.generation, self.shared.named() if all_named else None)
        ledger.check_not_fenced()
        ledger.delete(left, "earlier lives left them")
        history = sink_history(self.store, catalogue, ref, metadata)
        begin_sinks({OUT: self.sink}, history)
        carried = [Group(id=group.id, sinks=group.sinks) for group in (metadata.committables if metadata else ())]
        self.coordinator = self.model.coordinator_class(
            options=self.model.options,
            participants=frozenset((STATE, SOURCE, SINK)),
            cut=cut,
            next_id=own.first_checkpoint,
            retained=list(reversed(catalogue.snapshots)),
            groups=carried,
            started_ms=self.clock(),
        )
        self.reached = int(cut.positions[RECORDS]["next"])
        self.taker = self.model.taker_class(self)
        ledger.taker = self.taker  # type: ignore[assignment] # a model of it

    def _register(self, snapshots: Sequence[SnapshotRef]) -> bool:
        all_named = True
        for ref in snapshots:
            self.folders[ref.id] = ref.folder
            try:
                metadata = SnapshotFiles(self.store, ref).metadata()
            except SnapshotDamaged:
                all_named = False
                continue
            self.shared.register(ref.id, list(metadata.handles()) if ref.name is None else [])
        return all_named

    def _load(self, files: SnapshotFiles, metadata: SnapshotMetadata) -> Cut:
        """The snapshot's state, cut anew for this life's parallelism."""
        everything: Counts = {}
        state = metadata.vertices[NUMBERS]
        for old in state.subtasks:
            for handle in old.files:
                everything.update({int(key): count for key, count in json.loads(files.read(handle)).items()})
        versions = {}
        for subtask in range(self.parallelism):
            name = f"g{self.generation}.restored.s{subtask}"
            self.segments[name] = {key: count for key, count in everything.items() if self._owner(key) == subtask}
            versions[subtask] = {"segments": [name]}
        position = dict(metadata.sources[RECORDS].position)
        return Cut(
            epoch=state.epoch, versions={NUMBERS: versions}, positions={RECORDS: position}, records=metadata.records
        )

    def _owner(self, key: int) -> int:
        ranges = [subtask_range(subtask, self.parallelism, MAX_PARALLELISM) for subtask in range(self.parallelism)]
        return next(s for s, groups in enumerate(ranges) if groups.start <= key % MAX_PARALLELISM <= groups.end)

    # ---- the coordinator's thread

    def _coordinate(self) -> None:
        while not self.ended:
            self.host.pause("waits for events", lambda: bool(self.inbox) or self.ended)
            if self.inbox and not self.ended:
                self._handle(self.inbox.popleft())

    def _handle(self, event: Event) -> None:
        assert self.coordinator is not None
        self.host.say(event)
        actions = self.coordinator.handle(event, self.clock())
        self._watch()
        for action in actions:
            if not isinstance(action, TakeSnapshot):
                self.host.say(action)
            self._perform(action)

    def _watch(self) -> None:
        """Count what has become of the checkpoints."""
        assert self.coordinator is not None
        for checkpoint, pending in self.coordinator.pending.items():
            self._watched.setdefault(checkpoint, (pending, PendingState.COLLECTING))
        for checkpoint, (pending, before) in list(self._watched.items()):
            if pending.state is not before:
                self.steps.take("checkpoint", before.value, pending.state.value)
                self._watched[checkpoint] = (pending, pending.state)
            if checkpoint not in self.coordinator.pending:
                del self._watched[checkpoint]

    def _perform(self, action: Action) -> None:
        if isinstance(action, TakeSnapshot):
            self.host.say(f"the barrier of {action.kind.value} {action.checkpoint} passes, epoch {action.cut.epoch}")
            self.taker.take(action)
            return
        if isinstance(action, NotifyAborted):
            self._stop_posted = False
        self.ledger.perform(action)

    # ---- the engine

    def _run(self) -> None:
        """Micro-batches, one after the other, as the source has them and the coordinator lets them begin."""
        coordinator = self.coordinator
        assert coordinator is not None
        attempt = 0

        def may() -> bool:
            if self.batches == 0 or self.reached >= self.model.records:
                return False
            return coordinator.may_begin and not coordinator.busy

        while not self.ended:
            self.host.pause("waits for leave to begin a batch", may)
            if not may() or self.ended:
                continue
            self.batches = None if self.batches is None else self.batches - 1
            cut = coordinator.cut
            self._handle(BatchBegun())
            attempt += 1
            try:
                result = self._batch(cut, attempt)
            except StorageError as error:
                self.post(BatchFailed(cause=f"the step failed: {error}"))
                return
            self.reached = int(result.positions[RECORDS]["next"])
            self.post(BatchDone(result=result))

    def _batch(self, cut: Cut, attempt: int) -> BatchResult:
        begin = int(cut.positions[RECORDS]["next"])
        ids = range(begin, min(begin + self.model.batch, self.model.records))
        parents = cut.versions.get(NUMBERS, {})
        versions, staged = {}, []
        for subtask in range(self.parallelism):
            mine = [id for id in ids if self._owner(id % self.model.keys) == subtask]
            parent = list(parents.get(subtask, {"segments": []})["segments"])
            if not mine:
                versions[subtask] = {"segments": parent}
                continue
            counts: Counts = {}
            for segment in parent:
                counts.update(self.segments[segment])
            rows: list[Row] = []
            changed: Counts = {}
            for id in mine:
                key = id % self.model.keys
                counts[key] = changed[key] = counts.get(key, 0) + 1
                rows.append((id, counts[key]))
            name = f"g{self.generation}.e{cut.epoch + 1}.a{attempt}.s{subtask}"
            staged.append(self.sink.stage(name, rows))
            if len(parent) >= 3:  # merged
                self.segments[name], parent = counts, []
            else:
                self.segments[name] = changed
            versions[subtask] = {"segments": [*parent, name]}
        self.host.pause("engine: the step ends")
        if self.step_fails:
            self.step_fails = False
            raise StorageError("its worker died")
        return BatchResult(
            epoch=cut.epoch + 1,
            versions={NUMBERS: versions},
            positions={RECORDS: {"next": ids.stop}},
            staged={OUT: tuple(dict(handle) for handle in staged)},
            records=len(ids),
        )
