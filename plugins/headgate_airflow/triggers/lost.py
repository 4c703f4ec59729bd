"""Watches the declared streams and fires for as long as any of them is lost and nobody has claimed it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_contract.errors import HeadgateError
from headgate_control import Control, Lost


class StreamLostTrigger(BaseEventTrigger):
    """Level-triggered: every look begins anew, and what is lost is reported again each `refire_s` until it is claimed.

    Airflow may merge or lose events, so an event is only a wake-up: its payload is a hint, and whoever wakes looks
    again. A stream stops being reported when the slot of its next generation exists, and at no other moment.
    """

    def __init__(
        self,
        *,
        streams: list[str],
        root: str | None,
        conn_id: str | None = None,
        poll_s: float = 2.0,
        refire_s: float = 15.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.streams = [str(stream) for stream in streams]
        self.root = root
        self.conn_id = conn_id
        self.poll_s = poll_s
        self.refire_s = refire_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "streams": self.streams,
                "root": self.root,
                "conn_id": self.conn_id,
                "poll_s": self.poll_s,
                "refire_s": self.refire_s,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        control: Control | None = None  # one for all looks: silence counts only once it was watched
        quiet_until = 0.0
        while True:
            try:
                if control is None:
                    control = await asyncio.to_thread(self._open)
                lost = await asyncio.to_thread(control.lost, self.streams)
            except (HeadgateError, OSError) as error:
                # The watch must not end: nobody would start it again.
                self.log.warning("cannot look for lost streams on %s now: %s", self.root, error)
                lost = []
            if lost and time.monotonic() >= quiet_until:
                quiet_until = time.monotonic() + self.refire_s
                yield TriggerEvent(event_of(lost))
            await asyncio.sleep(self.poll_s)

    def _open(self) -> Control:
        return HeadgateHook(self.conn_id, root=self.root).control(by="airflow triggerer")


def event_of(lost: list[Lost]) -> dict[str, Any]:
    """The payload: which streams looked lost, and why."""
    return {"lost": [{"stream": str(one.stream), "generation": int(one.generation), "why": one.reason} for one in lost]}
