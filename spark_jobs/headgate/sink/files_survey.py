"""Looks at a file sink's own records, one by one: what is damaged or gone, and what is known all the same.

A record's own bytes are proven by its checksum. What a group consists of is told by the log's snapshots, or by its
files, whose names say which group they are of. Which groups count is told by where their files are: a file only ever
moves on, and only when a life's record says so. A life that was recorded and had moved nothing yet might as well not
have been: the next one decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.sink.base import SinkFault
from headgate.sink.files_groups import Groups, Seen
from headgate.sink.files_layout import Manifest, SinkFile, SinkLayout, others_in
from headgate.sink.files_lives import UNBORN, Life, LifeFault, Lives, life_of
from headgate_contract import wire
from headgate_contract.errors import CorruptObject, NewerVersion, ObjectMissing, OlderVersion
from headgate_contract.ids import CheckpointId, Generation

ITS_OWN = "its own bytes, which the checksum proves"
_OF_ITS_FILES = "made again, from the log's snapshots if they tell of the group, else from the names of its files"
_OF_NOTHING = "made again from the log's snapshots, if they tell of the group; else given up: no file of it is here"
_OF_PLACES = "made again, from where the groups' files are"


@dataclass(frozen=True, slots=True)
class Broken:
    """A group whose manifest cannot be read, or is gone."""

    why: str
    found: Manifest
    """What the names of its files tell; or what its own bytes say."""
    data: bytes | None
    """What lies there."""
    own: bytes | None
    """Its own bytes, if its checksum proves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What there is."""

    seen: Seen
    manifests: Mapping[CheckpointId, Manifest]
    """Those that were read, and what is known of the broken ones."""
    broken: Mapping[CheckpointId, Broken]
    life: Life
    """The newest that can be read."""
    life_fault: LifeFault | None
    places: Mapping[CheckpointId, int] = field(default_factory=dict)
    """Of the groups whose files are farther on than that life has moved them: where they are."""

    @property
    def life_is_lost(self) -> str:
        """Why it is not known which groups count; empty if it is."""
        if self.life_fault is not None:
            return "" if self.life_fault.own is not None else self.life_fault.why
        if self.life is UNBORN and self.manifests:
            return "the record of its lives is gone"
        return untold(self.life, self.places)

    def newest_life(self, generation: Generation) -> Life:
        """What counts, as far as that can be known without the newest record of its lives."""
        known = max([self.life.known, *self.manifests])
        places = {id: max(self.life.place(id), self.places.get(id, 0)) for id in self.manifests}
        return life_of(generation, known, places)

    def faults(self, layout: SinkLayout) -> tuple[SinkFault, ...]:
        """All of it, for people."""
        found = []
        if self.life_fault is not None or self.life_is_lost:
            fault = self.life_fault
            path, why = (fault.path, fault.why) if fault is not None else (layout.lives, self.life_is_lost)
            becomes = _OF_PLACES if self.life_is_lost else ITS_OWN
            found.append(SinkFault(path=path, why=why.removeprefix(f"{path} is "), becomes=becomes))
        for id, broken in sorted(self.broken.items()):
            becomes = ITS_OWN if broken.own is not None else _OF_ITS_FILES if broken.found.files else _OF_NOTHING
            path = layout.manifest(id)
            found.append(SinkFault(path=path, why=broken.why.removeprefix(f"{path} is "), becomes=becomes))
        return tuple(found)


def survey(groups: Groups, lives: Lives, most: int | None = None) -> Survey:
    """Read every record, or those of so many of the newest groups. Changes nothing."""
    seen = groups.look()
    ids = sorted(seen.manifests | seen.unrecorded)[-(most or 0) :]
    read = dict(zip(ids, groups.each(lambda id: _read(groups, id), ids), strict=True))
    torn = {id: found for id, found in read.items() if not isinstance(found, Manifest)}
    named = _named(groups, seen, [id for id, found in torn.items() if found.own is None])
    broken = {id: Broken(found.why, named.get(id, found.found), found.data, found.own) for id, found in torn.items()}
    manifests = {id: found if isinstance(found, Manifest) else broken[id].found for id, found in read.items()}
    life, fault = lives.as_far_as_readable()
    return Survey(
        seen=seen,
        manifests=manifests,
        broken=broken,
        life=life,
        life_fault=fault,
        places=moved_on(groups, seen, life, manifests),
    )


def untold(life: Life, places: Mapping[CheckpointId, int]) -> str:
    """Why there must have been a later life than `life`; empty if nothing shows it.

    A group that it does not know may have been hidden by a frozen driver, which came too late with it.
    """
    groups = [id for id in places if id <= life.known]
    if not groups:
        return ""
    return f"the newest record of its lives is gone: files of group {min(groups)} have moved on since the one before it"


def moved_on(
    groups: Groups, seen: Seen, life: Life, manifests: Mapping[CheckpointId, Manifest]
) -> dict[CheckpointId, int]:
    """The groups of which a file is farther on than `life` has moved it, and where."""
    found: dict[CheckpointId, int] = {}
    for id, place in sorted(seen.placed):
        if id in manifests and life.place(id) < place:
            names = (groups.layout.place(id, file, place) for file in manifests[id].files)
            if any(name in seen.lengths for name in names):
                found[id] = place
    return found


def _read(groups: Groups, id: CheckpointId) -> Manifest | Broken:
    path = groups.layout.manifest(id)
    nothing = Manifest(id, Generation(1), ())
    try:
        data = groups.store.read(path)
    except ObjectMissing:
        return Broken(f"{path} is gone", nothing, None, None)
    try:
        return groups.decoded(id, data)
    except (NewerVersion, OlderVersion):
        raise
    except CorruptObject as error:
        why, own = error.what.removeprefix(f"{groups.store.url}/"), wire.mended(data)
    try:
        return Broken(why, groups.decoded(id, own) if own is not None else nothing, data, own)
    except CorruptObject:
        return Broken(why, nothing, data, None)


def _named(groups: Groups, seen: Seen, ids: Iterable[CheckpointId]) -> dict[CheckpointId, Manifest]:
    """What the names of files tell that these groups consist of."""
    files: dict[CheckpointId, dict[str, SinkFile]] = {id: {} for id in ids}
    if not files:
        return {}
    others = others_in(groups.store.folders, groups.layout)
    for path, length in seen.lengths.items():
        found = groups.layout.file_named(path, length)
        if found is not None and found[0] in files:
            files[found[0]][found[1].unique] = found[1]
    manifests = {}
    for id, own in files.items():
        for other in others if own else ():
            for file in _of_another(groups, other, id):
                own.pop(file.unique, None)
        generation = max((file.generation for file in own.values()), default=1)
        manifests[id] = Manifest(id, Generation(generation), tuple(own[name] for name in sorted(own)))
    return manifests


def _of_another(groups: Groups, other: SinkLayout, id: CheckpointId) -> tuple[SinkFile, ...]:
    """The files of the group of that id of another sink in the same target: their names look alike."""
    found = _read(Groups(groups.store, other), id)
    return found.files if isinstance(found, Manifest) else found.found.files
