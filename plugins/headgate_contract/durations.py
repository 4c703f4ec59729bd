"""Durations and sizes as Flink writes them: `10 s`, `500ms`, `1 min`, `PT10S`; `64 mb`."""

from __future__ import annotations

import re
from decimal import Decimal

from headgate_contract.errors import BadConfiguration

_UNITS_MS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_UNITS_BYTES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_PLAIN = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_ISO = re.compile(r"p(?:([0-9]{1,9})d)?(?:t(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?)?")
_ISO_MS = (86_400_000, 3_600_000, 60_000, 1000)


class Duration(int):
    """Whole milliseconds."""

    @property
    def seconds(self) -> float:
        return self / 1000

    def __str__(self) -> str:
        for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
            if self and self % size == 0:
                return f"{self // size} {unit}"
        return f"{int(self)} ms"


def parse_duration(text: object, what: str = "duration") -> Duration:
    """`text` as a Duration; a bare number is milliseconds, as in Flink."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return Duration(text)
    if isinstance(text, str):
        lowered = text.strip().lower()
        plain = _PLAIN.fullmatch(lowered)
        if plain and (not plain[2] or plain[2] in _UNITS_MS):
            return Duration(int(plain[1]) * (_UNITS_MS[plain[2]] if plain[2] else 1))
        iso = _ISO.fullmatch(lowered)
        if iso and any(iso.groups()) and not lowered.endswith("t"):
            parts = zip(iso.groups(), _ISO_MS, strict=True)
            return Duration(int(sum(Decimal(part or 0) * unit for part, unit in parts)))
    raise BadConfiguration(
        f"{what}: {text!r} is not a duration", hint="write it like '10 s', '500 ms', '5 min', '1 h' or 'PT10S'"
    )


def parse_size(text: object, what: str = "size") -> int:
    """`text` as a number of bytes."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    if isinstance(text, str):
        plain = _PLAIN.fullmatch(text.strip().lower())
        if plain and plain[2] in _UNITS_BYTES:
            return int(plain[1]) * _UNITS_BYTES[plain[2]]
    raise BadConfiguration(f"{what}: {text!r} is not a size", hint="write it like '64 mb', '1 gb' or '1048576'")
