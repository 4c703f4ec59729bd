"""The laws of a stream's logs: what cannot be is named, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate_contract.errors import LogDamaged
from headgate_contract.ids import CheckpointId, Generation, SlotNumber
from headgate_contract.records import Restarted, SlotRecord, SnapshotCompleted, Stopped
from headgate_contract.restore import RestoreFrom
from tests.contract.lives import Lives, snapshot, started


@pytest.fixture
def lives() -> Lives:
    return Lives()


Damage = Callable[[Lives], None]


def _drop(number: int) -> Damage:
    return lambda lives: lives.lose(SlotNumber(number))


def _append(record: SlotRecord) -> Damage:
    return lambda lives: lives.append(record)


class TestLaws:
    """Slots 1 start, 2 and 3 checkpoints 1 and 2, 4 stop, 5 start of generation 2 from 2, 6 checkpoint 3."""

    @pytest.fixture
    def good(self, lives: Lives) -> Lives:
        lives.start()
        lives.checkpoint()
        base = lives.checkpoint()
        lives.stop(base)
        lives.start(base)
        lives.checkpoint()
        return lives

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            pytest.param(_drop(1), "slot 1 is missing", id="the first slot is gone"),
            pytest.param(
                _drop(5), "slot 6 is .* follow stopped|slot 5 is missing|written by generation 2", id="a start is gone"
            ),
            pytest.param(
                lambda lives: (lives.checkpoint(), lives.lose(SlotNumber(6))),
                "slot 6 is missing, 7 is there",
                id="a hole after the newest start",
            ),
            pytest.param(
                _append(SnapshotCompleted(generation=Generation(2), snapshot=snapshot(3, 2))),
                "slot 7 completes 3 again",
                id="an id twice",
            ),
            pytest.param(
                _append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(4, 1))),
                "slot 7 was written by generation 1, generation 2 had been started",
                id="a fenced writer",
            ),
            pytest.param(
                _append(SnapshotCompleted(generation=Generation(2), snapshot=snapshot(4, 1))),
                "slot 7 completes checkpoint 4 for generation 1",
                id="a snapshot of another generation",
            ),
            pytest.param(
                _append(started(2, RestoreFrom(snapshot(3, 2), ""), first_checkpoint=4)),
                "slot 7 starts generation 2, not 3",
                id="a generation twice",
            ),
            pytest.param(
                _append(started(4, RestoreFrom(snapshot(3, 2), ""), first_checkpoint=4)),
                "slot 7 starts generation 4, not 3",
                id="a generation left out",
            ),
            pytest.param(
                _append(started(3, RestoreFrom(snapshot(3, 3), ""), first_checkpoint=4)),
                "slot 7 restores checkpoint 3 of generation 3, which is no earlier one",
                id="a base of its own",
            ),
            pytest.param(
                _append(started(3, RestoreFrom(snapshot(3, 2), ""), first_checkpoint=3)),
                "slot 7 lets generation 3 begin at a taken id, 3",
                id="ids begin too low",
            ),
            pytest.param(
                lambda lives: (lives.stop(), lives.append(Stopped(generation=Generation(2), reason="again"))),
                "slot 8 is stopped, which cannot follow stopped",
                id="something after a stop",
            ),
            pytest.param(
                _append(Restarted(generation=Generation(2), restart=2, cause="", snapshot=CheckpointId(3), at_ms=1)),
                "slot 7 is restart 2 after restart 0",
                id="a restart left out",
            ),
            pytest.param(
                _append(Restarted(generation=Generation(2), restart=1, cause="", snapshot=CheckpointId(2), at_ms=1)),
                "slot 7 goes on from 2, its generation stands on 3",
                id="a restart from an older snapshot",
            ),
        ],
    )
    def test_what_cannot_be_is_named(self, good: Lives, damage: Damage, says: str) -> None:
        assert good.catalogue.newest_slot == 6
        damage(good)
        with pytest.raises(LogDamaged, match=rf"stream orders is damaged: .*({says}).*put the slot's own bytes back"):
            assert good.catalogue

    def test_the_restarts_of_the_newest_generation_are_told_and_forgotten_with_it(self, good: Lives) -> None:
        good.restart()
        good.checkpoint()
        good.restart()
        last = good.catalogue.last_restart
        assert last is not None
        assert (last.restart, last.snapshot) == (2, 4)
        good.start(good.catalogue.history[0])
        assert good.catalogue.last_restart is None

    def test_an_id_below_the_generations_own_is_named(self, lives: Lives) -> None:
        lives.append(started(1, first_checkpoint=5))
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(4)))
        with pytest.raises(LogDamaged, match="slot 2 completes 4, its ids begin at 5"):
            assert lives.catalogue

    def test_a_log_that_begins_without_a_start_is_named(self, lives: Lives) -> None:
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(1)))
        with pytest.raises(LogDamaged, match="slot 1 starts no generation"):
            assert lives.catalogue

    @pytest.mark.parametrize("number", [2, 3, 4])
    def test_a_hole_below_the_newest_start_is_damage_too(self, good: Lives, number: int) -> None:
        good.lose(SlotNumber(number))
        with pytest.raises(LogDamaged, match=f"slot {number} is missing, {number + 1} is there"):
            assert good.catalogue

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            (_append(SnapshotCompleted(generation=Generation(2), snapshot=snapshot(3, 2))), "completes 3 again"),
            (_append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(4, 1))), "written by generation 1"),
            (_append(started(4, first_checkpoint=9)), "starts generation 4, not 3"),
            (_append(started(3, first_checkpoint=3)), "begin at a taken id, 3 or lower"),
            (
                _append(Restarted(generation=Generation(2), restart=2, cause="", snapshot=CheckpointId(3), at_ms=1)),
                "restart 2 after restart 0",
            ),
            (
                _append(Restarted(generation=Generation(2), restart=1, cause="", snapshot=CheckpointId(2), at_ms=1)),
                "goes on from 2, its generation stands on 3",
            ),
            (lambda lives: (lives.checkpoint(), lives.stop(), lives.lose(SlotNumber(7))), "slot 7 is missing"),
        ],
    )
    def test_they_hold_behind_a_summary_as_well(self, good: Lives, damage: Damage, says: str) -> None:
        good.fold()
        assert good.catalogue.newest_slot == 6
        damage(good)
        with pytest.raises(LogDamaged, match=says):
            assert good.catalogue

    def test_a_missing_decision_is_named(self, lives: Lives) -> None:
        lives.deploy()
        lives.deploy()
        del lives.decisions[0]
        with pytest.raises(LogDamaged, match="decision 1 is missing, 2 is there"):
            assert lives.catalogue
