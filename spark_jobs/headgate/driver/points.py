"""Named points of the protocol at which a test may kill or freeze the driver. Off unless a test asks for one."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

POINTS = (
    "before-seed",
    "before-batch",
    "after-step",
    "before-metadata",
    "before-slot",
    "after-slot",
    "before-commit",
    "inside-commit",
    "after-commit",
)
VARIABLE = "HEADGATE_TEST_POINT"
"""`SIGNAL@POINT#N:MARKER`: at the N-th time at POINT write the file MARKER, then send SIGNAL to this process group."""


class KillPoints:
    """Counts how often each point was reached; acts at the one that was asked for."""

    def __init__(self, wanted: str = "") -> None:
        self._counts: dict[str, int] = {}
        self._signal = self._point = self._marker = ""
        self._number = 0
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

    def reach(self, point: str) -> None:
        """This point is reached now."""
        self._counts[point] = self._counts.get(point, 0) + 1
        if point == self._point and self._counts[point] == self._number:
            Path(self._marker).write_text(f"{point}\n")
            os.killpg(os.getpgid(0), getattr(signal, self._signal))
