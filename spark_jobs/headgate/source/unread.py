"""Finds the files of a source folder that Spark passes over in silence, so that somebody hears of them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

HIDDEN_FOR_S = 60.0
"""A hidden file that nobody has written to for this long is no file that is being written."""
_MARKERS = (b"_SUCCESS", b"_spark_metadata")
_SPECIAL = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_TOLD = 5
"""So many are named at once."""


class UnreadFiles:
    """Looks at one folder, again and again. Each file is told of once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: set[bytes] = set()

    def look(self) -> str | None:
        """What nobody has heard of yet, in a sentence. Raises OSError."""
        found = [(name, why) for name, why in unread(self._folder, time.time()) if name not in self._told]
        if not found:
            return None
        self._told.update(name for name, _ in found)
        named = ", ".join(f"{os.fsdecode(name)!r} ({why})" for name, why in found[:_TOLD])
        more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
        return (
            f"{len(found)} files in the source folder {self._folder} are never read: {named}{more}; rename or move them"
        )


def unread(folder: Path, now: float) -> Iterator[tuple[bytes, str]]:
    """The files below `folder`, by their paths from there, that Spark never reads, and why."""
    top = os.fsencode(folder)
    files = list(_files(top, b""))
    partitioned = any(b"/" in name and _why(name) is None for name, *_ in files)
    for name, modified, special in files:
        why = special or _why(name)
        if why is None and partitioned and b"/" not in name:
            why = "beside subfolders name=value, of which only these are read"
        if why is None or (why == _HIDDEN and now - modified < HIDDEN_FOR_S):
            continue
        yield name, why


_HIDDEN = "hidden by a leading . or _ or a trailing ._COPYING_"


def _why(name: bytes) -> str | None:
    parts = name.split(b"/")
    if any(map(_is_hidden, parts)):
        return _HIDDEN
    try:
        name.decode()
    except UnicodeDecodeError:
        return "its name is no UTF-8"
    in_column = len(parts) == 1 or any(b"=" in part for part in parts[:-1])
    return None if in_column else "in a subfolder that is not called name=value"


def _is_hidden(part: bytes) -> bool:
    return part.startswith(b".") or (part.startswith(b"_") and b"=" not in part) or part.endswith(b"._COPYING_")


def _special_kind(path: bytes | str) -> str | None:
    """What it is, if it is no file of records and no folder: its length is 0, so Spark lists it and never opens it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None  # gone, or a link that leads nowhere: whoever reads it says so
    return next((kind for holds, kind in _SPECIAL if holds(mode)), None)


def _files(top: bytes, prefix: bytes) -> Iterator[tuple[bytes, float, str | None]]:
    """All files, without following folders that are links: they may lead in a circle."""
    with os.scandir(os.path.join(top, prefix) if prefix else top) as entries:
        for entry in entries:
            if entry.name in _MARKERS or (entry.name.startswith(b".") and entry.name.endswith(b".crc")):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(top, prefix + entry.name + b"/")
            elif entry.is_dir():
                yield prefix + entry.name + b"/", 0.0, None
            elif entry.is_file():
                name = prefix + entry.name
                modified = os.stat(entry.path).st_mtime if _why(name) == _HIDDEN else 0.0  # lets other threads run
                yield name, modified, None
            elif special := _special_kind(entry.path):
                yield prefix + entry.name, 0.0, special
