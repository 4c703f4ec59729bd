"""Whose failure it is: what comes of the records comes again, what comes of a network or a machine passes."""

from __future__ import annotations

import builtins
import re
import traceback
from pathlib import Path

import pyarrow as pa

from headgate_contract.errors import BatchFailed, RecordFailed, StorageError, StreamFailed, SuppressRestarts, causes

_HEADGATE = Path(__file__).parents[1]
_COMPILED = (".pxi", ".pyx")
"""What frames of pyarrow's own say of themselves, without a folder."""

_PASSING = (OSError, MemoryError, EOFError, StorageError)
_PASSING_NAMES = re.compile(
    "Connect|Time(d)?Out|Unavailable|Operational|Interface|Throttl|TooMany|Temporar|Transient|Retry|Retries|Network|"
    "Socket|SSL|HTTP|Rpc|Deadlock|Memory|Interrupt|Quota|RateLimit|BrokenProcess|Server|Service|Client",
    re.IGNORECASE,
)
"""What libraries call the classes of errors that come from somewhere else: a database, a network, the machine."""


def passes(error: BaseException) -> bool:
    """Whether it may be gone at the next attempt, with the same records."""
    return any(
        isinstance(cause, _PASSING) or any(_PASSING_NAMES.search(kind.__name__) for kind in type(cause).__mro__)
        for cause in causes(error)
    )


def passes_by_name(kind: str) -> bool:
    """The same of an error of which only its class's name is known."""
    known = getattr(builtins, kind, None)
    by_class = isinstance(known, type) and issubclass(known, _PASSING)
    return by_class or _PASSING_NAMES.search(kind) is not None


def author_failed(what: str, error: Exception) -> StreamFailed:
    """An author's code has raised: what, and the last of their lines on the way."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
        and not Path(frame.filename).is_relative_to(_HEADGATE)
        and Path(frame.filename).suffix not in _COMPILED
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    told = f"{what} failed with {type(error).__name__}: {error}{where}"
    if any(isinstance(cause, SuppressRestarts) for cause in causes(error)):
        return SuppressRestarts(told)
    return BatchFailed(told) if passes(error) else RecordFailed(told)


def arrow_failed(what: str, error: pa.ArrowException) -> BatchFailed:
    """Arrow could not do with these records what was asked of it, or had no room."""
    return (BatchFailed if passes(error) else RecordFailed)(f"{what}: {error}")
