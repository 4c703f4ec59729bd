"""Tells records that fail a stream again and again from what passes, over all of its drivers in a row."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from headgate.source.place import PARTS_TOLD, Place
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import StorageError
from headgate_contract.heartbeats import HEARTBEATS_KEPT, FailedAt, read_heartbeat
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)

_CHANGES = re.compile(r"""'[^']*'|"[^"]*"|\S*/\S*|\d+""")
"""What of a cause is another one each time: which value, how many records, whose file."""
_ENOUGH = 200
_CAUSE_TOLD = 2000


@dataclass(frozen=True)
class Trouble:
    """Records have failed a life: where they stand, and what was said of them."""

    place: Place
    cause: str

    def is_again(self, other: Trouble) -> bool:
        """Whether it may be the same record."""
        return self.place.is_at(other.place) and _kind(self.cause) == _kind(other.cause)


def _kind(cause: str) -> str:
    return _CHANGES.sub("#", cause)[:_ENOUGH]


class Repeated:
    """How often in a row lives have failed of the same records, those of earlier drivers included."""

    def __init__(self, before: FailedAt | None = None) -> None:
        self._times = before.times if before is not None else 0
        self._last = _trouble_of(before) if before is not None and before.times else None

    def note(self, trouble: Trouble | None) -> int:
        """One more life has failed, of these records or of something else."""
        again = trouble is not None and self._last is not None and trouble.is_again(self._last)
        self._times = 0 if trouble is None else self._times + 1 if again else 1
        self._last = trouble
        return self._times

    @property
    def told(self) -> FailedAt:
        """What the driver that replaces this one is to know."""
        if self._last is None:
            return FailedAt()
        place = self._last.place
        return FailedAt(
            times=self._times,
            where=place.where,
            parts=place.parts[:PARTS_TOLD],
            since=place.since,
            behind=place.behind,
            cause=self._last.cause[:_CAUSE_TOLD],
        )


def _trouble_of(told: FailedAt) -> Trouble:
    return Trouble(Place(where=told.where, parts=told.parts, since=told.since, behind=told.behind), told.cause)


def failed_before(store: ObjectStore, catalogue: Catalogue) -> FailedAt | None:
    """What the drivers before have told that the newest generation replaces; None if a person has started it."""
    own, *earlier = list(reversed(catalogue.generations))[:HEARTBEATS_KEPT]
    for before in earlier:
        if own.replaces is None:
            return None
        try:
            seen = read_heartbeat(store, catalogue.stream, before.generation)
        except StorageError as error:
            log.warning("what generation %d has failed of cannot be read: %s", before.generation, error)
            return None
        if seen is not None and seen.heartbeat is not None and seen.heartbeat.failed_at is not None:
            return seen.heartbeat.failed_at
        own = before
    return None
