"""Decides who may read and write what is stored on a local disk: never everybody, whatever the umask.

The guide is the mode of the folder that everything lies in: what its group may do there, the group may do below.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

OWN = 0o700
_STATUS = Path("/proc/self/status")


def folder_mode(guide: int) -> int:
    """The mode of a folder below one of the mode `guide`: 0700, 0750 or 0770, and of the same group if that is so."""
    return OWN | guide & (stat.S_IRWXG | stat.S_ISGID)


def file_mode(guide: int) -> int:
    """The mode of a file below a folder of the mode `guide`: 0600, 0640 or 0660."""
    return 0o600 | guide & 0o060


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def make_private(folder: Path, guide: Path) -> None:
    """Make `folder`, and what is missing above it: from `guide` on, which lies above it or is it, as `guide` says."""
    if not guide.is_dir():
        guide.parent.mkdir(parents=True, exist_ok=True)
        make_folder(guide, OWN)
    mode = folder_mode(mode_of(guide))
    for below in reversed([folder, *folder.parents]):
        if below != guide and below.is_relative_to(guide):
            make_folder(below, mode)


def make_folder(folder: Path, mode: int) -> None:
    """Make `folder` with just that mode; one that is there is left as it is."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=mode & OWN)
        folder.chmod(mode)


def touch_private(path: Path, guide: Path) -> None:
    """Make the new, empty file `path` below `guide`, for somebody to open and write it by its name."""
    os.close(new_file(path, file_mode(mode_of(guide))))


def umask() -> int:
    """What new files of this process do without. Linux tells; elsewhere it is set anew for a moment."""
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found


def new_file(path: Path, mode: int) -> int:
    """A descriptor of the new file `path`, for writing, which from the first moment nobody else may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & OWN)
    try:
        os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
