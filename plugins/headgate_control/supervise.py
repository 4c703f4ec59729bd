"""Tier 2 without Airflow: looks at the fleet again and again, and recovers what is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from headgate_contract.errors import HeadgateError
from headgate_contract.ids import Generation, StreamName
from headgate_contract.restart import GiveUp
from headgate_control.control import Control
from headgate_control.outcomes import Condition, Launched, Lost, NotNeeded, StreamStatus

_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Something that the supervisor saw or did."""

    stream: str | None
    what: str
    """`lost`, `recovered`, `not-needed`, `failed`, `given-up`, `unreadable` or `storage`."""
    text: str
    generation: Generation | None = None


@dataclass
class Supervisor:
    """Looks at the whole fleet of one root, or at `streams`. Any number of supervisors may look at one root."""

    control: Control
    tell: Callable[[Sighting], None]
    streams: Collection[str] = ()
    _told: set[tuple[object, ...]] = field(default_factory=set)
    _busy: dict[StreamName, Future[None]] = field(default_factory=dict)

    def run(self, interval_s: float, stop: threading.Event) -> None:
        """Look every `interval_s` until `stop` is set, then let recoveries under way end."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            while not stop.is_set():
                self.look(pool)
                stop.wait(interval_s)

    def look(self, pool: ThreadPoolExecutor) -> None:
        """One look: what is lost and due is recovered in `pool`."""
        self._busy = {stream: work for stream, work in self._busy.items() if not work.done()}
        try:
            fleet = self.control.fleet(self.streams or None)
        except HeadgateError as error:
            self._say_once(Sighting(stream=None, what="storage", text=str(error)))
            return
        for status in fleet:
            if status.stream not in self._busy:
                self._consider(status, pool)

    def _consider(self, status: StreamStatus, pool: ThreadPoolExecutor) -> None:
        if status.condition is Condition.UNREADABLE:
            self._say_once(Sighting(stream=status.stream, what="unreadable", text=status.text))
        lost = status.lost
        if lost is None:
            return
        if isinstance(lost.restart, GiveUp):
            text = f"{lost.reason}; given up: {lost.restart.reason}"
            self._say_once(Sighting(stream=lost.stream, what="given-up", text=text, generation=lost.generation))
            return
        self._say_once(Sighting(stream=lost.stream, what="lost", text=lost.reason, generation=lost.generation))
        if lost.due_in_s == 0:
            self._busy[lost.stream] = pool.submit(self._recover, lost)

    def _recover(self, lost: Lost) -> None:
        try:
            found = self.control.recover(lost.stream)
        except Exception as error:  # noqa: BLE001  (nobody asks the Future: what is not told here is never told)
            text = str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
            self.tell(Sighting(stream=lost.stream, what="failed", text=text, generation=lost.generation))
            return
        self.tell(_sighting(found))

    def _say_once(self, sighting: Sighting) -> None:
        key = (sighting.stream, sighting.what, sighting.generation)
        if key not in self._told:
            self._told.add(key)
            self.tell(sighting)


def _sighting(found: Launched | NotNeeded) -> Sighting:
    if isinstance(found, Launched):
        text = f"generation {found.generation} runs: {found.decision.reason}"
        return Sighting(stream=found.stream, what="recovered", text=text, generation=found.generation)
    return Sighting(stream=found.stream, what="not-needed", text=found.reason, generation=found.generation)
