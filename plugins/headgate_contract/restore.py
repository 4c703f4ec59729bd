"""Decides which snapshot a stream restores from. Pure: facts in, decision out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headgate_contract.ids import CheckpointId, SavepointName, VertexUid
from headgate_contract.snapshot import SnapshotRef

if TYPE_CHECKING:
    from headgate_contract.catalogue import Catalogue


class Rollback(enum.Enum):
    """What a sink can do about effects that a restore goes back behind."""

    RETRACT = "retract"
    OVERWRITE = "overwrite"
    DUPLICATES = "duplicates"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was not taken, and why."""

    snapshot: SnapshotRef
    why: str


@dataclass(frozen=True, slots=True)
class SinkRollback:
    """What one sink does with the groups that the restore goes back behind."""

    sink: VertexUid
    action: Rollback
    groups: tuple[CheckpointId, ...]


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """Restore this snapshot."""

    TYPE: ClassVar[str] = "restore-from"
    snapshot: SnapshotRef
    reason: str
    rejected: tuple[Rejected, ...] = ()
    rollbacks: tuple[SinkRollback, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFresh:
    """Start without state, at the sources' initial positions."""

    TYPE: ClassVar[str] = "start-fresh"
    reason: str
    rejected: tuple[Rejected, ...] = ()
    rollbacks: tuple[SinkRollback, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not start; a person has to choose."""

    TYPE: ClassVar[str] = "refuse"
    reason: str
    rejected: tuple[Rejected, ...] = ()
    alternatives: tuple[SnapshotRef, ...] = ()
    rollbacks: tuple[SinkRollback, ...] = ()


RestoreDecision = RestoreFrom | StartFresh | Refuse


@dataclass(frozen=True, slots=True)
class Newest:
    """Take what the rules choose."""


@dataclass(frozen=True, slots=True)
class Named:
    """Take this one, and no other."""

    snapshot: CheckpointId | SavepointName


@dataclass(frozen=True, slots=True)
class Fresh:
    """Take none."""


Wanted = Newest | Named | Fresh


@dataclass(frozen=True, kw_only=True)
class RestoreFacts:
    """Everything that the decision rests on."""

    catalogue: Catalogue
    wanted: Wanted
    damaged: Mapping[CheckpointId, str]
    """Why a snapshot cannot be restored, for each that was looked at and cannot."""
    sinks: Mapping[VertexUid, Rollback]
    fall_back: bool = False
    accept_duplicates: bool = False


def decide_restore(facts: RestoreFacts) -> RestoreDecision:
    """What the next start restores, why, and what was not taken."""
    match facts.wanted:
        case Fresh():
            return _fresh(facts, "asked for a start without state (--fresh)")
        case Named(name):
            return _named(facts, name)
        case Newest():
            return _newest(facts)


def _newest(facts: RestoreFacts) -> RestoreDecision:
    catalogue = facts.catalogue
    newest = catalogue.newest_generation
    if newest is None:
        return _fresh(facts, "the stream has never run")
    own = sorted(catalogue.completed_by(newest.generation), key=lambda ref: ref.id, reverse=True)
    base = catalogue.base_of(newest.generation)
    candidates = [(ref, f"the newest snapshot that generation {newest.generation} completed") for ref in own]
    if base is not None:
        candidates.append((base, f"generation {newest.generation} itself was started from it and completed none since"))
    if not candidates:
        if catalogue.snapshots and not isinstance(newest.decision, StartFresh):
            return Refuse(
                f"the snapshot that generation {newest.generation} was started from is retired",
                alternatives=tuple(catalogue.snapshots),
            )
        return _fresh(facts, f"generation {newest.generation} started without state and completed no snapshot")
    return _first_good(facts, candidates)


def _first_good(facts: RestoreFacts, candidates: list[tuple[SnapshotRef, str]]) -> RestoreDecision:
    rejected: list[Rejected] = []
    for ref, reason in candidates:
        why = facts.damaged.get(ref.id)
        if why is None:
            if rejected:
                reason = (
                    f"falling back: {len(rejected)} newer snapshot{'s are' if len(rejected) > 1 else ' is'} damaged"
                )
            return _restore(facts, ref, reason, tuple(rejected))
        rejected.append(Rejected(ref, why))
        if not facts.fall_back:
            others = tuple(other for other, _ in candidates if other.id not in facts.damaged)
            hint = f"`--fall-back` takes {others[0]}" if others else "no older snapshot can be restored"
            return Refuse(f"{ref} is damaged: {why}; {hint}", tuple(rejected), others)
    return Refuse("every snapshot is damaged", tuple(rejected))


def _named(facts: RestoreFacts, name: CheckpointId | SavepointName) -> RestoreDecision:
    ref = facts.catalogue.find(name)
    if ref is None:
        return Refuse(f"there is no retained snapshot {name}", alternatives=tuple(facts.catalogue.snapshots))
    why = facts.damaged.get(ref.id)
    if why is not None:
        others = tuple(other for other in facts.catalogue.snapshots if other.id not in facts.damaged and other != ref)
        return Refuse(f"{ref} is damaged: {why}", (Rejected(ref, why),), others)
    newer = tuple(
        Rejected(other, "newer than the one that was named") for other in facts.catalogue.snapshots if other.id > ref.id
    )
    return _restore(facts, ref, f"{ref} was named", newer)


def _restore(facts: RestoreFacts, ref: SnapshotRef, reason: str, rejected: tuple[Rejected, ...]) -> RestoreDecision:
    rollbacks = _rollbacks(facts, facts.catalogue.abandoned_by(ref))
    refusal = _refuse_duplicates(facts, rollbacks, f"restoring {ref}")
    return refusal or RestoreFrom(ref, reason, rejected, rollbacks)


def _fresh(facts: RestoreFacts, reason: str) -> RestoreDecision:
    rollbacks = _rollbacks(facts, facts.catalogue.abandoned_by(None))
    refusal = _refuse_duplicates(facts, rollbacks, "starting without state")
    rejected = tuple(Rejected(ref, "a start without state was asked for") for ref in facts.catalogue.snapshots)
    return refusal or StartFresh(reason, rejected, rollbacks)


def _rollbacks(facts: RestoreFacts, groups: tuple[CheckpointId, ...]) -> tuple[SinkRollback, ...]:
    return tuple(SinkRollback(sink, action, groups) for sink, action in sorted(facts.sinks.items())) if groups else ()


def _refuse_duplicates(facts: RestoreFacts, rollbacks: tuple[SinkRollback, ...], doing: str) -> Refuse | None:
    certain = [rollback.sink for rollback in rollbacks if rollback.action is Rollback.DUPLICATES]
    if not certain or facts.accept_duplicates:
        return None
    return Refuse(
        f"{doing} goes back behind what is published, and the sink{'s' if len(certain) > 1 else ''} "
        f"{', '.join(certain)} cannot take it back: `--accept-duplicates` accepts the repeats",
        rollbacks=rollbacks,
    )
