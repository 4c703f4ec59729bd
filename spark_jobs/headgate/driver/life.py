"""One life of a generation: restore, run, end. Puts the parts together and holds no logic of theirs."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.messages import (
    Action,
    BatchFailed,
    Committed,
    Event,
    FinishOperators,
    Looked,
    NotifyAborted,
    NotifyComplete,
    NotifyCurrent,
    SourceEnded,
    TakeSnapshot,
    TaskAction,
    Trigger,
)
from headgate.coordinator.policy import CheckpointOptions
from headgate.driver import parts
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate.driver.graph_running import GraphRunning
from headgate.driver.ledger import Ledger
from headgate.driver.loop import Afterwards, CoordinatorLoop, spare_collector
from headgate.driver.poison import Trouble
from headgate.driver.pulse import Ear, Heart
from headgate.driver.recovery_watch import RecoveryWatch
from headgate.driver.restoring import Restored, Restorer
from headgate.driver.running import ChainRunning, Means, Running
from headgate.driver.setup import LifeSetup
from headgate.driver.shared_state import SharedFiles
from headgate.driver.snapshots import SnapshotTaker, participants
from headgate.driver.steps import Steps
from headgate.driver.sync_phase import SyncPhaseWatchdog
from headgate.driver.under_way import NoProgress, WatchedThreads
from headgate.driver.work_folder import WorkFolder
from headgate.job.graph import ConnectedVertex, KeyedVertex
from headgate.sink.base import SinkCommitter
from headgate.state.vertex import StatefulVertex
from headgate_contract.errors import StreamFailed
from headgate_contract.heartbeats import Progress, StreamState
from headgate_contract.ids import CheckpointId, Generation, VertexUid
from headgate_contract.measures import CheckpointCost, RecoveryKind
from headgate_contract.paths import StreamPaths
from headgate_contract.places import Places

log = logging.getLogger(__name__)

_LONGEST_DEAF_MS = 2000
"""The mailbox is looked at with each heartbeat, but not less often than this."""
_PATIENCE_S = 30.0
"""How long the end of a life waits for what it has under way on storage."""
_BETWEEN_STOPS_S = 5.0
"""Until a stop by signal whose last snapshot failed is tried again."""
_BETWEEN_LOOKS_S = 1.0
"""Until the engine is asked again for the signs of life of its sources."""


class StopAsked:
    """A stop by signal: it holds for every life that follows, too."""

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()

    def ask(self, reason: str) -> None:
        """Safe to call from a signal handler."""
        self.reason = reason
        self._event.set()

    @property
    def is_asked(self) -> bool:
        return self._event.is_set()


class Life:
    """From a restore to a stop or a failure, in this process."""

    def __init__(self, setup: LifeSetup, heart: Heart, stop: StopAsked, folder: WorkFolder) -> None:
        self._setup = setup
        self._folder = folder
        self._under_way = setup.under_way
        self._look_again_at = 0.0
        self._heart = heart
        self._stop = stop
        self._plan = setup.plan
        self._engine = setup.engine
        self._generation: Generation = setup.started.generation
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._stop_posted = False
        self._stop_again_at = 0.0
        self._told_ended: set[VertexUid] = set()
        """The sources of which the coordinator knows that they have ended."""
        self._vertices = {step.uid: self._stateful_vertex(step) for step in self._plan.steps}
        self._channels = setup.work / "state" / f"r{setup.restart}.channels"
        self._channels.mkdir(parents=True, exist_ok=True)
        self._running = self._way_of_running()
        history = setup.catalogue.generations[0].launch  # it names the log itself, not only the stream
        self._sinks: Mapping[VertexUid, SinkCommitter] = {
            end.vertex.uid: end.vertex.sink.committer(setup.stream, end.vertex.storage_uid, self._generation, history)
            for end in self._plan.sinks
        }
        self._shared = SharedFiles()
        self._folders: dict[CheckpointId, str] = {}
        self._meter = CheckpointMeter(self._note_cost)
        self._made = False
        """Whether there are a loop, a taker and an ear, which the end closes: a restore that fails has none."""
        self.next_checkpoint = setup.next_checkpoint
        """The lowest id that this life has not used."""
        self.has_run = False
        """Whether it came as far as to take in records."""
        self.ended_whole = False
        """Whether nothing of it goes on: another life may follow in this process."""

    # ---- the life

    def run(self) -> None:
        """Live until stopped. Raises what ended the life: Fenced, StreamFailed or whatever went wrong."""
        self._watch = self._make_watch()
        self._ledger = self._make_ledger()
        self._ledger.cleaner.fold_from(self._setup.catalogue)
        self._ledger.say(self._what, "ISSUED", f"{self._who}: {self._setup.decision.reason}")
        try:
            with self._under_way.during(parts.RESTORE):
                restored = self._restorer().restore()
            self._start(restored)
            self._wait()
        finally:
            with self._under_way.during(parts.END):
                self._end()
        if self._error is not None:
            raise self._error from self._running.error

    @property
    def trouble(self) -> Trouble | None:
        """The records that have ended it, if it was records."""
        place = self._running.place
        return Trouble(place, str(self._running.error)) if place is not None else None

    @property
    def _what(self) -> str:
        return "restart" if self._setup.restart else "start"

    @property
    def _who(self) -> str:
        restart = f", restart {self._setup.restart}" if self._setup.restart else ""
        return f"generation {self._generation}{restart}"

    def _make_watch(self) -> RecoveryWatch:
        setup, slot = self._setup, self._setup.catalogue.newest_slot
        assert slot is not None
        if not setup.restart:
            return RecoveryWatch.of_launch(setup.store, setup.stream, setup.started, slot)
        restored = setup.restored.id if setup.restored is not None else None
        since_ms = 1000 * (time.monotonic() - setup.failed_s)
        return RecoveryWatch(RecoveryKind.RESTART, self._generation, restored, since_ms=since_ms, detect_ms=0.0)

    def _restorer(self) -> Restorer:
        return Restorer(
            self._setup,
            self._vertices,
            self._sinks,
            self._shared,
            self._folders,
            self._ledger,
            self._heart,
            self._watch,
            self._channels,
        )

    # ---- run

    def _stateful_vertex(self, step: KeyedVertex | ConnectedVertex) -> StatefulVertex:
        settings = self._setup.settings
        directory = self._setup.work / "state" / f"r{self._setup.restart}" / step.uid
        for subtask in range(settings["parallelism.default"]):
            (directory / str(subtask)).mkdir(parents=True, exist_ok=True)
        return StatefulVertex(
            uid=step.uid,
            name=step.name,
            parallelism=settings["parallelism.default"],
            max_parallelism=settings["pipeline.max-parallelism"],
            backend=settings["state.backend.type"],
            directory=directory,
        )

    def _way_of_running(self) -> Running:
        means = Means(
            plan=self._plan,
            engine=self._engine,
            steps=Steps(self._setup, self._vertices, self._channels),
            vertices=self._vertices,
            heart=self._heart,
            points=self._setup.points,
            channels=self._channels,
            under_way=self._under_way,
        )
        if self._plan.is_linear:
            return ChainRunning(means)
        return GraphRunning(means, exactly_once=self._setup.settings["execution.checkpointing.mode"] == "EXACTLY_ONCE")

    def _make_ledger(self) -> Ledger:
        setup = self._setup
        newest = setup.catalogue.newest_slot
        assert newest is not None
        return setup.ledger_class(
            store=setup.store,
            stream=setup.stream,
            generation=self._generation,
            slots=setup.slots,
            newest=newest,
            max_parallelism=setup.settings["pipeline.max-parallelism"],
            sinks=self._sinks,
            shared=self._shared,
            folders=self._folders,
            post=self._post,
            end=self.finish,
            points=setup.points,
            executor=lambda name: WatchedThreads(name, self._under_way, parts.THREADS[name]),
        )

    def _post(self, event: Event) -> None:
        if isinstance(event, Committed) and event.groups:
            newest = max(event.groups)
            self._heart.note(lambda progress: replace(progress, last_committed=newest), soon=True)
        self._loop.post(event)

    def _start(self, restored: Restored) -> None:
        setup, sources = self._setup, [source.uid for source in self._plan.sources]
        chain = Coordinator(
            options=CheckpointOptions.of(setup.settings),
            participants=participants(self._vertices, sources, self._sinks),
            cut=restored.cut,
            next_id=setup.next_checkpoint,
            retained=[*reversed(setup.catalogue.snapshots), *(ref for ref in setup.catalogue.claimed if ref.foreign)],
            claimed=frozenset(ref.id for ref in setup.catalogue.claimed),
            groups=restored.groups,
            begins_as=restored.begins_as,
            started_ms=CoordinatorLoop.now_ms(),
        )
        self._coordinator = self._running.coordinator(chain, restored)
        self._loop = CoordinatorLoop(self._coordinator, self._perform, self._meter)
        self._watchdog = SyncPhaseWatchdog(
            setup.settings["execution.checkpointing.sync-phase-timeout"], self._ledger.perform
        )
        self._taker = SnapshotTaker(
            store=setup.store,
            paths=StreamPaths(setup.stream),
            generation=self._generation,
            vertices=self._vertices,
            books=self._engine.books,
            sinks=self._sinks,
            shared=self._shared,
            post=self._loop.post,
            meter=self._meter,
            points=setup.points,
            channels=self._channels,
        )
        self._ledger.taker = self._taker
        self._ledger.meter = self._meter
        self._ear = Ear(
            setup.store,
            setup.stream,
            self._generation,
            post=self._loop.post,
            look_at_log=self._ledger.look,
            say=self._ledger.say,
            interval_ms=min(setup.settings["heartbeat.interval"], _LONGEST_DEAF_MS),
            done=setup.done_before(),
            places=Places.of(setup.store.url, setup.settings),
        )
        self._made = True
        self._heart.restored(restored.begins_as)
        self._running.attach(self._loop)
        with self._under_way.during(parts.BEGIN):
            self._ear.first_look(setup.restored)  # who wants the stream to end is heard before anything else can happen
        self._loop.start()
        self._post_stop()
        spare_collector()
        setup.points.reach("before-seed")
        with self._watch.term("reset_source"), self._under_way.during(parts.BEGIN):
            self._running.begin(restored.cut)
        setup.points.reach("after-seed")
        self._heart.note(lambda progress: replace(progress, spark_ui=self._engine.facts().get("spark_ui")))
        if self._heart.state is not StreamState.STOPPING:
            self._heart.become(StreamState.RUNNING)
        self.has_run = True
        self._ear.start()
        self._ledger.cleaner.forget_old(setup.catalogue)
        self._ledger.say(self._what, "EXECUTED", f"{self._who} runs", self._watch.runs())

    def _perform(self, action: Action) -> Afterwards | None:
        if isinstance(action, TakeSnapshot):
            self._setup.points.reach("before-barrier", action.checkpoint)
            with self._watchdog.watch(action.checkpoint):
                afterwards = self._taker.take(action)
            self._setup.points.reach("after-barrier", action.checkpoint)
            return afterwards
        if isinstance(action, (FinishOperators, TaskAction)):
            self._running.perform(action)
            return None
        if isinstance(action, NotifyCurrent):
            self._note_current(action.checkpoint, action.as_of_ms)
            return None
        if isinstance(action, NotifyComplete):
            self._note_completed(action)
        if isinstance(action, NotifyAborted):
            self._note_aborted()
            self._stop_posted = False  # if it was the last snapshot of a stop by signal, it is tried again
        self._ledger.perform(action)
        return None

    def _note_aborted(self) -> None:
        self._heart.note(lambda progress: replace(progress, failed_checkpoints=progress.failed_checkpoints + 1))

    def _note_current(self, checkpoint: CheckpointId, as_of_ms: int | None) -> None:
        self._heart.current(checkpoint, None if as_of_ms is None else CoordinatorLoop.now_ms() - as_of_ms)

    def _note_completed(self, action: NotifyComplete) -> None:
        if action.snapshot.name is None:
            self._note_current(action.checkpoint, action.as_of_ms)

        def change(progress: Progress) -> Progress:
            return replace(progress, checkpoints=progress.checkpoints + 1, last_snapshot=action.checkpoint)

        self._heart.note(change, soon=True)

    def _note_cost(self, cost: CheckpointCost) -> None:
        measured = {"checkpoint_ms": round(cost.total_ms, 1), "checkpoint_bytes": float(cost.uploaded_bytes)}
        self._heart.note(lambda progress: replace(progress, extra={**progress.extra, **measured}))

    # ---- end

    def _wait(self) -> None:
        with self._under_way.asking(parts.COORDINATOR, self._loop.rounds):
            while not self._ended.wait(0.2):
                self._look()

    def _look(self) -> None:
        self._post_stop()
        with self._under_way.during(parts.ENGINE):
            ended = self._engine.ended()
        for source in sorted(ended - self._told_ended):
            self._told_ended.add(source)
            self._loop.post(SourceEnded(source=source))
        self._running.look()
        with self._under_way.during(parts.ENGINE):
            failure = self._engine.failure()
        if failure is not None and not self._ended.is_set():
            self._running.blame(self._engine.blamed(), self._coordinator.cut, failure)
            self._loop.post(BatchFailed(cause=failure))
            self._ended.wait(10)
            self.finish(StreamFailed(failure))
        elif time.monotonic() >= self._look_again_at:
            self._look_again_at = time.monotonic() + _BETWEEN_LOOKS_S
            self._look_for_signs()

    def _look_for_signs(self) -> None:
        """Of the sources' threads, and of those who tidy up where the driver works."""
        with self._under_way.during(parts.ENGINE):
            for source, sign in self._engine.signs().items():
                self._under_way.saw(parts.looking(source), sign)
            looked = self._engine.looked_ms()
            self._folder.check(self._engine.folders())
        open_ones = {source.uid for source in self._plan.sources} - self._told_ended
        if open_ones and open_ones <= looked.keys():
            self._loop.post(Looked(began_ms=min(looked[source] for source in open_ones)))

    def _post_stop(self) -> None:
        """A signal's stop: asked for, and again some time after its last snapshot failed."""
        if self._stop.is_asked and not self._stop_posted and time.monotonic() >= self._stop_again_at:
            self._stop_posted = True
            self._stop_again_at = time.monotonic() + _BETWEEN_STOPS_S
            self._heart.become(StreamState.STOPPING)
            self._loop.post(Trigger(stop=True, reason=self._stop.reason))

    def finish(self, error: BaseException | None) -> None:
        """End it, for this cause if there is one. From any thread; waits for nothing."""
        if not self._ended.is_set():
            self._error = error
            self._ended.set()

    def _end(self) -> None:
        if isinstance(self._error, NoProgress):  # what does not move may take its time to end
            self._heart.become(StreamState.RESTORING, str(self._error))
        for source in self._plan.sources:
            self._under_way.saw(parts.looking(source.uid), None)
        still = self._loop.close() if self._made else True
        if self._made:
            self._ear.close()
        self._running.close()
        halted = self._engine.halt() and self._running.has_ended(_PATIENCE_S)
        if self._made:
            self._taker.close()
        closed = self._ledger.close(_PATIENCE_S)
        if self._made:
            self.next_checkpoint = self._coordinator.next_id
        self.ended_whole = halted and closed and still
        shutil.rmtree(self._setup.work / "state", ignore_errors=True)
