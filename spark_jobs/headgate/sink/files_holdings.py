"""What a file sink holds, whoever published it, and how it is made this log's again, and whole, behind a repair."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence, Set
from dataclasses import replace

from headgate.sink.base import SinkHoldings
from headgate.sink.files_groups import Groups, Seen
from headgate.sink.files_layout import PUBLISHED, Manifest
from headgate.sink.files_lives import UNBORN, Life, Lives
from headgate.sink.files_survey import Broken, Survey, survey
from headgate_contract.ids import CheckpointId, Generation

_log = logging.getLogger(__name__)

_HOLDINGS = 1000
"""Of how many of the newest groups a sink tells what they consist of."""


def holdings(groups: Groups, lives: Lives, *, whole: bool) -> SinkHoldings:
    """What is there now; only if that is to be `whole` are all records looked at. Changes nothing."""
    found = survey(groups, lives, None if whole else _HOLDINGS)
    life = found.life
    newest = [found.manifests[id] for id in sorted(found.manifests)[-_HOLDINGS:]]
    return SinkHoldings(
        history=life.history,
        generation=life.generation if life is not UNBORN else 0,
        groups={int(each.group): tuple(file.staged for file in each.files) for each in newest},
        hidden=tuple(int(each.group) for each in newest if life.hides(each)),
        staged=tuple(sorted(found.seen.staged)),
        faults=found.faults(groups.layout),
    )


def take_over(
    groups: Groups, lives: Lives, generation: Generation, given: Sequence[Manifest], shown: Set[CheckpointId]
) -> tuple[CheckpointId, ...]:
    """Let every record be whole, and the groups consist of what is `given`.

    What others have published under their ids is hidden and kept aside.
    """
    found = survey(groups, lives)
    life = _mend_life(groups, lives, generation, found)
    own = {manifest.group: manifest for manifest in given}
    taken = []
    for id, broken in sorted(found.broken.items()):
        _mend(groups, broken, own.get(id), life)
        taken.append(id)
    for id, manifest in own.items():
        if id in found.manifests and id not in taken:
            stored = found.manifests[id]
            if not groups.same(stored, manifest):
                _put_aside(groups, stored, manifest, life)
                taken.append(id)
    for id in shown & own.keys():
        if life.place(id) == PUBLISHED and id not in found.seen.published:
            _give_up_what_is_gone(groups, own[id], found.seen)
    return tuple(taken)


def _give_up_what_is_gone(groups: Groups, manifest: Manifest, seen: Seen) -> None:
    """Publish what there is of a group, if some of it is nowhere any more."""
    layout, group = groups.layout, manifest.group
    there = [
        file for file in manifest.files if any(layout.place(group, file, at) in seen.lengths for at in (0, PUBLISHED))
    ]
    gone = set(manifest.files) - set(there)
    if not gone:
        return
    groups.claim(manifest)
    groups.move(replace(manifest, files=tuple(there)), PUBLISHED)
    groups.store.create(layout.published(group), f"{uuid.uuid4().hex}\n".encode())
    _log.warning(
        "sink %s: group %s is shown without %s of its %s files, which are gone: the repair gave them up",
        layout.sink,
        group,
        len(gone),
        len(manifest.files),
    )


def _mend_life(groups: Groups, lives: Lives, generation: Generation, found: Survey) -> Life:
    """The newest life; if its record is damaged or gone, it is made again."""
    fault = found.life_fault
    if fault is not None and fault.own is not None:
        groups.store.replace(fault.path, fault.own)
        lives.forget()
        _log.warning("%s: its own bytes are put back, which its checksum proves", fault.why)
    elif found.life_is_lost:
        life = lives.go_on_from(found.newest_life(generation), found.life)
        _log.warning("%s: which groups count is found out from where their files are", found.life_is_lost)
        return life
    return lives.check_newest()


def _mend(groups: Groups, broken: Broken, own: Manifest | None, life: Life) -> None:
    """Make a group's manifest again: its own bytes, what the log says, or what the names of its files tell."""
    store, layout, group = groups.store, groups.layout, broken.found.group
    _log.warning("%s: it is made again", broken.why)
    if broken.own is not None and (own is None or groups.same(broken.found, own)):
        store.replace(layout.manifest(group), broken.own)
        return
    kept = groups.names(own) if own is not None else groups.names(broken.found)
    strange = [
        file for file in broken.found.files if not groups.names(Manifest(group, life.generation, (file,))) <= kept
    ]
    if strange:
        _put_aside(groups, replace(broken.found, files=tuple(strange)), own or broken.found, life)
        return
    if broken.data is not None:
        store.replace(layout.aside(group, uuid.uuid4().hex), broken.data)
    groups.replace(own or broken.found)


def _put_aside(groups: Groups, stored: Manifest, own: Manifest, life: Life) -> None:
    """Hide what somebody else published under this group's id, and let the group be `own`.

    The manifest is never gone in between: whoever comes late with other files finds that it is not theirs.
    """
    store, layout = groups.store, groups.layout
    place, path = life.place(stored.group), layout.manifest(stored.group)
    if store.stat(path) is not None:
        store.replace(layout.aside(stored.group, uuid.uuid4().hex), store.read(path))
    groups.move(stored, place + place % 2)
    store.delete(layout.published(stored.group))
    groups.replace(own)
    _log.warning(
        "sink %s: group %s was published by generation %s, of another log: it is taken back, its %s files are kept",
        layout.sink,
        stored.group,
        stored.generation,
        len(stored.files),
    )
