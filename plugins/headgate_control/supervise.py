"""Tier 2 without Airflow: looks at the fleet again and again, and recovers what is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from headgate_contract.errors import HeadgateError
from headgate_contract.ids import Generation, StreamName
from headgate_contract.restart import GiveUp
from headgate_control.control import Control
from headgate_control.outcomes import Condition, Launched, Lost, NotNeeded, StreamStatus

_AT_ONCE = 8
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 120.0
"""A recovery that fails is tried again after pauses that double, and so is a root that does not answer."""
_LONGEST_BLIND_S = 5.0
"""The longest pause of a root: a listing costs nothing, and until it is asked again nothing that is lost is seen."""
_WELL = frozenset({Condition.RUNNING, Condition.STOPPING, Condition.STOPPED})
"""What a stream can only be after a start that went well: a loss later is a new one."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Something that the supervisor saw or did."""

    stream: str | None
    what: str
    """`lost`, `recovered`, `not-needed`, `failed`, `given-up`, `unreadable` or `storage`."""
    text: str
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class _Pause:
    until_s: float
    pause_s: float


@dataclass
class Supervisor:
    """Looks at the whole fleet of one root, or at `streams`. Any number of supervisors may look at one root."""

    control: Control
    tell: Callable[[Sighting], None]
    streams: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic
    _told: set[tuple[object, ...]] = field(default_factory=set)
    _busy: dict[StreamName, Future[None]] = field(default_factory=dict)
    _pauses: dict[StreamName | None, _Pause] = field(default_factory=dict)
    """Of each stream whose recovery failed, and of the root (None)."""

    def run(self, interval_s: float, stop: threading.Event) -> None:
        """Look every `interval_s` until `stop` is set, then let recoveries under way end."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            while not stop.is_set():
                self.look(pool)
                stop.wait(interval_s)

    def look(self, pool: ThreadPoolExecutor) -> None:
        """One look: what is lost and due is recovered in `pool`."""
        self._busy = {stream: work for stream, work in self._busy.items() if not work.done()}
        if self._pausing(None):
            return
        try:
            fleet = self.control.fleet(self.streams or None)
        except HeadgateError as error:
            self._pause(None)
            self._say_once(Sighting(stream=None, what="storage", text=str(error)))
            return
        self._pauses.pop(None, None)
        self._forget(None)
        for status in fleet:
            if status.stream not in self._busy:
                self._consider(status, pool)

    def _consider(self, status: StreamStatus, pool: ThreadPoolExecutor) -> None:
        if status.condition is Condition.UNREADABLE:
            self._say_once(Sighting(stream=status.stream, what="unreadable", text=status.text))
            return
        self._forget(status.stream, "unreadable")
        lost = status.lost
        if lost is None:
            self._forget(status.stream)
            if status.condition in _WELL:
                self._pauses.pop(status.stream, None)
            return
        if isinstance(lost.restart, GiveUp):
            text = f"{lost.reason}; given up: {lost.restart.reason}"
            self._say_once(Sighting(stream=lost.stream, what="given-up", text=text, generation=lost.generation))
            return
        self._say_once(Sighting(stream=lost.stream, what="lost", text=lost.reason, generation=lost.generation))
        if lost.due_in_s == 0 and not self._pausing(lost.stream):
            self._busy[lost.stream] = pool.submit(self._recover, lost)

    def _recover(self, lost: Lost) -> None:
        try:
            found = self.control.recover(lost.stream)
        except Exception as error:  # noqa: BLE001  (nobody asks the Future: what is not told here is never told)
            text = str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
            text += f" (tried again in {self._pause(lost.stream):g} s)"
            self.tell(Sighting(stream=lost.stream, what="failed", text=text, generation=lost.generation))
            return
        if isinstance(found, Launched):
            self._pauses.pop(lost.stream, None)
        self.tell(_sighting(found))

    def _pausing(self, what: StreamName | None) -> bool:
        pause = self._pauses.get(what)
        return pause is not None and self.clock() < pause.until_s

    def _pause(self, what: StreamName | None) -> float:
        """It has failed once more: for how long it is left alone."""
        before = self._pauses.get(what)
        longest_s = _LONGEST_BLIND_S if what is None else _LONGEST_PAUSE_S
        pause_s = _FIRST_PAUSE_S if before is None else min(2 * before.pause_s, longest_s)
        self._pauses[what] = _Pause(self.clock() + pause_s, pause_s)
        return pause_s

    def _say_once(self, sighting: Sighting) -> None:
        key = (sighting.stream, sighting.what, sighting.generation)
        if key not in self._told:
            self._told.add(key)
            self.tell(sighting)

    def _forget(self, stream: StreamName | None, what: str | None = None) -> None:
        """What was told of it (`what`, or all) is over, and told again when it comes again."""
        self._told = {key for key in self._told if key[0] != stream or what not in (None, key[1])}


def _sighting(found: Launched | NotNeeded) -> Sighting:
    if isinstance(found, Launched):
        text = f"generation {found.generation} runs: {found.decision.reason}"
        return Sighting(stream=found.stream, what="recovered", text=text, generation=found.generation)
    return Sighting(stream=found.stream, what="not-needed", text=found.reason, generation=found.generation)
