"""Reads streams' catalogues, remembering the log entries that were read before: they never change."""

from __future__ import annotations

import difflib
import threading
import time
from dataclasses import dataclass, field

from headgate_contract.catalogue import Catalogue, catalogue_of
from headgate_contract.errors import LogDamaged, SlotTaken, StreamUnknown
from headgate_contract.evidence import missing_end
from headgate_contract.folding import FOLD_EVERY
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.laws import check_deployed
from headgate_contract.log import Slot
from headgate_contract.paths import STREAMS, StreamPaths, numbered, stream_of
from headgate_contract.records import DecisionRecord, Deployed, GenerationStarted, SlotRecord
from headgate_contract.store import ObjectStore
from headgate_contract.stream_logs import Entries, StreamLogs, claim_slot
from headgate_contract.summarising import summarise

_UNFOLDED = 3 * FOLD_EVERY
"""More entries than these are folded here too, in memory: a poll that has run for long is as quick as a new one."""

_READ_ANEW_S = 10.0
"""How often a damaged log is read as a whole again: somebody may have repaired it."""


@dataclass
class _Known:
    """What is known of one stream."""

    logs: StreamLogs
    catalogue: Catalogue | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, stream: StreamName) -> Catalogue:
        entries = self.logs.read()
        if self.catalogue is None or not _same(self.catalogue.entries, entries):
            check_deployed(stream, entries.slots, entries.newest_decision)
            self.catalogue = catalogue_of(stream, entries)
            if entries.unfolded > _UNFOLDED:
                self.logs.begin(Entries(summarise(self.catalogue), (), ()))
        return self.catalogue


class Catalogues:
    """The logs of all streams of one root. For use by several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[StreamName, _Known] = {}
        self._forgotten: dict[StreamName, float] = {}
        """When a damaged log was last read anew."""
        self._ended_at: dict[StreamName, tuple[int, int]] = {}
        """The newest slot and decision behind which nothing was missing."""

    def read(self, stream: StreamName) -> Catalogue:
        """Both logs as they are now, slots first. Raises StreamUnknown if nothing was ever deployed under this name,
        and NotARoot."""
        self._store.check()
        found = self.look(stream)
        if not found.decisions and not found.slots:
            near = difflib.get_close_matches(stream, self.names(), 1)
            raise StreamUnknown(
                f"no stream {stream} was deployed on {self._store.url}",
                hint=f"did you mean {near[0]}?" if near else "`headgate status` lists those that were",
            )
        return found

    def look(self, stream: StreamName) -> Catalogue:
        """Both logs as they are now, empty ones too."""
        try:
            return self._whole(stream)
        except LogDamaged:
            if not self._may_be_repaired(stream):
                raise
        return self._whole(stream)

    def _whole(self, stream: StreamName) -> Catalogue:
        """Both logs to their ends, which are asked for once: of what was read here nothing can be lost unseen."""
        found = self._look(stream)
        ends, known = _ends(found), self._ended_at.get(stream)
        if known is not None and ends[0] >= known[0] and ends[1] >= known[1]:
            return found
        fault = self._missing_end(found)
        while fault is not None:
            found = self._look(stream)
            if _ends(found) == ends:
                raise fault
            ends, fault = _ends(found), self._missing_end(found)  # it was written since
        self._ended_at[stream] = ends
        return found

    def _missing_end(self, catalogue: Catalogue) -> LogDamaged | None:
        return missing_end(self._store, catalogue.stream, catalogue.newest_slot, catalogue.entries.newest_decision)

    def _look(self, stream: StreamName) -> Catalogue:
        known = self._of(stream)
        with known.lock:
            return known.read(stream)

    def _may_be_repaired(self, stream: StreamName) -> bool:
        """Forget a damaged log, now and then: entries do not change, but for those that a repair writes anew."""
        now = time.monotonic()
        with self._lock:
            if now - self._forgotten.get(stream, float("-inf")) < _READ_ANEW_S:
                return False
            self._forgotten[stream] = now
            self._known.pop(stream, None)
            self._ended_at.pop(stream, None)
        return True

    def forget(self, stream: StreamName) -> None:
        """A repair has written something else in the place of entries: they are read anew."""
        with self._lock:
            self._known.pop(stream, None)
            self._ended_at.pop(stream, None)

    def deployed(self, catalogue: Catalogue) -> tuple[int, Deployed]:
        """What the next start of the stream runs, and its number."""
        if catalogue.deployed is None or catalogue.deployed_number is None:
            raise StreamUnknown(
                f"stream {catalogue.stream} has no deployed job", hint=f"`headgate deploy {catalogue.stream} JOB` first"
            )
        return catalogue.deployed_number, catalogue.deployed

    def claim(self, catalogue: Catalogue, record: GenerationStarted) -> Slot[GenerationStarted]:
        """Start a generation in the slot after those of `catalogue`. Raises SlotTaken if anybody else wrote there.

        Raises LogDamaged if it would be the first one, and was not.
        """
        fault = self._missing_end(catalogue) if catalogue.newest_slot is None else None
        if fault is not None and self._look(catalogue.stream).newest_slot is None:
            raise fault
        known = self._of(catalogue.stream)
        with known.lock:
            slot = claim_slot(known.logs.slots, catalogue.stream, catalogue.newest_slot, record)
        return Slot(slot.number, record)

    def append_slot(self, stream: StreamName, after: SlotNumber, record: SlotRecord) -> None:
        """Write the slot after `after`, which the caller wrote itself. Raises SlotTaken if anybody else wrote there."""
        known = self._of(stream)
        with known.lock:
            known.logs.slots.append(after, record)

    def decide(self, stream: StreamName, record: DecisionRecord) -> Slot[DecisionRecord]:
        """Add a decision after all that are there."""
        known = self._of(stream)
        with known.lock:
            while True:
                newest = known.logs.read().newest_decision
                try:
                    return known.logs.decisions.append(newest, record)
                except SlotTaken:
                    continue  # somebody else decided something meanwhile: go after it

    def newest_known(self, stream: StreamName) -> int:
        """The newest slot that was read or written here, 0 if there was none; nothing is read for it."""
        known = self._known.get(stream)
        return known.logs.slots.newest_known if known is not None else 0

    def slot_written(self, stream: StreamName, number: SlotNumber) -> float:
        """When a slot was written, by the storage's own clock."""
        found = self._store.stat(numbered(StreamPaths(stream).slots, number))
        return found.modified if found is not None else 0.0

    def names(self) -> list[StreamName]:
        """Every stream that has anything on this root."""
        found = (stream_of(f"{STREAMS}/{name}/") for name in self._store.folders(STREAMS))
        return sorted(name for name in found if name is not None)

    def _of(self, stream: StreamName) -> _Known:
        with self._lock:
            return self._known.setdefault(stream, _Known(StreamLogs(self._store, stream)))


def _same(before: Entries, now: Entries) -> bool:
    """Whether nothing has come since: entries never change, so the last ones tell."""
    return (before.summary, before.slots[-1:], before.decisions[-1:]) == (
        now.summary,
        now.slots[-1:],
        now.decisions[-1:],
    )


def _ends(catalogue: Catalogue) -> tuple[int, int]:
    """The newest slot and the newest decision."""
    return catalogue.newest_slot or 0, catalogue.entries.newest_decision or 0
