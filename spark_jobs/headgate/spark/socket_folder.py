"""Makes the folder where Spark and its Python workers meet: this process's own, which nobody else can make or enter.

Its name cannot be guessed, so nobody can be there before. It says whose it is: what a killed process has left is
removed by the next one that starts here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from headgate_contract.process import started, this_boot, this_namespace

_LONGEST = 60
"""A socket's path may have no more than 107 bytes, and Spark gives it a name of 42."""
_NAME = re.compile(r"headgate-(?P<where>[0-9a-f]{6})-(?P<pid>\d+)-(?P<since>[0-9a-f]{6})-.+")


def make_socket_folder(beside: Path | None = None) -> Path:
    """A new folder, below $TMPDIR or, where that is too long a name, /tmp."""
    top = Path(tempfile.gettempdir()) if beside is None else beside
    prefix = f"headgate-{_where()}-{os.getpid()}-{_since(os.getpid())}-"
    if len(str(top / prefix)) > _LONGEST - 8:
        top = Path("/tmp")
    remove_abandoned(top)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=top))


def remove_socket_folder(folder: Path) -> None:
    """Remove a folder that this process has made; another is somebody's who chose it."""
    if folder.name.startswith(f"headgate-{_where()}-{os.getpid()}-{_since(os.getpid())}-"):
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(top: Path) -> list[Path]:
    """Remove the folders below `top` that processes of this user made who have ended since; which ones."""
    gone = []
    for folder in top.glob("headgate-*"):
        match = _NAME.fullmatch(folder.name)
        if match is None or match["where"] != _where() or _since(int(match["pid"])) == match["since"]:
            continue
        try:
            found = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone


def _where() -> str:
    """Where a pid means what it means here: this boot of this host, and within it this container."""
    return _digest(f"{this_boot()} {this_namespace()}")


def _since(pid: int) -> str:
    return _digest(started(pid) or "ended")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
