"""Where Spark meets its Python workers: nobody can be there before, nobody else can enter, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.spark import socket_folder
from headgate.spark.socket_folder import make_socket_folder, remove_abandoned, remove_socket_folder


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder with a short name: pytest's are too long for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


MAKES = """
import sys, time
from pathlib import Path
from headgate.spark.socket_folder import make_socket_folder
folder = make_socket_folder(Path(sys.argv[1]))
(folder / ".a.sock").touch()
print(folder, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_it_is_of_its_owner_alone_and_two_of_one_process_are_two(top: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folders = {make_socket_folder(top) for _ in range(2)}
    finally:
        os.umask(before)
    assert len(folders) == 2
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700 & ~umask}


def test_a_folder_that_somebody_has_made_before_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"headgate-{os.getuid()}").write_text("a file of somebody else's, where it used to be")
    folder = make_socket_folder()
    assert folder.is_dir()
    remove_socket_folder(folder)


def test_a_sockets_path_has_room_for_the_name_that_spark_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = make_socket_folder()
    try:
        assert folder.parent == Path("/tmp")
        assert len(f"{folder}/.{'0' * 36}.sock") <= 107
    finally:
        remove_socket_folder(folder)


def test_what_a_killed_process_has_left_goes_with_the_next_start_and_what_a_live_one_uses_stays(top: Path) -> None:
    command = [sys.executable, "-c", MAKES, str(top)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = [Path(process.stdout.readline().strip()) for process in processes if process.stdout is not None]
    try:
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(10)
        own = make_socket_folder(top)
        assert {path for path in top.iterdir() if path.is_dir()} == {folders[1], own}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_of_another_container_another_boot_or_another_user_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / f"headgate-{socket_folder._where()}-4194999-000000-x"
    for name in ("headgate-0", "headgate-check-x", "headgate-ffffff-1-000000-x", dead.name):
        (tmp_path / name).mkdir()
    (tmp_path / f"{dead.name}-link").symlink_to(tmp_path / "headgate-0")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 4242)
        assert remove_abandoned(tmp_path) == []
    assert remove_abandoned(tmp_path) == [dead]
    assert len(list(tmp_path.iterdir())) == 4


def test_only_what_this_process_has_made_is_removed_by_it(top: Path) -> None:
    chosen = top / "chosen"
    chosen.mkdir()
    remove_socket_folder(chosen)
    assert chosen.is_dir()
    own = make_socket_folder(top)
    remove_socket_folder(own)
    assert not own.exists()
