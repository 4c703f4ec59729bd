"""Waits until a driver has answered a request."""

from __future__ import annotations

import time
from typing import Any

from headgate_airflow.following import ANSWERED, GONE_WRONG
from headgate_airflow.triggers.base import StreamTrigger
from headgate_contract.ids import RequestId
from headgate_control import Control

_PATIENCE_S = 10.0
"""For how long an answer may be late after its driver has gone: the storage may show it later than the end."""


class AnswerTrigger(StreamTrigger):
    """Fires when request `request` has an answer, of whichever outcome, or when nobody is left who could give one."""

    def __init__(self, *, request: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = str(request)
        self._down_since: float | None = None

    def fields(self) -> dict[str, Any]:
        return {"request": self.request}

    def waits_for(self) -> str:
        return f"stream {self.stream} has not answered request {self.request}"

    def look(self, control: Control) -> dict[str, Any] | None:
        if control.answer(self.stream, RequestId(self.request)) is not None:
            return {"outcome": ANSWERED}
        status = control.status(self.stream)
        if status.live:
            self._down_since = None
            return None
        self._down_since = self._down_since or time.monotonic()
        if time.monotonic() - self._down_since < _PATIENCE_S:
            return None
        taken = control.taken_for(self.stream, RequestId(self.request))
        behind = f"; {taken.told}" if taken is not None else ""
        return {"outcome": GONE_WRONG, "why": f"request {self.request} was not answered: {status.text}{behind}"}
