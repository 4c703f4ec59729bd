"""Does one thing for each of many files, several at a time: storage keeps a thread waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(action: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """What `action` makes of each of `items`, in their order; so many at a time."""
    todo = list(items)
    if threads == 1 or len(todo) < 2:
        return [action(item) for item in todo]
    with ThreadPoolExecutor(min(threads, len(todo)), thread_name_prefix="headgate-sink") as pool:
        return list(pool.map(action, todo))
