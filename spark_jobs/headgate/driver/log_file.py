"""Sends everything that the process and its children print to one log file, rotated by size."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path


def take_over_output(path: Path, max_size: int, backups: int) -> None:
    """From here on stdout and stderr, of Spark's JVM too, go to `path`; when it is full to `path.1`, `path.2`, ..."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    os.close(writer)
    rotated = RotatedFile(path, max_size, backups)
    threading.Thread(target=_pump, args=(reader, rotated), name="log", daemon=True).start()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _pump(reader: int, target: RotatedFile) -> None:
    while data := os.read(reader, 1 << 16):
        try:
            target.write(data)
        except OSError:
            continue  # a full disk must not stop the stream for the sake of its log; the next write is tried again


class RotatedFile:
    """A file that makes room for itself. After an OSError it can be written to again: that is tried each time."""

    def __init__(self, path: Path, max_size: int, backups: int) -> None:
        self._path = path
        self._max_size = max_size
        self._backups = backups
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        if self._file.closed:  # the disk was full in the middle of a rotation
            self._file = self._path.open("ab", buffering=0)
        if self._file.tell() + len(data) > self._max_size:
            self._rotate()
        self._file.write(data)

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._backups, 0, -1):
            older = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))
        self._file = self._path.open("ab", buffering=0)
