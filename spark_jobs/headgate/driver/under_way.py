"""What has to move in a driver's process, as its own threads tell it; the watchdog reads it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, ParamSpec, TypeVar

from headgate_contract.errors import StreamFailed

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = "headgate.progress.timeout"
SOURCE_TIMEOUT = "headgate.progress.source-timeout"
BATCH_TIMEOUT = "headgate.progress.batch-timeout"


class NoProgress(StreamFailed):
    """Something has not moved for longer than it may: the life ends, and the restart strategy decides what follows."""


class DriverSpent(StreamFailed):
    """No life can follow in this process, but a generation in another one."""


class Remedy(enum.Enum):
    """What mends a standstill."""

    RESTART = enum.auto()
    """The life ends; the next one follows in this process, if all of it does end."""
    REPLACE = enum.auto()
    """The process ends with all that it has started."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that has to move."""

    what: str
    """What it has not done, with its verb: `Spark's JVM has not answered`."""
    setting: str
    """The setting that says for how long it may stand still; "" if none does."""
    remedy: Remedy
    allowed_ms: int = 0
    """For how long, where no setting says it."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A part that is under way, and its newest sign of life: while that stays the same, the part stands still."""

    key: Hashable
    part: Part
    sign: Hashable


class UnderWay:
    """What is under way now. Whoever tells it waits for nobody, and what is not under way cannot stand still."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._signs: dict[Hashable, Sign] = {}
        self._asked: dict[Part, Callable[[], Hashable | None]] = {}

    @contextmanager
    def during(self, part: Part) -> Iterator[None]:
        """One piece of work: it gives no sign of life but its end."""
        key = next(self._numbers)
        with self._lock:
            self._signs[key] = Sign(key, part, None)
        try:
            yield
        finally:
            with self._lock:
                del self._signs[key]

    def saw(self, part: Part, sign: Hashable | None) -> None:
        """The newest sign of life of something that goes on and on; None: it has nothing to do now."""
        with self._lock:
            if sign is None:
                self._signs.pop(part, None)
            else:
                self._signs[part] = Sign(part, part, sign)

    @contextmanager
    def asking(self, part: Part, read: Callable[[], Hashable | None]) -> Iterator[None]:
        """Meanwhile the watchdog asks `read` for the sign of life; it must not wait for anything."""
        with self._lock:
            self._asked[part] = read
        try:
            yield
        finally:
            with self._lock:
                del self._asked[part]

    def now(self) -> list[Sign]:
        with self._lock:
            asked, found = list(self._asked.items()), list(self._signs.values())
        signs = ((part, read()) for part, read in asked)
        return found + [Sign(part, part, sign) for part, sign in signs if sign is not None]


class WatchedThreads(ThreadPoolExecutor):
    """A thread that does one thing after the other, each of them `part`."""

    def __init__(self, name: str, under_way: UnderWay, part: Part) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self._under_way = under_way
        self._part = part

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def watched() -> Any:
            with self._under_way.during(self._part):
                return fn(*args, **kwargs)

        return super().submit(watched)
