"""The host's clocks: the wall clock, for people to read and never to decide by, and one that never jumps."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds since some moment before the driver began."""
    return time.monotonic_ns() // 1_000_000
