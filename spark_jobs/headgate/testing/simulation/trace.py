"""What happened, turn by turn, for a person to follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields

from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import Action, Event
from headgate_contract.snapshot import SnapshotRef

LAST = 40
"""How many turns a violation tells of."""

_LONG = ("staged", "vertices", "sources", "uploaded", "origin", "result")


@dataclass(frozen=True)
class Line:
    """One turn of somebody, or one message within it."""

    turn: int
    now_ms: int
    who: str
    what: str | Event | Action
    how: str = ""

    def __str__(self) -> str:
        what = self.what if isinstance(self.what, str) else describe(self.what)
        return f"{self.turn:>6} {self.now_ms:>7} ms  {self.who:<36} {what}{self.how and f'  -> {self.how}'}"


class Trace:
    """The last turns, or all of them."""

    def __init__(self, last: int | None = LAST) -> None:
        self._last = last
        self._lines: deque[Line] = deque(maxlen=None if last is None else 4 * last)

    def add(self, line: Line) -> None:
        self._lines.append(line)

    def lines(self) -> tuple[str, ...]:
        return tuple(str(line) for line in self._wanted())

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _wanted(self) -> Iterator[Line]:
        newest = self._lines[-1].turn if self._lines else 0
        return (line for line in self._lines if self._last is None or line.turn > newest - self._last)


def describe(message: Event | Action) -> str:
    """A message in one line: its name, and what tells it from others."""
    told = [_field(each.name, getattr(message, each.name)) for each in fields(message) if each.name not in _LONG]
    return " ".join([type(message).__name__, *(text for text in told if text)])


def _field(name: str, value: object) -> str:
    match value:
        case None | False | "" | ():
            return ""
        case Cut() | BatchResult():
            return f"epoch={value.epoch}"
        case SnapshotRef():
            return ""
        case tuple():
            return f"{name}={','.join(str(getattr(each, 'id', each)) for each in value)}"
    return f"{name}={getattr(value, 'value', value)}"
