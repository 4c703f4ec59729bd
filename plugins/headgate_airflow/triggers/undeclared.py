"""Watches one root for what streams.yaml does not declare, and fires when that is something else than before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.own_thread import OwnThread
from headgate_contract.errors import HeadgateError
from headgate_control import Control

_ANSWER_S = 60.0
_SURE_AFTER = 3
"""So many looks at a root that fail behind one that did not: then it is told that it is gone."""
_LONGEST_S = 600.0


class UndeclaredTrigger(BaseEventTrigger):
    """Fires with its first look, and then once whenever a stream that nobody declares begins or ends to be at work.

    If the root is a `former` one, which nothing names any more, that it does not answer is told likewise.
    """

    def __init__(
        self,
        *,
        streams: list[str],
        root: str | None,
        former: bool = False,
        conn_id: str | None = None,
        poll_s: float = 30.0,
        **kwargs: Any,
    ) -> None:
        """`streams` are those that are declared here, or ignored."""
        super().__init__(**kwargs)
        self.streams = [str(stream) for stream in streams]
        self.root = root
        self.former = former
        self.conn_id = conn_id
        self.poll_s = poll_s
        self._control: Control | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        about = {"streams": self.streams, "root": self.root, "former": self.former}
        where = f"{type(self).__module__}.{type(self).__qualname__}"
        return (where, {**about, "conn_id": self.conn_id, "poll_s": self.poll_s})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        look = OwnThread(self._look, str(self.root), _ANSWER_S)
        told: dict[str, Any] | None = None
        failed, pause_s = 0, self.poll_s
        while True:
            found = told
            try:
                found, failed, pause_s = {"undeclared": await look.call()}, 0, self.poll_s
            except (HeadgateError, OSError) as error:
                failed += 1
                if self.former and (told is None or failed >= _SURE_AFTER):
                    pause_s = min(2 * pause_s, _LONGEST_S)
                    found = {"gone": self.root, "why": told["why"] if told and "why" in told else str(error)}
            if found != told:
                told = found
                yield TriggerEvent(found)
            await asyncio.sleep(pause_s)

    def _look(self) -> list[str]:
        if self._control is None:
            self._control = HeadgateHook(self.conn_id, root=self.root).control(by="airflow triggerer")
        return [str(status.stream) for status in self._control.undeclared(self.streams)]
