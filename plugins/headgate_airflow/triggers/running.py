"""Waits until a stream runs, or is known not to come up."""

from __future__ import annotations

from typing import Any

from headgate_airflow.triggers.base import GONE_WRONG, StreamTrigger
from headgate_control import Condition, Control, StreamStatus

RUNS = "running"
ENDED = "ended"
SUPERSEDED = "superseded"

_DOWN = (Condition.LOST, Condition.FAILED, Condition.UNREADABLE)


class StreamRunningTrigger(StreamTrigger):
    """Fires when generation `generation` of the stream runs (or has run to its good end), failed, or was superseded.

    With no generation it waits for any to run; a stream that is down is then only waited for.
    """

    def __init__(self, *, generation: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = generation

    def fields(self) -> dict[str, Any]:
        return {"generation": self.generation}

    def waits_for(self) -> str:
        which = f"generation {self.generation} of stream" if self.generation is not None else "stream"
        return f"{which} {self.stream} does not run yet"

    def look(self, control: Control) -> dict[str, Any] | None:
        return what_is_seen(control.status(self.stream), self.generation)


def what_is_seen(status: StreamStatus, generation: int | None) -> dict[str, Any] | None:
    """What a look says about the wait for `generation` (None: any): the event, or None to go on waiting. Pure."""
    seen = {"generation": status.generation, "why": status.text}
    if generation is not None and status.generation is not None and status.generation > generation:
        return {**seen, "outcome": SUPERSEDED}
    if status.condition is Condition.RUNNING:
        return {**seen, "outcome": RUNS}
    if generation is None:
        return None
    if status.condition in (Condition.STOPPING, Condition.STOPPED):
        return {**seen, "outcome": ENDED}
    if status.condition in _DOWN:
        return {**seen, "outcome": GONE_WRONG}
    return None
