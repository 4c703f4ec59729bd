"""What lies below a file sink's target: its groups' manifests and files, listed, read and moved."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from headgate.sink.files_each import each
from headgate.sink.files_errors import damaged
from headgate.sink.files_layout import PUBLISHED, Manifest, SinkFile, SinkLayout
from headgate_contract import wire
from headgate_contract.errors import CorruptObject, NewerVersion, ObjectMissing, OlderVersion
from headgate_contract.ids import CheckpointId
from headgate_contract.store import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a listing found of this sink, and where."""

    lengths: Mapping[str, int]
    manifests: frozenset[CheckpointId]
    placed: frozenset[tuple[CheckpointId, int]]
    """Groups of which a visible or retracted file exists, by name; perhaps another sink's."""
    staged: Mapping[str, int]
    """Staged files, and the generation that each is of."""
    published: frozenset[CheckpointId]
    """Groups of which all files have been where readers look."""

    @property
    def unrecorded(self) -> set[CheckpointId]:
        """Groups of this sink of which the manifest is gone: it is there before anything else of a group is."""
        own = {group for group, place in self.placed if place % 2 == 0}
        return (own | self.published) - self.manifests


@dataclass(frozen=True)
class Groups:
    """The groups of one sink, on `store`."""

    store: ObjectStore
    layout: SinkLayout
    threads: int = 1

    def each(self, action: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return each(action, items, self.threads)

    def look(self) -> Seen:
        """List hidden files before visible ones: what somebody publishes meanwhile is then seen at least once."""
        hidden = self.store.list(self.layout.folder)
        visible = [info for info in self.store.list("") if "/" not in info.path]
        found = {info.path: info.length for info in (*hidden, *visible)}
        manifests = (self.layout.manifest_of(path) for path in found)
        placed = (self.layout.place_of(path) for path in found)
        staged = {path: self.layout.staged_by(path) for path in found}
        published = (self.layout.published_of(path) for path in found)
        return Seen(
            lengths=found,
            manifests=frozenset(group for group in manifests if group is not None),
            placed=frozenset(at for at in placed if at is not None),
            staged={path: generation for path, generation in staged.items() if generation is not None},
            published=frozenset(group for group in published if group is not None),
        )

    def stored(self, group: CheckpointId) -> Manifest:
        """The manifest of `group`. Raises SinkDamaged if it cannot be read, or is gone."""
        path = self.layout.manifest(group)
        try:
            return self.decoded(group, self.store.read(path))
        except (NewerVersion, OlderVersion):
            raise
        except ObjectMissing:
            raise damaged(self.layout, f"{self.store.url}/{path} is gone") from None
        except CorruptObject as error:
            raise damaged(self.layout, error.what) from error

    def decoded(self, group: CheckpointId, data: bytes) -> Manifest:
        """The manifest of `group` in these bytes. Raises CorruptObject."""
        path = self.layout.manifest(group)
        manifest: Manifest = wire.decode("manifest", data, Manifest, f"{self.store.url}/{path}", path)
        return manifest

    def same(self, one: Manifest, other: Manifest) -> bool:
        """Whether both name the same files: each has a name of its own where readers look."""
        return self.names(one) == self.names(other)

    def names(self, manifest: Manifest) -> set[str]:
        return {self.layout.place(manifest.group, file, PUBLISHED) for file in manifest.files}

    def claim(self, manifest: Manifest) -> bytes | None:
        """Create the manifest of its group: its bytes; None if there is one."""
        data = self._encoded(manifest)
        return data if self.store.create(self.layout.manifest(manifest.group), data) else None

    def replace(self, manifest: Manifest) -> None:
        """Let the group consist of what `manifest` says, whatever was said before."""
        self.store.replace(self.layout.manifest(manifest.group), self._encoded(manifest))

    def move(self, manifest: Manifest, place: int) -> list[bool]:
        """Move the group's files to `place`; of each whether it is there then."""
        return self.each(partial(self._move, manifest.group, place), manifest.files)

    def _encoded(self, manifest: Manifest) -> bytes:
        path = self.layout.manifest(manifest.group)
        return wire.encode("manifest", replace(manifest, writer=uuid.uuid4().hex), path)

    def _move(self, group: CheckpointId, place: int, file: SinkFile) -> bool:
        """Move `file` to its `place` from whichever earlier one it is at, lowest first; False if it is nowhere there.

        A store without a rename leaves a file at two places when it is broken off between copy and delete: therefore
        all earlier places are tried, not only up to the first hit.
        """
        target = self.layout.place(group, file, place)
        there = False
        for earlier in range(place):
            try:
                self.store.move(self.layout.place(group, file, earlier), target)
            except ObjectMissing:
                continue  # it is not at this place and not yet at the target: it may be at the next
            there = True
        return there or self.store.stat(target) is not None
