"""Folds a stream's old entries into a summary, and deletes what two summaries cover.

Whatever happens in between, every entry is there itself or in a summary that was read back whole: a torn one costs
nothing. It may be broken off at any moment, and be done by several at once.

1. The summary of all entries is created. Nobody need read what it covers any more.
2. The one before it, and this one, are read back. If either is not whole, nothing is deleted.
3. The completions below the one before are deleted. Every other slot stays for ever: its number must not be free for
   whoever was frozen before it was written. Decisions stay too: they are few, and tell what people did.
4. Older summaries are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from headgate_contract.catalogue import Catalogue, catalogue_of
from headgate_contract.errors import CorruptObject, ObjectMissing, RootLost
from headgate_contract.ids import SlotNumber
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.store import ObjectStore
from headgate_contract.stream_logs import Entries, StreamLogs
from headgate_contract.summarising import summarise
from headgate_contract.summary import Summary, read_summary, summary_numbers

log = logging.getLogger(__name__)

FOLD_EVERY = 100
"""After so many entries they are folded: a start reads up to about as many one by one, whatever the stream's age."""
CLEARED_AT_ONCE = 10_000
"""No fold deletes more: those of a log that was never folded go by and by."""


class Folding:
    """Folds one stream's logs, again and again. Not for use by several threads at once."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue, every: int = FOLD_EVERY) -> None:
        self._store = store
        self._stream = catalogue.stream
        self._every = every
        self._logs = StreamLogs(store, catalogue.stream)
        self._logs.begin(catalogue.entries)
        self._next = (catalogue.newest_slot or 0) + every - catalogue.entries.unfolded
        self._cleared = 0
        self._newest = catalogue.newest_slot or 0
        """There is at least this slot."""

    def is_due(self, newest: SlotNumber) -> bool:
        """Whether it is time, once `newest` is written; if so, it is not again for so many slots."""
        if newest < self._next:
            return False
        self._next, self._newest = newest + self._every, newest
        return True

    def fold(self) -> Catalogue:
        """Fold what is there; what that was. Raises StorageError if it could not be done, or not to its end.

        Nothing is folded, and nothing deleted, by what an older copy of the log says that lies there for a while.
        """
        catalogue = catalogue_of(self._stream, self._logs.read())
        if catalogue.newest_slot is None:
            return catalogue
        if catalogue.newest_slot < self._newest:
            raise RootLost(
                f"the log of stream {self._stream} ends with slot {catalogue.newest_slot}: it is an older one"
            )
        summary = since(summarise(catalogue), self._cleared)
        self._store.create(summary.path, summary.encode())  # if it is there already, it says the same
        self._logs.begin(Entries(summary, (), ()))
        try:
            self._logs.slots.confirm(summary.slot)
        except RootLost:
            if any(number > summary.slot for number in summary_numbers(self._store, self._stream)):
                return catalogue  # others have folded further, and have deleted it
            raise
        self._clear(summary_numbers(self._store, self._stream))
        return catalogue

    def _clear(self, numbers: Sequence[SlotNumber]) -> None:
        """Delete what the second newest summary covers, and the summaries before it, if both newest ones are whole."""
        if len(numbers) < 2:
            return
        try:
            read_summary(self._store, self._stream, numbers[0])
            before = since(read_summary(self._store, self._stream, numbers[1]), self._cleared)
        except (CorruptObject, ObjectMissing) as error:
            log.warning("nothing is deleted of what summaries of stream %s cover: %s", self._stream, error)
            return
        paths = StreamPaths(self._stream)
        self._store.delete_many([numbered(paths.slots, number) for number in self._deletable(before)])
        self._cleared = max(self._cleared, min(before.slot - 1, before.cleared + CLEARED_AT_ONCE))
        self._store.delete_many([numbered(paths.summaries, number) for number in numbers[2:]])

    def _deletable(self, summary: Summary) -> Sequence[SlotNumber]:
        """The slots that nobody needs once another summary follows; that up to which this one reaches is looked for."""
        taken = set(summary.taken)
        behind = range(summary.cleared + 1, min(summary.slot, summary.cleared + 1 + CLEARED_AT_ONCE))
        return [SlotNumber(number) for number in behind if number not in taken]


def since(summary: Summary, cleared: int) -> Summary:
    """`summary`, knowing that the slots up to `cleared` are deleted."""
    if cleared <= summary.cleared:
        return summary
    return replace(summary, cleared=cleared, taken=tuple(number for number in summary.taken if number > cleared))
