"""The beginning of a life: verifies and fetches the snapshot, brings state, positions and sinks to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headgate.coordinator.cut import Cut, Group, Json, OperatorStates, without_end
from headgate.driver import parts
from headgate.driver.ledger import Ledger
from headgate.driver.pulse import Heart
from headgate.driver.recovery_watch import RecoveryWatch
from headgate.driver.setup import LifeSetup
from headgate.driver.shared_state import SharedFiles
from headgate.driver.sweeping import leftovers
from headgate.job.plan import describe
from headgate.recovery.fetch import SnapshotFiles
from headgate.recovery.operator_state import restored_states
from headgate.recovery.sinks import begin_sinks, sink_history, written_before
from headgate.recovery.state import restore_vertex
from headgate.sink.base import SinkCommitter
from headgate.source.positions import INITIAL
from headgate.state.descriptors import check_restorable
from headgate.state.vertex import StatefulVertex
from headgate_contract.errors import RestoreRefused, SnapshotDamaged
from headgate_contract.fitting import JobShape, as_brought, fit
from headgate_contract.heartbeats import read_heartbeat
from headgate_contract.ids import CheckpointId, Generation, VertexUid
from headgate_contract.moved import Moves, moved_since, published_here
from headgate_contract.paths import StreamPaths
from headgate_contract.places import Places
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, TaskState

log = logging.getLogger(__name__)

_WITHOUT_CHANNEL_STATE = "execution.checkpointing.recover-without-channel-state.checkpoint-id"


@dataclass(frozen=True)
class Restored:
    """What a life goes on from."""

    cut: Cut
    groups: list[Group]
    """Output that its snapshot carries."""
    tasks: Mapping[VertexUid, TaskState] = field(default_factory=dict)
    """Of a job with channels: what had not come to each task. The files are there."""
    begins_as: CheckpointId | None = None
    """The checkpoint of this very generation that this is, whole: it need not be taken once more."""


class Restorer:
    """Restores one life. Used once; every step may be repeated by a successor."""

    def __init__(
        self,
        setup: LifeSetup,
        vertices: Mapping[VertexUid, StatefulVertex],
        sinks: Mapping[VertexUid, SinkCommitter],
        shared: SharedFiles,
        folders: dict[CheckpointId, str],
        ledger: Ledger,
        heart: Heart,
        watch: RecoveryWatch,
        channels: Path,
    ) -> None:
        self._setup = setup
        self._vertices = vertices
        self._sinks = sinks
        self._shared = shared
        self._folders = folders
        self._ledger = ledger
        self._heart = heart
        self._watch = watch
        self._channels = channels
        self._sources = [source.uid for source in setup.plan.sources]
        self._shape = self._shape_of(setup)
        self._generation = setup.started.generation
        self._opening_failed: BaseException | None = None

    def restore(self) -> Restored:
        """State, positions and sinks as the decision says."""
        decision = self._setup.decision
        ref = decision.snapshot if isinstance(decision, RestoreFrom) else None
        self._check_place(ref)
        files = SnapshotFiles(self._setup.store, ref) if ref is not None else None
        brought = as_brought(files.metadata(), files.ref) if files is not None else None
        metadata = self._fitting(brought) if brought is not None else None
        metadata = self._without_channel_state(metadata) if metadata is not None else None
        opened = self._open_meanwhile()
        cut = self._restore_cut(files, metadata)
        self._register_retained()
        published = self._published(metadata) if metadata is not None else {}
        for uid in self._written_before():
            self._sinks[uid].expect(published.get(uid))
        for end in self._setup.plan.sinks:
            end.vertex.sink.check()
        opened()
        if metadata is not None:
            self._check_state(metadata)
        left = leftovers(self._setup.store, self._setup.catalogue, self._generation, self._shared.named())
        self._ledger.check_not_fenced()  # after the listing: so nothing in it is a successor's
        self._ledger.cleaner.delete(left, "earlier lives left them, and no snapshot names them")
        self._ledger.cleaner.forget_broken_writes(self._setup.stream)
        history = sink_history(self._setup.store, self._setup.catalogue, ref, metadata, self._shape.former)
        with self._watch.term("reset_sink"):
            reports = begin_sinks(self._sinks, history)
        for uid, report in reports.items():
            log.info("sink %s: %s", uid, report.told)
        self._note_replay(cut)
        carried = metadata.committables if metadata is not None else ()
        groups = [Group(id=group.id, sinks=group.sinks) for group in carried]
        committed = {uid: group.id for group in groups for uid, handles in group.sinks.items() if handles}
        shown = {**published, **committed}  # a sink that the job has no more may come back with an empty folder
        self._ledger.goes_on_from({uid: id for uid, id in shown.items() if uid in self._sinks})
        own = ref is not None and ref.name is None and ref.generation == self._generation and metadata == brought
        begins_as = ref.id if ref is not None and own else None
        return Restored(cut, groups, metadata.tasks if metadata is not None else {}, begins_as)

    def _published(self, metadata: SnapshotMetadata) -> dict[VertexUid, CheckpointId]:
        """Of each sink the newest group that the snapshot says is published, where the sink is now."""
        own = self._setup.catalogue.deployed_at(self._setup.started.deployed)
        return published_here(self._setup.catalogue, own, metadata.published) if own is not None else {}

    def _written_before(self) -> list[VertexUid]:
        """The sinks whose output this life goes on with."""
        if self._setup.restart:
            return list(self._sinks)
        own = self._setup.catalogue.deployed_at(self._setup.started.deployed)
        ref = self._setup.restored
        if own is None or ref is None or ref.foreign:
            return []
        return [uid for uid in self._sinks if written_before(self._setup.catalogue, own, uid)]

    def _check_place(self, ref: SnapshotRef | None) -> None:
        """What the log itself says of a place was judged before: a start may name another one, and is judged here."""
        decision = self._setup.started.decision
        allowed = isinstance(decision, RestoreFrom) and decision.place_allowed
        if ref is None or self._setup.restart or allowed:
            return
        *before, _ = self._setup.catalogue.generations
        bases = (start.decision.snapshot for start in before if isinstance(start.decision, RestoreFrom))
        if ref not in self._setup.catalogue.completed and ref not in bases:
            url = self._setup.store.url
            Places.of(url, self._setup.settings).check_snapshot(ref.location or url, ref.folder)

    def _shape_of(self, setup: LifeSetup) -> JobShape:
        return JobShape.of(describe(setup.plan, setup.settings), setup.settings)

    def _fitting(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """The metadata as this job takes it. Raises RestoreRefused, before anything is fetched, if it does not fit."""
        decision, catalogue = self._setup.started.decision, self._setup.catalogue
        found = fit(metadata, self._shape, catalogue.committed, self._moves())
        refusal = found.refusal(decision.non_restored if isinstance(decision, RestoreFrom) else ())
        if refusal is not None:
            raise RestoreRefused(f"snapshot {metadata.id} does not fit the job: {refusal.what}", hint=refusal.hint)
        return found.restored()

    def _moves(self) -> Moves:
        """What this job has at another place than the one that took the snapshot."""
        own, ref = self._setup.catalogue.deployed_at(self._setup.started.deployed), self._setup.restored
        return moved_since(self._setup.catalogue, ref, own) if own is not None and ref is not None else Moves()

    def _without_channel_state(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """What was in flight is left behind only if somebody has said so, of this very checkpoint."""
        inputs = [each for task in metadata.tasks.values() for each in task.inputs.values()]
        held = [element for each in inputs for element in each.in_flight if element.files]
        if not held or metadata.id != self._setup.settings[_WITHOUT_CHANNEL_STATE]:
            return metadata
        what = f"{len(held)} micro-batches with {sum(element.rows for element in held)} records"
        told = f"{what} in flight in snapshot {metadata.id} are left behind, as {_WITHOUT_CHANNEL_STATE} says"
        log.warning("%s", told)
        self._ledger.say("restore", "EXECUTED", told)
        tasks = {
            uid: replace(task, inputs={name: replace(each, in_flight=()) for name, each in task.inputs.items()})
            for uid, task in metadata.tasks.items()
        }
        return replace(metadata, tasks=tasks)

    def _open_meanwhile(self) -> Callable[[], None]:
        """Begin to open the engine, which takes long; what is returned waits for it, and raises what has failed."""
        opening = threading.Thread(target=self._open_engine, name="open", daemon=True)
        opening.start()

        def opened() -> None:
            opening.join()
            if self._opening_failed is not None:
                raise self._opening_failed

        return opened

    def _open_engine(self) -> None:
        try:
            with self._setup.under_way.during(parts.OPENING):
                self._setup.engine.open()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            self._opening_failed = error

    def _restore_cut(self, files: SnapshotFiles | None, metadata: SnapshotMetadata | None) -> Cut:
        if files is None or metadata is None:
            initial = {uid: dict(INITIAL) for uid in self._sources}
            return Cut(epoch=0, operator_states=self._operator_states(None), positions=initial)
        versions = {}
        with self._watch.term("load_state"):
            for uid, vertex in self._vertices.items():
                if uid in metadata.vertices:
                    identity = f"g{self._generation}.r{self._setup.restart}.restore"
                    restored = restore_vertex(files, metadata.vertices[uid], vertex, identity)
                    self._watch.loaded(restored.bytes)
                    versions[uid] = restored.versions
            self._watch.loaded(self._fetch_in_flight(files, metadata))
        with self._watch.term("reset_source"):
            positions = {uid: self._position(uid, files, metadata) for uid in self._sources}
        epoch = max((vertex.epoch for vertex in metadata.vertices.values()), default=0)
        return Cut(
            epoch=epoch,
            versions=versions,
            operator_states=self._operator_states(metadata),
            positions=positions,
            records=metadata.records,
            watermark_ms=metadata.watermark_ms,
            finished=frozenset(metadata.finished) & {task.uid for task in self._setup.plan.tasks},
        )

    def _position(self, uid: VertexUid, files: SnapshotFiles, metadata: SnapshotMetadata) -> Json:
        source = metadata.sources.get(uid)  # None: it was allowed to begin anew
        if source is None:
            return dict(INITIAL)
        position = self._setup.engine.books[uid].load(source, files.read)
        (vertex,) = (each for each in self._setup.plan.sources if each.uid == uid)
        return position if vertex.source.bounded else without_end(position)

    def _fetch_in_flight(self, files: SnapshotFiles, metadata: SnapshotMetadata) -> int:
        """The files of what was in flight, each once: several channels may hold one micro-batch."""
        inputs = [each for task in metadata.tasks.values() for each in task.inputs.values()]
        wanted = {handle.name: handle for each in inputs for one in each.in_flight for handle in one.files}
        return files.fetch((handle, self._channels / name) for name, handle in wanted.items())

    def _operator_states(self, metadata: SnapshotMetadata | None) -> OperatorStates:
        parallelism = self._setup.settings["parallelism.default"]
        states = {}
        for task in self._setup.plan.tasks:
            if task.step is not None and task.operator is not None:
                held = metadata.vertices.get(task.step.uid) if metadata is not None else None
                stored = held.operator_states if held is not None else {}
                states[task.step.uid] = restored_states(stored, task.operator.operator_states, parallelism)
        return states

    def _check_state(self, metadata: SnapshotMetadata) -> None:
        """Refuse states that the job declares otherwise now, before the first record does."""
        for task in self._setup.plan.tasks:
            port, schema = task.port(task.inputs[0]), self._setup.engine.schema(task.uid)
            if port is not None and schema is not None and port.uid in metadata.vertices:
                declared = port.operator.descriptors(port.keys, schema)
                check_restorable(port.uid, metadata.vertices[port.uid].descriptors, declared)

    def _register_retained(self) -> None:
        """Note which files the retained snapshots need. If that is not known of one, this life deletes no shared file.

        A savepoint needs none but its own, wherever it lies: it is not read.
        """
        for ref in self._setup.catalogue.snapshots:
            self._folders[ref.id] = ref.folder
            try:
                handles = SnapshotFiles(self._setup.store, ref).metadata().handles() if ref.name is None else ()
            except SnapshotDamaged as error:
                log.warning("%s is damaged: none of its files will be deleted: %s", ref, error)
                self._shared.miss()
                continue
            self._shared.register(ref.id, handles)
        for ref in self._setup.catalogue.claims:
            self._ledger.cleaner.claim(ref)
        self._ledger.cleaner.dispose(self._register_retired())

    def _register_retired(self) -> list[CheckpointId]:
        """The retired checkpoints whose files an earlier life had not deleted when it ended."""
        catalogue = self._setup.catalogue
        left = {
            info.path.rsplit("/", 1)[0] for info in self._setup.store.list(StreamPaths(self._setup.stream).checkpoints)
        }
        found = [ref.id for ref in catalogue.claims if ref.id in catalogue.retired]
        for ref in catalogue.completed:
            if ref.id in catalogue.retired and ref.name is None and ref.folder in left:
                try:
                    self._shared.register(ref.id, SnapshotFiles(self._setup.store, ref).metadata().handles())
                except SnapshotDamaged as error:
                    log.warning("%s is retired and damaged: its files are left: %s", ref, error)
                    continue
                self._folders[ref.id] = ref.folder
                found.append(ref.id)
        return found

    def _note_replay(self, cut: Cut) -> None:
        """How many records an earlier life had handed over beyond this cut, as far as it told."""
        told = 0
        if self._setup.restart:
            told = self._heart.progress.records
        elif self._generation > 1:
            seen = read_heartbeat(self._setup.store, self._setup.stream, Generation(self._generation - 1))
            told = seen.heartbeat.progress.records if seen is not None and seen.heartbeat is not None else 0
        again = max(0, told - cut.records)
        self._heart.note(lambda progress: replace(progress, records=cut.records, replayed=progress.replayed + again))
