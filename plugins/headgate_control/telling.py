"""How moments, measures, drivers and answers are told to people."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime

from headgate_contract.process import this_host
from headgate_control.outcomes import StreamStatus


def moment(at_ms: int | None) -> str:
    """A moment in UTC, to the second."""
    if at_ms is None:
        return "an unknown time"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def one_line(text: str) -> str:
    """The first line of what may have many, as a SQL error has: the others are in the log, and in JSON."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{lines[0]} ..." if len(lines) > 1 else "".join(lines)


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things, and what they are called: `1 batch`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def took(ms: float | None) -> str:
    """How long something took, in the unit that suits it."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


def size(length: float | None) -> str:
    """A number of bytes, in the unit that suits it; a kb has 1024, as in settings."""
    if length is None:
        return "-"
    for unit in ("b", "kb", "mb", "gb"):
        if length < 1024:
            return f"{length:.0f} {unit}" if unit == "b" else f"{length:.1f} {unit}"
        length /= 1024
    return f"{length:.1f} tb"


def who_runs(status: StreamStatus) -> str:
    """Who started what runs now, where, and since when."""
    pid = f", pid {status.process.pid}" if status.process is not None else ""
    return (
        f"generation {status.generation} is {status.condition.value}, started by {status.by} on {status.host}{pid} "
        f"at {moment(status.started_ms)}"
    )


def not_running(status: StreamStatus) -> str:
    """Since when nothing runs, and what was last heard."""
    if status.generation is None:
        return f"stream {status.stream} does not run: {status.text}"
    heard = f", last heartbeat {status.heartbeat_age_s:.0f} s ago" if status.heartbeat_age_s is not None else ""
    return f"stream {status.stream} does not run ({status.condition.value}{heard}): {status.text}"


def somebody() -> str:
    """Who this process acts for, if nobody said so."""
    try:
        return f"{getpass.getuser()}@{this_host()}"
    except (KeyError, OSError):  # a user id without a name, as containers have
        return f"uid {os.getuid()}@{this_host()}"
