"""When the retained snapshots were taken, how large they are, and which files they share.

A damaged file takes all of those that have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headgate_contract.errors import CorruptObject, ObjectMissing
from headgate_contract.ids import CheckpointId
from headgate_contract.paths import METADATA
from headgate_contract.snapshot import SnapshotMetadata, SnapshotRef, decode_metadata
from headgate_contract.store import ObjectStore

_Place = tuple[str | None, str]
"""The URL of the folder that it is in, None for the storage root, and its path there."""
_MOST_NAMED = 5
_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """The files of one snapshot, besides its metadata, and who has them too."""

    files: int
    shared: int
    """How many of them some other retained snapshot has, too."""
    alone: int
    """How many nobody else has."""
    shared_with: tuple[CheckpointId, ...]
    """The snapshots that have some of them, newest first."""
    created_ms: int
    """When it was taken, by its driver's clock."""
    bytes: int
    """Of all of its files, shared ones too, and of its metadata."""

    @property
    def told(self) -> str:
        """For people: `shares 5 of 6 files with 12, 11`."""
        if not self.files:
            return "has no files"
        number = f"{self.files} file{'' if self.files == 1 else 's'}"
        if not self.shared:
            return f"has {number} of its own"
        named = ", ".join(map(str, self.shared_with[:_MOST_NAMED]))
        more = len(self.shared_with) - _MOST_NAMED
        return f"shares {self.shared} of {number} with {named}{f' and {more} more' if more > 0 else ''}"


def sharing(store: ObjectStore, refs: Iterable[SnapshotRef]) -> dict[CheckpointId, Sharing]:
    """Of each snapshot whose metadata can be read. What a snapshot elsewhere has, it has alone."""
    listed = list(refs)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        read = zip(listed, pool.map(lambda ref: _metadata(store, ref), listed), strict=True)
        known = {ref.id: (ref, metadata) for ref, metadata in read if metadata is not None}
    files = {id: _files(ref, metadata) for id, (ref, metadata) in known.items()}
    return {id: _of(*known[id], files) for id in files}


def _metadata(store: ObjectStore, ref: SnapshotRef) -> SnapshotMetadata | None:
    """Its metadata, or None if that cannot be read."""
    path = f"{ref.folder}/{METADATA}"
    try:
        return decode_metadata(ref.store(store).read(path), ref, path)
    except (CorruptObject, ObjectMissing):
        return None


def _files(ref: SnapshotRef, metadata: SnapshotMetadata) -> Mapping[_Place, int]:
    """Where they are, and how long each is."""
    return {(ref.location, ref.path(handle)): handle.length for handle in metadata.handles()}


def _of(ref: SnapshotRef, metadata: SnapshotMetadata, files: Mapping[CheckpointId, Mapping[_Place, int]]) -> Sharing:
    own = files[ref.id]
    others = [other for other in sorted(files, reverse=True) if other != ref.id and own.keys() & files[other].keys()]
    shared = len(own.keys() & {place for other in others for place in files[other]})
    return Sharing(
        files=len(own),
        shared=shared,
        alone=len(own) - shared,
        shared_with=tuple(others),
        created_ms=metadata.created_ms,
        bytes=sum(own.values()) + ref.metadata_length,
    )
