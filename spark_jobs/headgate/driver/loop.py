"""The coordinator's thread: takes events from everybody, hands the coordinator's actions to those who do them."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut
from headgate.coordinator.messages import Action, BatchBegun, Event, FailStream, Tick
from headgate.driver.checkpoint_meter import CheckpointMeter, now_ms

log = logging.getLogger(__name__)

_IDLE_S = 0.5


def switch_threads_often() -> None:
    """Let no thread of this process hold up the coordinator's for long: Python's own turns of 5 ms hold up batches."""
    sys.setswitchinterval(0.0005)


class StreamEnding(Exception):
    """The stream is ending: no micro-batch may begin any more."""


@dataclass(frozen=True)
class Grant:
    """Leave to run a micro-batch on top of this cut."""

    cut: Cut


class CoordinatorLoop:
    """Owns the coordinator. Everybody else sends it messages; it does no I/O."""

    def __init__(
        self, coordinator: Coordinator, perform: Callable[[Action], None], meter: CheckpointMeter | None = None
    ) -> None:
        self._coordinator = coordinator
        self._perform = perform
        self._meter = meter or CheckpointMeter()
        self._inbox: queue.SimpleQueue[tuple[Event, Future[Grant] | None] | None] = queue.SimpleQueue()
        self._parked: list[Future[Grant]] = []
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._closed = threading.Event()
        self._pinned: tuple[Cut, ...] = ()

    def pinned_cuts(self) -> tuple[Cut, ...]:
        """The cuts of the snapshots under way: their local files are still read."""
        return self._pinned

    @staticmethod
    def now_ms() -> int:
        """Time that never jumps."""
        return time.monotonic_ns() // 1_000_000

    def start(self) -> None:
        self._thread.start()

    def post(self, event: Event) -> None:
        """Tell the coordinator something."""
        self._inbox.put((event, None))

    def begin_batch(self) -> Grant:
        """Ask for leave to run a micro-batch; waits while the stream may be stopping. Raises StreamEnding."""
        if self._closed.is_set():
            raise StreamEnding
        answer: Future[Grant] = Future()
        self._inbox.put((BatchBegun(), answer))
        while True:
            try:
                return answer.result(timeout=1.0)
            except TimeoutError:
                if self._closed.is_set() and not answer.done():
                    raise StreamEnding from None

    def close(self) -> bool:
        """End the thread, and say whether it has; whoever waits for leave, or asks for it later, gets StreamEnding."""
        self._closed.set()
        self._inbox.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        return not self._thread.is_alive() or threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._step()
        except Exception as error:
            log.exception("the coordinator failed")
            self._perform(FailStream(cause=f"the coordinator failed: {type(error).__name__}: {error}"))
        finally:
            self._closed.set()
            self._refuse_everybody()

    def _refuse_everybody(self) -> None:
        """Nobody reads the inbox any more: who waits for an answer must not wait in vain."""
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                break
            if message is not None and message[1] is not None:
                self._parked.append(message[1])
        self._refuse_parked()

    def _refuse_parked(self) -> None:
        for waiting in self._parked:
            waiting.set_exception(StreamEnding())
        self._parked.clear()

    def _step(self) -> None:
        message = self._next()
        if message is None:
            return
        event, answer = message
        if answer is not None:
            self._parked.append(answer)
        else:
            self._handle(event)
        if self._coordinator.ended:
            self._refuse_parked()
        elif self._parked and self._coordinator.may_begin and not self._coordinator.busy:
            waiting = self._parked.pop(0)
            cut = self._coordinator.cut
            self._handle(BatchBegun())
            waiting.set_result(Grant(cut))

    def _next(self) -> tuple[Event, Future[Grant] | None] | None:
        deadline = self._coordinator.next_deadline()
        wait = _IDLE_S if deadline is None else min(_IDLE_S, max(0.0, (deadline - self.now_ms()) / 1000))
        try:
            return self._inbox.get(timeout=wait) if wait else self._inbox.get_nowait()
        except queue.Empty:
            return (Tick(), None)

    def _handle(self, event: Event) -> None:
        began_ms = now_ms()
        actions = self._coordinator.handle(event, self.now_ms())
        self._pinned = tuple(pending.cut for pending in self._coordinator.pending.values())
        self._meter.saw(event, actions, began_ms)
        for action in actions:
            self._perform(action)
        self._meter.passed(actions)
