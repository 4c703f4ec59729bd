"""Calls what may hang, as storage on a mount that is gone, in threads that nobody has to wait for.

A hung call cannot be ended. What it must not hold up: the threads that others share, and the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from headgate_contract.errors import StorageUnreachable

T = TypeVar("T")


def begin(what: Callable[[], T], name: str) -> Future[T]:
    """Call it in a daemon thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(what())
        except BaseException as error:  # noqa: BLE001  (who waits for it raises it)
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class OwnThread(Generic[T]):
    """One call after the other of `what`; there is never more than one thread that hangs."""

    def __init__(self, what: Callable[[], T], name: str, timeout_s: float) -> None:
        self._what = what
        self._name = name
        self._timeout_s = timeout_s
        self._under_way: Future[T] | None = None

    async def call(self) -> T:
        """What it returns, or the answer of an earlier call that came late. Raises StorageUnreachable if it hangs."""
        if self._under_way is None:
            self._under_way = begin(self._what, self._name)
        answer = asyncio.wrap_future(self._under_way)
        done, _ = await asyncio.wait([answer], timeout=self._timeout_s)
        if not done:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())  # else it is called unretrieved
            raise StorageUnreachable(f"{self._name} has not answered for {self._timeout_s:g} s")
        self._under_way = None
        return answer.result()
