"""The driver's half of the file sink: publishes groups, takes them back, and cleans up after dead drivers.

What is decided is decided by exclusive creates alone: a group's files by its manifest, what counts by the log of lives.
Moving files only follows, and may be broken off and repeated anywhere, by anybody, at any later time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from headgate.sink.base import BeginReport, Group, SinkCommitter, not_made_by, staged_names
from headgate.sink.files_layout import PUBLISHED, Manifest, SinkFile, SinkLayout, file_of
from headgate.sink.files_lives import Life, Lives, fenced, foreign, next_life
from headgate_contract import wire
from headgate_contract.errors import CorruptObject, ObjectMissing, SinkFailed
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.store import ObjectStore

T = TypeVar("T")
R = TypeVar("R")
Handles = Sequence[Mapping[str, Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a listing found of this sink, and where."""

    lengths: Mapping[str, int]
    manifests: frozenset[CheckpointId]
    placed: frozenset[tuple[CheckpointId, int]]
    """Groups of which a visible or retracted file exists, by name; perhaps another sink's."""
    staged: Mapping[str, int]
    """Staged files, and the generation that each is of."""


@dataclass(slots=True)
class _Plan:
    """What a life has to bring about, found out before it begins."""

    claim: list[Manifest] = field(default_factory=list)
    hide: list[Manifest] = field(default_factory=list)
    show: list[Manifest] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    committed: set[CheckpointId] = field(default_factory=set)
    retracted: set[CheckpointId] = field(default_factory=set)
    reinstated: set[CheckpointId] = field(default_factory=set)

    def add(self, later: _Plan) -> None:
        self.committed |= later.committed
        self.retracted |= later.retracted
        self.reinstated |= later.reinstated


class FilesCommitter(SinkCommitter):
    """Publishes to `store`, the sink's target."""

    def __init__(
        self,
        store: ObjectStore,
        stream: StreamName,
        sink: VertexUid,
        generation: Generation,
        history: str,
        *,
        threads: int = 1,
    ) -> None:
        self._store = store
        self._layout = SinkLayout(stream, sink)
        self._generation = generation
        self._lives = Lives(store, self._layout, generation, history)
        self._threads = threads

    def begin(
        self,
        lineage: frozenset[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        groups = {id: self._manifest(id, handles) for id, handles in (*abandoned, *carried) if handles}
        wanted = {id for id, handles in carried if handles and id in lineage}
        named = staged_names(handle for _, handles in (*abandoned, *carried) for handle in handles)
        kept = None if protected is None else protected | named
        done = _Plan()
        deleted = 0
        while True:
            plan = self._begin(lineage, groups, wanted, kept)
            done.add(plan)
            outcomes = self._each(self._store.delete, plan.delete)
            deleted += sum(outcomes)
            if all(outcomes):
                break  # else somebody moved a file between the look and the deletion: it may be visible now
        return BeginReport(
            committed=tuple(sorted(done.committed)),
            retracted=tuple(sorted(done.retracted)),
            reinstated=tuple(sorted(done.reinstated)),
            deleted=deleted,
        )

    def prepare(self, handles: Handles) -> None:
        with self._fenced_before_failed():
            self._each(self._make_durable, [self._file(handle) for handle in handles])

    def commit(self, group: CheckpointId, handles: Handles) -> None:
        if not handles:
            return
        manifest = self._manifest(group, handles)
        life = self._lives.newest()
        self._refuse_hidden(life, manifest)
        self._claim(manifest)
        self._refuse_hidden(self._settle(manifest, life), manifest)

    def discard(self, handles: Handles) -> None:
        self._each(self._store.delete, [self._file(handle).staged for handle in handles])

    # ------------------------------------------------------------------ the start of a life

    def _begin(
        self,
        lineage: frozenset[CheckpointId],
        groups: Mapping[CheckpointId, Manifest],
        wanted: set[CheckpointId],
        kept: frozenset[str] | None,
    ) -> _Plan:
        """Decide what counts, and bring it about; what was done, and what is left to delete."""
        plan = _Plan()

        def decide(last: Life) -> Life:
            nonlocal plan
            seen = self._look()
            known = max([*lineage, *groups, *seen.manifests], default=0)
            life = next_life(last, self._generation, lineage, known)
            with self._fenced_before_failed():
                self._refuse_unknown_history(last, lineage, seen)
                plan = self._plan(last, life, seen, groups, wanted)
            plan.delete = [
                path
                for path, generation in seen.staged.items()
                if kept is not None and path not in kept and generation <= self._generation
            ]
            return life

        life = self._lives.begin(decide)
        for manifest in plan.claim:
            self._claim(manifest)
        for manifest in (*plan.hide, *plan.show):
            newest = self._settle(manifest, life)
            if newest.generation > self._generation:
                raise fenced(self._layout, newest, self._generation, "has begun")
        return plan

    def _look(self) -> _Seen:
        """List hidden files before visible ones: what somebody publishes meanwhile is then seen at least once."""
        hidden = self._store.list(self._layout.folder)
        visible = [info for info in self._store.list("") if "/" not in info.path]
        found = {info.path: info.length for info in (*hidden, *visible)}
        manifests = (self._layout.manifest_of(path) for path in found)
        placed = (self._layout.place_of(path) for path in found)
        staged = {path: self._layout.staged_by(path) for path in found}
        return _Seen(
            lengths=found,
            manifests=frozenset(group for group in manifests if group is not None),
            placed=frozenset(at for at in placed if at is not None),
            staged={path: generation for path, generation in staged.items() if generation is not None},
        )

    def _plan(
        self, last: Life, life: Life, seen: _Seen, groups: Mapping[CheckpointId, Manifest], wanted: set[CheckpointId]
    ) -> _Plan:
        plan = _Plan()
        moved = {id for id in seen.manifests if last.place(id) != life.place(id)}
        doubtful = {id for id, place in seen.placed if id in seen.manifests and place != life.place(id)}
        for id in sorted({*groups, *moved, *doubtful}):
            stored = self._stored(id) if id in seen.manifests else None
            given = groups.get(id)
            if stored is not None and given is not None:
                self._compare(stored, given)
            manifest = stored or given
            assert manifest is not None, "every id comes from a manifest or from handles"
            place = life.place(id)
            changed = stored is None or id in moved or self._is_astray(manifest, place, seen)
            if place % 2 == 0:
                plan.hide.append(manifest)
                plan.retracted |= {id} if changed else set()
            elif id in wanted or (changed and stored is not None):
                self._check_present(manifest, place, seen)
                plan.show.append(manifest)
                plan.committed |= {id} if id in wanted else set()
                plan.reinstated |= {id} if changed and place > PUBLISHED else set()
            else:
                continue  # it belongs to the lineage and was noted as committed: published long ago
            plan.claim += [manifest] if stored is None else []
        return plan

    def _is_astray(self, manifest: Manifest, place: int, seen: _Seen) -> bool:
        """Whether a visible or retracted file of the group lies elsewhere than at its `place`."""
        others = {at for id, at in seen.placed if id == manifest.group and at != place}
        return any(
            self._layout.place(manifest.group, file, at) in seen.lengths for at in others for file in manifest.files
        )

    def _refuse_unknown_history(self, last: Life, lineage: frozenset[CheckpointId], seen: _Seen) -> None:
        """A folder that does not say whose it is may be taken over only by a life that stands on groups in it."""
        if not last.history and seen.manifests and not lineage & seen.manifests:
            raise self._foreign(self._stored(max(seen.manifests)))

    def _check_present(self, manifest: Manifest, place: int, seen: _Seen) -> None:
        """Raise SinkFailed, before anything is changed, if a file that has to become visible is gone or torn."""
        if place == PUBLISHED and self._layout.published(manifest.group) in seen.lengths:
            return
        for file in manifest.files:
            names = [self._layout.place(manifest.group, file, at) for at in range(place + 1)]
            lengths = [seen.lengths[name] for name in names if name in seen.lengths]
            if not lengths:
                lengths = [info.length for info in map(self._store.stat, names) if info is not None]
            if not lengths:
                raise self._missing(manifest, [file])
            if file.bytes not in lengths:
                raise SinkFailed(
                    f"file {file.staged} of group {manifest.group} on {self._store.url} has {lengths[0]} bytes, "
                    f"{file.bytes} were staged",
                    hint=self._way_out(manifest.group),
                )

    # ------------------------------------------------------------------ one group

    def _is_late(self, life: Life, manifest: Manifest) -> bool:
        """Whether a frozen driver publishes a group that nobody had told `life` of."""
        return manifest.group > life.known and manifest.generation < life.generation

    def _refuse_hidden(self, life: Life, manifest: Manifest) -> None:
        """Raise Fenced if the group does not count: it was gone back behind, or came too late to be known."""
        if self._is_late(life, manifest) or life.place(manifest.group) % 2 == 0:
            raise fenced(self._layout, life, self._generation, f"has gone back behind group {manifest.group}")

    def _settle(self, manifest: Manifest, life: Life) -> Life:
        """Move the group's files to where they belong, until no newer life has begun meanwhile; the newest life."""
        published = self._layout.published(manifest.group)
        while True:
            place = life.place(manifest.group)
            if place == PUBLISHED and self._store.stat(published) is not None:
                return self._lives.newest()
            found = self._each(partial(self._move, manifest.group, place), manifest.files)
            newest = self._lives.newest()
            if newest == life:
                break
            life = newest
            if self._is_late(life, manifest):
                self._each(partial(self._move, manifest.group, PUBLISHED + 1), manifest.files)
                self._refuse_hidden(life, manifest)
        missing = [file for file, there in zip(manifest.files, found, strict=True) if not there]
        if missing and place % 2 == 1:
            raise self._missing(manifest, missing)
        for file in missing:
            _log.warning("%s of group %s was gone when it was to be retracted", file.staged, manifest.group)
        if place == PUBLISHED:
            self._store.create(published, f"{uuid.uuid4().hex}\n".encode())
        return life

    def _move(self, group: CheckpointId, place: int, file: SinkFile) -> bool:
        """Move `file` to its `place` from whichever earlier one it is at, lowest first; False if it is nowhere there.

        A store without a rename leaves a file at two places when it is broken off between copy and delete: therefore
        all earlier places are tried, not only up to the first hit.
        """
        target = self._layout.place(group, file, place)
        there = False
        for earlier in range(place):
            try:
                self._store.move(self._layout.place(group, file, earlier), target)
            except ObjectMissing:
                continue  # it is not at this place and not yet at the target: it may be at the next
            there = True
        return there or self._store.stat(target) is not None

    def _claim(self, manifest: Manifest) -> None:
        """Create the manifest, or find that the very same is there."""
        data = wire.encode("manifest", replace(manifest, writer=uuid.uuid4().hex))
        if not self._store.create(self._layout.manifest(manifest.group), data):
            self._compare(self._stored(manifest.group), manifest)

    def _compare(self, stored: Manifest, given: Manifest) -> None:
        if stored.files != given.files:
            raise self._foreign(stored)

    def _stored(self, group: CheckpointId) -> Manifest:
        path = self._layout.manifest(group)
        manifest: Manifest = wire.decode("manifest", self._store.read(path), Manifest, f"{self._store.url}/{path}")
        return manifest

    def _manifest(self, group: CheckpointId, handles: Handles) -> Manifest:
        files = {file.staged: file for file in map(self._file, handles)}
        names = {self._layout.place(group, file, PUBLISHED) for file in files.values()}
        if len(names) < len(files):
            raise SinkFailed(
                f"two files of group {group} of sink {self._layout.sink} would get the same name",
                hint=self._way_out(group),
            )
        generation = max(file.generation for file in files.values())
        return Manifest(group, generation, tuple(files[name] for name in sorted(files)))

    def _file(self, handle: Mapping[str, Any]) -> SinkFile:
        try:
            return file_of(handle)
        except CorruptObject as error:
            raise not_made_by(self._layout.sink) from error

    def _make_durable(self, file: SinkFile) -> None:
        found = self._store.stat(file.staged)
        if found is None or found.length != file.bytes:
            raise SinkFailed(
                f"the staged file {file.staged} on {self._store.url} "
                + ("is gone" if found is None else f"has {found.length} bytes, {file.bytes} were written"),
                hint="the driver and the tasks must see the same target; did something else clean up below it?",
            )
        self._store.sync(file.staged)

    def _each(self, action: Callable[[T], R], items: Iterable[T]) -> list[R]:
        todo = list(items)
        if self._threads == 1 or len(todo) < 2:
            return [action(item) for item in todo]
        with ThreadPoolExecutor(min(self._threads, len(todo)), thread_name_prefix="headgate-sink") as pool:
            return list(pool.map(action, todo))

    # ------------------------------------------------------------------ errors

    @contextmanager
    def _fenced_before_failed(self) -> Iterator[None]:
        """What a successor cleaned away looks like a loss to a frozen driver that wakes: it is told the truth."""
        try:
            yield
        except SinkFailed:
            self._lives.check_newest()
            raise

    def _missing(self, manifest: Manifest, files: Sequence[SinkFile]) -> SinkFailed:
        visible = self._layout.place(manifest.group, files[0], PUBLISHED)
        return SinkFailed(
            f"sink {self._layout.sink} of stream {self._layout.stream} cannot publish group {manifest.group}: "
            f"{len(files)} of its {len(manifest.files)} files {'is' if len(files) == 1 else 'are'} missing on "
            f"{self._store.url} (first: {files[0].staged}, to be {visible}, {files[0].rows} rows)",
            hint=self._way_out(manifest.group),
        )

    def _foreign(self, stored: Manifest) -> SinkFailed:
        name = self._layout.manifest(stored.group)
        what = f"{name} holds other files than group {stored.group} of this stream has: it was written by"
        return foreign(self._store, self._layout, what, stored.generation)

    def _way_out(self, group: CheckpointId) -> str:
        return (
            f"bring it back (did the sink's path change?), or restore a snapshot older than {group}, whose records are "
            f"then replayed: `headgate snapshots {self._layout.stream}` lists them"
        )
