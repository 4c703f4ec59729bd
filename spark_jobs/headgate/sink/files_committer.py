"""The driver's half of the file sink: publishes groups, takes them back, and cleans up after dead drivers.

What is decided is decided by exclusive creates alone: a group's files by its manifest, what counts by the log of lives.
Moving files only follows, and may be broken off and repeated anywhere, by anybody, at any later time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.sink.base import BeginReport, Group, SinkCommitter, SinkHoldings, not_made_by, staged_names
from headgate.sink.files_errors import damaged, fenced, foreign, lost, missing, phantom, way_out
from headgate.sink.files_groups import Groups, Seen
from headgate.sink.files_holdings import holdings, take_over
from headgate.sink.files_joining import FilesJoiner
from headgate.sink.files_layout import PUBLISHED, Manifest, SinkFile, SinkLayout, file_of, handle_of
from headgate.sink.files_lives import UNBORN, Life, Lives, next_life
from headgate.sink.files_survey import moved_on, untold
from headgate_contract.anchored import AnchoredStore
from headgate_contract.errors import CorruptObject, ObjectMissing, SinkFailed
from headgate_contract.id_ranges import ranges_of
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.store import ObjectStore

Handles = Sequence[Mapping[str, Any]]

_log = logging.getLogger(__name__)


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
        compression: str = "snappy",
    ) -> None:
        self._store = store
        """From the beginning of a life on it is believed only while the record of that life is there, or what it
        published last."""
        self._anchored: AnchoredStore | None = None
        self._layout = SinkLayout(stream, sink)
        self._generation = generation
        self._lives = Lives(store, self._layout, generation, history)
        self._groups = Groups(store, self._layout, threads)
        self._compression = compression
        self._joiner = FilesJoiner(store, compression, threads)

    def expect(self, published: CheckpointId | None = None) -> None:
        if not self._lives.has_begun() and not self._store.list(self._layout.manifests):
            raise SinkFailed(
                f"the target {self._store.url} of sink {self._layout.sink} has no record of stream "
                f"{self._layout.stream}, which has written there before",
                hint="is its storage mounted, and is it the same? If the output was removed on purpose, give the sink "
                f"another path, or `headgate start {self._layout.stream} --fresh`",
            )
        if published is not None and self._store.stat(self._layout.manifest(published)) is None:
            raise lost(self._store, self._layout, published)

    def begin(
        self,
        lineage: Set[CheckpointId],
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
            outcomes = self._groups.each(self._store.delete, plan.delete)
            deleted += sum(outcomes)
            if all(outcomes):
                break  # else somebody moved a file between the look and the deletion: it may be visible now
        return BeginReport(
            committed=tuple(sorted(done.committed)),
            retracted=tuple(sorted(done.retracted)),
            reinstated=tuple(sorted(done.reinstated)),
            deleted=deleted,
        )

    def prepare(self, handles: Handles, *, joinable: bool = False) -> Handles:
        files = [self._file(handle) for handle in handles]
        with self._fenced_before_failed():
            self._groups.each(self._check_staged, files)
            prepared = self._joiner.join(files) if joinable else files
            self._groups.each(self._make_durable, [file.staged for file in prepared])
        return handles if prepared == files else [handle_of(file, self._store.url) for file in prepared]

    def commit(self, group: CheckpointId, handles: Handles) -> None:
        if not handles:
            return
        manifest = self._manifest(group, handles)
        life = self._lives.newest()
        self._refuse_hidden(life, manifest)
        self._anchor(group, self._claim(manifest))
        self._joiner.complete(manifest.files)
        self._refuse_hidden(self._settle(manifest, life), manifest)
        self._joiner.committed(manifest.files)

    def _anchor(self, group: CheckpointId, manifest: bytes) -> None:
        """Believe the target, from now on, only while this group is there: an older copy put in its place lacks it."""
        if self._anchored is not None:
            path = self._layout.manifest(group)
            self._anchored.move_anchor(path, self._lives.judge_of(path, manifest))

    def discard(self, handles: Handles) -> None:
        self._groups.each(self._store.delete, [self._file(handle).staged for handle in handles])

    def holdings(self, *, whole: bool = False) -> SinkHoldings | None:
        return holdings(self._groups, self._lives, whole=whole)

    def take_over(self, groups: Sequence[Group], shown: Set[CheckpointId] = frozenset()) -> tuple[CheckpointId, ...]:
        given = [self._manifest(id, handles) for id, handles in groups]
        return take_over(self._groups, self._lives, self._generation, given, shown)

    # ------------------------------------------------------------------ the start of a life

    def _begin(
        self,
        lineage: Set[CheckpointId],
        groups: Mapping[CheckpointId, Manifest],
        wanted: set[CheckpointId],
        kept: frozenset[str] | None,
    ) -> _Plan:
        """Decide what counts, and bring it about; what was done, and what is left to delete."""
        plan = _Plan()

        def decide(last: Life) -> Life:
            nonlocal plan
            seen = self._groups.look()
            if seen.unrecorded - groups.keys():
                seen = self._groups.look()  # a frozen driver may have published one while this listed it
            known = max([ranges_of(lineage).highest, *groups, *seen.manifests])
            life = next_life(last, self._generation, lineage, known)
            with self._fenced_before_failed():
                self._refuse_unknown_history(last, lineage, seen)
                self._refuse_broken(last, seen, groups)
                plan = self._plan(last, life, seen, groups, wanted)
            plan.delete = [
                path
                for path, generation in seen.staged.items()
                if kept is not None and path not in kept and generation <= self._generation
            ]
            return life

        life = self._lives.begin(decide)
        self._store = self._anchored = self._lives.anchored()
        self._groups = replace(self._groups, store=self._store)
        self._joiner = FilesJoiner(self._store, self._compression, self._groups.threads)
        self._store.make_folder(self._layout.staged)
        for manifest in plan.claim:
            self._claim(manifest)
        for manifest in (*plan.hide, *plan.show):
            newest = self._settle(manifest, life)
            if newest.generation > self._generation:
                raise fenced(self._layout, newest.generation, self._generation, "has begun")
        return plan

    def _plan(
        self, last: Life, life: Life, seen: Seen, groups: Mapping[CheckpointId, Manifest], wanted: set[CheckpointId]
    ) -> _Plan:
        plan = _Plan()
        moved = {id for id in seen.manifests if last.place(id) != life.place(id)}
        doubtful = {id for id, place in seen.placed if id in seen.manifests and place != life.place(id)}
        for id in sorted({*groups, *moved, *doubtful}):
            stored = self._groups.stored(id) if id in seen.manifests else None
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

    def _is_astray(self, manifest: Manifest, place: int, seen: Seen) -> bool:
        """Whether a visible or retracted file of the group lies elsewhere than at its `place`."""
        others = {at for id, at in seen.placed if id == manifest.group and at != place}
        return any(
            self._layout.place(manifest.group, file, at) in seen.lengths for at in others for file in manifest.files
        )

    def _refuse_unknown_history(self, last: Life, lineage: Set[CheckpointId], seen: Seen) -> None:
        """A folder that does not say whose it is may be taken over only by a life that stands on groups in it."""
        if not last.history and seen.manifests and not lineage & seen.manifests:
            raise self._foreign(self._groups.stored(max(seen.manifests)))

    def _refuse_broken(self, last: Life, seen: Seen, groups: Mapping[CheckpointId, Manifest]) -> None:
        """Raise SinkDamaged, before anything is changed, if a record is gone and output might be shown twice."""
        if last is UNBORN and seen.manifests:
            raise damaged(self._layout, f"there is no record in {self._store.url}/{self._layout.lives}")
        gone = sorted(seen.unrecorded - groups.keys())
        if gone:
            more = f", and those of {len(gone) - 1} other groups" if len(gone) > 1 else ""
            raise damaged(self._layout, f"{self._store.url}/{self._layout.manifest(gone[0])} is gone{more}")
        farther = {id for id, place in seen.placed if id in seen.manifests and last.place(id) < place}
        stored = {id: self._groups.stored(id) for id in farther}
        why = untold(last, moved_on(self._groups, seen, last, stored))
        if why:
            raise damaged(self._layout, why)

    def _check_present(self, manifest: Manifest, place: int, seen: Seen) -> None:
        """Raise SinkFailed, before anything is changed, if a file that has to become visible is gone or torn."""
        if place == PUBLISHED and self._layout.published(manifest.group) in seen.lengths:
            return
        for file in manifest.files:
            names = [self._layout.place(manifest.group, file, at) for at in range(place + 1)]
            lengths = [seen.lengths[name] for name in names if name in seen.lengths]
            if not lengths:
                lengths = [info.length for info in map(self._store.stat, names) if info is not None]
            if not lengths:
                raise missing(self._store, self._layout, manifest, [file])
            if file.bytes not in lengths:
                raise SinkFailed(
                    f"file {file.staged} of group {manifest.group} on {self._store.url} has {lengths[0]} bytes, "
                    f"{file.bytes} were staged",
                    hint=way_out(self._layout, manifest.group),
                )

    # ------------------------------------------------------------------ one group

    def _refuse_hidden(self, life: Life, manifest: Manifest) -> None:
        """Raise Fenced if the group does not count."""
        if life.hides(manifest):
            raise fenced(
                self._layout, life.generation, self._generation, f"has gone back behind group {manifest.group}"
            )

    def _settle(self, manifest: Manifest, life: Life) -> Life:
        """Move the group's files to where they belong, until no newer life has begun meanwhile; the newest life."""
        published = self._layout.published(manifest.group)
        while True:
            place = life.place(manifest.group)
            if place == PUBLISHED and self._store.stat(published) is not None:
                return self._lives.newest()
            found = self._groups.move(manifest, place)
            newest = self._lives.newest()
            if newest == life:
                break
            life = newest
            if life.is_late(manifest):
                self._groups.move(manifest, PUBLISHED + 1)
                self._refuse_hidden(life, manifest)
        gone = [file for file, there in zip(manifest.files, found, strict=True) if not there]
        if gone and place % 2 == 1:
            raise missing(self._store, self._layout, manifest, gone)
        for file in gone:
            _log.warning("%s of group %s was gone when it was to be retracted", file.staged, manifest.group)
        if place == PUBLISHED:
            self._store.create(published, f"{uuid.uuid4().hex}\n".encode())
        return life

    def _claim(self, manifest: Manifest) -> bytes:
        """Create the manifest, or find that the very same is there; its bytes."""
        data = self._groups.claim(manifest)
        if data is None:
            self._compare(self._groups.stored(manifest.group), manifest)
        return data or self._store.read(self._layout.manifest(manifest.group))

    def _compare(self, stored: Manifest, given: Manifest) -> None:
        if not self._groups.same(stored, given):
            raise self._foreign(stored)

    def _manifest(self, group: CheckpointId, handles: Handles) -> Manifest:
        files = {file.staged: file for file in map(self._file, handles)}
        names = {self._layout.place(group, file, PUBLISHED) for file in files.values()}
        if len(names) < len(files):
            raise SinkFailed(
                f"two files of group {group} of sink {self._layout.sink} would get the same name",
                hint=way_out(self._layout, group),
            )
        generation = max((file.generation for file in files.values()), default=self._generation)
        return Manifest(group, generation, tuple(files[name] for name in sorted(files)))

    def _file(self, handle: Mapping[str, Any]) -> SinkFile:
        try:
            return file_of(handle)
        except CorruptObject as error:
            raise not_made_by(self._layout.sink) from error

    def _check_staged(self, file: SinkFile) -> None:
        found = self._store.stat(file.staged)
        if found is None and self._joiner.is_complete(file.staged):
            return  # an earlier snapshot has completed with it since this one's barrier
        if found is None or found.length != file.bytes:
            raise SinkFailed(
                f"the staged file {file.staged} on {self._store.url} "
                + ("is gone" if found is None else f"has {found.length} bytes, {file.bytes} were written"),
                hint="the driver and the tasks must see the same target; did something else clean up below it?",
            )

    def _make_durable(self, staged: str) -> None:
        try:
            self._store.sync(staged)
        except ObjectMissing:
            if not self._joiner.is_complete(staged):
                raise

    # ------------------------------------------------------------------ errors

    @contextmanager
    def _fenced_before_failed(self) -> Iterator[None]:
        """What a successor cleaned away looks like a loss to a frozen driver that wakes: it is told the truth."""
        try:
            yield
        except SinkFailed:
            self._lives.check_newest()
            raise

    def _foreign(self, stored: Manifest) -> SinkFailed:
        name = self._layout.manifest(stored.group)
        what = f"{name} holds other files than group {stored.group} of this stream has: it was written by"
        say = phantom if self._lives.newest().history else foreign
        return say(self._store, self._layout, what, stored.generation)
