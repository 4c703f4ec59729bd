"""Waits until a stream runs, or is known not to come up."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.sdk import TaskInstanceState

from headgate_airflow.following import outcome_of
from headgate_airflow.triggers.base import StreamTrigger
from headgate_control import Control


class StreamRunningTrigger(StreamTrigger):
    """Fires when generation `generation` of the stream runs (or ran to its good end), failed, or was superseded.

    With no generation it waits for any to run; a stream that is down is then only waited for. With `stop_if_failed` a
    user who marks the waiting task as failed has changed his mind: that generation is asked to stop.
    """

    def __init__(self, *, generation: int | None = None, stop_if_failed: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = int(generation) if generation is not None else None
        self.stop_if_failed = stop_if_failed

    def fields(self) -> dict[str, Any]:
        return {"generation": self.generation, "stop_if_failed": self.stop_if_failed}

    async def on_kill(self) -> None:
        """Called when a user marks the task or clears it, which look alike from here; a clear follows the driver again.

        Asks and does not wait: Airflow gives it half a minute.
        """
        if self.stop_if_failed:
            await asyncio.to_thread(self._stop_unless_cleared)

    def _stop_unless_cleared(self) -> None:
        if state_of_task(self.task_instance) != TaskInstanceState.FAILED:
            return
        control = self.open()
        if control.status(self.stream).generation == self.generation:
            control.stop(self.stream, wait=False)

    def waits_for(self) -> str:
        which = f"generation {self.generation} of stream" if self.generation is not None else "stream"
        return f"{which} {self.stream} does not run yet"

    def look(self, control: Control) -> dict[str, Any] | None:
        status = control.status(self.stream)
        outcome = outcome_of(status, self.generation)
        return {"outcome": outcome, "why": status.text} if outcome is not None else None


def state_of_task(task: Any) -> str | None:
    """The state that Airflow now has for the task that a trigger belongs to; None once it is cleared."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    if task is None:
        return None
    index = task.map_index if task.map_index >= 0 else None
    states = RuntimeTaskInstance.get_task_states(
        dag_id=task.dag_id, map_index=index, task_ids=[task.task_id], run_ids=[task.run_id]
    )
    of_run: dict[str, str | None] = states.get(task.run_id, {})
    return next(iter(of_run.values()), None)
