"""A savepoint goes where its asker, or the setting, says; what cannot be written there declines it, and no more."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.errors import BadInput
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store_local import LocalStore
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


def taken(life: Running, name: str, **args: object) -> SnapshotRef:
    life.ask(name, RequestKind.SAVEPOINT, name=name, **args)
    folder = life.answer(name).result["folder"]
    found = next(ref for ref in life.world.catalogue.snapshots if ref.name == name)
    assert folder == found.where
    return found


def test_a_savepoint_is_written_to_the_directory_that_was_asked_for_and_restores_from_there(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    ref = taken(life, "before", target_directory=f"file://{tmp_path}/elsewhere/")
    assert (ref.location, ref.folder) == (f"file://{tmp_path}/elsewhere", f"{STREAM}-before-{ref.id}-g1")
    assert all(
        (tmp_path / "elsewhere" / ref.path(handle)).is_file()
        for handle in SnapshotFiles(world.store, ref).metadata().handles()
    )
    assert not world.store.list(f"streams/{STREAM}/savepoints")
    world.write(1)
    life.read_all()
    assert life.stop() is None
    life = world.begin("before")
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_a_savepoint_elsewhere_that_is_gone_ends_no_start_and_what_nobody_needs_below_the_root_still_goes(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    taken(life, "before", target_directory=f"file://{tmp_path}/elsewhere")
    world.write(1)
    life.read_all()
    assert life.stop() is None
    shutil.rmtree(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("not a folder any more")
    litter = f"streams/{STREAM}/shared/left-by-a-killed-driver"
    world.store.create(litter, b"litter")
    life = world.begin()
    until(lambda: world.store.stat(litter) is None, "what no snapshot names is deleted")
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_the_setting_says_where_savepoints_go_of_which_nobody_says_it(world: LifeWorld, tmp_path: Path) -> None:
    world.settings["execution.checkpointing.savepoint-dir"] = f"{tmp_path}/usual"
    world.write(1)
    life = world.begin()
    life.read_all()
    assert taken(life, "usual").location == f"file://{tmp_path}/usual"
    assert taken(life, "other", target_directory=f"{tmp_path}/other").location == f"file://{tmp_path}/other"
    life.ask("end", RequestKind.STOP, savepoint="last")
    assert life.wait() is None
    (last, *_) = world.catalogue.snapshots
    assert (last.name, last.location) == ("last", f"file://{tmp_path}/usual")


def test_a_request_for_where_no_setting_says_is_refused_by_the_driver_too_whoever_has_left_it(
    world: LifeWorld, tmp_path: Path
) -> None:
    world.settings["headgate.snapshot.allowed-dirs"] = f"{tmp_path}/allowed"
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path)
    world.write(1)
    life = world.begin()
    life.read_all()
    for number, target in enumerate(("allowed-evil", "allowed/../elsewhere", "allowed/%2e%2e/else", "allowed/link")):
        life.ask(
            f"sp{number}", RequestKind.SAVEPOINT, name=f"sp{number}", target_directory=f"file://{tmp_path}/{target}"
        )
        answer = life.answer(f"sp{number}")
        assert answer.outcome is Outcome.FAILED
        assert "headgate.snapshot.allowed-dirs allows more places" in answer.why
    assert (
        taken(life, "fine", target_directory=f"{tmp_path}/allowed/below").location == f"file://{tmp_path}/allowed/below"
    )
    assert life.stop() is None
    assert {path.name for path in tmp_path.iterdir()} == {"allowed", "g1", "in", "out", "root"}


def left_behind(world: LifeWorld) -> SnapshotRef:
    """The savepoint of a life that has ended."""
    world.write(2)
    life = world.begin()
    life.read_all()
    ref = taken(life, "before")
    assert life.stop() is None
    return ref


def test_a_start_from_where_no_setting_says_is_refused_by_the_driver_before_it_opens_anything(
    world: LifeWorld, tmp_path: Path
) -> None:
    ref = left_behind(world)
    shutil.copytree(tmp_path / "root" / ref.folder, tmp_path / "copy")
    copied = world.locate(tmp_path / "copy")
    world.settings["headgate.snapshot.allowed-dirs"] = f"{tmp_path}/allowed"
    shutil.rmtree(tmp_path / "copy")  # whoever looked would say that it is gone
    error = world.begin(copied).wait()
    assert isinstance(error, BadInput)
    assert f"a snapshot may not be restored from file://{tmp_path}/copy; the stream's setting" in str(error)


def test_a_start_from_below_the_root_is_refused_by_the_driver_if_a_link_leads_elsewhere(
    world: LifeWorld, tmp_path: Path
) -> None:
    ref = left_behind(world)
    shutil.copytree(tmp_path / "root" / ref.folder, tmp_path / "evil" / "copy")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "evil")
    world.settings["headgate.snapshot.allowed-dirs"] = f"{tmp_path}/allowed"
    error = world.begin(replace(ref, folder="link/copy")).wait()
    assert isinstance(error, BadInput)
    assert f"a snapshot may not be restored from file://{tmp_path}/root/link/copy; the stream's setting" in str(error)


def test_a_place_that_its_start_allowed_for_once_is_opened_and_by_the_start_that_goes_on_from_there(
    world: LifeWorld, tmp_path: Path
) -> None:
    ref = left_behind(world)
    shutil.copytree(tmp_path / "root" / ref.folder, tmp_path / "copy")
    copied = world.locate(tmp_path / "copy")
    world.settings |= {
        "headgate.snapshot.allowed-dirs": f"{tmp_path}/allowed",
        "execution.checkpointing.interval": "1 h",
    }
    world.allow_place = True
    life = world.begin(copied)
    life.read_all()
    life.ask("end", RequestKind.CANCEL)
    assert life.wait() is None
    world.allow_place = False
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    assert [start.decision.place_allowed for start in world.catalogue.generations[1:]] == [True, False]  # type: ignore[union-attr]
    assert [start.decision.snapshot for start in world.catalogue.generations[1:]] == [copied, copied]  # type: ignore[union-attr]
    world.check_output()


def test_a_directory_that_cannot_be_written_declines_the_savepoint_by_name_and_the_stream_goes_on(
    world: LifeWorld, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    world.write(1)
    life = world.begin()
    life.read_all()
    for number, target in enumerate((f"file://{tmp_path}/file/below", "gs://bucket/folder")):
        life.ask(f"sp{number}", RequestKind.SAVEPOINT, name=f"sp{number}", target_directory=target)
        answer = life.answer(f"sp{number}")
        assert answer.outcome is Outcome.FAILED
        assert (f"{tmp_path}/file" if number == 0 else "'gs'") in answer.why
    world.write(1)
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_an_upload_that_hangs_costs_its_savepoint_and_holds_up_no_checkpoint_for_longer_than_the_timeout(
    world: LifeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, upload = threading.Event(), LocalStore.upload

    def hang(store: LocalStore, local: Path, path: str) -> int:
        if "elsewhere" in store.url:
            stuck.wait(60)
        return upload(store, local, path)

    monkeypatch.setattr(LocalStore, "upload", hang)
    world.settings["execution.checkpointing.timeout"] = "1 s"
    world.settings["execution.checkpointing.tolerable-failed-checkpoints"] = "100"
    world.write(2)
    life = world.begin()
    life.read_all()
    for number in range(3):  # more than a pool has threads
        life.ask(f"sp{number}", RequestKind.SAVEPOINT, name=f"sp{number}", target_directory=f"{tmp_path}/elsewhere")
    for number in range(3):
        told = life.answer(f"sp{number}").why
        assert re.search("it expired after 1000 ms, still waiting for .*state number", told), told
    done = len(world.catalogue.completed)
    world.write(1)
    until(lambda: life.error or len(world.catalogue.completed) > done + 1, "checkpoints go on")
    stuck.set()
    assert life.stop() is None
    world.check_output()
    until(lambda: not list((tmp_path / "elsewhere").rglob("*.c*g1")), "what came late is deleted")
    shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
