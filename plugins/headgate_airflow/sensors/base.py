"""What both sensors have: the stream's storage, one look on the worker, and the rest of the wait in the triggerer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from headgate_airflow.failures import told_to_airflow
from headgate_airflow.following import TIMED_OUT
from headgate_airflow.identity import TaskIdentity
from headgate_airflow.location import TEMPLATED, OnStream
from headgate_airflow.triggers.base import StreamTrigger
from headgate_control import Control

_LATER_S = 60.0


class StreamSensor(OnStream, BaseSensorOperator):
    """Waits for something about `stream`, for `timeout` at most; `soft_fail` skips instead of failing, as ever."""

    template_fields: Sequence[str] = TEMPLATED

    def __init__(
        self,
        *,
        stream: str,
        conn_id: str | None = None,
        root: str | None = None,
        streams_file: str | Path | None = None,
        poke_interval: float = 2.0,
        timeout: float | timedelta = timedelta(hours=1),
        retries: int = 2,
        retry_delay: timedelta = timedelta(seconds=15),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            poke_interval=poke_interval, timeout=timeout, retries=retries, retry_delay=retry_delay, **kwargs
        )
        self.locate(stream, conn_id, root, streams_file)

    @abstractmethod
    def look(self, control: Control) -> dict[str, Any] | None:
        """What the sensor returns, or None as long as it is not so."""

    @abstractmethod
    def trigger(self, **common: Any) -> StreamTrigger:
        """What looks on in the triggerer."""

    @told_to_airflow()
    def execute(self, context: Mapping[str, Any]) -> Any:
        hook = self.hook
        found = self.look(hook.control(by=TaskIdentity.of(context).by))
        if found is not None:
            return found
        trigger = self.trigger(
            stream=self.stream,
            root=hook.root,
            conn_id=hook.conn_id,
            until=time.time() + self.timeout,
            poll_s=self.poke_interval,
        )
        return self.defer(trigger=trigger, method_name="seen", timeout=timedelta(seconds=self.timeout + _LATER_S))

    @told_to_airflow()
    def seen(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Called when the trigger has fired: looks itself, since the event is only a hint."""
        found = self.look(self.hook.control(by=TaskIdentity.of(context).by))
        if found is not None:
            return found
        if event["outcome"] == TIMED_OUT:
            raise AirflowSensorTimeout(event["why"])
        if "why" in event:
            raise AirflowFailException(event["why"])
        self.log.info("it was so a moment ago, and is no more: looking on")
        return self.execute(context)
