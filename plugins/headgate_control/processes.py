"""What this host knows of a recorded process, and how it is ended without ever hitting another one."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress

import psutil

from headgate_contract.heartbeats import ProcessIdentity
from headgate_contract.process import identity_here, started
from headgate_control.outcomes import ProcessSign

LOG = logging.getLogger(__name__)
LAUNCH_VARIABLE = "HEADGATE_LAUNCH"
"""In the environment of a driver and of whatever it starts: whose launch it is."""
_SPELLINGS = ("ticks:", "lstart:")


def sign_of(identity: ProcessIdentity | None) -> ProcessSign:
    """Does the process that `identity` means still live? GONE if it was of this very place; a reused pid is not it.

    UNKNOWN if it is of another host, machine, boot or container: then nothing that is seen here tells of it, and its
    heartbeat alone does.
    """
    if identity is None or identity != identity_here(identity.pid, identity.started):
        return ProcessSign.UNKNOWN
    now = started(identity.pid)
    if now is None:
        return ProcessSign.UNKNOWN if _is_hidden(identity.pid) else ProcessSign.GONE
    if not identity.started.startswith(_SPELLINGS):
        return ProcessSign.UNKNOWN
    return ProcessSign.ALIVE if now == identity.started else ProcessSign.GONE


def _is_hidden(pid: int) -> bool:
    """Is there a process of another user's that /proc does not show (hidepid)?"""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False


def kill_group(identity: ProcessIdentity) -> bool:
    """KILL what `identity` leads on this host, groups of its own within it too, as Python workers have one; those that
    are stopped end as well. False if that process is not (or no longer) here."""
    led = _led_by(identity.pid)  # before its leader is gone, by whom they are known
    if not _send(identity, signal.SIGKILL, to_group=True):
        return False
    for process in led:
        with suppress(psutil.Error):
            process.kill()
    return True


def kill_left_by(identity: ProcessIdentity, launch: str) -> int:
    """KILL what a driver that is gone has left on this host; how many. What is stopped does not end by itself.

    They are of its session, whose number no other process can have as long as one of them lives, and carry its launch.
    """
    if sign_of(identity) is not ProcessSign.GONE:
        return 0
    killed = 0
    for process in _led_by(identity.pid):
        with suppress(psutil.Error):
            if process.environ().get(LAUNCH_VARIABLE) == launch:
                LOG.warning("%s is killed: its driver, process %d, is gone", process, identity.pid)
                process.kill()
                killed += 1
    return killed


def _led_by(pid: int) -> list[psutil.Process]:
    """The other processes of the session that `pid` leads, if it leads one."""
    found = []
    for other in psutil.pids():
        with suppress(OSError, psutil.Error):
            if other != pid and os.getsid(other) == pid:
                found.append(psutil.Process(other))
    return found


def terminate(identity: ProcessIdentity, grace_s: float) -> bool:
    """TERM to the process, and KILL to its group after `grace_s`; False if it is not here. Returns once it is gone."""
    if not _send(identity, signal.SIGTERM, to_group=False):
        return False
    if not wait_gone(identity, grace_s):
        kill_group(identity)
        wait_gone(identity, 10)
    return True


def wait_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    """Wait until the process is gone; False if it lives on, True at once if it is on another host."""
    deadline = time.monotonic() + timeout_s
    while sign_of(identity) is ProcessSign.ALIVE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _send(identity: ProcessIdentity, what: signal.Signals, *, to_group: bool) -> bool:
    if sign_of(identity) is not ProcessSign.ALIVE:
        return False
    try:
        if to_group and os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, what)
        else:
            os.kill(identity.pid, what)
    except (ProcessLookupError, PermissionError) as error:
        LOG.warning("cannot send %s to process %d: %s", what.name, identity.pid, error)
        return False
    return True
