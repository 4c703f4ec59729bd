"""How moments, drivers and answers are told to people."""

from __future__ import annotations

from datetime import UTC, datetime

from headgate_control.outcomes import StreamStatus


def moment(at_ms: int | None) -> str:
    """A moment in UTC, to the second."""
    if at_ms is None:
        return "an unknown time"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
