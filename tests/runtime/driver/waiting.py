"""Waiting for what another thread does, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as `condition` holds; fail, naming `what` was waited for, if it never does."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError(f"waited {PATIENCE_S} s in vain: {what}")
