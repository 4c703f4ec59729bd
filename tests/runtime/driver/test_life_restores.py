"""What a life restores, refuses and leaves alone: jobs that changed, savepoints from elsewhere, leftovers."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.sink.files_committer import FilesCommitter
from headgate_contract.errors import RestoreRefused
from headgate_contract.ids import CheckpointId, SavepointName
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.snapshot import SnapshotRef, read_metadata
from tests.runtime.driver.life_world import STREAM, LifeWorld, refuse_output
from tests.runtime.driver.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


@pytest.mark.parametrize("what", ["another source", "another max-parallelism"])
def test_a_snapshot_that_does_not_fit_the_job_is_refused_before_anything_begins(world: LifeWorld, what: str) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    if what == "another source":
        world.source_uid = "other"
        error = world.begin().wait()
        assert isinstance(error, RestoreRefused)
        assert "it has positions of records, the job reads other" in str(error)
    else:
        error = world.begin(settings={"pipeline.max-parallelism": "64"}).wait()
        assert isinstance(error, RestoreRefused)
        assert "it has max-parallelism 128, the job is set to 64" in str(error)


def test_f61_what_may_be_left_of_a_snapshot_is_left_and_the_rest_is_restored(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.source_uid = "other"
    life = world.begin(leaves=["records"])
    until(lambda: life.error or life.heart.progress.records >= 2 * world.written, "it begins at its beginning")
    assert life.stop() is None
    counted = [row["number"] for row in world.output() if row["key"] == 0]
    assert sorted(counted) == list(range(1, 7)), "the step's state is restored"


def test_f159_a_job_whose_vertices_were_renamed_goes_on_and_goes_back_as_if_they_were_not(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    assert life.answer("sp").outcome is Outcome.DONE
    world.write(1)
    until(lambda: life.error or len(world.output()) == world.written, "what came since the savepoint is published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "commit", refuse_output)
        world.write(1)
        assert life.wait() is not None, "a checkpoint carries output that is not published"
    world.source_uid, world.step_uid, world.sink_uid = "lines", "numbers", "published"
    world.former_uids = {"lines": ["records"], "numbers": ["number"], "published": ["out"]}
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()
    life = world.begin("before")  # what was published under either uid since then is taken back
    life.read_all()
    assert life.stop() is None
    world.check_output()


def brought(folder: Path, to: LifeWorld) -> SnapshotRef:
    """The snapshot in `folder`, as control finds it for another stream."""
    return to.locate(folder)


def test_f145_a_savepoint_of_another_root_is_restored_and_needed_no_more_after_the_second_checkpoint(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    taken = tmp_path / "copy"
    shutil.copytree(world.base / "root" / str(life.answer("sp").result["folder"]), taken)
    world.write(1)
    life.read_all()
    assert life.stop() is None
    other = LifeWorld(tmp_path / "other")
    other.inputs, other.written = world.inputs, world.written
    life = other.begin(brought(taken, other))
    life.read_all()
    life.until_completed(2)
    shutil.rmtree(taken)
    assert life.stop() is None
    world.write(1)
    other.written = world.written
    life = other.begin()
    life.read_all()
    assert life.stop() is None
    rows = other.output()
    assert sorted(row["id"] for row in rows) == list(range(40, 80)), "what came behind the savepoint, each once"
    expected = Counter(id % 7 for id in range(40))
    assert all(min(row["number"] for row in rows if row["key"] == key) == expected[key] + 1 for key in range(7))


def test_a_retired_checkpoint_that_a_dead_driver_had_not_deleted_is_deleted_by_the_next(world: LifeWorld) -> None:
    world.settings["execution.checkpointing.interval"] = "1 h"  # it may be read until the last one retires it
    world.write(1)
    life = world.begin()
    life.read_all()
    life.ask("first", RequestKind.CHECKPOINT)
    assert life.answer("first").outcome is Outcome.DONE
    (first,) = world.catalogue.completed
    metadata = world.store.read(f"{first.folder}/{METADATA}")
    world.write(1)
    life.read_all()
    assert life.stop() is None
    assert first.id in world.catalogue.retired
    world.store.create(f"{first.folder}/{METADATA}", metadata)
    life = world.begin()
    until(lambda: world.store.stat(f"{first.folder}/{METADATA}") is None, "what was left is deleted")
    assert life.stop() is None
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_what_an_earlier_life_left_without_a_slot_goes_and_what_others_put_there_stays(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="kept")
    kept = str(life.answer("sp").result["folder"])
    assert life.stop() is None
    metadata = world.store.read(f"{kept}/{METADATA}")
    folder = f"streams/{STREAM}"
    ours = {
        f"{folder}/shared/broken",
        f"{folder}/checkpoints/chk-999-g1/{METADATA}",
        f"{folder}/savepoints/half-99-g1/state/a",
        f"{folder}/savepoints/less-98-g1/state/a",
    }
    foreign = {f"{folder}/savepoints/foreign-9-g1/{METADATA}", f"{folder}/savepoints/foreign-9-g1/state/a"}
    foreign.add(f"{folder}/savepoints/foreign/being-copied")
    for path in (*ours, *foreign):
        world.store.create(path, b"what nobody knows")
    half = replace(read_metadata(metadata, kept), name=SavepointName("half"), id=CheckpointId(99))
    ours.add(f"{folder}/savepoints/half-99-g1/{METADATA}")
    world.store.create(f"{folder}/savepoints/half-99-g1/{METADATA}", half.encode())
    before = {info.path for info in world.store.list(kept)}
    life = world.begin()
    until(lambda: not [path for path in ours if world.store.stat(path)], "what was left is deleted")
    for name in ("half", "foreign"):
        life.ask(name, RequestKind.SAVEPOINT, name=name)
        assert life.answer(name).outcome is Outcome.DONE, "its name is free"
    assert life.stop() is None
    assert {info.path for info in world.store.list(kept)} == before
    assert not [path for path in foreign if world.store.stat(path) is None]
    world.write(1)
    life = world.begin("half")
    life.read_all()
    assert life.stop() is None
    world.check_output()


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
@pytest.mark.parametrize("new", ["renamed", "archive/before-1-g1", "before-77-g1"])
def test_f146_a_savepoint_that_was_moved_or_copied_beside_the_others_is_restored_and_never_swept(
    world: LifeWorld, how: Callable[..., object], new: str
) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    taken = world.base / "root" / str(life.answer("sp").result["folder"])
    assert life.stop() is None
    place = taken.parent / new
    place.parent.mkdir(exist_ok=True)
    how(taken, place)
    there = {path.relative_to(place) for path in place.rglob("*")}
    for named in (False, True, False):
        life = world.begin(brought(place, world) if named else None)
        world.write(1)
        life.read_all()
        assert life.stop() is None
        assert {path.relative_to(place) for path in place.rglob("*")} == there
    world.check_output()


def test_a_sink_whose_output_is_not_yet_published_cannot_leave_the_job(world: LifeWorld) -> None:
    world.write(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "commit", refuse_output)
        assert str(world.begin().wait()) == "no; not restarted: restart-strategy.type is none"
    assert world.catalogue.snapshots
    assert world.output() == []
    world.sink_uid = "renamed"
    error = world.begin().wait()
    assert isinstance(error, RestoreRefused)
    assert "carries output of sink out that may not be published yet, and the job has no such sink" in str(error)
    world.sink_uid = "out"
    assert world.begin().stop() is None
    world.check_output()
    world.sink_uid = "renamed"
    assert world.begin().stop() is None


def test_a_savepoint_of_an_older_release_restores_from_the_folder_that_its_slot_names(world: LifeWorld) -> None:
    world.write(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamPaths, "savepoint", lambda paths, name, *_: f"{paths.savepoints}/{name}")
        life = world.begin()
        life.read_all()
        life.ask("sp", RequestKind.SAVEPOINT, name="old")
        assert life.answer("sp").result["folder"] == f"streams/{STREAM}/savepoints/old"
        assert life.stop() is None
    world.write(1)
    life = world.begin("old")
    life.ask("again", RequestKind.SAVEPOINT, name="new")
    assert str(life.answer("again").result["folder"]).startswith(f"streams/{STREAM}/savepoints/new-")
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_a_damaged_snapshot_that_is_not_restored_is_left_alone(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="damaged")
    folder = str(life.answer("sp").result["folder"])
    assert life.stop() is None
    world.store.replace(f"{folder}/{METADATA}", b"torn")
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert world.store.stat(f"{folder}/{METADATA}") is not None
