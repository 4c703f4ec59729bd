"""Reads streams' catalogues, remembering the log entries that were read before: they never change."""

from __future__ import annotations

import difflib
import threading
import time
from dataclasses import dataclass, field

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import SlotTaken, StreamUnknown
from headgate_contract.ids import SlotNumber, StreamName
from headgate_contract.log import Slot
from headgate_contract.paths import STREAMS, StreamPaths, number_of, numbered, stream_of
from headgate_contract.records import (
    DecisionLog,
    DecisionRecord,
    Deployed,
    GenerationStarted,
    SlotLog,
    SlotRecord,
    decision_log,
    slot_log,
)
from headgate_contract.store import ObjectStore

NAMES_KEPT_S = 30.0
"""For how long the list of streams is taken as it was: making it walks over everything that streams hold."""


@dataclass
class _Logs:
    slots: SlotLog
    decisions: DecisionLog
    born: float | None
    """When the stream's first decision was written, by the storage's own clock."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Catalogues:
    """The logs of all streams of one root. For use by several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._logs: dict[StreamName, _Logs] = {}
        self._names: tuple[float, list[StreamName]] | None = None

    def read(self, stream: StreamName) -> Catalogue:
        """Both logs as they are now, slots first. Raises StreamUnknown if nothing was ever deployed under this name."""
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
        logs = self._of(stream)
        with logs.lock:
            slots = logs.slots.read()
            return Catalogue(stream, slots, logs.decisions.read())

    def deployed(self, catalogue: Catalogue) -> tuple[int, Deployed]:
        """What the next start of the stream runs, and its number."""
        if catalogue.deployed is None or catalogue.deployed_number is None:
            raise StreamUnknown(
                f"stream {catalogue.stream} has no deployed job", hint=f"`headgate deploy {catalogue.stream} JOB` first"
            )
        return catalogue.deployed_number, catalogue.deployed

    def claim(self, catalogue: Catalogue, record: GenerationStarted) -> Slot[GenerationStarted]:
        """Start a generation in the slot after those of `catalogue`. Raises SlotTaken if anybody else wrote there."""
        logs = self._of(catalogue.stream)
        with logs.lock:
            slot = logs.slots.append(catalogue.newest_slot, record)
        return Slot(slot.number, record)

    def append_slot(self, stream: StreamName, after: SlotNumber, record: SlotRecord) -> None:
        """Write the slot after `after`, which the caller wrote itself. Raises SlotTaken if anybody else wrote there."""
        logs = self._of(stream)
        with logs.lock:
            logs.slots.append(after, record)

    def decide(self, stream: StreamName, record: DecisionRecord) -> Slot[DecisionRecord]:
        """Add a decision after all that are there."""
        logs = self._of(stream)
        with logs.lock:
            while True:
                known = logs.decisions.read()
                try:
                    return logs.decisions.append(known[-1].number if known else None, record)
                except SlotTaken:
                    continue  # somebody else decided something meanwhile: go after it

    def slots_written(self, stream: StreamName) -> dict[int, float]:
        """When each slot was written, by the storage's own clock."""
        entries = [(number_of(info.path), info.modified) for info in self._store.list(StreamPaths(stream).slots)]
        return {number: modified for number, modified in entries if number is not None}

    def names(self, *, kept: bool = False) -> list[StreamName]:
        """Every stream that has anything on this root; `kept` is content with a list that is some seconds old."""
        now = time.monotonic()
        if kept and self._names is not None and now - self._names[0] < NAMES_KEPT_S:
            return self._names[1]
        found = {stream_of(info.path) for info in self._store.list(STREAMS)}
        names = sorted(name for name in found if name is not None)
        self._names = (now, names)
        return names

    def _of(self, stream: StreamName) -> _Logs:
        """The stream's logs, with what is known of them; nothing is, if another stream took its place."""
        first = self._store.stat(numbered(StreamPaths(stream).decisions, SlotNumber(1)))
        born = first.modified if first is not None else None
        with self._lock:
            known = self._logs.get(stream)
            if known is None or known.born != born:
                known = _Logs(slot_log(self._store, stream), decision_log(self._store, stream), born)
                self._logs[stream] = known
            return known
