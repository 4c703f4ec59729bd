"""Cron expressions: 5 fields, and Flink/Quartz's 6 or 7 fields; checked here, field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate_contract.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class _Field:
    """What one field may hold."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    any_day: bool = False
    """Whether `?` may stand for `*`: only where the other of the two day fields decides."""

    @property
    def longest_step(self) -> int:
        return self.high - self.low + 1

    def number(self, part: str) -> int | None:
        """`part` as a number of this field, or None."""
        value = self.names.get(part, int(part) if part.isdecimal() else -1)
        return value if self.low <= value <= self.high else None


_MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_DATE_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31, any_day=True),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}),
)
_DAY = _Field("day of week", 0, 7, {name: number for number, name in enumerate(_DAY_NAMES)}, any_day=True)
_QUARTZ_DAY = _Field("day of week", 1, 7, {name: number for number, name in enumerate(_DAY_NAMES, start=1)}, True)
_FIVE = (*_DATE_FIELDS, _DAY)
_SEVEN = (_Field("second", 0, 59), *_DATE_FIELDS, _QUARTZ_DAY, _Field("year", 1970, 2099))
_PRESETS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_ITEM = re.compile(r"(\*|\?|[A-Z]+|[0-9]{1,4})(?:-([A-Z]+|[0-9]{1,4}))?(?:/([0-9]{1,4}))?")


def check_cron(text: str, what: str) -> str:
    """`text`, if it is a cron expression. Raises BadConfiguration naming the field that is wrong.

    In 5 fields a week begins with Sunday = 0 (or 7), in 6 and 7 fields, as in Quartz, with Sunday = 1.
    """
    if text in _PRESETS:
        return text
    parts = text.split()
    if len(parts) not in (5, 6, 7):
        raise BadConfiguration(
            f"{what}: {text!r} has {len(parts)} field{'' if len(parts) == 1 else 's'}",
            hint="a cron expression has 5, or with seconds 6, or with years 7",
        )
    fields = _FIVE if len(parts) == 5 else _SEVEN[: len(parts)]
    for part, kind in zip(parts, fields, strict=True):
        for item in part.upper().split(","):
            _check_item(item, kind, f"{what}: {text!r}")
    return text


def five_fields(text: str, what: str = "cron") -> str:
    """`text` as 5 fields: seconds and years are dropped where that changes nothing, and refused where it would."""
    check_cron(text, what)
    parts = text.split()
    if text in _PRESETS or len(parts) == 5:
        return text
    if parts[0] != "0" or (len(parts) == 7 and parts[6] != "*"):
        raise BadConfiguration(
            f"{what}: {text!r} asks for seconds or years, which a schedule cannot keep",
            hint="begin with '0' and leave the year '*'",
        )
    days = ",".join(_from_quartz(item) for item in parts[5].split(","))
    return " ".join(part.replace("?", "*") for part in (*parts[1:5], days))


def _from_quartz(item: str) -> str:
    """One item of Quartz's days of the week, where Sunday is 1, as cron writes it, where Sunday is 0."""
    days, slash, step = item.partition("/")
    return re.sub(r"[0-9]+", lambda number: str(int(number[0]) - 1), days) + slash + step


def _check_item(item: str, kind: _Field, where: str) -> None:
    match = _ITEM.fullmatch(item)
    if match is None or not _is_allowed(match, kind):
        raise BadConfiguration(
            f"{where}: {item!r} is not a {kind.name}",
            hint=f"it is between {kind.low} and {kind.high}, or '*'; a step is at most {kind.longest_step}",
        )


def _is_allowed(match: re.Match[str], kind: _Field) -> bool:
    first, last, step = match.groups()
    if step is not None and not 1 <= int(step) <= kind.longest_step:
        return False
    if first in ("*", "?"):
        return last is None and (first == "*" or (kind.any_day and step is None))
    begin = kind.number(first)
    end = kind.number(last) if last is not None else kind.high
    return begin is not None and end is not None and begin <= end
