"""Judges what stands still. Pure: signs of life and a time in, what has not moved out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from headgate.driver.under_way import Part, Sign
from headgate_contract.heartbeats import Standing

_NEVER_SHOWN_MS = 60_000
"""After this long people are shown what may take as long as it likes."""


@dataclass(frozen=True, slots=True)
class Still:
    """A part that has not moved since it was first seen so."""

    key: Hashable
    """The same for as long as it has not moved."""
    part: Part
    for_ms: int
    allowed_ms: int

    @property
    def overdue(self) -> bool:
        return 0 < self.allowed_ms <= self.for_ms

    @property
    def notable(self) -> bool:
        """Whether people are to be shown it: a tenth of its time is over."""
        return self.for_ms >= (self.allowed_ms / 10 or _NEVER_SHOWN_MS)

    @property
    def told(self) -> Standing:
        return Standing(what=self.part.what, for_ms=self.for_ms, allowed_ms=self.allowed_ms, setting=self.part.setting)


class Standstills:
    """Looks again and again, and adds up for how long each part has given the same sign of life.

    What lies between two looks counts for one step at the most: a clock that jumps, a host that slept and a process
    that was frozen with all that it watches say nothing of the parts.
    """

    def __init__(self, allowed_ms: Callable[[str], int], longest_step_ms: int) -> None:
        self._allowed_ms = allowed_ms
        self._longest_step_ms = longest_step_ms
        self._looked_ms: int | None = None
        self._known: dict[Hashable, tuple[Hashable, int]] = {}

    def look(self, now_ms: int, signs: Iterable[Sign]) -> list[Still]:
        """What stands still, the one that is nearest to its end first."""
        step = 0 if self._looked_ms is None else min(max(0, now_ms - self._looked_ms), self._longest_step_ms)
        self._looked_ms = now_ms
        before, self._known = self._known, {}
        found = []
        for each in signs:
            sign, for_ms = before.get(each.key, (each.sign, -step))
            for_ms = for_ms + step if sign == each.sign else 0
            self._known[each.key] = (each.sign, for_ms)
            part = each.part
            allowed = self._allowed_ms(part.setting) if part.setting else part.allowed_ms
            found.append(Still((each.key, each.sign), part, for_ms, allowed))
        return sorted(found, key=_nearest)


def _nearest(still: Still) -> tuple[bool, float]:
    return not still.allowed_ms, -still.for_ms / (still.allowed_ms or 1)
