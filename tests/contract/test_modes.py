"""What is stored on a local disk is for its owner, and for the group that the root's mode lets in; never for all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_contract.modes import file_mode, folder_mode, make_private
from headgate_contract.modes import umask as current_umask
from headgate_contract.store import open_store

WIDE, NARROW = 0o000, 0o077


@pytest.fixture(params=[WIDE, 0o022, NARROW], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize(
    ("guide", "folder", "file"),
    [
        (0o700, 0o700, 0o600),
        (0o755, 0o750, 0o640),
        (0o777, 0o770, 0o660),
        (0o2770, 0o2770, 0o660),
        (0o2750, 0o2750, 0o640),
        (0o1777, 0o770, 0o660),
        (0o707, 0o700, 0o600),
    ],
)
def test_the_group_may_below_what_it_may_above_and_others_never_may(guide: int, folder: int, file: int) -> None:
    assert folder_mode(guide) == folder
    assert file_mode(guide) == file


def modes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): stat.S_IMODE(path.stat().st_mode) for path in [top, *top.rglob("*")]}


@pytest.mark.parametrize(
    ("guide", "folder", "file"), [(None, 0o700, 0o600), (0o750, 0o750, 0o640), (0o2770, 0o2770, 0o660)]
)
def test_every_way_of_writing_keeps_to_it_whatever_the_umask(
    tmp_path: Path, umask: int, guide: int | None, folder: int, file: int
) -> None:
    root = tmp_path / "root"
    if guide is not None:
        root.mkdir()
        root.chmod(guide)
    store = open_store(str(root))
    store.make()
    (tmp_path / "local").write_bytes(b"state")
    (tmp_path / "local").chmod(0o666)
    store.create("streams/a/created", b"1")
    store.replace("streams/b/replaced", b"1")
    store.replace("streams/b/replaced", b"2")
    store.upload(tmp_path / "local", "streams/c/d/uploaded")
    store.create("streams/before", b"1")
    store.move("streams/before", "streams/e/after")
    found = modes(root)
    assert {name: mode for name, mode in found.items() if (root / name).is_file()} == {
        f"streams/{name}": file for name in ("a/created", "b/replaced", "c/d/uploaded", "e/after")
    }
    assert {mode for name, mode in found.items() if (root / name).is_dir()} == {folder}


def test_a_write_under_way_is_not_readable_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077)
        fsync(descriptor)

    store = open_store(str(tmp_path / "root"))
    store.make()
    monkeypatch.setattr(os, "fsync", look)
    store.create("streams/a", b"1")
    assert seen
    assert set(seen) == {0}


def test_a_working_folder_is_private_from_where_the_guide_begins(tmp_path: Path, umask: int) -> None:
    make_private(tmp_path / "not" / "there" / "orders" / "g1", tmp_path / "not" / "there")
    assert modes(tmp_path / "not" / "there") == {".": 0o700, "orders": 0o700, "orders/g1": 0o700}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    make_private(tmp_path / "shared" / "orders" / "g1", tmp_path / "shared")
    make_private(tmp_path / "shared" / "orders" / "g1", tmp_path / "shared")
    assert modes(tmp_path / "shared") == {".": 0o2775, "orders": 0o2770, "orders/g1": 0o2770}


def test_output_follows_the_umask_from_the_moment_at_which_readers_see_it_and_until_it_is_taken_back(
    tmp_path: Path, umask: int
) -> None:
    store = open_store(str(tmp_path / "out"), shown=lambda path: "/" not in path)
    store.make()
    store.create("_headgate/staged/a", b"1")
    store.sync("_headgate/staged/a")
    where = tmp_path / "out"
    assert modes(where)["_headgate/staged/a"] & 0o007 == 0
    store.move("_headgate/staged/a", "part-a")
    assert modes(where)["part-a"] == 0o666 & ~umask
    assert modes(where)["_headgate/staged"] == modes(where)["."] == 0o777 & ~umask, "readers list it, and pass it over"
    store.move("part-a", "_headgate/retracted/a")
    assert modes(where)["_headgate/retracted/a"] & 0o007 == 0


def test_where_the_system_does_not_tell_the_umask_it_is_put_back(umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_contract.modes._STATUS", Path("/nowhere"))
    assert current_umask() == umask
    assert current_umask() == umask
