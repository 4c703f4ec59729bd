"""What a stream's old log entries add up to, in one object: who reads it need not read them.

It is a function of the entries alone, which never change. So whoever has read them may write it, a fenced driver too:
the one with the highest number counts, and two of one number say the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headgate_contract import wire
from headgate_contract.errors import CorruptObject, LogDamaged, NewerVersion, ObjectMissing, OlderVersion
from headgate_contract.id_ranges import IdRanges, Span
from headgate_contract.ids import Generation, SlotNumber, StreamName
from headgate_contract.paths import StreamPaths, number_of, numbered
from headgate_contract.records import DecisionRecord, SlotRecord
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)

_LOOKS = 5


@dataclass(frozen=True, slots=True)
class KeptSlot:
    """A slot that answers still need, word by word; of an older start without what only its own time needed."""

    number: SlotNumber
    record: SlotRecord


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """A decision that answers still need, word by word."""

    number: SlotNumber
    record: DecisionRecord


@dataclass(frozen=True, slots=True)
class CompletedBy:
    """The ids under which a generation completed snapshots, those that are not kept too.

    Of a generation that is over it may be all ids between its first and its last.
    """

    generation: Generation
    ids: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The content of a summary's object, which is numbered like the slot that it reaches to."""

    stream: StreamName
    slot: SlotNumber
    """The newest slot that it covers."""
    decision: SlotNumber | None
    """The newest decision that it covers."""
    slots: tuple[KeptSlot, ...]
    decisions: tuple[KeptDecision, ...]
    completed: tuple[CompletedBy, ...]
    retired: tuple[Span, ...]
    """Those retired ids that are of kept slots, of later ones, or of snapshots from elsewhere. Of all others that
    completed and are not kept it goes without saying."""
    uncommitted: tuple[Span, ...]
    """Of what completed: the groups of which no slot says that every sink has committed them."""
    cleared: int = 0
    """The slots up to this one are deleted, as far as they may be."""
    taken: tuple[int, ...] = ()
    """The numbers above `cleared` that stay taken for ever: somebody who was frozen may try for them."""

    @property
    def ids(self) -> IdRanges:
        """Under which any generation completed."""
        return IdRanges(span for each in self.completed for span in each.ids)

    def encode(self) -> bytes:
        return wire.encode("summary", self, self.path)

    @property
    def path(self) -> str:
        return numbered(StreamPaths(self.stream).summaries, self.slot)


def summary_numbers(store: ObjectStore, stream: StreamName) -> list[SlotNumber]:
    """The numbers of the summaries that are there, newest first."""
    numbers = (number_of(info.path) for info in store.list_after(StreamPaths(stream).summaries, ""))
    return sorted((number for number in numbers if number is not None), reverse=True)


def read_summary(store: ObjectStore, stream: StreamName, number: SlotNumber) -> Summary:
    """The summary up to slot `number`. Raises ObjectMissing, and LogDamaged if these are not its bytes."""
    path = numbered(StreamPaths(stream).summaries, number)
    return _decoded(stream, number, path, store.read(path))


def _decoded(stream: StreamName, number: SlotNumber, path: str, data: bytes) -> Summary:
    try:
        found: Summary = wire.decode("summary", data, Summary, path, path)
    except (NewerVersion, OlderVersion):
        raise
    except CorruptObject as error:
        raise LogDamaged(error.what, hint="put its own bytes back") from error
    if found.stream != stream or found.slot != number:
        raise LogDamaged(f"{path} holds the summary of stream {found.stream} up to slot {found.slot}")
    return found


def newest_summary(store: ObjectStore, stream: StreamName) -> tuple[Summary | None, LogDamaged | None]:
    """The newest summary that can be read, and why a newer one cannot.

    A damaged one costs nothing: what it covers and the one before it does not is deleted only once a third one is
    there.
    """
    fault: LogDamaged | None = None
    for _ in range(_LOOKS):
        fault = None
        for number in summary_numbers(store, stream):
            try:
                return read_summary(store, stream, number), fault
            except ObjectMissing:
                break  # a newer one came, and this one went: look again
            except LogDamaged as error:
                log.warning("%s; the one before it is read, and the slots since", error.what)
                fault = fault or error
        else:
            return (_mended(store, stream) if fault is not None else None), fault
    return None, fault


def _mended(store: ObjectStore, stream: StreamName) -> Summary | None:
    """The newest of which the checksum proves what it was before a bit flipped in it: none is whole."""
    for number in summary_numbers(store, stream):
        path = numbered(StreamPaths(stream).summaries, number)
        try:
            own = wire.mended(store.read(path))
            if own is not None:
                return _decoded(stream, number, path, own)
        except (CorruptObject, ObjectMissing):
            continue
    return None
