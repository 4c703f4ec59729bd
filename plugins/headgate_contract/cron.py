"""Cron expressions: 5 fields, and Flink/Quartz's 6 or 7 fields; checked here, field by field."""

from __future__ import annotations

import re

from headgate_contract.errors import BadConfiguration

_MONTHS = dict(zip("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), range(1, 13), strict=True))
_DAYS = dict(zip("SUN MON TUE WED THU FRI SAT".split(), range(7), strict=True))
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SECOND = ("second", 0, 59, {})
_YEAR = ("year", 1970, 2199, {})
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_ITEM = re.compile(r"(\*|\?|[A-Z0-9]+)(?:-([A-Z0-9]+))?(?:/(\d+))?")


def check_cron(text: str, what: str) -> str:
    """`text`, if it is a cron expression. Raises BadConfiguration naming the field that is wrong."""
    if text in _PRESETS:
        return text
    parts = text.split()
    if len(parts) not in (5, 6, 7):
        raise BadConfiguration(
            f"{what}: {text!r} has {len(parts)} fields",
            hint="a cron expression has 5, or with seconds 6, or with years 7",
        )
    fields = _FIELDS if len(parts) == 5 else (_SECOND, *_FIELDS, _YEAR)[: len(parts)]
    for part, (name, low, high, names) in zip(parts, fields, strict=True):
        for item in part.upper().split(","):
            _check_item(item, name, low, high, names, f"{what}: {text!r}")
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
    quartz_days = re.sub(r"\d+", lambda number: str((int(number[0]) - 1) % 7), parts[5].split("/")[0])
    step = parts[5].partition("/")
    return " ".join(part.replace("?", "*") for part in [*parts[1:5], quartz_days + step[1] + step[2]])


def _check_item(item: str, name: str, low: int, high: int, names: dict[str, int], where: str) -> None:
    match = _ITEM.fullmatch(item)
    bounds = (
        [] if match is None else [part for part in match.groups()[:2] if part is not None and part not in ("*", "?")]
    )
    numbers = [names[part] if part in names else int(part) if part.isdigit() else -1 for part in bounds]
    if (
        match is None
        or any(not low <= number <= high for number in numbers)
        or (len(numbers) == 2 and numbers[0] > numbers[1])
        or match[3] == "0"
        or (match[1] in ("*", "?") and match[2] is not None)
    ):
        raise BadConfiguration(f"{where}: {item!r} is not a {name}", hint=f"it is between {low} and {high}, or '*'")
