"""Whether a catalogue that was read from a summary answers every question as one that was read from all entries."""

from __future__ import annotations

from collections.abc import Iterable

from headgate_contract.catalogue import Catalogue
from headgate_contract.restore import (
    Fresh,
    Named,
    Newest,
    Refuse,
    RestoreDecision,
    RestoreFacts,
    RestoreFrom,
    Rollback,
    StartFresh,
    Wanted,
    decide_restore,
)
from headgate_contract.snapshot import SnapshotRef
from tests.contract.lives import OUT


def check_same_answers(whole: Catalogue, folded: Catalogue) -> None:
    """Raise AssertionError where they differ."""
    known = {*(ref.id for ref in (*whole.completed, *whole.restored)), whole.next_checkpoint}

    def of_known(ids: Iterable[int]) -> set[int]:
        """Ids under which nothing ever completed mean nothing: a summary may have more of them."""
        return {int(id) for id in ids if id in known}

    same = {
        "newest slot": lambda one: one.newest_slot,
        "newest decision": lambda one: one.entries.newest_decision,
        "newest start": lambda one: one.newest_generation,
        "starts": lambda one: [
            (start.generation, start.launch, start.first_checkpoint, start.replaces, start.log, start.host)
            for start in one.generations
        ],
        "end": lambda one: (one.stopped, one.repaired),
        "what comes next": lambda one: (one.next_generation, one.behind_a_repair),
        "last restart": lambda one: one.last_restart,
        "what can be restored": lambda one: one.snapshots,
        "what is there by name": lambda one: [one.find(ref.name or ref.id) for ref in whole.completed],
        "retired": lambda one: of_known(one.retired),
        "retained": lambda one: [one.is_retained(ref) for ref in (*whole.completed, *whole.restored)],
        "committed": lambda one: of_known(one.committed),
        "what was restored": lambda one: one.restored,
        "claims": lambda one: one.claims,
        "claimed": lambda one: one.claimed,
        "next id": lambda one: one.next_checkpoint,
        "deployed": lambda one: (one.deployed_number, one.deployed),
        "what runs": lambda one: one.deployed_at(whole.newest_generation.deployed) if whole.newest_generation else None,
        "what ran": lambda one: one.deployed_at(whole.newest_writer.deployed) if whole.newest_writer else None,
        "wishes": lambda one: one.stops_wanted(whole.newest_generation.generation) if whole.newest_generation else (),
        "by generation": lambda one: [one.completed_by(start.generation) for start in whole.generations],
        "bases": lambda one: [one.base_of(start.generation) for start in whole.generations],
        "own ids": lambda one: one.ids_of(whole.newest_generation.generation) if whole.newest_generation else (),
        "what it stands on": lambda one: list(one.history[:1]),
        "what else it stands on": lambda one: [ref for ref in one.history if one.is_retained(ref)],
        "what sinks may show": lambda one: of_known(one.exposed),
        "lineages": lambda one: [of_known(one.lineage(ref)) for ref in _bases(whole)],
        "what is gone back behind": lambda one: [of_known(one.abandoned_by(ref)) for ref in _bases(whole)],
        "accepted repeats": lambda one: of_known(one.accepted_duplicates(OUT)),
        "decisions": lambda one: [
            _essence(_decide(one, wanted, fall_back), of_known)
            for wanted in (Newest(), Fresh(), *(Named(ref.id) for ref in whole.completed))
            for fall_back in (False, True)
        ],
    }
    for what, ask in same.items():
        assert ask(whole) == ask(folded), what
    for ref in _bases(whole):
        assert folded.lineage(ref) >= whole.lineage(ref)


def _bases(whole: Catalogue) -> list[SnapshotRef | None]:
    return [None, *whole.snapshots, *whole.restored, *whole.history[:1]]


def _decide(catalogue: Catalogue, wanted: Wanted, fall_back: bool) -> RestoreDecision:
    facts = RestoreFacts(
        catalogue=catalogue, wanted=wanted, damaged={}, sinks={OUT: Rollback.RETRACT}, fall_back=fall_back
    )
    return decide_restore(facts)


def _essence(decision: RestoreDecision, of_known: object) -> object:
    assert callable(of_known)
    groups = [(rollback.sink, of_known(rollback.ids)) for rollback in decision.rollbacks]
    match decision:
        case RestoreFrom(snapshot, reason, rejected):
            return snapshot, reason, rejected, groups, decision.claim_mode
        case StartFresh(reason, rejected):
            return reason, rejected, groups
        case Refuse():
            return decision.alternatives, groups
