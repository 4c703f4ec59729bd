"""How the values of settings are read from what a person has written, whichever setting it is."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TypeVar

from headgate_contract.cron import check_cron
from headgate_contract.durations import Duration, parse_duration
from headgate_contract.errors import BadConfiguration, BadInput
from headgate_contract.paths import directory_url

N = TypeVar("N", int, float)


def integer_between(low: int, high: int = 2**31 - 1) -> Callable[[object, str], int]:
    return _between(int, "a whole number", low, high)


def number_between(low: float, high: float) -> Callable[[object, str], float]:
    return _between(float, "a number", low, high)


def _between(read: Callable[[str], N], kind: str, low: N, high: N) -> Callable[[object, str], N]:
    def parse(text: object, what: str) -> N:
        try:
            number = read(str(text).strip())
        except ValueError:
            raise BadConfiguration(f"{what}: {text!r} is not {kind}") from None
        if not low <= number <= high:
            raise BadConfiguration(f"{what}: {number} is not allowed", hint=f"it is between {low} and {high}")
        return number

    return parse


def boolean(text: object, what: str) -> bool:
    lowered = str(text).strip().lower()
    if lowered not in ("true", "false"):
        raise BadConfiguration(f"{what}: {text!r} is neither true nor false")
    return lowered == "true"


def one_of(*allowed: str) -> Callable[[object, str], str]:
    def parse(text: object, what: str) -> str:
        if str(text) in allowed:
            return str(text)
        folded = str(text).strip().lower().replace("_", "-")
        for candidate in allowed:
            if candidate.lower().replace("_", "-") == folded:
                return candidate
        near = difflib.get_close_matches(str(text), allowed, 1)
        nearest = f"did you mean {near[0]!r}? " if near else ""
        raise BadConfiguration(f"{what}: {text!r} is not allowed", hint=f"{nearest}allowed are {', '.join(allowed)}")

    return parse


def plain_text(text: object, what: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise BadConfiguration(f"{what}: {text!r} is not a text")
    return text.strip()


def directory(text: object, what: str) -> str:
    try:
        return directory_url(plain_text(text, what))
    except BadInput as error:
        raise BadConfiguration(f"{what}: {error.what}", hint=error.hint) from None


def directories(text: object, what: str) -> tuple[str, ...]:
    """Several, separated by semicolons, as Flink's lists are."""
    return tuple(directory(part, what) for part in plain_text(text, what).split(";") if part.strip())


def cron_text(text: object, what: str) -> str:
    return check_cron(plain_text(text, what), what)


def positive_duration(text: object, what: str) -> Duration:
    duration = parse_duration(text, what)
    if duration == 0:
        raise BadConfiguration(f"{what}: a duration of 0 is not allowed")
    return duration
