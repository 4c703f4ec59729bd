"""What Spark passes over in a source folder is found and told of, once."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from headgate.source.unread import HIDDEN_FOR_S, UnreadFiles, unread


def make(folder: Path, *names: str | bytes) -> None:
    for name in names:
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass


def found(folder: Path, *, after_s: float = 2 * HIDDEN_FOR_S) -> dict[bytes, str]:
    return dict(unread(folder, time.time() + after_s))


def test_what_is_read_and_what_only_marks_something_is_not_told_of(tmp_path: Path):
    make(tmp_path, "a", "b c", "a=b", "_k=v", "c.crc", ".a.crc", "_SUCCESS", "_spark_metadata/0", "12:30", "[*]")
    assert found(tmp_path) == {}


def test_what_is_hidden_is_told_of_once_nobody_writes_it_any_more(tmp_path: Path):
    make(tmp_path, ".a", "_b", "c._COPYING_", "_metadata", ".d/e", "day=1/.f")
    assert found(tmp_path, after_s=HIDDEN_FOR_S / 2) == {}
    assert set(found(tmp_path)) == {b".a", b"_b", b"c._COPYING_", b"_metadata", b".d/e", b"day=1/.f"}


def test_what_java_cannot_name_or_lies_elsewhere_is_told_of_at_once(tmp_path: Path):
    make(tmp_path, b"bad\xff", "sub/deep", "day=1/a", "day=1/sub/b")
    (tmp_path / "circle").symlink_to(tmp_path)
    assert {name: why.split()[0] for name, why in found(tmp_path, after_s=0).items()} == {
        b"bad\xff": "its",
        b"sub/deep": "in",
        b"circle/": "in",
    }


def test_beside_subfolders_that_name_a_column_a_file_is_not_read(tmp_path: Path):
    make(tmp_path, "a", "day=1/b")
    assert list(found(tmp_path)) == [b"a"]


def test_each_file_is_told_of_once_and_only_some_by_name(tmp_path: Path):
    watch = UnreadFiles(tmp_path)
    assert watch.look() is None
    make(tmp_path, *(f"sub/{number}" for number in range(8)))
    told = watch.look()
    assert told is not None
    assert told.startswith(f"8 files in the source folder {tmp_path} are never read: 'sub/")
    assert "and 3 more; rename or move them" in told
    assert watch.look() is None
    make(tmp_path, b"new\xfe")
    assert "'new\\udcfe' (its name is no UTF-8)" in (watch.look() or "")


def test_what_is_no_file_of_records_is_told_of_as_what_it_is(tmp_path: Path):
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        assert found(tmp_path) == {
            b"pipe": "a named pipe",
            b"link": "a named pipe",
            b"null": "a device",
            b"socket": "a socket",
        }
