"""One life in the simulation: what production's `Life` does with threads and Spark, in turns and with models."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import (
    Action,
    BatchBegun,
    BatchDone,
    BatchFailed,
    Event,
    FinishOperators,
    NotifyAborted,
    NotifyCurrent,
    SourceEnded,
    TakeSnapshot,
    TaskAction,
    Trigger,
)
from headgate.coordinator.pending import PendingCheckpoint, PendingState
from headgate.driver.ledger import Ledger
from headgate.driver.loop import Afterwards
from headgate.driver.points import KillPoints
from headgate.driver.poison import Trouble
from headgate.driver.pulse import Ear
from headgate.driver.recovery_watch import RecoveryWatch
from headgate.driver.restoring import Restored, Restorer
from headgate.driver.setup import LifeSetup
from headgate.recovery.fetch import SnapshotFiles
from headgate.state.key_groups import subtask_range
from headgate.testing.simulation.database import Row, SimulatedCommitter, last_word
from headgate.testing.simulation.job import MAX_PARALLELISM, NUMBERS, OUT, RECORDS, SINK, SOURCE, STATE, STREAM, Counts
from headgate.testing.simulation.laws import Moment
from headgate.testing.simulation.turns import Task, Turns
from headgate_contract.errors import StorageError
from headgate_contract.fitting import JobShape
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.measures import RecoveryKind
from headgate_contract.places import Places
from headgate_contract.snapshot import SnapshotMetadata

if TYPE_CHECKING:
    from headgate.testing.simulation.driver import SimulatedDriver
    from headgate.testing.simulation.taker import SimulatedTaker

BETWEEN_STOPS_MS = 20
"""Until a stop by signal whose last snapshot failed is tried again."""
PATIENCE_MS = 100
"""How long the end of a life waits for what it has under way on storage."""


@dataclass(eq=False)
class Ask:
    """A batch asks for leave: it stands behind the messages that were there before it."""

    leave: Cut | None = None


class SimulatedRestorer(Restorer):
    """Production's, for an engine that needs no opening and a state that is a dictionary."""

    def _open_meanwhile(self) -> Callable[[], None]:
        return lambda: None

    def __init__(self, life: SimulatedLife, ledger: Ledger, watch: RecoveryWatch) -> None:
        self.life = life
        heart = life.driver.heart
        super().__init__(life.setup, {}, life.sinks, life.shared, life.folders, ledger, heart, watch, Path())

    def _shape_of(self, setup: LifeSetup) -> JobShape:
        return self.life.shape()

    def _restore_cut(self, files: SnapshotFiles | None, metadata: SnapshotMetadata | None) -> Cut:
        return self.life.first_cut() if files is None or metadata is None else self.life.load(files, metadata)


class SimulatedLife:
    """From a restore to a stop or a failure; like production's `Life` to whoever judges what follows."""

    def __init__(self, driver: SimulatedDriver, setup: LifeSetup) -> None:
        self.driver = driver
        self.host, self.model, self.store, self.clock = driver.host, driver.model, driver.store, driver.clock
        self.setup = setup
        self.parallelism = driver.model.parallelism
        self.generation = driver.generation
        self.prefix = f"g{self.generation}r{setup.restart}"
        self.segments: dict[str, Counts] = {}
        self.sinks = self._make_sinks()
        self.shared = self.model.shared_class()
        self.folders: dict[CheckpointId, str] = {}
        self.ended = False
        self.error: BaseException | None = None
        self.stop_posted = False
        self.stop_again_at = self.look_at = 0
        self._pools: list[Turns] = []
        self._finishing: Task | None = None
        self._afterwards: deque[Afterwards] = deque()
        self._parked: deque[Ask] = deque()
        self._watched: dict[CheckpointId, tuple[PendingCheckpoint, PendingState]] = {}
        self.next_checkpoint = setup.next_checkpoint
        self.has_run = False
        self.ended_whole = False
        self.trouble: Trouble | None = None

    # ---- the life

    def run(self) -> None:
        """Live until stopped. Raises what ended the life."""
        try:
            self._begin()
            self._wait()
        finally:
            self._end()
        if self.error is not None:
            raise self.error

    def _begin(self) -> None:
        self.ledger = ledger = self._make_ledger()
        watch = RecoveryWatch(RecoveryKind.RESTART, self.generation, None, detect_ms=0.0)
        heart = self.driver.heart
        restored = SimulatedRestorer(self, ledger, watch).restore()
        self.driver.coordinator = self.coordinator = self._make_coordinator(restored)
        ledger.taker = self.taker = self._make_taker()
        self.ear = Ear(
            self.store,
            STREAM,
            self.generation,
            post=self.post,
            look_at_log=ledger.look,
            say=ledger.say,
            interval_ms=self.model.look_ms,
            places=Places(self.store.url),
            done=self.setup.done_before(),
        )
        self.host.spawn("coordinator", self._coordinate)
        self.host.spawn("asynchronous phases", self._run_afterwards)
        self.ear.first_look(self.setup.restored)  # before a micro-batch can fail again, as production's life does
        self._post_stop()
        self._engine = self._start_engine()
        if heart.state is not StreamState.STOPPING:
            heart.become(StreamState.RUNNING)
        self.has_run = True

    def _make_ledger(self) -> Ledger:
        setup = self.setup
        assert setup.catalogue.newest_slot is not None
        ledger = setup.ledger_class(
            store=self.store,
            stream=STREAM,
            generation=self.generation,
            slots=setup.slots,
            newest=setup.catalogue.newest_slot,
            max_parallelism=MAX_PARALLELISM,
            sinks=self.sinks,
            shared=self.shared,
            folders=self.folders,
            post=self.post,
            end=self.finish,
            points=KillPoints(),
            executor=self._pool,
        )
        ledger.PAUSE_S = 0.0  # its pauses would be real ones
        ledger.cleaner.FOLD_EVERY = self.model.fold_every
        ledger.cleaner.fold_from(setup.catalogue)
        return ledger

    def _pool(self, name: str) -> Turns:
        self._pools.append(Turns(self.host, name))
        return self._pools[-1]

    def _beginning(self, restored: Restored) -> dict[str, Any]:
        """What every coordinator begins with."""
        return {
            "options": self.model.options,
            "cut": restored.cut,
            "next_id": self.setup.next_checkpoint,
            "retained": list(reversed(self.setup.catalogue.snapshots)),
            "claimed": frozenset(ref.id for ref in self.setup.catalogue.claimed),
            "groups": restored.groups,
            "begins_as": restored.begins_as,
            "started_ms": self.clock(),
        }

    # ---- its job

    def _make_sinks(self) -> dict[VertexUid, SimulatedCommitter]:
        return {OUT: SimulatedCommitter(self.driver.databases[OUT], self.host, self.generation)}

    def shape(self) -> JobShape:
        return JobShape(max_parallelism=MAX_PARALLELISM, keyed={NUMBERS}, sources={RECORDS: "model"}, sinks={OUT})

    def first_cut(self) -> Cut:
        return Cut(epoch=0, positions={RECORDS: {"next": 0}})

    def _make_taker(self) -> SimulatedTaker:
        return self.model.taker_class(self)

    def _make_coordinator(self, restored: Restored) -> Coordinator:
        self.driver.reached = int(restored.cut.positions[RECORDS]["next"])
        participants = frozenset((STATE, SOURCE, SINK))
        return self.model.coordinator_class(**self._beginning(restored), participants=participants)

    def _start_engine(self) -> list[Task]:
        return [self.host.spawn("engine", self._run_batches)]

    def has_read_all(self) -> bool:
        """Whether nothing is left to be taken in."""
        return int(self.coordinator.cut.positions[RECORDS]["next"]) >= self.model.records

    def moment(self) -> Moment:
        """Where the stream stands, as the job's own state tells it."""
        cut = self.coordinator.cut
        states = [self._counts(version["segments"]) for version in cut.versions.get(NUMBERS, {}).values()]
        return Moment(
            states={NUMBERS: Counter({str(key): count for counts in states for key, count in counts.items()})},
            finished=cut.finished,
        )

    def segment(self, name: str) -> Mapping[Any, int]:
        """What one file of the state holds."""
        return self.segments[name]

    def load(self, files: SnapshotFiles, metadata: SnapshotMetadata) -> Cut:
        """The snapshot's state, cut anew for this life's parallelism."""
        everything: Counts = {}
        state = metadata.vertices[NUMBERS]
        for old in state.subtasks:
            for handle in old.files:
                everything.update({int(key): count for key, count in json.loads(files.read(handle)).items()})
        versions = {}
        for subtask in range(self.parallelism):
            name = f"{self.prefix}.restored.s{subtask}"
            self.segments[name] = {key: count for key, count in everything.items() if self._owner(key) == subtask}
            versions[subtask] = {"segments": [name]}
        position = dict(metadata.sources[RECORDS].position)
        return Cut(
            epoch=state.epoch,
            versions={NUMBERS: versions},
            positions={RECORDS: position},
            records=metadata.records,
            finished=frozenset(metadata.finished),
        )

    def _owner(self, key: int) -> int:
        ranges = [subtask_range(subtask, self.parallelism, MAX_PARALLELISM) for subtask in range(self.parallelism)]
        return next(s for s, groups in enumerate(ranges) if groups.start <= key % MAX_PARALLELISM <= groups.end)

    def post(self, event: Event) -> None:
        if self.driver.life is self:
            self.driver.post(event)

    # ---- its main thread

    def next_moment(self) -> int | None:
        """When it has something to do, if nothing happens before."""
        if self.ended:
            return None if self.ended_whole else self.look_at
        if not self.has_run:
            return None
        moments = [self.coordinator.next_deadline(), self.look_at, self.stop_again_at if self._wants_to_stop else None]
        return min((moment for moment in moments if moment is not None), default=None)

    def _wait(self) -> None:
        while not self.ended:
            self.host.pause("waits for the end", lambda: self.ended or self._stop_is_due or self._look_is_due)
            if self._look_is_due and not self.ended:
                self.look_at = self.clock() + self.model.look_ms
                self.ear.listen()
            if not self.ended:
                self._post_stop()

    def _post_stop(self) -> None:
        if self._stop_is_due:
            self.stop_posted = True
            self.stop_again_at = self.clock() + BETWEEN_STOPS_MS
            self.driver.heart.become(StreamState.STOPPING)
            self.post(Trigger(stop=True, reason="SIGTERM"))

    @property
    def _look_is_due(self) -> bool:
        return self.clock() >= self.look_at

    @property
    def _wants_to_stop(self) -> bool:
        return self.driver.signalled and not self.stop_posted

    @property
    def _stop_is_due(self) -> bool:
        return self._wants_to_stop and self.clock() >= self.stop_again_at

    def finish(self, error: BaseException | None) -> None:
        if not self.ended:
            self.ended, self.error = True, error

    def _end(self) -> None:
        """Let the ledger carry out what is queued, for a while."""
        self.ended = True
        for pool in self._pools:
            pool.shutdown(wait=False)
        self.look_at = self.clock() + PATIENCE_MS
        self.host.pause("waits for its ledger", lambda: self._is_whole or self.clock() >= self.look_at)
        if self.has_run:
            self.taker.close()
            self.next_checkpoint = self.coordinator.next_id
        self.driver.coordinator = None
        self.ended_whole = self._is_whole

    @property
    def _is_whole(self) -> bool:
        steps = list(self._engine) if self.has_run else []
        steps += [self._finishing] if self._finishing is not None else []
        return all(pool.idle for pool in self._pools) and all(step.ended for step in steps)

    # ---- the coordinator's thread

    def _coordinate(self) -> None:
        inbox = self.driver.inbox
        while not self.ended:
            self.host.pause("waits for events", lambda: bool(inbox) or self.ended)
            if not inbox or self.ended:
                continue
            message = inbox.popleft()
            if isinstance(message, Ask):
                self._parked.append(message)
            else:
                self._handle(message)
            self._grant()

    def _grant(self) -> None:
        """As production's loop: whoever asked first gets leave behind any message, as soon as there is any."""
        coordinator = self.coordinator
        if self._parked and coordinator.may_begin and not coordinator.busy and not self.ended:
            ask, cut = self._parked.popleft(), coordinator.cut
            self._handle(BatchBegun())
            ask.leave = cut

    def _handle(self, event: Event) -> None:
        self.host.say(event)
        actions = self.coordinator.handle(event, self.clock())
        self._watch()
        for action in actions:
            if not isinstance(action, TakeSnapshot):
                self.host.say(action)
            afterwards = self._perform(action)
            if afterwards is not None:
                self._afterwards.append(afterwards)

    def _run_afterwards(self) -> None:
        """A task of its own here: in production a batch that asks for leave takes in messages before it. That is not
        the only case in which others do here, which allows more than production does."""
        while not self.ended:
            self.host.pause("waits for barriers that have passed", lambda: bool(self._afterwards) or self.ended)
            if self._afterwards and not self.ended:
                self._afterwards.popleft()()

    def _watch(self) -> None:
        """Count what has become of the checkpoints."""
        steps, pendings = self.driver.steps, self.coordinator.pending
        for checkpoint, pending in pendings.items():
            self._watched.setdefault(checkpoint, (pending, PendingState.COLLECTING))
        for checkpoint, (pending, before) in list(self._watched.items()):
            if pending.state is not before:
                steps.take("checkpoint", before.value, pending.state.value)
                self._watched[checkpoint] = (pending, pending.state)
            if checkpoint not in pendings:
                del self._watched[checkpoint]

    def _perform(self, action: Action) -> Afterwards | None:
        if isinstance(action, TakeSnapshot):
            self.host.say(f"the barrier of {action.kind.value} {action.checkpoint} passes, epoch {action.cut.epoch}")
            return self.taker.take(action)
        if isinstance(action, FinishOperators):
            self._finishing = self.host.spawn("finish", lambda: self._finish_operators(action.cut))
            return None
        if isinstance(action, NotifyCurrent):
            self.driver.heart.current(action.checkpoint, None)
            self.driver.laws.check_current(self.generation, action.checkpoint, self.moment())
            return None
        if isinstance(action, NotifyAborted):
            self.stop_posted = False
        assert not isinstance(action, TaskAction)
        self.ledger.perform(action)
        return None

    # ---- the engine

    def _answered(self, ask: Ask) -> bool:
        return self.ended or ask.leave is not None

    @property
    def _has_batch(self) -> bool:
        return self.driver.batches != 0 and self.driver.reached < self.model.records and not self.ended

    def _run_batches(self) -> None:
        """Micro-batches, one after the other, as the source has them and the coordinator lets them begin."""
        driver, attempt = self.driver, 0
        while not self.ended:
            if self.model.bounded and driver.reached >= self.model.records:
                self.post(SourceEnded(source=RECORDS))
                return
            self.host.pause("waits for records", lambda: self.ended or self._has_batch)
            if not self._has_batch:
                continue
            ask = Ask()
            driver.inbox.append(ask)
            self.host.pause("waits for leave to begin a batch", partial(self._answered, ask))
            if ask.leave is None:
                continue
            driver.batches = None if driver.batches is None else driver.batches - 1
            cut = ask.leave
            attempt += 1
            try:
                result = self._batch(cut, attempt)
            except StorageError as error:
                self.post(BatchFailed(cause=f"the step failed: {error}"))
                return
            if not self.ended:
                driver.reached = int(result.positions[RECORDS]["next"])
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
            counts = self._counts(parent)
            rows: list[Row] = []
            changed: Counts = {}
            for id in mine:
                key = id % self.model.keys
                counts[key] = changed[key] = counts.get(key, 0) + 1
                rows.append((id, counts[key]))
            name = f"{self.prefix}.e{cut.epoch + 1}.a{attempt}.s{subtask}"
            staged.append(self.sinks[OUT].stage(name, rows))
            if len(parent) >= 3:  # merged
                self.segments[name], parent = counts, []
            else:
                self.segments[name] = changed
            versions[subtask] = {"segments": [*parent, name]}
        self._end_step()
        return BatchResult(
            epoch=cut.epoch + 1,
            versions={NUMBERS: versions},
            positions={RECORDS: {"next": ids.stop}},
            staged={OUT: tuple(dict(handle) for handle in staged)},
            records=len(ids),
        )

    def _counts(self, segments: Iterable[str]) -> Counts:
        """What a version holds."""
        counts: Counts = {}
        for segment in segments:
            counts.update(self.segments[segment])
        return counts

    def _end_step(self) -> None:
        self.host.pause("engine: the step ends")
        if self.driver.step_fails:
            self.driver.step_fails = False
            raise StorageError("its worker died")

    def _finish_operators(self, cut: Cut) -> None:
        """The last step of a drain: how many records each key has had is said once more."""
        staged = []
        try:
            for subtask, version in cut.versions.get(NUMBERS, {}).items():
                rows = [(last_word(key), count) for key, count in sorted(self._counts(version["segments"]).items())]
                staged.append(self.sinks[OUT].stage(f"{self.prefix}.e{cut.epoch + 1}.finish.s{subtask}", rows))
            self._end_step()
        except StorageError as error:
            self.post(BatchFailed(cause=f"the operators could not finish: {error}"))
            return
        result = BatchResult(
            epoch=cut.epoch + 1,
            versions={},
            positions={},
            staged={OUT: tuple(dict(handle) for handle in staged)},
            records=0,
            finished=frozenset({NUMBERS}),
        )
        self.post(BatchDone(result=result))
