"""A driver of the simulation: the coordinator and the ledger of production, between a model of a source and a step."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import BatchResult, Cut, Group
from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Declined,
    Event,
    TakeSnapshot,
    Tick,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.driver.ledger import Ledger
from headgate.driver.points import KillPoints
from headgate.driver.shared_state import SharedFiles
from headgate.driver.sweeping import leftovers
from headgate.recovery.fetch import SnapshotFiles
from headgate.recovery.sinks import begin_sinks, sink_history
from headgate.state.key_groups import subtask_range
from headgate.testing.simulation.database import Database, Row, SimulatedCommitter
from headgate.testing.simulation.disk import Disk, SimulatedStore
from headgate.testing.simulation.turns import Host, Turns
from headgate_contract import wire
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import CheckpointFailed, Fenced, HeadgateError, SnapshotDamaged, StorageError
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.records import slot_log
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import (
    SnapshotMetadata,
    SnapshotRef,
    SourceState,
    StateHandle,
    SubtaskState,
    VertexState,
)

STREAM = StreamName("simulated")
NUMBERS, RECORDS, OUT = VertexUid("numbers"), VertexUid("records"), VertexUid("out")
MAX_PARALLELISM = 4
STATE, SOURCE, SINK = f"state {NUMBERS}", f"source {RECORDS}", f"sink {OUT}"

Counts = dict[int, int]


class SimulatedTaker:
    """Uploads what shared storage lacks: the participants of a snapshot, as tasks."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver
        self._uploaded: dict[CheckpointId, list[str]] = {}

    def take(self, action: TakeSnapshot) -> None:
        driver = self._driver
        self._uploaded[action.checkpoint] = []
        base = {} if action.name is not None else driver.shared.confirmed()
        driver.shared.register(action.checkpoint, base.values())
        for participant, part in ((STATE, self._state), (SOURCE, self._source), (SINK, self._sink)):
            driver.host.spawn(f"{participant} of {action.checkpoint}", self._work(action, participant, part, base))

    def confirm(self, metadata: SnapshotMetadata) -> None:
        self._driver.shared.confirm(metadata.handles())

    def forget(self, checkpoint: CheckpointId) -> None:
        self._uploaded.pop(checkpoint, None)

    def discard(self, checkpoint: CheckpointId) -> None:
        for path in (*self._uploaded.pop(checkpoint, []), *self._driver.shared.release(checkpoint)):
            self._delete(path)

    def _work(
        self,
        action: TakeSnapshot,
        participant: str,
        part: Callable[[TakeSnapshot, Mapping[str, StateHandle]], Acknowledged],
        base: Mapping[str, StateHandle],
    ) -> Callable[[], None]:
        def work() -> None:
            try:
                self._driver.post(part(action, base))
            except HeadgateError as error:
                self._driver.post(Declined(checkpoint=action.checkpoint, participant=participant, cause=str(error)))

        return work

    def _state(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        driver = self._driver
        parallelism = driver.parallelism
        subtasks = []
        for subtask, version in sorted(action.cut.versions.get(NUMBERS, {}).items()):
            handles = tuple(base.get(name) or self._upload(action, name) for name in version["segments"])
            groups = subtask_range(subtask, parallelism, MAX_PARALLELISM)
            subtasks.append(SubtaskState(subtask, groups.start, groups.end, dict(version), handles))
        state = VertexState("numbers", parallelism, "model", (), tuple(subtasks), action.cut.epoch)
        return Acknowledged(checkpoint=action.checkpoint, participant=STATE, vertices={NUMBERS: state})

    def _source(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        self._driver.host.pause("source: acknowledges")
        state = SourceState("records", "model", dict(action.cut.positions[RECORDS]))
        return Acknowledged(checkpoint=action.checkpoint, participant=SOURCE, sources={RECORDS: state})

    def _sink(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> Acknowledged:
        self._driver.sink.prepare(action.staged.get(OUT, ()))
        return Acknowledged(checkpoint=action.checkpoint, participant=SINK)

    def _upload(self, action: TakeSnapshot, name: str) -> StateHandle:
        driver = self._driver
        data = json.dumps(driver.segments[name]).encode()
        if action.name is None:
            path = where = StreamPaths(STREAM).shared_file(f"{name}.c{action.checkpoint}g{driver.generation}")
        else:
            folder = StreamPaths(STREAM).savepoint(action.name, action.checkpoint, driver.generation)
            path, where = f"state/{name}", f"{folder}/state/{name}"
        if action.checkpoint in self._uploaded:
            self._uploaded[action.checkpoint].append(where)
        try:
            driver.store.replace(where, data)
        finally:
            over = action.checkpoint not in self._uploaded
            if over and not driver.host.dead:
                self._delete(where)
        if over:
            raise CheckpointFailed(f"checkpoint {action.checkpoint} was given up meanwhile")
        return StateHandle(name, path, len(data), wire.sha256(data))

    def _delete(self, path: str) -> None:
        try:
            self._driver.store.delete(path)
        except StorageError:
            return  # the next life sweeps it


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the drivers of one simulation have in common."""

    records: int
    keys: int
    options: CheckpointOptions
    parallelism: int
    batch: int
    """How many records a micro-batch has, at most."""
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
    segments: dict[str, Counts] = field(default_factory=dict)
    inbox: deque[Event] = field(default_factory=deque)
    acks: list[Acknowledged] = field(default_factory=list)
    """All that were ever sent: the network may bring one again."""
    coordinator: Coordinator | None = None
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
        self.host.spawn("main", self._live)

    # ---- what the simulation looks at

    @property
    def alive(self) -> bool:
        return not (self.ended or self.host.dead)

    @property
    def next_deadline(self) -> int | None:
        return self.coordinator.next_deadline() if self.coordinator is not None and self.alive else None

    def post_tick(self) -> None:
        self.post(Tick())

    def post(self, event: Event) -> None:
        self.inbox.append(event)
        if isinstance(event, Acknowledged):
            self.acks.append(event)

    # ---- the life

    def _live(self) -> None:
        try:
            self._restore()
        except (HeadgateError, AssertionError) as error:
            self._end(error)
            return
        self.host.spawn("coordinator", self._coordinate)
        self.host.spawn("engine", self._run)

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
        self.coordinator.committed.update(group.id for group in carried)
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
        assert self.coordinator is not None
        while not self.ended:
            self.host.pause("waits for events", lambda: bool(self.inbox) or self.ended)
            if self.inbox and not self.ended:
                for action in self.coordinator.handle(self.inbox.popleft(), self.clock()):
                    self._perform(action)

    def _perform(self, action: Action) -> None:
        if isinstance(action, TakeSnapshot):
            self.taker.take(action)
        else:
            self.ledger.perform(action)

    # ---- the engine

    def _run(self) -> None:
        """Micro-batches, one after the other, as the source has them and the coordinator lets them begin."""
        coordinator = self.coordinator
        assert coordinator is not None
        attempt = 0
        self.reached = int(coordinator.cut.positions[RECORDS]["next"])

        def may() -> bool:
            return coordinator.may_begin and not coordinator.busy and self.reached < self.model.records

        while not self.ended:
            self.host.pause("waits for leave to begin a batch", may)
            if not may() or self.ended:
                continue
            cut = coordinator.cut
            for action in coordinator.handle(BatchBegun(), self.clock()):
                self._perform(action)
            attempt += 1
            try:
                result = self._batch(cut, attempt)
            except StorageError:
                self.post(BatchFailed(cause="the step failed: the sink could not be written"))
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
        return BatchResult(
            epoch=cut.epoch + 1,
            versions={NUMBERS: versions},
            positions={RECORDS: {"next": ids.stop}},
            staged={OUT: tuple(dict(handle) for handle in staged)},
            records=len(ids),
        )
