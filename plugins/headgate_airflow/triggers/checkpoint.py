"""Waits until a checkpoint has all that had come to a stream by a certain moment."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from headgate_airflow.following import COMPLETED, current_since
from headgate_airflow.triggers.base import StreamTrigger
from headgate_control import Control


class CheckpointTrigger(StreamTrigger):
    """Fires when the newest checkpoint is current as of `as_of` (epoch) or later: of an idle stream none is written."""

    def __init__(self, *, as_of: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.as_of = float(as_of)

    def fields(self) -> dict[str, Any]:
        return {"as_of": self.as_of}

    def waits_for(self) -> str:
        moment = datetime.fromtimestamp(self.as_of, UTC).isoformat(timespec="seconds")
        return f"no checkpoint of stream {self.stream} is current as of {moment}"

    def look(self, control: Control) -> dict[str, Any] | None:
        found = current_since(control.status(self.stream), self.as_of, time.time())
        return {"outcome": COMPLETED, "snapshot": int(found)} if found is not None else None
