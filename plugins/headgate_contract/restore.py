"""Decides which snapshot a stream restores from. Pure: facts in, decision out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headgate_contract.id_ranges import IdRanges, Span
from headgate_contract.ids import CheckpointId, SavepointName, VertexUid
from headgate_contract.snapshot import SnapshotRef

if TYPE_CHECKING:
    from headgate_contract.catalogue import Catalogue
    from headgate_contract.records import GenerationStarted


class ClaimMode(enum.Enum):
    """Whose the restored snapshot is from then on."""

    NO_CLAIM = "NO_CLAIM"
    """Its owner's: the first checkpoint is full, and from then on nothing here needs it."""
    CLAIM = "CLAIM"
    """The stream's: it is deleted like a checkpoint once newer ones subsume it."""


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
    groups: tuple[Span, ...]
    """Without a gap: they may be all that a year of checkpoints has published."""

    @property
    def ids(self) -> IdRanges:
        return IdRanges(self.groups)


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """Restore this snapshot."""

    TYPE: ClassVar[str] = "restore-from"
    snapshot: SnapshotRef
    reason: str
    rejected: tuple[Rejected, ...] = ()
    rollbacks: tuple[SinkRollback, ...] = ()
    non_restored: tuple[VertexUid, ...] = ()
    """What of it is left behind, by the uids that it has there: the job no longer has them, and that was allowed."""
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    place_allowed: bool = False
    """Whoever asked allowed the place that it lies in for this once, whatever the settings say."""


@dataclass(frozen=True, slots=True)
class StartFresh:
    """Start without state, at the sources' initial positions."""

    TYPE: ClassVar[str] = "start-fresh"
    reason: str
    rejected: tuple[Rejected, ...] = ()
    rollbacks: tuple[SinkRollback, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """What could be restored instead, and what each sink would do with the groups that it goes back behind."""

    snapshot: SnapshotRef
    rollbacks: tuple[SinkRollback, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not start; a person has to choose."""

    TYPE: ClassVar[str] = "refuse"
    reason: str
    rejected: tuple[Rejected, ...] = ()
    alternatives: tuple[SnapshotRef, ...] = ()
    """What can be named instead: first what the newest generation stands on, then what it left behind; newest first."""
    rollbacks: tuple[SinkRollback, ...] = ()
    """What was refused, when it is refused for what sinks would do."""
    costs: tuple[Alternative, ...] = ()
    """The alternatives again, each with what it would do to the sinks."""


RestoreDecision = RestoreFrom | StartFresh | Refuse


@dataclass(frozen=True, slots=True)
class Newest:
    """Take what the rules choose."""


@dataclass(frozen=True, slots=True)
class Named:
    """Take this one, and no other."""

    snapshot: CheckpointId | SavepointName | SnapshotRef


@dataclass(frozen=True, slots=True)
class Located:
    """Take the one that lies there: a URL, or a folder below the storage root. Found first, and then Named."""

    url: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """Take none."""


Wanted = Newest | Named | Fresh


@dataclass(frozen=True, kw_only=True)
class RestoreFacts:
    """Everything that the decision rests on."""

    catalogue: Catalogue
    wanted: Wanted
    damaged: Mapping[SnapshotRef, str]
    """Why a snapshot cannot be restored, for each that was looked at and cannot; a copy of it elsewhere may be good."""
    sinks: Mapping[VertexUid, Rollback]
    non_restored: Mapping[SnapshotRef, tuple[VertexUid, ...]] = field(default_factory=dict)
    """What is left behind of a snapshot, and allowed to be."""
    elsewhere: Mapping[VertexUid, IdRanges] = field(default_factory=dict)
    """Of a sink what was published at another place than it writes to now: there it takes nothing back."""
    fall_back: bool = False
    accept_duplicates: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    """Of the snapshot that is named."""
    allow_place: bool = False
    """The place of the snapshot that is named is allowed for this once."""


def decide_restore(facts: RestoreFacts) -> RestoreDecision:
    """What the next start restores, why, and what was not taken."""
    match facts.wanted:
        case Fresh():
            return _fresh(facts, "asked for a start without state (--fresh)", "a start without state was asked for")
        case Named(name):
            return _named(facts, name)
        case Newest():
            return _newest(facts)


def _newest(facts: RestoreFacts) -> RestoreDecision:
    """The newest snapshot of the history that the newest generation stands on.

    That is one of its own, or else the one that it was started from: so a rollback, or a start without state, is not
    undone by a crash right after it.
    """
    newest = facts.catalogue.newest_generation
    if newest is None:
        return _fresh(facts, "the stream has never run", "")
    if not facts.catalogue.history:
        return _fresh(
            facts,
            f"generation {newest.generation} started without state and completed no snapshot",
            f"generation {newest.generation} was started without state and left it behind",
        )
    head, *older = facts.catalogue.history
    why = _fault(facts, head)
    if why is None:
        return _restore(facts, head, _why_head(head, newest), (), f"older than {head}")
    rejected = [Rejected(head, why)]
    for ref in older:
        if not facts.catalogue.is_retained(ref):
            continue  # subsumed long ago
        why = _fault(facts, ref)
        if why is None:
            return _fall_back(facts, ref, rejected)
        rejected.append(Rejected(ref, why))
    return _refuse_damaged(facts, rejected, "no older snapshot of its history can be restored")


def _fault(facts: RestoreFacts, ref: SnapshotRef) -> str | None:
    """Why `ref` cannot be restored, if it cannot."""
    if not facts.catalogue.is_retained(ref):
        return "it is retired: its files may be gone"
    return facts.damaged.get(ref)


def _why_head(head: SnapshotRef, newest: GenerationStarted) -> str:
    if head.generation == newest.generation and not head.foreign:
        return f"the newest snapshot that generation {newest.generation} completed"
    return f"generation {newest.generation} was started from {head} and has completed no snapshot itself"


def _fall_back(facts: RestoreFacts, ref: SnapshotRef, rejected: list[Rejected]) -> RestoreDecision:
    if not facts.fall_back:
        return _refuse_damaged(facts, rejected[:1], f"`--fall-back` takes {ref}")
    count = f"{len(rejected)} newer snapshot{'s' if len(rejected) > 1 else ''}"
    return _restore(facts, ref, f"falling back: {count} cannot be restored", tuple(rejected), f"older than {ref}")


def _refuse_damaged(facts: RestoreFacts, rejected: list[Rejected], way_out: str) -> Refuse:
    first = rejected[0]
    return _with_alternatives(facts, f"{first.snapshot} cannot be restored: {first.why}; {way_out}", tuple(rejected))


def _with_alternatives(facts: RestoreFacts, reason: str, rejected: tuple[Rejected, ...]) -> Refuse:
    """A refusal that names what could be restored instead, and what that would do to the sinks."""
    catalogue = facts.catalogue
    ids = {ref.id for ref in catalogue.history}
    good = [ref for ref in catalogue.snapshots if _fault(facts, ref) is None]
    others = tuple(sorted(good, key=lambda ref: (ref.id in ids, ref.id), reverse=True))
    costs = tuple(Alternative(ref, _rollbacks(facts, ref)) for ref in others)
    return Refuse(reason, rejected, others, costs=costs)


def _named(facts: RestoreFacts, name: CheckpointId | SavepointName | SnapshotRef) -> RestoreDecision:
    catalogue = facts.catalogue
    ref = name if isinstance(name, SnapshotRef) else catalogue.find(name)
    if ref is None:
        gone = [other for other in catalogue.completed if name in (other.id, other.name)]
        what = f"{gone[-1]} is retired: its files may be gone" if gone else f"there is no snapshot {name}"
        return _with_alternatives(facts, what, ())
    why = _fault(facts, ref)
    if why is None and facts.claim_mode is ClaimMode.CLAIM:
        why = _not_to_be_claimed(catalogue, ref)
    if why is not None:
        return _with_alternatives(facts, f"{ref} cannot be restored: {why}", (Rejected(ref, why),))
    reason = f"{ref} was named by its place, {ref.where}" if isinstance(name, SnapshotRef) else f"{ref} was named"
    return _restore(facts, ref, reason, (), "older than the one that was named")


def _not_to_be_claimed(catalogue: Catalogue, ref: SnapshotRef) -> str | None:
    """Why a stream cannot own a snapshot from now on."""
    if ref.foreign:
        return "a checkpoint belongs to its own stream (claim mode CLAIM)" if ref.name is None else None
    if not any(own.where == ref.where for own in catalogue.completed):
        return "it is a copy of one that the stream has (claim mode CLAIM): claim that one"
    return None


def _restore(
    facts: RestoreFacts, ref: SnapshotRef, reason: str, rejected: tuple[Rejected, ...], why_older: str
) -> RestoreDecision:
    rollbacks = _rollbacks(facts, ref)
    refusal = _refuse_duplicates(facts, rollbacks, f"restoring {ref}")
    if refusal is not None:
        return refusal
    left = facts.non_restored.get(ref, ())
    if left:
        reason = f"{reason}; NOT restored, as was allowed: {', '.join(left)}"
    passed_over = _passed_over(facts, ref, rejected, why_older)
    claimed = ref in facts.catalogue.claimed  # and stays so, whoever restores it again
    is_named = isinstance(facts.wanted, Named)
    mode = facts.claim_mode if is_named else ClaimMode.NO_CLAIM
    allowed = facts.allow_place and is_named and ref.location is not None
    if allowed:
        reason = f"{reason}; the place was allowed for this once"
    return RestoreFrom(
        ref, reason, (*rejected, *passed_over), rollbacks, left, ClaimMode.CLAIM if claimed else mode, allowed
    )


def _passed_over(
    facts: RestoreFacts, taken: SnapshotRef, rejected: tuple[Rejected, ...], why_older: str
) -> list[Rejected]:
    """Why none of the other retained snapshots is the one that is restored."""
    history = {ref.id for ref in facts.catalogue.history}
    named = isinstance(facts.wanted, Named)
    told = {taken.id, *(each.snapshot.id for each in rejected)}
    found = []
    for ref in facts.catalogue.snapshots:
        if ref.id in told:
            continue
        if ref in facts.damaged:
            why = facts.damaged[ref]
        elif taken.foreign:
            why = "one from elsewhere was named"
        elif named:
            why = "newer than the one that was named" if ref.id > taken.id else why_older
        else:
            why = why_older if ref.id in history else "an earlier restore or start without state left it behind"
        found.append(Rejected(ref, why))
    return found


def _fresh(facts: RestoreFacts, reason: str, why_not: str) -> RestoreDecision:
    rollbacks = _rollbacks(facts, None)
    refusal = _refuse_duplicates(facts, rollbacks, "starting without state")
    rejected = tuple(Rejected(ref, why_not) for ref in facts.catalogue.snapshots)
    return refusal or StartFresh(reason, rejected, rollbacks)


def _rollbacks(facts: RestoreFacts, ref: SnapshotRef | None) -> tuple[SinkRollback, ...]:
    groups = facts.catalogue.abandoned_by(ref)
    if not groups:
        return ()
    found = []
    for sink, action in sorted(facts.sinks.items()):
        stays = groups - facts.elsewhere.get(sink, IdRanges()) != groups
        found.append(SinkRollback(sink, Rollback.DUPLICATES if stays else action, groups.spans))
    return tuple(found)


def _refuse_duplicates(facts: RestoreFacts, rollbacks: tuple[SinkRollback, ...], doing: str) -> Refuse | None:
    """A refusal, if a sink would repeat what nobody has accepted yet, now or at a start that came to nothing."""
    certain = [
        rollback.sink
        for rollback in rollbacks
        if rollback.action is Rollback.DUPLICATES
        and not rollback.ids <= facts.catalogue.accepted_duplicates(rollback.sink)
    ]
    if not certain or facts.accept_duplicates:
        return None
    return Refuse(
        f"{doing} goes back behind what is published, and the sink{'s' if len(certain) > 1 else ''} "
        f"{', '.join(certain)} cannot take it back: `--accept-duplicates` accepts the repeats",
        rollbacks=rollbacks,
    )
