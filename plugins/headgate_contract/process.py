"""Says which process a pid means; launcher and driver spell it the same, and a reused pid is not mistaken for it.

On Linux `started` is `ticks:N`, the kernel's own count since boot: it cannot move when the wall clock is set. Elsewhere
it is `lstart:...`, what `ps` prints.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from headgate_contract.heartbeats import ProcessIdentity

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def this_host() -> str:
    return socket.gethostname()


def this_boot() -> str:
    """An id of the host's current boot, or `unknown` where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def this_machine() -> str:
    """An id of this installation, or "" where the system has none."""
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""


def this_namespace() -> str:
    """Within which a pid means a process (each container has its own), or "" where the system has none."""
    try:
        return str(_PID_NAMESPACE.readlink())
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """When process `pid` of this host started, or None if none is seen (a zombie is none, another user's may hide)."""
    if _BOOT_ID.exists():
        return _ticks(pid)
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    ).stdout.strip()
    state, _, moment = found.partition(" ")
    return f"lstart:{' '.join(moment.split())}" if found and not state.startswith("Z") else None


def _ticks(pid: int) -> str | None:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return f"ticks:{after_name[19]}" if after_name[0] not in ("Z", "X") else None


def identify(pid: int | None = None) -> ProcessIdentity | None:
    """The identity of process `pid` of this host (default: this one), or None if there is no such process."""
    pid = os.getpid() if pid is None else pid
    moment = started(pid)
    return identity_here(pid, moment) if moment is not None else None


def identity_here(pid: int, moment: str) -> ProcessIdentity:
    """The identity of a process of this very place that started at `moment`."""
    return ProcessIdentity(this_host(), this_boot(), pid, moment, this_machine(), this_namespace())
