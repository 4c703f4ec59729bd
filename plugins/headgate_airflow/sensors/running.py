"""StreamRunning: waits until a stream runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate_airflow.following import ENDED, RUNS, described_launch, outcome_of
from headgate_airflow.sensors.base import StreamSensor
from headgate_airflow.triggers.base import StreamTrigger
from headgate_airflow.triggers.running import StreamRunningTrigger
from headgate_control import Control


class StreamRunning(StreamSensor):
    """Wait until `stream` runs, or until its generation `generation` does: then its failure fails the sensor."""

    template_fields: Sequence[str] = (*StreamSensor.template_fields, "generation")

    def __init__(self, *, generation: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = generation

    def look(self, control: Control) -> dict[str, Any] | None:
        status = control.status(self.stream)
        return described_launch(status) if outcome_of(status, self._number) in (RUNS, ENDED) else None

    def trigger(self, **common: Any) -> StreamTrigger:
        return StreamRunningTrigger(generation=self._number, **common)

    @property
    def _number(self) -> int | None:
        return int(self.generation) if self.generation not in (None, "", "None") else None
