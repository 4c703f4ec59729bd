"""CheckpointCompleted: waits until all that had come to a stream by a certain moment is in a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headgate_airflow.following import current_since
from headgate_airflow.operators.base import optional_text
from headgate_airflow.sensors.base import StreamSensor
from headgate_airflow.triggers.base import StreamTrigger
from headgate_airflow.triggers.checkpoint import CheckpointTrigger
from headgate_contract.errors import BadInput
from headgate_control import Control


class CheckpointCompleted(StreamSensor):
    """Wait until a checkpoint of `stream` has all that had come to its sources by `as_of`.

    `as_of` is a moment (ISO 8601, UTC if it does not say); by default that at which the sensor begins. From then on
    each source has to have looked for records and found none more, as it does once it has caught up: a checkpoint that
    is taken behind that will do, and an older one behind which nothing has come. Returns the checkpoint's id and
    `as_of_ms`, the moment as of which it is current by the driver's clock.
    """

    template_fields: Sequence[str] = (*StreamSensor.template_fields, "as_of")

    def __init__(self, *, as_of: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.as_of = as_of
        self._began: float | None = None

    def look(self, control: Control) -> dict[str, Any] | None:
        status = control.status(self.stream)
        found = current_since(status, self._moment, time.time())
        if found is None or status.progress is None or status.progress.current is None:
            return None
        return {"stream": self.stream, "snapshot": int(found), "as_of_ms": status.progress.current.as_of_ms}

    def trigger(self, **common: Any) -> StreamTrigger:
        return CheckpointTrigger(as_of=self._moment, **common)

    def seen(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        self._began = float(event["asked"]["as_of"])  # another worker has begun
        return super().seen(context, event)

    @property
    def _moment(self) -> float:
        if self._began is None:
            self._began = moment_of(self.as_of)
        return self._began


def moment_of(text: str | None) -> float:
    """The moment (epoch) that `text` names, or now. Raises BadInput."""
    given = optional_text(text)
    if given is None:
        return time.time()
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise BadInput(f"as_of is {given!r}", hint="write a moment like 2026-01-31T12:00:00+00:00") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
