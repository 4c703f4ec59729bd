"""What this host knows of a recorded process, and how it is ended without ever hitting another one."""

from __future__ import annotations

import logging
import os
import signal
import time

from headgate_contract.heartbeats import ProcessIdentity
from headgate_contract.process import identity_here, started
from headgate_control.outcomes import ProcessSign

LOG = logging.getLogger(__name__)
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
    """KILL the process group that `identity` leads on this host; False if that process is not (or no longer) here."""
    return _send(identity, signal.SIGKILL, to_group=True)


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
