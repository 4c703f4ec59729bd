"""Which snapshot the next start restores, why, and what was not taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.records import slot_log
from headgate_contract.restore import (
    Alternative,
    ClaimMode,
    Fresh,
    Named,
    Newest,
    Refuse,
    RestoreDecision,
    RestoreFrom,
    Rollback,
    SinkRollback,
    StartFresh,
    Wanted,
)
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import open_store
from tests.contract.histories import (
    CONSOLE,
    FILES,
    base_retired,
    base_retired_and_forgotten,
    base_subsumed,
    decide,
    everything_retired,
    fresh_after_checkpoints,
    fresh_after_fresh,
    named,
    never_run,
    newest_retired,
    no_checkpoint_yet,
    returned_to_the_abandoned_branch,
    rolled_back,
    rolled_back_and_crashed_twice,
    rolled_back_and_went_on,
    started_from_a_savepoint,
    stopped_with_savepoint,
    subsumed,
    summary,
    three_checkpoints,
)
from tests.contract.lives import OUT, STREAM, Lives, started
from tests.contract.store_suite import unique


@pytest.fixture
def lives() -> Lives:
    return Lives()


History = Callable[[Lives], None]


@dataclass(frozen=True)
class Case:
    history: History
    expected: str
    why: str
    wanted: Wanted | None = None
    damaged: Mapping[int, str] | None = None
    fall_back: bool = False

    @property
    def id(self) -> str:
        wanted = "" if self.wanted is None else f", {self.wanted}"
        damaged = f", damaged {sorted(self.damaged)}" if self.damaged else ""
        return f"{self.history.__name__}{wanted}{damaged}{', fall back' if self.fall_back else ''} -> {self.expected}"


TABLE = [
    # what the rules choose
    Case(never_run, "fresh", "has never run"),
    Case(no_checkpoint_yet, "fresh", "generation 1 started without state and completed no snapshot"),
    Case(three_checkpoints, "restore 3", "the newest snapshot that generation 1 completed"),
    Case(stopped_with_savepoint, "restore 4", "the newest snapshot that generation 1 completed"),
    Case(subsumed, "restore 2", "the newest snapshot"),
    Case(rolled_back, "restore 1", "generation 2 was started from checkpoint 1 and has completed no snapshot itself"),
    Case(rolled_back_and_crashed_twice, "restore 1", "generation 3 was started from checkpoint"),
    Case(rolled_back_and_went_on, "restore 4", "the newest snapshot that generation 2 completed"),
    Case(returned_to_the_abandoned_branch, "restore 3", "generation 3 was started from checkpoint"),
    Case(started_from_a_savepoint, "restore 2", "generation 2 was started from savepoint"),
    Case(fresh_after_checkpoints, "fresh", "generation 2 started without state and completed no snapshot"),
    Case(fresh_after_fresh, "fresh", "generation 3 started without state"),
    # damaged, or gone: never skipped silently, and never a silent start without state
    Case(three_checkpoints, "refuse", "restored: short; `--fall-back` takes checkpoint 2", None, {3: "short"}),
    Case(three_checkpoints, "refuse", r"`--fall-back` takes checkpoint 1", None, {3: "short", 2: "gone"}),
    Case(three_checkpoints, "refuse", "no older snapshot of its history", None, {3: "x", 2: "x", 1: "x"}),
    Case(three_checkpoints, "refuse", "no older snapshot of its history", None, {3: "x", 2: "x", 1: "x"}, True),
    Case(three_checkpoints, "restore 2", "falling back: 1 newer snapshot cannot be restored", None, {3: "short"}, True),
    Case(three_checkpoints, "restore 1", "falling back: 2 newer snapshots cannot", None, {3: "x", 2: "x"}, True),
    Case(three_checkpoints, "restore 3", "newest", None, {2: "x"}),
    Case(rolled_back, "refuse", "no older snapshot of its history can be restored", None, {1: "x"}),
    Case(rolled_back, "refuse", "no older snapshot of its history can be restored", None, {1: "x"}, True),
    Case(rolled_back_and_went_on, "restore 1", "falling back", None, {4: "x"}, True),
    Case(returned_to_the_abandoned_branch, "restore 2", "falling back", None, {3: "x"}, True),
    Case(base_retired, "refuse", "checkpoint 3 cannot be restored: it is retired.*`--fall-back` takes checkpoint 2"),
    Case(base_retired, "restore 2", "falling back: 1 newer", None, None, True),
    Case(base_retired_and_forgotten, "refuse", "checkpoint 1 cannot be restored: it is retired"),
    Case(base_retired_and_forgotten, "refuse", "no older snapshot", None, None, True),
    Case(newest_retired, "refuse", "checkpoint 3 cannot be restored: it is retired"),
    Case(everything_retired, "refuse", "retired: its files may be gone; no older snapshot"),
    Case(everything_retired, "refuse", "retired: its files may be gone; no older snapshot", None, None, True),
    Case(base_subsumed, "restore 4", "the newest snapshot that generation 2 completed"),
    Case(base_subsumed, "refuse", "`--fall-back` takes checkpoint 2", None, {4: "x"}),
    Case(base_subsumed, "restore 1", "falling back: 2 newer", None, {4: "x", 2: "x"}, True),
    # named: this one and no other
    Case(three_checkpoints, "restore 1", "checkpoint 1 was named", named(1)),
    Case(started_from_a_savepoint, "restore 2", r"savepoint v1 \(2\) was named", named("v1")),
    Case(rolled_back_and_went_on, "restore 3", "checkpoint 3 was named", named(3)),
    Case(three_checkpoints, "refuse", "checkpoint 2 cannot be restored: short", named(2), {2: "short"}),
    Case(three_checkpoints, "refuse", "checkpoint 2 cannot be restored: short", named(2), {2: "short"}, True),
    Case(three_checkpoints, "restore 2", "was named", named(2), {3: "short"}),
    Case(three_checkpoints, "refuse", "there is no snapshot 9", named(9)),
    Case(three_checkpoints, "refuse", "there is no snapshot v9", named("v9")),
    Case(subsumed, "refuse", "checkpoint 1 is retired: its files may be gone", named(1)),
    Case(never_run, "refuse", "there is no snapshot 1", named(1)),
    # fresh
    Case(never_run, "fresh", "--fresh", Fresh()),
    Case(three_checkpoints, "fresh", "--fresh", Fresh()),
    Case(three_checkpoints, "fresh", "--fresh", Fresh(), {3: "short"}),
    Case(everything_retired, "fresh", "--fresh", Fresh()),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=[case.id for case in TABLE])
def test_what_a_start_does(lives: Lives, case: Case) -> None:
    case.history(lives)
    decision = decide(lives, case.wanted, damaged=case.damaged, fall_back=case.fall_back)
    assert summary(decision) == case.expected, decision
    assert re.search(case.why, decision.reason), decision.reason


ANSWERS = [
    Case(three_checkpoints, "", ""),
    Case(three_checkpoints, "", "", named(2)),
    Case(three_checkpoints, "", "", Fresh()),
    Case(three_checkpoints, "", "", None, {3: "x"}, True),
    Case(rolled_back_and_went_on, "", ""),
    Case(rolled_back_and_went_on, "", "", named(3)),
    Case(fresh_after_checkpoints, "", ""),
]


@pytest.mark.parametrize("case", ANSWERS, ids=[case.id for case in ANSWERS])
def test_every_retained_snapshot_is_the_chosen_one_or_rejected_with_a_reason(lives: Lives, case: Case) -> None:
    case.history(lives)
    decision = decide(lives, case.wanted, damaged=case.damaged, fall_back=case.fall_back)
    told = [each.snapshot for each in decision.rejected]
    if isinstance(decision, RestoreFrom):
        told.append(decision.snapshot)
    assert sorted(ref.id for ref in told) == sorted(ref.id for ref in lives.catalogue.snapshots)
    assert all(each.why for each in decision.rejected)


def whys(decision: RestoreDecision) -> dict[int, str]:
    return {int(each.snapshot.id): each.why for each in decision.rejected}


def test_the_reasons_against_the_others_are_told(lives: Lives) -> None:
    rolled_back_and_went_on(lives)
    assert whys(decide(lives, damaged={2: "short"})) == {
        3: "an earlier restore or start without state left it behind",
        2: "short",
        1: "older than checkpoint 4",
    }
    assert whys(decide(lives, named(2))) == {
        4: "newer than the one that was named",
        3: "newer than the one that was named",
        1: "older than the one that was named",
    }
    assert set(whys(decide(lives, Fresh())).values()) == {"a start without state was asked for"}
    assert whys(decide(lives, damaged={4: "short"}, fall_back=True))[4] == "short"


def test_a_start_that_stays_fresh_says_who_left_the_snapshots(lives: Lives) -> None:
    fresh_after_checkpoints(lives)
    assert set(whys(decide(lives)).values()) == {"generation 2 was started without state and left it behind"}


class TestRefusals:
    def test_alternatives_are_named_the_present_history_first(self, lives: Lives) -> None:
        rolled_back_and_went_on(lives)  # 4 on 1; 2 and 3 left behind
        decision = decide(lives, damaged={4: "short"})
        assert isinstance(decision, Refuse)
        assert [int(ref.id) for ref in decision.alternatives] == [1, 3, 2]
        assert whys(decision) == {4: "short"}

    def test_damaged_and_retired_ones_are_no_alternatives(self, lives: Lives) -> None:
        three_checkpoints(lives)
        lives.retire(lives.catalogue.snapshots[2])
        decision = decide(lives, damaged={3: "short"})
        assert isinstance(decision, Refuse)
        assert [int(ref.id) for ref in decision.alternatives] == [2]
        assert decide(lives, named(9), damaged={3: "short"}).alternatives == decision.alternatives  # type: ignore[union-attr]

    def test_each_alternative_tells_what_it_would_do_to_the_sinks(self, lives: Lives) -> None:
        three_checkpoints(lives)
        two, one = lives.catalogue.snapshots[1:]
        sinks = {CONSOLE: Rollback.DUPLICATES, OUT: Rollback.RETRACT}
        decision = decide(lives, damaged={3: "short"}, sinks=sinks)
        assert isinstance(decision, Refuse)
        assert decision.costs == (
            Alternative(two, rollbacks(sinks, 3)),
            Alternative(one, rollbacks(sinks, 2, 3)),
        )


def rollbacks(sinks: Mapping[VertexUid, Rollback], *groups: int) -> tuple[SinkRollback, ...]:
    return tuple(SinkRollback(sink, sinks[sink], IdRanges.of(groups).spans) for sink in sorted(sinks))


class TestSinks:
    def test_going_on_takes_nothing_back(self, lives: Lives) -> None:
        three_checkpoints(lives)
        assert decide(lives, sinks={CONSOLE: Rollback.DUPLICATES}).rollbacks == ()

    def test_an_older_snapshot_takes_back_what_came_after(self, lives: Lives) -> None:
        three_checkpoints(lives)
        assert decide(lives, named(1)).rollbacks == rollbacks(FILES, 2, 3)

    def test_a_crash_before_the_first_completion_after_a_rollback_takes_it_back_again(self, lives: Lives) -> None:
        rolled_back(lives)
        assert decide(lives).rollbacks == rollbacks(FILES, 2, 3)

    def test_a_return_to_an_abandoned_branch_takes_back_the_present_one(self, lives: Lives) -> None:
        rolled_back_and_went_on(lives)
        assert decide(lives, named(3)).rollbacks == rollbacks(FILES, 4)
        assert decide(lives, named(2)).rollbacks == rollbacks(FILES, 4)

    def test_a_fresh_start_takes_everything_back(self, lives: Lives) -> None:
        three_checkpoints(lives)
        assert decide(lives, Fresh()).rollbacks == rollbacks(FILES, 1, 2, 3)

    def test_a_job_without_sinks_takes_nothing_back(self, lives: Lives) -> None:
        three_checkpoints(lives)
        assert decide(lives, Fresh(), sinks={}).rollbacks == ()

    @pytest.mark.parametrize("wanted", [named(1), Fresh()])
    def test_duplicates_for_certain_must_be_accepted(self, lives: Lives, wanted: Wanted) -> None:
        three_checkpoints(lives)
        sinks = {CONSOLE: Rollback.DUPLICATES, OUT: Rollback.RETRACT}
        refused = decide(lives, wanted, sinks=sinks)
        assert isinstance(refused, Refuse)
        assert "the sink console cannot take it back: `--accept-duplicates`" in refused.reason
        accepted = decide(lives, wanted, sinks=sinks, accept_duplicates=True)
        assert summary(accepted) in ("restore 1", "fresh")
        assert accepted.rollbacks == refused.rollbacks

    def test_falling_back_does_not_accept_duplicates(self, lives: Lives) -> None:
        three_checkpoints(lives)
        decision = decide(lives, damaged={3: "x"}, fall_back=True, sinks={CONSOLE: Rollback.DUPLICATES})
        assert isinstance(decision, Refuse)
        assert "restoring checkpoint 2 goes back behind what is published" in decision.reason

    def test_overwriting_sinks_need_no_acceptance(self, lives: Lives) -> None:
        three_checkpoints(lives)
        sinks = {OUT: Rollback.OVERWRITE}
        decision = decide(lives, named(1), sinks=sinks)
        assert summary(decision) == "restore 1"
        assert decision.rollbacks == rollbacks(sinks, 2, 3)

    def test_what_was_accepted_at_a_start_that_came_to_nothing_need_not_be_accepted_again(self, lives: Lives) -> None:
        three_checkpoints(lives)
        one = lives.catalogue.find(CheckpointId(1))
        sinks = {CONSOLE: Rollback.DUPLICATES}
        lives.start(one, accept_duplicates=True, rollbacks=rollbacks(sinks, 2, 3))
        decision = decide(lives, sinks=sinks)
        assert summary(decision) == "restore 1"
        assert decision.rollbacks == rollbacks(sinks, 2, 3)

    def test_what_was_accepted_for_one_restore_does_not_hold_for_another(self, lives: Lives) -> None:
        three_checkpoints(lives)
        two = lives.catalogue.find(CheckpointId(2))
        sinks = {CONSOLE: Rollback.DUPLICATES}
        lives.start(two, accept_duplicates=True, rollbacks=rollbacks(sinks, 3))
        assert summary(decide(lives, sinks=sinks)) == "restore 2"
        assert summary(decide(lives, named(1), sinks=sinks)) == "refuse"

    def test_what_was_accepted_is_used_up_by_the_next_completion(self, lives: Lives) -> None:
        three_checkpoints(lives)
        one = lives.catalogue.find(CheckpointId(1))
        sinks = {CONSOLE: Rollback.DUPLICATES}
        lives.start(one, accept_duplicates=True, rollbacks=rollbacks(sinks, 2, 3))
        lives.checkpoint()
        assert summary(decide(lives, sinks=sinks)) == "restore 4"
        assert summary(decide(lives, named(1), sinks=sinks)) == "refuse"


class TestClaiming:
    """A stream may claim what is deleted without harm to anybody else."""

    @staticmethod
    def claim(lives: Lives, ref: SnapshotRef) -> RestoreDecision:
        return decide(lives, Named(ref), claim_mode=ClaimMode.CLAIM)

    def test_a_savepoint_of_its_own_and_one_from_elsewhere_become_the_streams(self, lives: Lives) -> None:
        started_from_a_savepoint(lives)
        own = next(ref for ref in lives.catalogue.snapshots if ref.name == "v1")
        brought = replace(own, id=lives.catalogue.next_checkpoint, location="file:///backup", foreign=True)
        for ref in (own, brought):
            taken = self.claim(lives, ref)
            assert isinstance(taken, RestoreFrom)
            assert (taken.snapshot, taken.claim_mode) == (ref, ClaimMode.CLAIM)

    def test_a_checkpoint_of_its_own_may_be_named_so_too(self, lives: Lives) -> None:
        three_checkpoints(lives)
        assert summary(self.claim(lives, lives.catalogue.snapshots[0])) == "restore 3"

    def test_anothers_checkpoint_is_refused_for_its_files_are_shared(self, lives: Lives) -> None:
        three_checkpoints(lives)
        theirs = replace(
            lives.catalogue.snapshots[0], id=lives.catalogue.next_checkpoint, location="file:///theirs", foreign=True
        )
        refused = self.claim(lives, theirs)
        assert isinstance(refused, Refuse)
        assert "a checkpoint belongs to its own stream (claim mode CLAIM)" in refused.reason
        assert summary(decide(lives, Named(theirs))) == "restore 4", "it may be restored, and left alone"

    def test_a_copy_of_an_own_savepoint_is_refused_for_its_number_is_the_originals(self, lives: Lives) -> None:
        started_from_a_savepoint(lives)
        own = next(ref for ref in lives.catalogue.snapshots if ref.name == "v1")
        refused = self.claim(lives, replace(own, location="file:///backup", folder="copy"))
        assert isinstance(refused, Refuse)
        assert "it is a copy of one that the stream has" in refused.reason


@pytest.mark.parametrize("wanted", [Newest(), named(2), Fresh()])
def test_the_next_generations_record_gives_the_decision_back_as_it_was(lives: Lives, wanted: Wanted) -> None:
    rolled_back_and_went_on(lives)
    decision = decide(lives, wanted)
    assert isinstance(decision, (RestoreFrom, StartFresh))
    record = started(3, decision, first_checkpoint=lives.catalogue.next_checkpoint)
    log = slot_log(open_store(f"memory://{unique()}"), STREAM)
    log.append(None, record)
    (slot,) = slot_log(log.store, STREAM).read()
    assert slot.record == record
