"""A log of slots on an object store: numbered without gaps, each created exclusively, never changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headgate_contract import wire
from headgate_contract.codec import from_plain
from headgate_contract.errors import (
    CorruptObject,
    LogDamaged,
    NewerVersion,
    ObjectMissing,
    OlderVersion,
    RootLost,
    SlotTaken,
    StorageError,
)
from headgate_contract.ids import SlotNumber
from headgate_contract.paths import number_of, numbered, stream_of
from headgate_contract.store import ObjectInfo, ObjectStore

R = TypeVar("R")

_NAME_LENGTH = len("00000001.json")


class LogMoved(StorageError):
    """What was known of a log is not there any more; who reads it begins anew."""


@dataclass(frozen=True, slots=True)
class Slot(Generic[R]):
    """One entry: its number and what it says."""

    number: SlotNumber
    record: R


@dataclass(frozen=True, slots=True)
class _Stored:
    """An entry's body: the record, and a nonce that makes its bytes unique to their writer."""

    writer: str
    record: Any


@dataclass
class ExclusiveLog(Generic[R]):
    """Reads and appends `records` (a tagged union) in `folder`.

    Whoever knows the log up to slot k may create k + 1, and only that: of all who try, one succeeds. Entries that were
    read once are kept: they never change. Not for use by several threads at once.
    """

    store: ObjectStore
    folder: str
    kind: str
    records: Any
    _known: dict[SlotNumber, Slot[R]] = field(default_factory=dict)
    _base: SlotNumber | None = None
    """The entries up to this one are known by a summary: they are not read, and may be gone."""
    _mark: ObjectInfo | None = None
    """The newest entry that is known, as it was listed: if it changes, this is another log."""
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    newest_known: int = 0
    """The highest number that this object has read or written; for any thread to read."""
    _newest: tuple[int, str] = (0, "")
    """The highest entry of which the bytes were seen, and their checksum."""

    def begin(self, base: SlotNumber | None, slots: Sequence[Slot[R]] = ()) -> None:
        """What is known from elsewhere: a summary up to `base`, and these entries behind it."""
        self._base = base
        self._known = {slot.number: slot for slot in slots}
        self.newest_known = max([self.newest_known, base or 0, *self._known])

    def read(self) -> tuple[Slot[R], ...]:
        """Every entry behind what `begin` was told of, oldest first; only the new ones are read.

        Raises LogMoved if what was known last, or was listed, is not there any more: somebody has folded the log
        meanwhile, or made it anew. Raises LogDamaged for an entry that cannot be read; nothing is guessed. Whether one
        may be missing is for the reader to judge.
        """
        last = self._last
        listed = self._listed(last)
        if last is not None and not self._is_there(last, listed):
            raise LogMoved(f"{numbered(self.folder, last)} is not what it was")
        self._mark = listed[max(listed)] if listed else None
        new = [number for number in sorted(listed) if number not in self._known and number != self._base]
        paths = [numbered(self.folder, number) for number in new]
        for number, path, data in zip(new, paths, self.store.read_all(paths), strict=True):
            if data is None:
                raise LogMoved(f"{path} was listed and is gone")
            self._know(Slot(number, self.decode(data, path)), data)
        return tuple(self._known[number] for number in sorted(self._known))

    def numbers(self) -> list[SlotNumber]:
        """The numbers of all entries that are there, in order, whatever is in them."""
        return sorted(self._listed(None))

    @property
    def _last(self) -> SlotNumber | None:
        """The newest entry up to which all are known."""
        newest = max(self._known, default=self._base)
        whole = newest is None or newest - (self._base or 0) == len(self._known)
        return newest if whole else self._base

    def _is_there(self, number: SlotNumber, listed: Mapping[SlotNumber, ObjectInfo]) -> bool:
        info, mark = listed.get(number), self._mark
        return info is not None and (mark is None or mark.path != info.path or mark == info)

    def peek(self, number: SlotNumber) -> Slot[R] | None:
        """The entry `number`, or None if nobody has written it yet."""
        if number not in self._known:
            path = numbered(self.folder, number)
            try:
                data = self.store.read(path)
            except ObjectMissing:
                return None
            self._know(Slot(number, self.decode(data, path)), data)
        return self._known[number]

    def append(self, after: SlotNumber | None, record: R) -> Slot[R]:
        """Write the entry that follows `after` (None: the first one). Raises SlotTaken if somebody else wrote it.

        Raises RootLost if `after` is not there as it was: then this is not the log that was read, and an entry here
        would leave a hole in that one.
        After a StorageError the outcome is open: the entry may be there. Append the very same again, by this object:
        that finds out, and never writes twice. Until then nothing that the entry names may be deleted.
        """
        number = after.next() if after is not None else SlotNumber(1)
        path = numbered(self.folder, number)
        data = wire.encode(self.kind, _Stored(self._writer, record), path)
        if after is not None:
            self.confirm(after)
        if not self.store.create(path, data):
            raise SlotTaken(f"{path} was written by somebody else")
        slot = Slot(number, record)
        self._know(slot, data)
        return slot

    def confirm(self, number: SlotNumber) -> None:
        """Raise RootLost unless the entry `number`, which was read or written before, is there still, as it was.

        One small read. Whoever found no newer entry knows only now that it looked into the log, and not to where a
        mount has dropped or a folder was put in its place.
        """
        path = numbered(self.folder, number)
        try:
            data = self.store.read(path)
        except ObjectMissing:
            raise self._lost(f"{path} is gone from {self.store.url}") from None
        if self._newest[0] == number and self._newest[1] != wire.sha256(data):
            raise self._lost(f"{path} on {self.store.url} is not the entry that was there")
        self._note(number, data)

    def _lost(self, what: str) -> RootLost:
        return RootLost(
            f"{what}: this is not the log that was read",
            hint="is its storage mounted, and is it the same? bring back what was there",
        )

    def _know(self, slot: Slot[R], data: bytes) -> None:
        self._known[slot.number] = slot
        self.newest_known = max(self.newest_known, slot.number)
        self._note(slot.number, data)

    def _note(self, number: SlotNumber, data: bytes) -> None:
        if number >= self._newest[0]:
            self._newest = (number, wire.sha256(data))

    def _listed(self, newest: SlotNumber | None) -> dict[SlotNumber, ObjectInfo]:
        """The entries from `newest` on, or all, without gaps other than those that deleting has made.

        A listing during which entries are written may show a newer one and lack an older one. All of them up to the
        newest one seen were there before a second listing begins: that one lacks none of them.
        """
        seen = self._list(newest)
        if seen and max(seen) - min(seen) + 1 != len(seen):
            last = max(seen)
            seen = {number: info for number, info in self._list(newest).items() if number <= last}
        return seen

    def _list(self, newest: SlotNumber | None) -> dict[SlotNumber, ObjectInfo]:
        before = numbered("", SlotNumber(newest - 1)).lstrip("/") if newest is not None and newest > 1 else ""
        if len(before) > _NAME_LENGTH:
            before = ""  # names of nine digits do not sort as their numbers do
        found = ((number_of(info.path), info) for info in self.store.list_after(self.folder, before))
        return {number: info for number, info in found if number is not None and number >= (newest or 1)}

    def decode(self, data: bytes, path: str) -> R:
        """The record in the bytes of the entry at `path`. Raises LogDamaged."""
        try:
            body = wire.decode(self.kind, data, dict, path, path)
            stored: _Stored = from_plain(_Stored, body, path)
            record: R = from_plain(self.records, stored.record, f"{path}.record")
        except (NewerVersion, OlderVersion):
            raise
        except CorruptObject as error:
            raise LogDamaged(error.what, hint=_way_out(path)) from error
        return record


def _way_out(path: str) -> str:
    stream = stream_of(path)
    if stream is None:
        return f"the log {path.rpartition('/')[0]} cannot be followed past it: put the entry's own bytes back"
    return f"`headgate repair {stream}` tells a way out; or put the entry's own bytes back"
