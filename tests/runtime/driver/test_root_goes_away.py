"""A root that goes away under a driver: it is renamed, its mount drops, another one is put in its place."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from headgate.job.plan import describe
from headgate.sink.files_committer import FilesCommitter
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import RootLost, SinkFailed
from headgate_contract.heartbeats import StreamState
from headgate_contract.history import read_history
from headgate_contract.ids import CheckpointId
from headgate_contract.paths import METADATA, ROOT
from headgate_contract.records import Deployed, decision_log
from headgate_contract.root_store import RootStore, make_root
from headgate_contract.settings import Settings
from headgate_contract.snapshot import read_metadata
from headgate_contract.store_local import LocalStore
from tests.runtime.driver.failing_lives import failing_world, restarts
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import until


class Moved:
    """A world whose root can be taken away and brought back."""

    def __init__(self, world: LifeWorld, log: pytest.LogCaptureFixture) -> None:
        self.world = world
        self.root = world.base / "root"
        self.elsewhere = world.base / "elsewhere"
        self._log = log
        log.set_level(logging.WARNING)

    def away(self) -> None:
        self.root.rename(self.elsewhere)

    def dropped(self) -> None:
        """Its mount has dropped: an empty folder is left."""
        self.away()
        self.root.mkdir()

    def back(self) -> None:
        if self.root.exists():
            assert _files(self.root) == [], "nothing was written where the root was"
            shutil.rmtree(self.root)
        self.elsewhere.rename(self.root)

    def until_noticed(self) -> None:
        until(lambda: f"{ROOT} is not there; waiting for it" in self._log.text, "the driver waits for its root")

    def check_committed(self) -> None:
        """What is visible has its slot in the log, which lies elsewhere now."""
        store = RootStore(LocalStore(self.elsewhere))
        completed = {ref.id for ref in read_catalogue(store, STREAM).completed}
        visible = {int(path.name.split("-")[1]) for path in (self.world.base / "out").glob("part-*")}
        assert visible <= completed


@pytest.fixture
def moved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Moved:
    world = failing_world(tmp_path, {})
    world.write(3)
    return Moved(world, caplog)


def began(moved: Moved) -> Running:
    life = moved.world.begin()
    life.heart.start()
    life.read_all()
    moved.world.calm()
    return life


def ends_well(moved: Moved, life: Running) -> None:
    """Everything is there once, and the log has no hole: its laws are checked at each reading."""
    moved.world.write(2)
    life.read_all()
    assert life.stop() is None
    moved.world.check_output()
    slots = moved.world.catalogue.slots
    assert [slot.number for slot in slots] == list(range(1, len(slots) + 1))


@pytest.mark.parametrize("how", [Moved.away, Moved.dropped])
def test_when_it_is_back_the_stream_goes_on_by_itself(moved: Moved, how: Callable[[Moved], None]) -> None:
    life = began(moved)
    how(moved)
    moved.world.write(2)
    moved.until_noticed()
    moved.check_committed()
    assert moved.root.exists() == (how is Moved.dropped), "nobody makes it anew"
    moved.back()
    until(lambda: life.heart.progress.restarts == 1, "it has restarted")
    [restart] = restarts(moved.world)
    assert f"the root {moved.world.store.url} is gone: {ROOT} is not there" in restart.cause
    assert any("is gone" in event.text for event in read_history(moved.world.store, STREAM)), "history tells of it"
    ends_well(moved, life)


CALLS = (
    "upload streams/*/shared/*",
    "create streams/*/checkpoints/*/_metadata",
    "create streams/*/slots/*",
    "read streams/*/slots/*",
    "replace fleet/heartbeats/*",
    "create streams/*/history/*",
    "list*streams/*/requests*",
    "delete*streams/*",
)


@pytest.mark.parametrize("call", CALLS)
def test_whatever_it_is_about_to_do_there(moved: Moved, call: str) -> None:
    """It goes away between the look at it and the call, which is the worst moment that there is."""
    life = began(moved)
    calls: list[str] = []

    def away_before(made: str) -> None:
        if fnmatchcase(made, call) and not calls:
            calls.append(made)
            moved.dropped()

    moved.world.faults.act = away_before
    moved.world.write(2)
    until(lambda: calls, f"a call like {call}")
    moved.until_noticed()
    moved.world.faults.act = lambda made: None
    _put_back(moved)
    until(lambda: life.error or life.heart.progress.restarts >= 1, "it has restarted")
    ends_well(moved, life)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _put_back(moved: Moved) -> None:
    """The one call that was under way may have left something in the folder that is not the root."""
    shutil.rmtree(moved.root)
    moved.elsewhere.rename(moved.root)


def test_between_slot_and_commit_and_during_the_commit(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot is in the log: whoever goes on commits it, this driver or the next one, and once."""
    life = began(moved)
    commit, gone = FilesCommitter.commit, []

    def away_first(sink: FilesCommitter, group: CheckpointId, handles: Sequence[Any]) -> None:
        if handles and not gone:
            gone.append(group)
            moved.dropped()
        commit(sink, group, handles)

    monkeypatch.setattr(FilesCommitter, "commit", away_first)
    moved.world.write(2)
    until(lambda: gone, "a commit")
    moved.until_noticed()
    _put_back(moved)
    ends_well(moved, life)


def test_a_driver_whose_root_does_not_come_back_ends_by_name(moved: Moved) -> None:
    moved.world.settings["heartbeat.timeout"] = "300 ms"
    life = began(moved)
    moved.dropped()
    moved.world.write(2)
    error = life.wait()
    assert isinstance(error, RootLost)
    assert error.exit_code == 11
    assert life.heart.state is StreamState.RUNNING, "which nobody could be told"
    moved.check_committed()
    moved.back()
    second = moved.world.begin()
    ends_well(moved, second)


def test_another_root_in_its_place_is_left_alone(moved: Moved) -> None:
    moved.world.settings["heartbeat.timeout"] = "300 ms"
    life = began(moved)
    moved.away()
    other = RootStore(LocalStore(moved.root))
    make_root(other, by="somebody else", at_ms=0)
    other.create(f"streams/{STREAM}/slots/00000001.json", b"another stream of that name")
    moved.world.write(2)
    error = life.wait()
    assert isinstance(error, RootLost)
    assert "is not the one that was worked on" in str(error)
    assert [info.path for info in other.list("")] == [f"streams/{STREAM}/slots/00000001.json"]


def test_with_a_rightful_successor_on_the_true_root_the_old_driver_writes_nothing_anywhere(moved: Moved) -> None:
    """Both would end fenced by the sink's manifests, and the output could not go on."""
    moved.world.settings["heartbeat.timeout"] = "1 s"
    old = began(moved)
    moved.dropped()
    moved.world.write(2)
    moved.world.store = RootStore(LocalStore(moved.elsewhere), moved.world.store.id)
    new = moved.world.begin()
    new.read_all()
    new.until_completed(1)
    assert isinstance(old.wait(), RootLost)
    assert _files(moved.root) == []
    moved.world.write(2)
    new.read_all()
    assert new.stop() is None
    moved.world.check_output()
    assert [start.generation for start in read_catalogue(moved.world.store, STREAM).generations] == [1, 2]


def test_a_log_that_was_put_back_to_what_it_was_is_not_gone_on_with(moved: Moved) -> None:
    """A backup has the same identity: what tells it apart is that the newest entry is not in it."""
    moved.world.settings["heartbeat.timeout"] = "300 ms"
    life = began(moved)
    taken: list[str] = []

    def lose(made: str) -> None:
        if fnmatchcase(made, "create streams/*/checkpoints/*/_metadata") and not taken:
            taken.append(made)
            slots = sorted((moved.root / f"streams/{STREAM}/slots").iterdir())
            slots[-1].unlink()

    moved.world.faults.act = lose
    moved.world.write(2)
    until(lambda: taken, "a checkpoint")
    error = life.wait()
    assert isinstance(error, RootLost)
    assert "this is not the log that was read" in str(error)
    slots = moved.world.catalogue.slots
    assert [slot.number for slot in slots] == list(range(1, len(slots) + 1)), "it has no hole"
    assert not restarts(moved.world)


def test_nothing_is_done_on_an_older_copy_that_lies_there_for_a_while(moved: Moved) -> None:
    life = began(moved)
    older = moved.world.base / "older"
    _copy(moved.root, older)
    moved.world.write(2)
    life.read_all()
    moved.world.calm()
    moved.away()
    older.rename(moved.root)
    slots = _slots(moved.root)
    moved.world.write(2)
    until(lambda: "waiting for it" in moved._log.text, "the driver waits for its root")
    moved.check_committed()
    assert _slots(moved.root) == slots
    shutil.rmtree(moved.root)
    moved.elsewhere.rename(moved.root)
    until(lambda: life.heart.progress.restarts == 1, "it has restarted")
    ends_well(moved, life)


def test_state_that_went_to_an_older_copy_is_in_no_snapshot(moved: Moved) -> None:
    """The copy lies there for as long as one upload takes: nothing else of the driver's comes by meanwhile."""
    life = began(moved)
    older, uploads = moved.world.base / "older", list[str]()
    _copy(moved.root, older)

    def swap(made: str) -> None:
        if fnmatchcase(made, "upload streams/*/shared/*") and not uploads:
            uploads.append(made.split()[1])
            moved.away()
            older.rename(moved.root)
        elif fnmatchcase(made, "create streams/*/checkpoints/*/_metadata") and moved.elsewhere.exists():
            moved.root.rename(older)
            moved.elsewhere.rename(moved.root)

    moved.world.faults.act = swap
    moved.world.write(2)
    until(lambda: life.heart.progress.restarts == 1, "it has restarted")
    [restart] = restarts(moved.world)
    assert "was written, and is not there; was another folder in the root's place" in restart.cause
    assert (older / uploads[0]).exists()
    for ref in moved.world.catalogue.snapshots:
        metadata = read_metadata(moved.world.store.read(f"{ref.folder}/{METADATA}"), ref.folder)
        for handle in metadata.handles():
            assert handle.path != uploads[0], f"{ref} names what is not there"
    ends_well(moved, life)


def _copy(root: Path, to: Path) -> None:
    """As it is while a life deletes what it has retired there, and writes its heartbeats."""

    def done() -> bool:
        shutil.rmtree(to, ignore_errors=True)
        try:
            shutil.copytree(root, to)
        except shutil.Error:  # something that was listed is gone
            return False
        return True

    until(done, "a copy")


def _slots(root: Path) -> list[str]:
    return sorted(path.name for path in (root / f"streams/{STREAM}/slots").iterdir())


@pytest.mark.parametrize("leaves_a_folder", [False, True])
def test_an_output_that_goes_away_is_not_begun_anew(moved: Moved, leaves_a_folder: bool) -> None:
    """The same danger at the other end: half of the output would be where nobody finds it once the mount is back."""
    moved.world.settings["restart-strategy.fixed-delay.attempts"] = "1000000"
    life = began(moved)
    until(moved.world.output, "something is published")
    out = moved.world.base / "out"
    out.rename(moved.world.base / "out.gone")
    if leaves_a_folder:
        out.mkdir()
    moved.world.write(2)
    until(lambda: "which has written there before" in (life.heart._beat.cause or ""), "a restart refuses the target")
    assert _files(out) == []
    if leaves_a_folder:
        shutil.rmtree(out)
    assert not out.exists(), "nobody makes it anew"
    (moved.world.base / "out.gone").rename(out)
    until(lambda: life.heart.state is StreamState.RUNNING, "it goes on")
    ends_well(moved, life)


def test_nor_by_the_next_generation(moved: Moved) -> None:
    plan = describe(moved.world.plan(), Settings(moved.world.settings))
    deployed = Deployed(job="", job_sha256="", directory="", settings={}, plan=plan, by="ann", at_ms=0)
    decision_log(moved.world.store, STREAM).append(None, deployed)
    life = began(moved)
    assert life.stop() is None
    out = moved.world.base / "out"
    out.rename(moved.world.base / "out.gone")
    error = moved.world.begin().wait()
    assert isinstance(error, SinkFailed)
    assert "which has written there before" in str(error)
    assert not out.exists()
    (moved.world.base / "out.gone").rename(out)
    ends_well(moved, moved.world.begin())
