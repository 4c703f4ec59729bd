"""Names every process that still carries the mark of a CI run: nothing that the run started may outlive it."""

from __future__ import annotations

import os
import sys
import time

import psutil

MARK = "HEADGATE_CI_RUN"
GRACE_S = 15.0  # Spark's Python workers notice a moment later that their driver is gone


def marked(value: str) -> list[psutil.Process]:
    """The processes that inherited the mark, but for this one and those that wait for it."""
    here = psutil.Process()
    waiting = {here.pid, *(parent.pid for parent in here.parents())}
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in waiting and process.environ().get(MARK) == value:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue  # gone meanwhile, or somebody else's
    return found


def described(process: psutil.Process) -> str:
    try:
        return (
            f"pid {process.pid}, {time.time() - process.create_time():.0f} s old: {' '.join(process.cmdline())[:300]}"
        )
    except psutil.NoSuchProcess:
        return f"pid {process.pid}: gone this moment"


def main(value: str, grace_s: float = GRACE_S) -> int:
    deadline = time.monotonic() + grace_s
    left = marked(value)
    while left and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.5)
        left = marked(value)
    for process in left:
        print(f"left running: {described(process)}")
    return 1 if left else 0


if __name__ == "__main__":
    if not os.environ.get(MARK):
        sys.exit(f"{MARK} is not set: .ci/run sets it, and asks for what still carries it")
    sys.exit(main(os.environ[MARK]))
