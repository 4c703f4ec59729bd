"""The driver's log: everything that the process and its children print, rotated by size, whatever the disk does."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headgate.driver.log_file import RotatedFile

CHATTER = """
import logging, os, subprocess, sys
from pathlib import Path
from headgate.driver.log_file import take_over_output
take_over_output(Path(sys.argv[1]), 1 << 20, 2)
print("by print", flush=True)
sys.stderr.write("to stderr\\n")
logging.getLogger("headgate").info("by logging")
logging.getLogger("py4j").info("chatter of py4j")
subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
os.write(1, b"the end\\n")
while "the end" not in Path(sys.argv[1]).read_text():
    pass
os._exit(0)
"""


def read(path: Path) -> list[str]:
    """The log and its older parts, the newest first."""
    parts = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, 10))]
    return [part.read_text() for part in parts if part.exists()]


def test_it_rotates_by_size_and_keeps_so_many_older_parts(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "driver.log"
    with closing(RotatedFile(path, max_size=10, backups=2)) as log:
        for word in ("one--one", "two--two", "three-three", "four"):
            log.write(word.encode())
    assert read(path) == ["four", "three-three", "two--two"]


def test_it_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    path.write_text("12345678")
    with closing(RotatedFile(path, max_size=10, backups=2)) as log:
        log.write(b"90")
        log.write(b"1")
    assert read(path) == ["1", "1234567890"]


def test_a_rotation_that_fails_half_way_loses_the_log_only_while_the_disk_refuses(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    in_the_way = path.with_name("driver.log.1")
    with closing(RotatedFile(path, max_size=10, backups=1)) as log:
        log.write(b"one--one")
        in_the_way.mkdir()
        for _ in range(2):
            with pytest.raises(OSError, match=r"driver\.log"):
                log.write(b"two--two")
        in_the_way.rmdir()
        log.write(b"three")
    assert read(path) == ["three", "one--one"]


def test_what_the_process_and_its_children_print_goes_there(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHATTER, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = path.read_text()
    for line in ("by print\n", "to stderr\n", "headgate: by logging\n", "by a child\n"):
        assert line in text
    assert "chatter" not in text
