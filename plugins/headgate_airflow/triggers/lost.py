"""Watches streams and fires for as long as any of them is lost and nobody has claimed it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_airflow.own_thread import OwnThread
from headgate_contract.errors import HeadgateError
from headgate_control import Condition, Control, Lost, StreamStatus, due

_LONGEST_S = 600.0
_ANSWER_S = 60.0
"""Storage that takes longer to be looked at does not answer."""


class StreamLostTrigger(BaseEventTrigger):
    """Level-triggered: every look begins anew, and what is lost is reported again each `refire_s` until it is claimed.

    Besides `streams`, it watches every other stream that is at work on the root: whoever takes one out of streams.yaml
    has not stopped it. Such a one, if nobody claims it, is reported more and more seldom.

    Airflow may merge or lose events, so an event is only a wake-up: its payload is a hint, and whoever wakes looks
    again. A stream stops being reported when the slot of its next generation exists, and at no other moment.
    """

    def __init__(
        self,
        *,
        streams: list[str],
        root: str | None,
        ignored: list[str] | None = None,
        conn_id: str | None = None,
        poll_s: float = 2.0,
        refire_s: float = 15.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.streams = [str(stream) for stream in streams]
        self.ignored = [str(stream) for stream in ignored or ()]
        self.root = root
        self.conn_id = conn_id
        self.poll_s = poll_s
        self.refire_s = refire_s
        self._control: Control | None = None
        """One for all looks: silence counts only once it was watched."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "streams": self.streams,
                "ignored": self.ignored,
                "root": self.root,
                "conn_id": self.conn_id,
                "poll_s": self.poll_s,
                "refire_s": self.refire_s,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        look = OwnThread(self._look, str(self.root), _ANSWER_S)
        reports = Reports(self.streams, self.refire_s)
        told: dict[str, str] = {}
        trouble, pause_s = "", self.poll_s
        while True:
            lost: list[Lost] = []
            try:
                seen, others = await look.call()
                told = self._tell(seen, others, told)
                lost, trouble, pause_s = due([*seen, *others]), "", self.poll_s
            except (HeadgateError, OSError) as error:
                # The watch must not end: nobody would start it again.
                if str(error) != trouble:
                    self.log.warning("cannot look for lost streams on %s now: %s", self.root, error)
                trouble = str(error)
                if not self.streams:  # a root of which nothing is declared may be gone for good
                    pause_s = min(2 * pause_s, _LONGEST_S)
            reported = reports.due(lost, time.monotonic())
            if reported:
                yield TriggerEvent(event_of(reported))
            await asyncio.sleep(pause_s)

    def _look(self) -> tuple[list[StreamStatus], list[StreamStatus]]:
        if self._control is None:
            self._control = HeadgateHook(self.conn_id, root=self.root).control(by="airflow triggerer")
        return self._control.fleet(self.streams), self._control.undeclared([*self.streams, *self.ignored])

    def _tell(
        self, seen: Iterable[StreamStatus], others: Iterable[StreamStatus], told: Mapping[str, str]
    ) -> dict[str, str]:
        """Log what a person should know, once for as long as it is so; what was told of each stream by now."""
        unread = [status for status in seen if status.condition is Condition.UNREADABLE]
        words = {str(status.stream): f"cannot look at stream {status.stream} now: {status.text}" for status in unread}
        words |= {str(status.stream): about_undeclared(status, self.root) for status in others}
        for stream, text in words.items():
            if told.get(stream) != text:
                self.log.warning("%s", text)
        return words


class Reports:
    """When what is lost is told again. Pure."""

    def __init__(self, declared: Collection[str], refire_s: float) -> None:
        self._declared = frozenset(declared)
        self._refire_s = refire_s
        self._told: dict[tuple[str, int], tuple[float, float]] = {}
        """By stream and generation: not before this moment again, and after this pause."""

    def due(self, lost: Iterable[Lost], now: float) -> list[Lost]:
        """Those of `lost` that are to be reported now."""
        of_now = {(str(one.stream), int(one.generation)): one for one in lost}
        self._told = {key: told for key, told in self._told.items() if key in of_now}
        found = []
        for key, one in of_now.items():
            again, pause = self._told.get(key, (now, self._refire_s))
            if now >= again:
                longer = pause if key[0] in self._declared else min(2 * pause, _LONGEST_S)
                self._told[key] = (now + pause, longer)
                found.append(one)
        return found


def about_undeclared(status: StreamStatus, root: str | None) -> str:
    """What a person should know of a stream that nobody has declared."""
    return (
        f"stream {status.stream} on {root} is none that streams.yaml declares, and is {status.condition.value}: it is "
        f"watched until somebody stops it (headgate_stop, or `headgate stop {status.stream}`), declares it, or writes "
        "its name below `ignore:` in that file"
    )


def event_of(lost: list[Lost]) -> dict[str, Any]:
    """The payload: which streams looked lost, and why."""
    return {"lost": [{"stream": str(one.stream), "generation": int(one.generation), "why": one.reason} for one in lost]}
