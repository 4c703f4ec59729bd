"""Writes what the control plane does into a stream's history: ISSUED before, EXECUTED or FAILED after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headgate_contract.errors import HeadgateError, StorageError
from headgate_contract.history import Event, record_event
from headgate_contract.ids import StreamName
from headgate_contract.store import ObjectStore

LOG = logging.getLogger(__name__)


def now_ms() -> int:
    """This machine's clock; only for people."""
    return time.time_ns() // 1_000_000


@dataclass
class Note:
    """What an action finds out while it runs, for its closing event."""

    generation: int | None = None
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Journal:
    """The history of the streams of one root."""

    store: ObjectStore
    newest_known: Callable[[StreamName], int] = lambda stream: 0
    """Where in the log of a stream its events belong."""

    @contextmanager
    def action(
        self, stream: StreamName, what: str, by: str, details: Mapping[str, Any] | None = None, text: str = ""
    ) -> Iterator[Note]:
        """Record that `what` begins, and how it ended: an exception is FAILED, and goes on."""
        note = Note(details=dict(details or {}))
        self._record(stream, what, "ISSUED", by, Note(None, text, dict(note.details)))
        try:
            yield note
        except BaseException as error:
            note.text = str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
            note.details["error"] = type(error).__name__
            self._close(stream, what, "FAILED", by, note)
            raise
        self._close(stream, what, "EXECUTED", by, note)

    def _close(self, stream: StreamName, what: str, outcome: str, by: str, note: Note) -> None:
        """What was done stays done, even if history cannot be written any more."""
        try:
            self._record(stream, what, outcome, by, note)
        except (StorageError, OSError) as error:
            LOG.warning("stream %s: cannot record in history that %s was %s: %s", stream, what, outcome, error)

    def _record(self, stream: StreamName, what: str, outcome: str, by: str, note: Note) -> None:
        event = Event(
            at_ms=now_ms(),
            what=what,
            outcome=outcome,
            by=by,
            generation=note.generation,
            text=note.text,
            details=note.details,
            slot=self.newest_known(stream),
        )
        record_event(self.store, stream, event)
