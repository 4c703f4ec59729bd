"""Brings the sinks to the snapshot: what it carries is committed again, what lies beyond it is taken back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from headgate.recovery.fetch import SnapshotFiles
from headgate.sink.base import BeginReport, SinkCommitter, staged_names
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import HeadgateError, SnapshotDamaged
from headgate_contract.fitting import renamed
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.records import Deployed
from headgate_contract.snapshot import CommittableGroup, SnapshotMetadata, SnapshotRef
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkHistory:
    """What the sinks must know of the stream's life so far."""

    lineage: Set[CheckpointId]
    carried: tuple[CommittableGroup, ...]
    abandoned: tuple[CommittableGroup, ...]
    repaired: bool = False
    """Whether the log was repaired just before: what it says of its groups counts, whoever has published others."""
    earlier: tuple[CommittableGroup, ...] = ()
    """What other retained snapshots say of groups that belong to this history."""
    all_known: bool = True
    """Whether nothing else may be carried by a snapshot that can be restored again."""


def sink_history(
    store: ObjectStore,
    catalogue: Catalogue,
    ref: SnapshotRef | None,
    metadata: SnapshotMetadata | None,
    former: Mapping[VertexUid, VertexUid] | None = None,
) -> SinkHistory:
    """The groups that belong to the history of `ref`, and those of the other retained snapshots.

    `former` says which uid of now goes by which one of before.
    """
    lineage = catalogue.lineage(ref)
    carried = metadata.committables if metadata is not None else ()
    others: dict[CheckpointId, CommittableGroup] = {}
    all_known = True
    for other in catalogue.snapshots:
        if (ref is not None and other.id == ref.id) or _carries_nothing(catalogue, other):
            continue
        try:
            groups = renamed(SnapshotFiles(store, other).metadata(), former or {}).committables
        except HeadgateError as error:
            if other.name is None and not isinstance(error, SnapshotDamaged):
                raise
            # A damaged checkpoint can never be restored; a savepoint that was moved, or is denied just now, can.
            all_known = all_known and other.name is None
            log.warning("%s cannot be read, and is not needed now: %s", other, error)
            continue
        others.update({group.id: group for group in groups})
    own = {group.id for group in carried}
    abandoned = tuple(others[id] for id in sorted(others) if id not in lineage)
    earlier = tuple(others[id] for id in sorted(others) if id in lineage and id not in own)
    return SinkHistory(lineage, carried, abandoned, catalogue.behind_a_repair, earlier, all_known)


def written_before(catalogue: Catalogue, own: Deployed, sink: VertexUid) -> bool:
    """Whether the generation that completed the newest snapshot wrote to the very target that `sink` has now."""
    start = catalogue.newest_writer
    ran = catalogue.deployed_at(start.deployed) if start is not None else None
    if ran is None or ran.directory != own.directory:  # a relative path may mean another folder
        return False
    now = own.plan.get("sinks", {}).get(sink)
    return now is not None and ran.plan.get("sinks", {}).get(sink) == now


def _carries_nothing(catalogue: Catalogue, ref: SnapshotRef) -> bool:
    """Whether it is a savepoint of which the log says that all that it may carry is committed: why ask for it."""
    return ref.name is not None and catalogue.lineage(ref) <= catalogue.committed


def begin_sinks(sinks: Mapping[VertexUid, SinkCommitter], history: SinkHistory) -> dict[VertexUid, BeginReport]:
    """Let every sink take its place; repeats are harmless."""
    return {uid: _begin(uid, sink, history) for uid, sink in sinks.items()}


def _begin(uid: VertexUid, sink: SinkCommitter, history: SinkHistory) -> BeginReport:
    carried = _groups(uid, history.carried)
    abandoned = _groups(uid, history.abandoned)
    if history.repaired:
        shown = {id for id, _ in carried if id in history.lineage}
        sink.take_over([*abandoned, *_groups(uid, history.earlier), *carried], shown)
    named = frozenset[str]().union(*(staged_names(handles) for _, handles in [*carried, *abandoned]))
    protected = named if history.all_known else None
    return sink.begin(history.lineage, carried, abandoned, protected)


def _groups(
    uid: VertexUid, groups: Sequence[CommittableGroup]
) -> list[tuple[CheckpointId, Sequence[Mapping[str, Any]]]]:
    return [(group.id, group.sinks.get(uid, ())) for group in groups]
