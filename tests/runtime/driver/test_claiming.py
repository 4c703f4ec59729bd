"""Whose a restored snapshot is: left alone after one full checkpoint, or the stream's, which deletes it in time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.ids import CheckpointId
from headgate_contract.mailbox import RequestKind
from headgate_contract.restore import ClaimMode, Named, Refuse, RestoreFrom
from headgate_contract.snapshot import SnapshotRef
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import until

BY_HAND = {"execution.checkpointing.interval": "1 h", "execution.checkpointing.num-retained": "5"}


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


def take(life: Running, id: str, kind: RequestKind = RequestKind.CHECKPOINT) -> SnapshotRef:
    """A snapshot by hand."""
    life.ask(id, kind, **({"name": id} if kind is RequestKind.SAVEPOINT else {}))
    number = CheckpointId(life.answer(id).result["snapshot"])
    found = life.world.catalogue.find(number)
    assert found is not None
    return found


def files(world: LifeWorld, ref: SnapshotRef) -> set[str]:
    return {handle.path for handle in SnapshotFiles(world.store, ref).metadata().handles()}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("crash", ["none", "before its first checkpoint"])
def test_f28_f29_after_a_restore_the_first_checkpoint_is_full_whatever_comes_before_it(
    world: LifeWorld, backend: str, crash: str
) -> None:
    world.settings |= {**BY_HAND, "state.backend.type": backend}
    world.write(2)
    life = world.begin()
    life.read_all()
    first = take(life, "first")
    assert life.stop() is None
    life = world.begin(first.id)
    if crash != "none":
        world.faults.refused = [f"create streams/{STREAM}/slots"]
        life.ask("lost", RequestKind.CHECKPOINT)
        assert life.wait() is not None
        world.faults.refused = []
        life = world.begin()
    take(life, "between", RequestKind.SAVEPOINT)
    before = world.shared_files()
    full = take(life, "full")
    assert files(world, full)
    assert files(world, full) <= world.shared_files() - before, "it made all of its files itself"
    increment = take(life, "increment")
    assert files(world, increment) == files(world, full), "and the next one builds on it"
    assert life.stop() is None


def test_f144_a_savepoint_that_was_claimed_is_gone_once_newer_checkpoints_subsume_it(world: LifeWorld) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "3"}
    world.write(2)
    life = world.begin()
    life.read_all()
    taken = take(life, "before", RequestKind.SAVEPOINT)
    own = f"{taken.folder}/notes.txt"
    world.store.create(own, b"what somebody put there")
    assert life.stop() is None
    life = world.begin("before", claims=True)
    take(life, "one")
    assert world.catalogue.find(taken.id) is not None, "three are retained"
    take(life, "two")
    assert world.catalogue.find(taken.id) is None
    until(lambda: [info.path for info in world.store.list(taken.folder)] == [own], "its own files are gone")
    world.write(1)
    life.read_all()
    assert life.stop() is None
    assert world.begin().stop() is None
    world.check_output()


@pytest.mark.parametrize("claims", [True, False], ids=["claimed", "not claimed"])
@pytest.mark.parametrize("end", ["a stop", "a cancel that deletes", "a cancel that retains"])
def test_f144_after_a_restore_that_claims_it_and_an_end_the_folder_of_a_savepoint_is_gone(
    world: LifeWorld, claims: bool, end: str
) -> None:
    """Where nothing subsumes it and the end deletes nothing, it is kept as a checkpoint is."""
    deletes = {"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"}
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "1" if end == "a stop" else "5"}
    world.settings |= deletes if end == "a cancel that deletes" else {}
    world.write(2)
    life = world.begin()
    life.read_all()
    taken = take(life, "before", RequestKind.SAVEPOINT)
    folder = world.base / "root" / taken.folder
    assert life.stop() is None
    assert folder.exists()
    life = world.begin("before", claims=claims)
    world.write(1)
    life.read_all()
    if end == "a stop":
        take(life, "one")
        assert life.stop() is None
    else:
        life.ask("cancel", RequestKind.CANCEL)
        assert life.wait() is None
    gone = claims and end != "a cancel that retains"
    assert folder.exists() is not gone
    assert (world.catalogue.find(taken.id) is None) is gone
    if not gone:
        again = world.begin("before")
        again.read_all()
        assert again.stop() is None
        world.check_output()


def test_a_savepoint_of_elsewhere_that_was_claimed_goes_too_over_a_crash_and_a_deletion_that_failed(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "1"}
    world.write(2)
    life = world.begin()
    life.read_all()
    taken = tmp_path / "copy"
    shutil.copytree(world.base / "root" / take(life, "before", RequestKind.SAVEPOINT).folder, taken)
    assert life.stop() is None
    other = LifeWorld(tmp_path / "other")
    other.settings |= world.settings
    other.inputs, other.written = world.inputs, world.written
    life = other.begin(other.locate(taken), claims=True)
    other.faults.refused = [f"create streams/{STREAM}/slots"]
    life.ask("lost", RequestKind.CHECKPOINT)
    assert life.wait() is not None
    other.faults.refused = []
    started = other.launch()
    assert isinstance(started.decision, RestoreFrom)
    assert started.decision.claim_mode is ClaimMode.CLAIM, "who restores it again owns it as well"
    torn = (taken / "_metadata").read_bytes()
    (taken / "_metadata").write_bytes(b"torn")
    life = other.begin(claims=True)
    assert life.wait() is not None
    (taken / "_metadata").write_bytes(torn)
    life = other.begin()
    take(life, "one")
    until(lambda: not taken.exists(), "it is gone, its folder too")
    assert other.catalogue.claimed == ()
    assert life.stop() is None
    assert other.begin().stop() is None


def test_f144_one_that_is_named_again_by_its_place_is_the_same_and_refused_once_it_is_subsumed(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "2"}
    world.write(2)
    life = world.begin()
    life.read_all()
    place = tmp_path / "copy"
    shutil.copytree(world.base / "root" / take(life, "before", RequestKind.SAVEPOINT).folder, place)
    assert life.stop() is None
    shutil.copytree(place, tmp_path / "kept")
    other = LifeWorld(tmp_path / "other")
    other.settings |= world.settings
    other.inputs, other.written = world.inputs, world.written
    first = other.locate(place)
    life = other.begin(first, claims=True)
    assert life.stop() is None
    assert other.locate(place) == first, "it has one number for all"
    life = other.begin(first)
    take(life, "one")
    assert life.stop() is None
    shutil.copytree(tmp_path / "kept", place, dirs_exist_ok=True)  # as if the driver had died before it deleted it
    refused = other.decide(Named(other.locate(place)))
    assert isinstance(refused, Refuse)
    assert "it is retired: its files may be gone" in refused.reason
    assert other.begin().stop() is None
    until(lambda: not place.exists(), "and the next life deletes it")


def test_what_is_not_claimed_stays_for_ever(world: LifeWorld) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "1"}
    world.write(1)
    life = world.begin()
    life.read_all()
    taken = take(life, "before", RequestKind.SAVEPOINT)
    assert life.stop() is None
    life = world.begin("before")
    for number in range(3):
        take(life, f"c{number}")
    assert life.stop() is None
    assert world.catalogue.find(taken.id) == taken
    assert SnapshotFiles(world.store, taken).metadata().id == taken.id
