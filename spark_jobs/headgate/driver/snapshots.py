"""Takes snapshots: makes a cut durable part by part, beside the running stream, and acknowledges each part."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headgate.coordinator.cut import Json
from headgate.coordinator.messages import Acknowledged, Declined, Event, StoreSnapshot, TakeSnapshot
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate.driver.checksums import file_sha256
from headgate.driver.points import NO_POINTS, KillPoints
from headgate.driver.shared_state import SharedFiles
from headgate.sink.base import SinkCommitter
from headgate.source.positions import PositionBook
from headgate.state.descriptors import merge_descriptors
from headgate.state.key_groups import subtask_range
from headgate.state.versions import StateVersion, local_files
from headgate.state.vertex import StatefulVertex
from headgate_contract import wire
from headgate_contract.errors import CheckpointFailed, HeadgateError, StorageError
from headgate_contract.ids import CheckpointId, Generation, VertexUid
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import (
    InFlight,
    InputState,
    SnapshotMetadata,
    StateHandle,
    SubtaskState,
    TaskState,
    VertexState,
)
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


def participants(
    vertices: Iterable[VertexUid], sources: Iterable[VertexUid], sinks: Iterable[VertexUid]
) -> frozenset[str]:
    """The names under which the parts of a snapshot are acknowledged."""
    parts = (("state", vertices), ("source", sources), ("sink", sinks))
    return frozenset(f"{kind} {uid}" for kind, uids in parts for uid in uids)


def snapshot_folder(paths: StreamPaths, action: TakeSnapshot | StoreSnapshot, generation: Generation) -> str:
    """The folder of an attempt's own: below the storage root, or in the directory that a savepoint is to go to."""
    if action.name is None:
        return paths.checkpoint(action.checkpoint, generation)
    if action.target is None:
        return paths.savepoint(action.name, action.checkpoint, generation)
    return paths.savepoint_elsewhere(action.name, action.checkpoint, generation)


class SnapshotTaker:
    """Runs the asynchronous phase on a few threads of its own, so that it never takes all of Spark's slots."""

    def __init__(  # noqa: PLR0913 - one for each part that a snapshot touches
        self,
        *,
        store: ObjectStore,
        paths: StreamPaths,
        generation: Generation,
        vertices: Mapping[VertexUid, StatefulVertex],
        books: Mapping[VertexUid, PositionBook],
        sinks: Mapping[VertexUid, SinkCommitter],
        shared: SharedFiles,
        post: Callable[[Event], None],
        meter: CheckpointMeter,
        points: KillPoints = NO_POINTS,
        channels: Path = Path(),
    ) -> None:
        self._store = store
        self._paths = paths
        self._generation = generation
        self._vertices = vertices
        self._books = books
        self._sinks = sinks
        self._shared = shared
        self._post = post
        self._points = points
        self._meter = meter
        self._channels = channels
        """Where the files of written channels are."""
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="upload")
        self._uploaded: dict[CheckpointId, list[tuple[ObjectStore, str]]] = {}
        """What was uploaded for each attempt that is not over."""
        self._bases: dict[CheckpointId, Mapping[str, StateHandle]] = {}
        """What each attempt need not upload, from its first part on."""
        self._targets: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, action: TakeSnapshot) -> Callable[[], None]:
        """The synchronous phase. What it returns begins the asynchronous one, for when micro-batches may run again:
        who wakes a thread may have to wait for it."""
        self._points.reach("before-sync", action.checkpoint)
        with self._lock:
            if not self._closed:
                self._uploaded.setdefault(action.checkpoint, [])
        base = self._bases.get(action.checkpoint)
        if base is None:
            base = self._bases[action.checkpoint] = {} if action.name is not None else self._shared.confirmed()
            self._shared.register(action.checkpoint, base.values())
        self._points.reach("after-sync", action.checkpoint)
        return partial(self._begin, action, base)

    def _begin(self, action: TakeSnapshot, base: Mapping[str, StateHandle]) -> None:
        """The asynchronous phase: every participant whose part this is acknowledges or declines."""
        parts: dict[str, Callable[[], Acknowledged]] = {
            **{f"state {uid}": partial(self._state, action, vertex, base) for uid, vertex in self._vertices.items()},
            **{f"source {uid}": partial(self._position, action, uid, book) for uid, book in self._books.items()},
            **{f"sink {uid}": partial(self._prepare, action, uid, sink) for uid, sink in self._sinks.items()},
        }
        with self._threads_for(action) as pool:
            for participant in sorted(action.parts - parts.keys()):
                self._submit(pool, action, participant, partial(self._inputs, action, participant, base))
            for participant, part in parts.items():
                if participant in action.parts:
                    self._submit(pool, action, participant, part)

    @contextmanager
    def _threads_for(self, action: TakeSnapshot) -> Iterator[ThreadPoolExecutor]:
        """A savepoint has threads of its own: one that hangs takes none from the checkpoints after it."""
        if action.name is None or self._closed:  # then it has no threads any more, and all decline
            yield self._pool
            return
        own = ThreadPoolExecutor(max_workers=2, thread_name_prefix="savepoint")
        yield own
        own.shutdown(wait=False)  # what it was given goes on

    def confirm(self, metadata: SnapshotMetadata) -> None:
        """A checkpoint is complete: its files are the base of the next increment."""
        for uid, state in metadata.sources.items():
            if uid in self._books:  # before the files: a barrier in between must build on the newer position
                self._books[uid].confirm(state)
        self._shared.confirm(metadata.handles())

    def forget(self, checkpoint: CheckpointId) -> None:
        """The snapshot has completed: what was uploaded for it is its own."""
        with self._lock:
            self._uploaded.pop(checkpoint, None)
        self._bases.pop(checkpoint, None)

    def discard(self, checkpoint: CheckpointId) -> None:
        """The attempt came to nothing: what was uploaded for it alone goes, and what is being uploaded once it is."""
        with self._lock:
            uploaded = self._uploaded.pop(checkpoint, [])
        self._bases.pop(checkpoint, None)
        for store, path in (*uploaded, *((self._store, path) for path in self._shared.release(checkpoint))):
            self._delete(store, path)
        self._tell_aborted(checkpoint)

    def _tell_aborted(self, checkpoint: CheckpointId) -> None:
        """Every participant hears of it, also if another one cannot bear it. The state's part is the taker's own."""
        told: list[PositionBook | SinkCommitter] = [*self._books.values(), *self._sinks.values()]
        for participant in told:
            try:
                participant.aborted(checkpoint)
            except Exception:
                log.exception("%s was told that checkpoint %s came to nothing", type(participant).__name__, checkpoint)

    def close(self) -> None:
        """End. What is being uploaded is given up: it is deleted when it is there."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            self._uploaded.clear()

    def _submit(
        self, pool: ThreadPoolExecutor, action: TakeSnapshot, participant: str, part: Callable[[], Acknowledged]
    ) -> None:
        def work() -> None:
            try:
                self._refuse_if_over(action)
                ack = part()
                self._points.reach("before-ack", action.checkpoint)
                self._deliver(ack)
                self._points.reach("after-ack", action.checkpoint)
            except (HeadgateError, OSError) as error:
                log.warning("%s declines checkpoint %s: %s", participant, action.checkpoint, error)
                self._decline(action, participant, str(error))
            except Exception as error:
                log.exception("%s declines checkpoint %s", participant, action.checkpoint)
                self._decline(action, participant, f"{type(error).__name__}: {error}")

        try:
            self._start(f"{participant} of {action.checkpoint}", work, pool)
        except RuntimeError as error:  # no thread can be had
            log.exception("%s cannot begin checkpoint %s", participant, action.checkpoint)
            reason = CheckpointFailureReason.IO_EXCEPTION
            self._decline(action, participant, f"it could not be begun: {error}", reason)

    def _refuse_if_over(self, action: TakeSnapshot) -> None:
        with self._lock:
            over = action.checkpoint not in self._uploaded
        if over:
            raise CheckpointFailed(f"checkpoint {action.checkpoint} was given up meanwhile")

    def _deliver(self, ack: Acknowledged) -> None:
        """Without its ack nobody would learn how the part has ended: then it has failed."""
        try:
            self._post(ack)
        except Exception as error:
            raise CheckpointFailed(f"its ack could not be delivered: {type(error).__name__}: {error}") from error

    def _decline(
        self,
        action: TakeSnapshot,
        participant: str,
        cause: str,
        reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
    ) -> None:
        self._post(Declined(checkpoint=action.checkpoint, participant=participant, cause=cause, reason=reason))

    def _start(self, name: str, work: Callable[[], None], pool: ThreadPoolExecutor) -> None:
        pool.submit(work)

    def _prepare(self, action: TakeSnapshot, uid: VertexUid, sink: SinkCommitter) -> Acknowledged:
        self._points.reach("before-prepare", action.checkpoint)
        given = action.staged.get(uid, ())
        prepared = tuple(dict(handle) for handle in sink.prepare(given, joinable=action.joinable))
        self._points.reach("after-prepare", action.checkpoint)
        staged = {uid: prepared} if given else {}
        return Acknowledged(checkpoint=action.checkpoint, participant=f"sink {uid}", staged=staged)

    def _position(self, action: TakeSnapshot, source: VertexUid, book: PositionBook) -> Acknowledged:
        def put(what: str, data: bytes) -> StateHandle:
            name = f"{source}-{what}-{uuid.uuid4().hex}"
            path, where = self._place(action, name)
            with self._uploading(action, where) as store:
                store.create(where, data)
            self._meter.uploaded(action.checkpoint, len(data))
            return StateHandle(name, path, len(data), wire.sha256(data))

        position = dict(action.cut.positions[source])
        state = book.save(position, put, self_contained=action.name is not None)
        return Acknowledged(checkpoint=action.checkpoint, participant=f"source {source}", sources={source: state})

    def _inputs(self, action: TakeSnapshot, participant: str, base: Mapping[str, StateHandle]) -> Acknowledged:
        """What had not come to a task: the files of what its barriers have overtaken, and its inputs' watermarks."""
        levels = action.watermarks
        task = VertexUid(participant.partition(" ")[2])

        def kept(element: Json) -> InFlight:
            if "files" not in element:
                return InFlight(watermark_ms=element["watermark_ms"])
            names = [str(handle["name"]) for handle in element["files"]]
            handles = (base.get(name) or self._upload(action, name, self._channels / name, task) for name in names)
            return InFlight(rows=element["rows"], files=tuple(handles))

        inputs = {
            channel: InputState(level["ms"], level["idle"], tuple(map(kept, action.in_flight.get(channel, ()))))
            for channel, level in levels["inputs"].items()
        }
        state = TaskState(inputs, levels["passed"])
        return Acknowledged(checkpoint=action.checkpoint, participant=participant, tasks={task: state})

    def _state(self, action: TakeSnapshot, vertex: StatefulVertex, base: Mapping[str, StateHandle]) -> Acknowledged:
        here: dict[str, StateHandle] = {}  # after a rescale several subtasks have parts of one file
        subtasks = []
        descriptors = []
        for subtask, body in sorted(action.cut.versions.get(vertex.uid, {}).items()):
            version = StateVersion.from_json(body)
            handles = []
            for file in local_files(version, vertex.directory / str(subtask)):
                handle = base.get(file.name) or here.get(file.name)
                if handle is None:
                    handle = here[file.name] = self._upload(action, file.name, file.path)
                handles.append(handle)
            key_groups = subtask_range(subtask, vertex.parallelism, vertex.max_parallelism)
            subtasks.append(SubtaskState(subtask, key_groups.start, key_groups.end, body, tuple(handles)))
            descriptors.append(version.descriptors)
        state = VertexState(
            vertex.name,
            vertex.parallelism,
            vertex.backend,
            tuple(each.to_json() for each in sorted(merge_descriptors(*descriptors), key=lambda each: each.name)),
            tuple(subtasks),
            action.cut.epoch,
            action.cut.operator_states.get(vertex.uid, {}),
        )
        return Acknowledged(
            checkpoint=action.checkpoint,
            participant=f"state {vertex.uid}",
            vertices={vertex.uid: state},
        )

    def _upload(self, action: TakeSnapshot, name: str, local: Path, reader: str = "") -> StateHandle:
        """`reader` tells those apart who upload the same file at once."""
        path, where = self._place(action, f"{name}{reader}.c{action.checkpoint}g{self._generation}")
        checksum = file_sha256(local)
        self._points.reach("before-upload", action.checkpoint)
        with self._uploading(action, where) as store:
            length = store.upload(local, where)
        self._meter.uploaded(action.checkpoint, length)
        self._points.reach("after-upload", action.checkpoint)
        return StateHandle(name, path, length, checksum)

    def _place(self, action: TakeSnapshot, name: str) -> tuple[str, str]:
        """Where a file goes: as the handle says it, and from the root or the target directory."""
        if action.name is None:
            where = self._paths.shared_file(name)
            return where, where
        return f"state/{name}", f"{snapshot_folder(self._paths, action, self._generation)}/state/{name}"

    def _store_of(self, action: TakeSnapshot) -> ObjectStore:
        if action.target is None:
            return self._store
        with self._lock:
            if action.target not in self._targets:  # to open one may take as long as to write a small file
                self._targets[action.target] = self._store.elsewhere(action.target)
                self._targets[action.target].make()
            return self._targets[action.target]

    @contextmanager
    def _uploading(self, action: TakeSnapshot, path: str) -> Iterator[ObjectStore]:
        """`path` is of this attempt alone: should that end meanwhile, no file is left, and CheckpointFailed raised."""
        store = self._store_of(action)
        with self._lock:
            if action.checkpoint in self._uploaded:
                self._uploaded[action.checkpoint].append((store, path))
        try:
            yield store
        finally:
            with self._lock:
                over = action.checkpoint not in self._uploaded
            if over:
                self._delete(store, path)
        self._refuse_if_over(action)

    def _delete(self, store: ObjectStore, path: str) -> None:
        try:
            store.delete(path)
        except StorageError as error:
            log.warning("%s is needed no more and could not be deleted: %s", path, error)
