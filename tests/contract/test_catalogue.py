"""What a stream's logs add up to: generations, snapshots, lineage, and what retention may forget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate_contract.catalogue import Catalogue, read_catalogue, savepoints
from headgate_contract.errors import LogDamaged, NewerVersion
from headgate_contract.id_ranges import Span
from headgate_contract.ids import CheckpointId, Generation, SavepointName, SlotNumber
from headgate_contract.log import Slot
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import SnapshotCompleted, Stopped, decision_log, slot_log
from headgate_contract.restore import Rollback, SinkRollback
from headgate_contract.store import ObjectStore, open_store
from tests.contract.lives import OUT, STREAM, Lives, snapshot
from tests.contract.store_suite import unique
from tests.contract.stored_values import resealed


@pytest.fixture
def lives() -> Lives:
    return Lives()


@pytest.fixture
def rolled_back(lives: Lives) -> Lives:
    """Generation 1 completed 1 to 5, generation 2 went back to 3 and completed nothing yet."""
    lives.start()
    refs = [lives.checkpoint() for _ in range(5)]
    lives.start(refs[2])
    return lives


class TestReading:
    def test_a_stream_that_was_never_started_has_nothing(self, lives: Lives) -> None:
        empty = lives.catalogue
        assert (empty.newest_slot, empty.newest_generation, empty.stopped, empty.deployed) == (None, None, None, None)
        assert (empty.snapshots, empty.history, empty.exposed, empty.abandoned_by(None)) == (
            (),
            (),
            frozenset(),
            frozenset(),
        )
        assert empty.next_checkpoint == 1
        assert empty.deployed_number is None

    def test_retained_snapshots_are_listed_newest_first(self, lives: Lives) -> None:
        lives.start()
        first = lives.checkpoint()
        named = lives.savepoint("before-upgrade")
        last = lives.checkpoint(retires=[first])
        assert lives.catalogue.snapshots == (last, named)
        assert lives.catalogue.completed == (first, named, last)
        assert savepoints(lives.catalogue) == (named,)

    def test_snapshots_are_found_by_id_and_by_name_while_they_are_retained(self, lives: Lives) -> None:
        lives.start()
        first, named = lives.checkpoint(), lives.savepoint("v1")
        assert lives.catalogue.find(first.id) == first
        assert lives.catalogue.find(SavepointName("v1")) == named
        assert lives.catalogue.find(named.id) == named
        assert lives.catalogue.find(SavepointName("v2")) is None
        lives.retire(named)
        assert lives.catalogue.find(SavepointName("v1")) is None

    def test_a_name_that_is_used_again_means_the_newest(self, lives: Lives) -> None:
        lives.start()
        old = lives.savepoint("v1")
        lives.retire(old)
        assert lives.savepoint("v1") == lives.catalogue.find(SavepointName("v1"))

    def test_ids_go_on_over_generations_and_failed_attempts(self, lives: Lives) -> None:
        lives.start()
        lives.checkpoint(skip=4)
        assert lives.catalogue.next_checkpoint == 6
        lives.start()
        assert lives.catalogue.next_checkpoint == 6
        assert lives.catalogue.newest_generation == lives.catalogue.generation(Generation(2))
        assert lives.catalogue.generation(Generation(3)) is None

    def test_a_stop_is_told_until_the_next_start(self, lives: Lives) -> None:
        lives.start()
        taken = lives.savepoint("end")
        lives.stop(taken)
        assert lives.catalogue.stopped is not None
        assert lives.catalogue.stopped.snapshot == taken.id
        lives.start(taken)
        assert lives.catalogue.stopped is None

    def test_a_wish_to_stop_is_for_one_generation_and_can_be_taken_back(self, lives: Lives) -> None:
        one, two = Generation(1), Generation(2)
        lives.start()
        lives.want_stop(one)
        lives.want_stop(one)
        assert (len(lives.catalogue.stops_wanted(one)), lives.catalogue.stops_wanted(two)) == (2, ())
        lives.withdraw_stop(two)
        assert len(lives.catalogue.stops_wanted(one)) == 2
        lives.withdraw_stop(one)
        assert lives.catalogue.stops_wanted(one) == ()
        lives.want_stop(one)
        assert len(lives.catalogue.stops_wanted(one)) == 1

    def test_what_is_deployed_is_the_newest_and_each_is_found_by_its_number(self, lives: Lives) -> None:
        lives.deploy("a.py")
        lives.want_stop(Generation(1))
        lives.deploy("b.py")
        catalogue = lives.catalogue
        assert catalogue.deployed is not None
        assert (catalogue.deployed.job, catalogue.deployed_number) == ("b.py", 3)
        first = catalogue.deployed_at(1)
        assert first is not None
        assert first.job == "a.py"
        assert catalogue.deployed_at(2) is None
        assert catalogue.deployed_at(9) is None

    def test_groups_are_committed_when_a_slot_says_so(self, lives: Lives) -> None:
        lives.start()
        ids = [CheckpointId(n) for n in (1, 2, 3)]
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(1)))
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(2), committed=(ids[0],)))
        assert lives.catalogue.committed == {1}
        lives.append(Stopped(generation=Generation(1), reason="", committed=(ids[1],)))
        assert lives.catalogue.committed == {1, 2}

    def test_a_generations_own_snapshots_and_its_base(self, rolled_back: Lives) -> None:
        catalogue = rolled_back.catalogue
        assert [ref.id for ref in catalogue.completed_by(Generation(1))] == [5, 4, 3, 2, 1]
        assert catalogue.completed_by(Generation(2)) == ()
        assert catalogue.base_of(Generation(1)) is None
        assert catalogue.base_of(Generation(9)) is None
        base = catalogue.base_of(Generation(2))
        assert base == catalogue.find(CheckpointId(3))
        assert base is not None
        rolled_back.retire(base)
        assert rolled_back.catalogue.base_of(Generation(2)) is None


class TestHistory:
    """What the newest generation stands on: what a restore chooses from."""

    def ids(self, lives: Lives) -> list[int]:
        return [int(ref.id) for ref in lives.catalogue.history]

    def test_a_rollback_leaves_what_it_went_back_behind_out_for_good(self, rolled_back: Lives) -> None:
        assert self.ids(rolled_back) == [3, 2, 1]
        rolled_back.checkpoint()
        assert self.ids(rolled_back) == [6, 3, 2, 1]
        rolled_back.start(rolled_back.catalogue.history[0])
        assert self.ids(rolled_back) == [6, 3, 2, 1]

    def test_a_base_survives_a_crash_right_after_the_rollback(self, rolled_back: Lives) -> None:
        rolled_back.start(rolled_back.catalogue.base_of(Generation(2)))
        rolled_back.start(rolled_back.catalogue.base_of(Generation(3)))
        assert self.ids(rolled_back) == [3, 2, 1]

    def test_a_return_to_an_abandoned_branch_takes_that_branch_up_again(self, rolled_back: Lives) -> None:
        rolled_back.checkpoint()  # 6, on 3
        rolled_back.start(rolled_back.catalogue.find(CheckpointId(4)))
        assert self.ids(rolled_back) == [4, 3, 2, 1]

    def test_a_fresh_start_stands_on_nothing(self, rolled_back: Lives) -> None:
        rolled_back.start()
        assert self.ids(rolled_back) == []
        rolled_back.checkpoint()
        assert self.ids(rolled_back) == [6]

    def test_a_restore_from_long_ago_skips_the_generations_between(self, rolled_back: Lives) -> None:
        rolled_back.checkpoint()
        rolled_back.start(rolled_back.catalogue.find(CheckpointId(6)))
        rolled_back.checkpoint()
        rolled_back.start(rolled_back.catalogue.find(CheckpointId(2)))
        assert self.ids(rolled_back) == [2, 1]

    def test_a_savepoint_is_a_base_like_any_other(self, lives: Lives) -> None:
        lives.start()
        lives.checkpoint()
        named = lives.savepoint("v1")
        lives.checkpoint()
        lives.start(named)
        assert self.ids(lives) == [2, 1]

    def test_snapshots_that_complete_out_of_order_stand_in_the_order_of_their_barriers(self, lives: Lives) -> None:
        lives.start()
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(2)))
        lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(1, name="slow")))
        assert self.ids(lives) == [2, 1]
        assert tuple(lives.catalogue.abandoned_by(snapshot(1, name="slow"))) == (2,)


class TestRollbacks:
    """What sinks may show and a restore goes back behind."""

    def test_nothing_is_abandoned_by_going_on(self, rolled_back: Lives) -> None:
        rolled_back.checkpoint()
        head = rolled_back.catalogue.history[0]
        assert tuple(rolled_back.catalogue.abandoned_by(head)) == ()

    def test_a_rollback_abandons_what_came_after(self, lives: Lives) -> None:
        lives.start()
        refs = [lives.checkpoint() for _ in range(5)]
        assert tuple(lives.catalogue.abandoned_by(refs[2])) == (4, 5)
        assert tuple(lives.catalogue.abandoned_by(None)) == (1, 2, 3, 4, 5)

    def test_a_rollback_whose_driver_died_before_it_completed_anything_is_still_to_be_carried_out(
        self, rolled_back: Lives
    ) -> None:
        base = rolled_back.catalogue.base_of(Generation(2))
        assert tuple(rolled_back.catalogue.abandoned_by(base)) == (4, 5)
        rolled_back.start(base)
        assert tuple(rolled_back.catalogue.abandoned_by(base)) == (4, 5)

    def test_a_completion_says_that_the_rollback_before_it_was_carried_out(self, rolled_back: Lives) -> None:
        base = rolled_back.catalogue.base_of(Generation(2))
        rolled_back.checkpoint()
        assert tuple(rolled_back.catalogue.abandoned_by(base)) == (6,)
        assert tuple(rolled_back.catalogue.abandoned_by(None)) == (1, 2, 3, 6)

    def test_a_stop_does_not_say_that_a_rollback_was_carried_out(self, rolled_back: Lives) -> None:
        rolled_back.stop()
        assert tuple(rolled_back.catalogue.abandoned_by(rolled_back.catalogue.base_of(Generation(2)))) == (4, 5)

    def test_a_return_to_an_abandoned_branch_abandons_the_present_one_only(self, rolled_back: Lives) -> None:
        rolled_back.checkpoint()
        five = rolled_back.catalogue.find(CheckpointId(5))
        assert tuple(rolled_back.catalogue.abandoned_by(five)) == (6,)
        rolled_back.start(five)
        rolled_back.checkpoint()
        assert tuple(rolled_back.catalogue.abandoned_by(None)) == (1, 2, 3, 4, 5, 7)

    def test_a_fresh_start_that_crashed_still_has_to_take_everything_back(self, rolled_back: Lives) -> None:
        rolled_back.start()
        assert tuple(rolled_back.catalogue.abandoned_by(None)) == (1, 2, 3, 4, 5)
        rolled_back.start()
        assert tuple(rolled_back.catalogue.abandoned_by(None)) == (1, 2, 3, 4, 5)
        rolled_back.checkpoint()
        assert tuple(rolled_back.catalogue.abandoned_by(None)) == (6,)

    def test_retired_snapshots_have_published_all_the_same(self, lives: Lives) -> None:
        lives.start()
        first = lives.checkpoint()
        second = lives.checkpoint()
        lives.checkpoint(retires=[second])
        assert tuple(lives.catalogue.abandoned_by(first)) == (2, 3)

    def test_duplicates_are_accepted_until_a_generation_completes(self, lives: Lives) -> None:
        lives.start()
        refs = [lives.checkpoint() for _ in range(3)]
        rollbacks = (SinkRollback(OUT, Rollback.DUPLICATES, (Span(refs[1].id, refs[2].id),)),)
        lives.start(refs[0], rollbacks=rollbacks)
        assert lives.catalogue.accepted_duplicates(OUT) == frozenset()
        lives.start(refs[0], rollbacks=rollbacks, accept_duplicates=True)
        assert lives.catalogue.accepted_duplicates(OUT) == {2, 3}
        assert lives.catalogue.accepted_duplicates(STREAM) == frozenset()  # type: ignore[arg-type]
        lives.checkpoint()
        assert lives.catalogue.accepted_duplicates(OUT) == frozenset()


class TestStored:
    """The logs on a store, where files get lost and torn."""

    @pytest.fixture
    def store(self, lives: Lives) -> ObjectStore:
        lives.deploy()
        lives.start()
        for _ in range(3):
            lives.checkpoint()
        store = open_store(f"memory://{unique()}")
        write(lives, store)
        return store

    def test_what_was_written_is_read(self, lives: Lives, store: ObjectStore) -> None:
        assert read_catalogue(store, STREAM) == lives.catalogue

    def test_a_slot_that_is_gone_is_named(self, store: ObjectStore) -> None:
        store.delete(numbered(StreamPaths(STREAM).slots, SlotNumber(2)))
        with pytest.raises(LogDamaged, match="slot 2 is missing, 3 is there"):
            read_catalogue(store, STREAM)

    @pytest.mark.parametrize("cut", [b"", b'{"body":', b"\xff\xfe", b"null\n", b"[" * 100_000])
    @pytest.mark.parametrize("folder", ["slots", "decisions"])
    def test_a_torn_slot_stops_the_stream_by_name(self, store: ObjectStore, folder: str, cut: bytes) -> None:
        path = f"streams/orders/{folder}/00000001.json"
        store.replace(path, cut)
        with pytest.raises(
            LogDamaged, match=rf"{path} is not a (slot|decision) file.*`headgate repair orders` tells a way out"
        ):
            read_catalogue(store, STREAM)

    def test_a_slot_of_a_newer_version_is_told_from_damage(self, store: ObjectStore) -> None:
        path = numbered(StreamPaths(STREAM).slots, SlotNumber(3))
        store.replace(path, resealed(store.read(path), b'"version":', b'"version":9'))
        with pytest.raises(NewerVersion, match=r"00000003\.json is a slot file of version 9.*upgrade"):
            read_catalogue(store, STREAM)

    def test_strange_files_among_the_slots_are_not_slots(self, lives: Lives, store: ObjectStore) -> None:
        for name in ("readme", "00000000.json", "0000000９.json", "1.json", "sub/00000001.json", "00000009.json.bak"):
            store.create(f"streams/orders/slots/{name}", b"x")
        assert read_catalogue(store, STREAM) == lives.catalogue


def write(lives: Lives, store: ObjectStore) -> None:
    """Put the logs on `store`."""
    slots, decisions = slot_log(store, STREAM), decision_log(store, STREAM)
    for number, slot in enumerate(lives.slots):
        slots.append(SlotNumber(number) if number else None, slot.record)
    for number, decision in enumerate(lives.decisions):
        decisions.append(SlotNumber(number) if number else None, decision.record)


def test_a_catalogue_can_be_made_of_other_slots(rolled_back: Lives) -> None:
    catalogue = rolled_back.catalogue
    fewer = replace(catalogue, slots=catalogue.slots[:3])
    assert isinstance(fewer, Catalogue)
    assert [ref.id for ref in fewer.snapshots] == [2, 1]
    assert isinstance(fewer.slots[0], Slot)
