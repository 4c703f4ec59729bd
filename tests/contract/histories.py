"""Histories of streams for tests to decide on, and a decision in one word."""

from __future__ import annotations

from collections.abc import Mapping

from headgate_contract.ids import CheckpointId, SavepointName, VertexUid
from headgate_contract.restore import (
    ClaimMode,
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
from tests.contract.lives import OUT, Lives

FILES = {OUT: Rollback.RETRACT}
CONSOLE = VertexUid("console")


def decide(
    lives: Lives,
    wanted: Wanted | None = None,
    *,
    damaged: Mapping[int, str] | None = None,
    sinks: Mapping[VertexUid, Rollback] | None = None,
    fall_back: bool = False,
    accept_duplicates: bool = False,
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM,
) -> RestoreDecision:
    return decide_restore(
        RestoreFacts(
            catalogue=lives.catalogue,
            wanted=wanted or Newest(),
            damaged={ref: why for ref in lives.catalogue.completed if (why := (damaged or {}).get(ref.id))},
            sinks=FILES if sinks is None else sinks,
            fall_back=fall_back,
            accept_duplicates=accept_duplicates,
            claim_mode=claim_mode,
        )
    )


def named(name: int | str) -> Named:
    return Named(CheckpointId(name) if isinstance(name, int) else SavepointName(name))


def summary(decision: RestoreDecision) -> str:
    """The decision in one word: `restore 3`, `fresh`, `refuse`."""
    match decision:
        case RestoreFrom(ref):
            return f"restore {int(ref.id)}"
        case StartFresh():
            return "fresh"
        case Refuse():
            return "refuse"


# ---- histories to decide on


def never_run(lives: Lives) -> None:
    lives.deploy()


def no_checkpoint_yet(lives: Lives) -> None:
    lives.start()


def three_checkpoints(lives: Lives) -> None:
    lives.start()
    for _ in range(3):
        lives.checkpoint()


def stopped_with_savepoint(lives: Lives) -> None:
    three_checkpoints(lives)
    lives.stop(lives.savepoint("end"))


def subsumed(lives: Lives) -> None:
    lives.start()
    first = lives.checkpoint()
    lives.checkpoint(retires=[first])


def rolled_back(lives: Lives) -> None:
    """Back from 3 to 1; crashed before it completed anything."""
    three_checkpoints(lives)
    lives.start(lives.catalogue.find(CheckpointId(1)))


def rolled_back_and_crashed_twice(lives: Lives) -> None:
    rolled_back(lives)
    lives.start(lives.catalogue.find(CheckpointId(1)))


def rolled_back_and_went_on(lives: Lives) -> None:
    """Back from 3 to 1; then 4 on it."""
    rolled_back(lives)
    lives.checkpoint()


def returned_to_the_abandoned_branch(lives: Lives) -> None:
    rolled_back_and_went_on(lives)
    lives.start(lives.catalogue.find(CheckpointId(3)))


def started_from_a_savepoint(lives: Lives) -> None:
    lives.start()
    lives.checkpoint()
    taken = lives.savepoint("v1")
    lives.checkpoint()
    lives.start(taken)


def fresh_after_checkpoints(lives: Lives) -> None:
    three_checkpoints(lives)
    lives.start()


def fresh_after_fresh(lives: Lives) -> None:
    fresh_after_checkpoints(lives)
    lives.start()


def base_retired(lives: Lives) -> None:
    """Generation 2 was started from 3, which was retired before it completed anything."""
    three_checkpoints(lives)
    three = lives.catalogue.find(CheckpointId(3))
    assert three is not None
    lives.start(three)
    lives.retire(three)


def everything_retired(lives: Lives) -> None:
    three_checkpoints(lives)
    lives.retire(*lives.catalogue.snapshots)


def newest_retired(lives: Lives) -> None:
    three_checkpoints(lives)
    lives.retire(lives.catalogue.snapshots[0])


def base_subsumed(lives: Lives) -> None:
    """Generation 2 was started from 3 and its 4 subsumed that; savepoint `old` (1) is still there."""
    lives.start()
    lives.savepoint("old")
    lives.checkpoint()
    three = lives.checkpoint()
    lives.start(three)
    lives.checkpoint(retires=[three])


def base_retired_and_forgotten(lives: Lives) -> None:
    """As above, and the slot that completed it was folded."""
    lives.start()
    lives.start(lives.checkpoint())
    lives.retire(*lives.catalogue.snapshots)
    lives.fold()
