"""Watches what is under way in a driver, and ends what has not moved for longer than it may. Asks nothing of Spark."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from psutil import Process

from headgate.driver import processes
from headgate.driver.pulse import Heart
from headgate.driver.standstill import Standstills, Still
from headgate.driver.under_way import (
    BATCH_TIMEOUT,
    SOURCE_TIMEOUT,
    TIMEOUT,
    DriverSpent,
    NoProgress,
    Part,
    Remedy,
    Sign,
    UnderWay,
)
from headgate_contract.errors import StreamFailed
from headgate_contract.heartbeats import StreamState
from headgate_contract.settings import Settings

log = logging.getLogger(__name__)

_LONGEST_LOOK_S = 1.0
_LOOKS = 10
"""So often it looks, at least, within the shortest time that is allowed."""
_PROCESSES_EVERY = 5
"""Looking for processes costs more than the rest: it is done with each fifth look."""
_ENDING_S = 60.0
"""How long a driver that has to be replaced has for its end, until it is ended in mid-sentence."""
_LAST_WORD_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Actions:
    """What the watchdog can do."""

    end_life: Callable[[StreamFailed], None]
    """Ends the life that is under way, with this for a cause; DriverSpent: and lets no other follow."""
    tell: Callable[[str], None]
    """Puts it into the history; may take long."""
    end_processes: Callable[[], None] = lambda: processes.end_all(0)
    kill: Callable[[int], None] = processes.kill
    die: Callable[[int], object] = os._exit
    stopped: Callable[[], list[Process]] = processes.stopped


class Watchdog:
    """A thread that looks at what is under way, several times within the shortest time that is allowed."""

    def __init__(self, under_way: UnderWay, settings: Settings, heart: Heart, actions: Actions) -> None:
        self._under_way = under_way
        self._heart = heart
        self._actions = actions
        allowed = [settings[key] / 1000 for key in (TIMEOUT, SOURCE_TIMEOUT, BATCH_TIMEOUT) if settings[key]]
        self.pause_s = min([_LONGEST_LOOK_S, *(seconds / _LOOKS for seconds in allowed)])
        self._processes_matter = bool(settings[TIMEOUT])
        self._standstills = Standstills(lambda key: int(settings[key]), int(2000 * self.pause_s))
        self._looks = 0
        self._looked_s = time.monotonic()
        self._stopped: list[Sign] = []
        self._ended: set[Hashable] = set()
        """What was ended already, once for each time that it stood still."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The driver has ended all that it had under way."""
        self._closed.set()

    def is_awake(self, within_s: float) -> bool:
        """Whether it has looked lately."""
        return time.monotonic() - self._looked_s < within_s

    def _run(self) -> None:
        while not self._closed.wait(self.pause_s):
            try:
                self.look(time.monotonic_ns() // 1_000_000)
            except Exception:  # it goes on, whatever it was
                log.exception("the watchdog goes on after")

    def look(self, now_ms: int) -> None:
        """Look once: show what stands still, and end what does so for too long."""
        if self._looks % _PROCESSES_EVERY == 0 and self._processes_matter:
            self._stopped = [_sign_of(process) for process in self._actions.stopped()]
        self._looks += 1
        still = self._standstills.look(now_ms, [*self._under_way.now(), *self._stopped])
        self._heart.stand(tuple(each.told for each in still if each.notable))
        overdue = [each for each in still if each.overdue]
        self._looked_s = time.monotonic()
        new = [each for each in overdue if each.key not in self._ended]
        self._ended = {each.key for each in overdue}
        if new:
            self._end(max(new, key=lambda each: each.part.remedy is Remedy.REPLACE))
        for each in new:
            if isinstance(each.part, _Stopped):
                self._actions.kill(each.part.pid)  # who waits for it gets an error now

    def _end(self, still: Still) -> None:
        cause = f"no progress: {still.told}"
        log.error("%s", cause)
        self._heart.note(lambda progress: replace(progress, standstills=progress.standstills + 1), soon=True)
        threading.Thread(target=self._actions.tell, args=(cause,), name="told", daemon=True).start()
        if still.part.remedy is Remedy.RESTART:
            self._actions.end_life(NoProgress(cause))
            return
        self._actions.end_life(DriverSpent(cause))
        self._actions.end_processes()  # who waits for an answer of theirs gets an error now, and can end
        threading.Thread(target=self._insist, args=(cause,), name="last resort", daemon=True).start()

    def _insist(self, cause: str) -> None:
        if self._closed.wait(_ENDING_S):
            return
        log.error("the driver does not end by itself: it is ended now")
        last = threading.Thread(target=self._heart.become, args=(StreamState.FAILED, cause), daemon=True)
        last.start()
        last.join(_LAST_WORD_S)
        self._actions.end_processes()
        self._actions.die(StreamFailed.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped(Part):
    """A process that has been stopped: it does nothing until somebody lets it go on."""

    pid: int


def _sign_of(process: Process) -> Sign:
    """Spark makes new Python workers; there is one JVM."""
    name = processes.describe(process)
    remedy = Remedy.REPLACE if name.startswith("java") else Remedy.RESTART
    part = _Stopped(f"{name}, which the driver has started, has been stopped", TIMEOUT, remedy, pid=process.pid)
    return Sign(("stopped", process.pid), part, True)
