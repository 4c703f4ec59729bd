"""Named points of the protocol at which a test may kill or freeze the driver. Off unless a test asks for one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

POINTS = (
    "before-seed",
    "after-seed",
    "before-batch",
    "after-step",
    "after-finish",  # of a drain: the operators have finished, and only its worker knows
    "before-barrier",  # a cut is made, and nobody but the coordinator knows of it
    "before-sync",
    "after-sync",  # everything the snapshot needs is pinned
    "after-barrier",  # the stream goes on behind it
    "before-upload",
    "after-upload",  # one file of state is there, others may be missing
    "before-prepare",
    "after-prepare",
    "before-ack",
    "after-ack",  # one participant has acknowledged, others may not have
    "before-metadata",
    "before-slot",
    "after-slot",
    "before-commit",
    "inside-commit",
    "after-commit",
    "before-notify",
    "after-notify",
)
"""In the order in which a life comes by; the parts of the asynchronous phase may overtake one another."""
VARIABLE = "HEADGATE_TEST_POINT"
"""`SIGNAL@POINT#N:MARKER`: at the N-th time at POINT write the file MARKER, then send SIGNAL to this process group."""


class KillPoints:
    """Counts how often the point that was asked for is reached, from any thread, and acts at the wanted time."""

    def __init__(self, wanted: str = "") -> None:
        self._signal = self._point = self._marker = ""
        self._number = self._count = 0
        self._newest: int | None = None
        self._lock = threading.Lock()
        if wanted:
            self._signal, _, rest = wanted.partition("@")
            place, _, self._marker = rest.partition(":")
            self._point, _, number = place.partition("#")
            self._number = int(number or 1)
            if self._point not in POINTS:
                raise ValueError(f"{VARIABLE}: {self._point!r} is no point; known are {', '.join(POINTS)}")

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> KillPoints:
        return cls(environment.get(VARIABLE, ""))

    def reach(self, point: str, checkpoint: int | None = None) -> None:
        """This point is reached now; within one checkpoint it counts once."""
        if point != self._point:
            return
        with self._lock:  # who else comes by here waits for the signal
            if checkpoint is not None and checkpoint == self._newest:
                return
            self._newest = checkpoint
            self._count += 1
            if self._count == self._number:
                _write_through(Path(self._marker), f"{point}\n")
                os.killpg(os.getpgid(0), getattr(signal, self._signal))


NO_POINTS = KillPoints()
"""For whoever is never killed."""


def _write_through(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
