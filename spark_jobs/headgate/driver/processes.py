"""The processes that a driver has started: Spark's JVM, its Python workers, and what they have started."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import psutil

log = logging.getLogger(__name__)


def started_here() -> list[psutil.Process]:
    """All that are left of them, also those whose parents have ended: a driver leads a session of its own."""
    own = os.getpid()
    if os.getsid(0) != own:
        with suppress(psutil.Error):
            return psutil.Process().children(recursive=True)
        return []
    found = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if pid != own and os.getsid(pid) == own:
                found.append(psutil.Process(pid))
    return found


def stopped() -> list[psutil.Process]:
    """Those that somebody has stopped, as SIGSTOP does, and that do nothing until they are told to go on."""
    found = []
    for process in started_here():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
    return found


def describe(process: psutil.Process) -> str:
    try:
        return f"{process.name()} (process {process.pid})"
    except psutil.Error:
        return f"process {process.pid}"


def kill(pid: int) -> None:
    with suppress(psutil.Error):
        psutil.Process(pid).kill()


def end_all(grace_s: float) -> None:
    """End all of them: TERM, and after `grace_s` KILL, which also ends what is stopped."""
    left = started_here()
    if grace_s:
        for process in left:
            with suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(left, timeout=grace_s)
        left = started_here()  # who was told to end may have started others
    for process in left:
        with suppress(psutil.Error):
            log.warning("%s is killed", describe(process))
            process.kill()
    psutil.wait_procs(left, timeout=grace_s or 1)
