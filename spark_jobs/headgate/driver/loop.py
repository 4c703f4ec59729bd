"""The coordinator's thread: takes events from everybody, hands the coordinator's actions to those who do them."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import Cut
from headgate.coordinator.messages import Action, BatchBegun, Event, FailStream, Tick
from headgate.driver.checkpoint_meter import CheckpointMeter, now_ms

log = logging.getLogger(__name__)

_IDLE_MS = 500
_PATIENCE_S = 10.0

Afterwards = Callable[[], None]
"""What an action leaves to be done when micro-batches may run again."""


def switch_threads_often() -> None:
    """Let no thread of this process hold up the coordinator's for long: Python's own turns of 5 ms hold up batches."""
    sys.setswitchinterval(0.0005)


def spare_collector() -> None:
    """Collect the garbage now, and take what is left for permanent: a whole collection stops all threads for 30 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class StreamEnding(Exception):
    """The stream is ending: no micro-batch may begin any more."""


@dataclass(frozen=True)
class Grant:
    """Leave to run a micro-batch on top of this cut."""

    cut: Cut


class CoordinatorLoop:
    """Owns the coordinator. Everybody else sends it messages; it does no I/O.

    Only who has the turn touches the coordinator: its own thread, for the messages in their order and for the
    deadlines; or the thread of a batch that asks for leave, which takes in first whatever waits. To change threads
    twice for each leave would take milliseconds where the processors are busy. They are busiest right behind a batch,
    when its workers clear up: so what a batch has made is left for the next one, or for some milliseconds.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        perform: Callable[[Action], Afterwards | None],
        meter: CheckpointMeter | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._perform = perform
        self._meter = meter or CheckpointMeter()
        lock = threading.RLock()
        """Guards the inbox, the turn and who is parked."""
        self._changed = threading.Condition(lock)
        self._turn_free = threading.Condition(lock)
        self._turn_of: threading.Thread | None = None
        """Who has the turn."""
        self._inbox: deque[tuple[Event, Future[Grant] | None]] = deque()
        self._parked: list[Future[Grant]] = []
        self._closed = False
        self._rounds = 0
        """How often the coordinator's thread has come by, if only to see that there is nothing to do."""
        self._afterwards: list[Afterwards] = []
        self._pinned: tuple[Cut, ...] = ()
        self._pinned_files: frozenset[str] = frozenset()
        self._leave_until_ms = 0
        """Until when what waits may be left to whoever asks for leave next."""
        self._wakes_ms = 0
        """When the coordinator's thread, if it sleeps, wakes by itself."""
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def pinned_cuts(self) -> tuple[Cut, ...]:
        """The cuts of the snapshots under way: their local files are still read."""
        return self._pinned

    def pinned_files(self) -> frozenset[str]:
        """The files of channels that somebody has still to read."""
        return self._pinned_files

    @staticmethod
    def now_ms() -> int:
        """Time that never jumps."""
        return time.monotonic_ns() // 1_000_000

    def start(self) -> None:
        self._thread.start()

    def rounds(self) -> int | None:
        """A number that grows for as long as the coordinator goes round; None once that has ended."""
        return None if self._closed else self._rounds

    def post(self, event: Event, *, within_ms: int = 0) -> None:
        """Tell the coordinator something, which it takes in at once, or `within_ms` if nothing else happens before."""
        with self._changed:
            self._leave_until_ms = self.now_ms() + within_ms if within_ms and not self._inbox else 0
            self._inbox.append((event, None))
            self._changed.notify()

    def begin_batch(self) -> Grant:
        """Ask for leave to run a micro-batch; waits while the stream may be stopping. Raises StreamEnding."""
        answer: Future[Grant] = Future()
        with self._changed:
            if self._closed:
                raise StreamEnding
            self._inbox.append((BatchBegun(), answer))
            self._leave_until_ms = 0
            free = self._turn_of is None
            if free:
                self._turn_of = threading.current_thread()
            else:
                self._changed.notify()
        if free:
            self._take_turn(partial(self._work_off, answer))
        return answer.result()

    def close(self) -> bool:
        """End, and say whether nobody is at it any more; whoever waits for leave, or asks later, gets StreamEnding."""
        here = threading.current_thread()
        self._refuse_everybody()
        if self._thread.is_alive() and here is not self._thread:
            self._thread.join(timeout=_PATIENCE_S)
        with self._changed:
            over = self._turn_free.wait_for(lambda: self._turn_of in (None, here), timeout=_PATIENCE_S)
        return over and (not self._thread.is_alive() or here is self._thread)

    def _refuse_everybody(self) -> None:
        """From now on nobody reads the inbox: who waits for an answer must not wait in vain."""
        with self._changed:
            self._closed = True
            self._parked += [answer for _, answer in self._inbox if answer is not None]
            self._inbox.clear()
            self._changed.notify_all()
            self._turn_free.notify_all()
        self._refuse_parked()

    def _refuse_parked(self) -> None:
        with self._changed:
            refused, self._parked = self._parked, []
        for waiting in refused:
            waiting.set_exception(StreamEnding())

    # ---- the turn

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        """Wait for what the coordinator's thread has to do; None at the end. If that needs the turn, it is taken."""
        overdue = False
        with self._changed:
            while not self._closed:
                self._rounds += 1
                if self._afterwards:
                    return self._run_afterwards
                if self._turn_of is not None:
                    self._turn_free.wait()
                elif overdue or (self._inbox and self.now_ms() >= self._leave_until_ms):
                    self._turn_of = threading.current_thread()
                    event, answer = self._inbox.popleft() if self._inbox else (Tick(), None)
                    return partial(self._take_turn, partial(self._step, event, answer))
                else:
                    deadline, now = self._coordinator.next_deadline(), self.now_ms()
                    due = now + _IDLE_MS if deadline is None else min(deadline, now + _IDLE_MS)
                    self._wakes_ms = min(due, self._leave_until_ms) if self._inbox else due
                    self._changed.wait(max(0, self._wakes_ms - now) / 1000)
                    overdue = self.now_ms() >= due
        return None

    def _take_turn(self, use: Callable[[], None]) -> None:
        """Use the turn, which is taken, and give it back."""
        deadline = None
        try:
            use()
            deadline = self._coordinator.next_deadline()
        except Exception as error:  # noqa: BLE001 - told, and the stream fails of it
            self._failed(error)
        finally:
            with self._changed:
                if self._afterwards or (deadline is not None and deadline < self._wakes_ms):
                    self._changed.notify()  # the coordinator's thread has something to do before it wakes by itself
                self._turn_of = None
                self._turn_free.notify_all()

    def _run_afterwards(self) -> None:
        with self._changed:
            afterwards, self._afterwards = self._afterwards, []
        try:
            for each in afterwards:
                each()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.error("the coordinator failed", exc_info=error)
        try:
            self._perform(FailStream(cause=f"the coordinator failed: {type(error).__name__}: {error}"))
        except Exception:
            log.exception("nobody could be told")
        self._refuse_everybody()

    def _work_off(self, mine: Future[Grant]) -> None:
        """The messages that wait, in their order, up to the one that asks for leave in this thread."""
        while not mine.done():
            with self._changed:
                if not self._inbox:
                    return
                message = self._inbox.popleft()
            self._step(*message)

    def _step(self, event: Event, answer: Future[Grant] | None) -> None:
        if answer is None:
            self._handle(event)
        elif not self._parks(answer):
            return
        if self._coordinator.ended:
            self._refuse_parked()
        elif self._may_grant:
            with self._changed:
                waiting = self._parked.pop(0) if self._parked else None
            if waiting is not None:
                self._grant(waiting)

    def _parks(self, answer: Future[Grant]) -> bool:
        """Let who asks wait for leave; refused if everybody has been refused already."""
        with self._changed:
            closed = self._closed
            if not closed:
                self._parked.append(answer)
        if closed:
            answer.set_exception(StreamEnding())
        return not closed

    @property
    def _may_grant(self) -> bool:
        return self._coordinator.may_begin and not self._coordinator.busy and not self._coordinator.ended

    def _grant(self, waiting: Future[Grant]) -> None:
        cut = self._coordinator.cut
        try:
            self._handle(BatchBegun())
        except Exception:
            waiting.set_exception(StreamEnding())
            raise
        waiting.set_result(Grant(cut))

    def _handle(self, event: Event) -> None:
        began_ms = now_ms()
        actions = self._coordinator.handle(event, self.now_ms())
        self._pinned = tuple(pending.cut for pending in self._coordinator.pending.values())
        self._pinned_files = self._coordinator.pinned_files()
        self._meter.saw(event, actions, began_ms)
        done = [self._perform(action) for action in actions]
        self._meter.passed(actions)
        self._afterwards += [each for each in done if each is not None]
