"""A driver whose working folder somebody deletes is spent; folders that come and stay are nobody's business."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headgate.driver.under_way import DriverSpent
from headgate.driver.work_folder import WorkFolder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "g1-abc"
    (work / "engine" / "local" / "blockmgr-1" / "0a").mkdir(parents=True)
    (work / "state" / "r0").mkdir(parents=True)
    return work


BLOCKS = "engine/local/blockmgr-1"


@pytest.mark.parametrize("gone", [".", "engine", "engine/local", BLOCKS, f"{BLOCKS}/0a"])
def test_what_was_deleted_is_named_at_the_second_look(work: Path, gone: str) -> None:
    folder = WorkFolder(work)
    folder.check()
    shutil.rmtree(work / gone)
    folder.check()
    with pytest.raises(DriverSpent, match="was deleted while the driver ran") as raised:
        folder.check()
    assert str(work / gone) in str(raised.value)
    with pytest.raises(DriverSpent):
        folder.check_at_once()


def test_another_folder_of_the_same_name_is_not_the_same(tmp_path: Path) -> None:
    work = tmp_path / "g2-def"
    work.mkdir()
    folder = WorkFolder(work)
    folder.check()
    work.rename(tmp_path / "away")
    work.mkdir()
    with pytest.raises(DriverSpent):
        folder.check_at_once()


def test_what_a_life_makes_anew_may_go(work: Path) -> None:
    """The state of a life, the folder of its queries: the next life makes its own."""
    folder = WorkFolder(work)
    folder.check()
    shutil.rmtree(work / "state")
    (work / "engine" / "query-0").mkdir()
    folder.check()
    shutil.rmtree(work / "engine" / "query-0")
    for _ in range(3):
        folder.check()


def test_folders_that_come_later_are_known_from_then_on(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path / "work")
    folder.check()
    (tmp_path / "work" / "engine").mkdir(parents=True)
    folder.check()
    shutil.rmtree(tmp_path / "work" / "engine")
    folder.check()
    with pytest.raises(DriverSpent):
        folder.check()


def test_what_the_engine_needs_elsewhere_is_needed_too(work: Path, tmp_path: Path) -> None:
    """As the folder of sockets is, in which Spark meets its Python workers: cleaners know /tmp best."""
    sockets = tmp_path / "headgate-sockets"
    sockets.mkdir()
    folder = WorkFolder(work)
    folder.check([sockets])
    sockets.rmdir()
    folder.check([sockets])
    with pytest.raises(DriverSpent, match=str(sockets)):
        folder.check([sockets])


def test_a_file_that_a_task_puts_there_for_a_moment_may_go(work: Path) -> None:
    """What goes to a remote sink is written beside Spark's blocks first, and removed once it is uploaded."""
    folder = WorkFolder(work)
    staged = work / BLOCKS / "headgate-g1-r0-a1-e1-s0-t1-b27630138b57"
    staged.touch()
    folder.check()
    staged.unlink()
    folder.check()
    folder.check()
    folder.check_at_once()
