"""The loop that all waiting triggers share: look at a stream in a thread, say what was seen, give up in time."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from headgate_airflow.following import GONE_WRONG, TIMED_OUT
from headgate_airflow.hooks.headgate import HeadgateHook
from headgate_contract.errors import HeadgateError, StorageError
from headgate_control import Control


class StreamTrigger(BaseTrigger):
    """Looks at one stream every `poll_s` until `look` has something to say, or until the moment `until` (epoch).

    The moment is absolute, so that a triggerer's restart does not begin the wait anew. One event is yielded: a dict
    with an `outcome`, and `asked`: what the trigger was asked, for whoever resumes. (Under dag.test nothing else
    reaches him: there defer's own kwargs get lost.) Storage that does not answer is asked again.
    """

    def __init__(
        self,
        *,
        stream: str,
        root: str | None,
        until: float,
        conn_id: str | None = None,
        poll_s: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = str(stream)  # plain: our names are subclasses of str, which Airflow cannot send
        self.root = root
        self.until = until
        self.conn_id = conn_id
        self.poll_s = poll_s

    @abstractmethod
    def look(self, control: Control) -> dict[str, Any] | None:
        """What there is to say, or None as long as there is nothing. Called in a thread; may block for a moment."""

    @abstractmethod
    def waits_for(self) -> str:
        """What did not come, for the message when the time is up."""

    def fields(self) -> dict[str, Any]:
        """What the subclass adds to serialize()."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        own = {"stream": self.stream, "root": self.root, "until": self.until, "conn_id": self.conn_id}
        return (f"{type(self).__module__}.{type(self).__qualname__}", {**own, "poll_s": self.poll_s, **self.fields()})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent({**await self._wait(), "asked": {"until": self.until, **self.fields()}})

    async def _wait(self) -> dict[str, Any]:
        control: Control | None = None
        trouble = ""
        while True:
            try:
                if control is None:
                    control = await asyncio.to_thread(self.open)
                seen = await asyncio.to_thread(self.look, control)
                trouble = ""
            except StorageError as error:
                self.log.warning("cannot look at stream %s now: %s", self.stream, error)
                seen, trouble = None, f"; at last storage did not answer: {error}"
            except HeadgateError as error:
                return {"outcome": GONE_WRONG, "why": str(error)}
            if seen is not None:
                return seen
            if time.time() >= self.until:
                return {"outcome": TIMED_OUT, "why": f"{self.waits_for()}{trouble}"}
            await asyncio.sleep(self.poll_s)

    def open(self) -> Control:
        """The control plane of the root; options come from the connection, they are not stored with the trigger."""
        return HeadgateHook(self.conn_id, root=self.root).control(by="airflow triggerer")
