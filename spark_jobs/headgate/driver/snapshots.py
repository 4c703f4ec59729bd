"""Takes snapshots: makes a cut durable part by part, beside the running stream, and acknowledges each part."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headgate.coordinator.messages import Acknowledged, Declined, Event, TakeSnapshot
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
from headgate_contract.snapshot import SnapshotMetadata, StateHandle, SubtaskState, VertexState
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


def participants(
    vertex: StatefulVertex | None, source: VertexUid, sinks: Mapping[VertexUid, SinkCommitter]
) -> frozenset[str]:
    """The names under which the parts of a snapshot are acknowledged."""
    state = [f"state {vertex.uid}"] if vertex is not None else []
    return frozenset([*state, f"source {source}", *(f"sink {uid}" for uid in sinks)])


class SnapshotTaker:
    """Runs the asynchronous phase on a few threads of its own, so that it never takes all of Spark's slots."""

    def __init__(  # noqa: PLR0913 - one for each part that a snapshot touches
        self,
        *,
        store: ObjectStore,
        paths: StreamPaths,
        generation: Generation,
        vertex: StatefulVertex | None,
        source: VertexUid,
        book: PositionBook,
        sinks: Mapping[VertexUid, SinkCommitter],
        shared: SharedFiles,
        post: Callable[[Event], None],
        meter: CheckpointMeter,
        points: KillPoints = NO_POINTS,
    ) -> None:
        self._store = store
        self._paths = paths
        self._generation = generation
        self._vertex = vertex
        self._source = source
        self._book = book
        self._sinks = sinks
        self._shared = shared
        self._post = post
        self._points = points
        self._meter = meter
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="upload")
        self._uploaded: dict[CheckpointId, list[str]] = {}
        """What was uploaded for each attempt that is not over."""
        self._lock = threading.Lock()

    def take(self, action: TakeSnapshot) -> None:
        """Begin the asynchronous phase; every participant acknowledges or declines."""
        self._points.reach("before-sync")
        with self._lock:
            self._uploaded[action.checkpoint] = []
        base = {} if action.name is not None else self._shared.confirmed()
        self._shared.register(action.checkpoint, base.values())
        self._points.reach("after-sync")
        if self._vertex is not None:
            vertex = self._vertex
            self._submit(action, f"state {vertex.uid}", lambda: self._state(action, vertex, base))
        self._submit(action, f"source {self._source}", lambda: self._position(action))
        for uid, sink in self._sinks.items():
            self._submit(action, f"sink {uid}", partial(self._prepare, action, uid, sink))

    def confirm(self, metadata: SnapshotMetadata) -> None:
        """A checkpoint is complete: its files are the base of the next increment."""
        for uid, state in metadata.sources.items():
            if uid == self._source:
                self._book.confirm(state)  # before the files: a barrier in between must build on the newer position
        self._shared.confirm(metadata.handles())

    def forget(self, checkpoint: CheckpointId) -> None:
        """The snapshot has completed: what was uploaded for it is its own."""
        with self._lock:
            self._uploaded.pop(checkpoint, None)

    def discard(self, checkpoint: CheckpointId) -> None:
        """The attempt came to nothing: delete what was uploaded for it alone, and what is being uploaded once it is."""
        with self._lock:
            uploaded = self._uploaded.pop(checkpoint, [])
        for path in (*uploaded, *self._shared.release(checkpoint)):
            self._delete(path)

    def close(self) -> None:
        """End. What is being uploaded is given up: it is deleted when it is there."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._uploaded.clear()

    def _submit(self, action: TakeSnapshot, participant: str, part: Callable[[], Acknowledged]) -> None:
        def work() -> None:
            try:
                ack = part()
                self._points.reach("before-ack", action.checkpoint)
                self._post(ack)
                self._points.reach("after-ack", action.checkpoint)
            except (HeadgateError, OSError) as error:
                log.warning("%s declines checkpoint %s: %s", participant, action.checkpoint, error)
                self._post(Declined(checkpoint=action.checkpoint, participant=participant, cause=str(error)))
            except Exception as error:
                log.exception("%s declines checkpoint %s", participant, action.checkpoint)
                cause = f"{type(error).__name__}: {error}"
                self._post(Declined(checkpoint=action.checkpoint, participant=participant, cause=cause))

        self._start(f"{participant} of {action.checkpoint}", work)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._pool.submit(work)

    def _prepare(self, action: TakeSnapshot, uid: VertexUid, sink: SinkCommitter) -> Acknowledged:
        self._points.reach("before-prepare", action.checkpoint)
        sink.prepare(action.staged.get(uid, ()))
        self._points.reach("after-prepare", action.checkpoint)
        return Acknowledged(checkpoint=action.checkpoint, participant=f"sink {uid}")

    def _position(self, action: TakeSnapshot) -> Acknowledged:
        def put(what: str, data: bytes) -> StateHandle:
            name = f"{self._source}-{what}-{uuid.uuid4().hex}"
            path, where = self._place(action, name)
            with self._uploading(action, where):
                self._store.create(where, data)
            self._meter.uploaded(action.checkpoint, len(data))
            return StateHandle(name, path, len(data), wire.sha256(data))

        position = dict(action.cut.positions[self._source])
        state = self._book.save(position, put, self_contained=action.name is not None)
        return Acknowledged(
            checkpoint=action.checkpoint, participant=f"source {self._source}", sources={self._source: state}
        )

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

    def _upload(self, action: TakeSnapshot, name: str, local: Path) -> StateHandle:
        path, where = self._place(action, f"{name}.c{action.checkpoint}g{self._generation}")
        checksum = file_sha256(local)
        self._points.reach("before-upload", action.checkpoint)
        with self._uploading(action, where):
            length = self._store.upload(local, where)
        self._meter.uploaded(action.checkpoint, length)
        self._points.reach("after-upload", action.checkpoint)
        return StateHandle(name, path, length, checksum)

    def _place(self, action: TakeSnapshot, name: str) -> tuple[str, str]:
        """Where a file goes: as the handle says it, and from the root."""
        if action.name is None:
            where = self._paths.shared_file(name)
            return where, where
        folder = self._paths.savepoint(action.name, action.checkpoint, self._generation)
        return f"state/{name}", f"{folder}/state/{name}"

    @contextmanager
    def _uploading(self, action: TakeSnapshot, path: str) -> Iterator[None]:
        """`path` is of this attempt alone: should that end meanwhile, no file is left, and CheckpointFailed raised."""
        with self._lock:
            if action.checkpoint in self._uploaded:
                self._uploaded[action.checkpoint].append(path)
        try:
            yield
        finally:
            with self._lock:
                over = action.checkpoint not in self._uploaded
            if over:
                self._delete(path)
        if over:
            raise CheckpointFailed(f"checkpoint {action.checkpoint} was given up meanwhile")

    def _delete(self, path: str) -> None:
        try:
            self._store.delete(path)
        except StorageError as error:
            log.warning("%s is needed no more and could not be deleted: %s", path, error)
