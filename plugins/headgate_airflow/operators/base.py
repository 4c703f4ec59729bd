"""What every operator on a stream has: its root, who it is, bounded waits, and retries for Airflow's own hiccups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator

from headgate_airflow.identity import TaskIdentity
from headgate_airflow.location import TEMPLATED, OnStream
from headgate_airflow.triggers.base import StreamTrigger
from headgate_contract.errors import BadInput
from headgate_control import Control

DEFAULT_TIMEOUT = timedelta(minutes=15)
_LATER_S = 60.0
"""How much later Airflow's own limit of a deferral is than the trigger's, which has more to say."""


class StreamOperator(OnStream, BaseOperator):
    """An operator on a stream. `timeout` bounds the whole wait, over all deferrals of a try."""

    template_fields: Sequence[str] = TEMPLATED
    ui_color = "#e8f1fa"

    def __init__(
        self,
        *,
        stream: str,
        conn_id: str | None = None,
        root: str | None = None,
        streams_file: str | Path | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=15),
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.locate(stream, conn_id, root, streams_file)
        self.timeout = timeout

    def control(self, context: Mapping[str, Any]) -> Control:
        """The control plane, on behalf of this task."""
        return self.hook.control(by=TaskIdentity.of(context).by)

    def until(self) -> float:
        """The moment (epoch seconds) at which a wait that begins now ends."""
        return time.time() + self.timeout.total_seconds()

    def wait_with(self, trigger: type[StreamTrigger], method_name: str, until: float, **about: Any) -> NoReturn:
        """Leave the worker until `trigger` fires; then `method_name` is called with its event."""
        hook = self.hook
        self.defer(
            trigger=trigger(stream=self.stream, root=hook.root, conn_id=hook.conn_id, until=until, **about),
            method_name=method_name,
            timeout=timedelta(seconds=max(0.0, until - time.time()) + _LATER_S),
        )


def flag(value: object, what: str) -> bool:
    """A yes or no that may have gone through a template: there `True` becomes 'True'."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise BadInput(f"{what} is {value!r}", hint="it is true or false")


def optional_flag(value: object, what: str) -> bool | None:
    """A yes, a no, or nothing said (None, '' or 'None')."""
    return None if value is None or str(value).strip() in ("", "None") else flag(value, what)


def optional_number(value: object, what: str) -> int | None:
    """A whole number, or nothing said (None, '' or 'None')."""
    text = optional_text(value)
    if text is None:
        return None
    if isinstance(value, bool) or not text.isdecimal():
        raise BadInput(f"{what} is {value!r}", hint="it is a whole number")
    return int(text)


def optional_text(value: object) -> str | None:
    """A text, or None where a form was left empty."""
    text = "" if value is None else str(value).strip()
    return None if text in ("", "None") else text
