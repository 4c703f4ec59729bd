"""A log of slots on an object store: numbered without gaps, each created exclusively, never changed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headgate_contract import wire
from headgate_contract.codec import from_plain
from headgate_contract.errors import CorruptObject, LogDamaged, NewerVersion, ObjectMissing, SlotTaken
from headgate_contract.ids import SlotNumber
from headgate_contract.paths import number_of, numbered
from headgate_contract.store import ObjectStore

R = TypeVar("R")


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
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)

    def read(self) -> tuple[Slot[R], ...]:
        """Every entry that is there, oldest first.

        Raises LogDamaged for one that cannot be read; nothing is guessed. Whether an entry may be missing is for the
        reader to judge, who knows what retention deletes.
        """
        numbers = self._numbers()
        present = set(numbers)
        for number in [n for n in self._known if n not in present]:
            del self._known[number]
        found = (self.peek(number) for number in numbers)
        return tuple(slot for slot in found if slot is not None)

    def peek(self, number: SlotNumber) -> Slot[R] | None:
        """The entry `number`, or None if nobody has written it yet."""
        if number not in self._known:
            path = numbered(self.folder, number)
            try:
                data = self.store.read(path)
            except ObjectMissing:
                return None
            self._known[number] = Slot(number, self._decode(data, path))
        return self._known[number]

    def append(self, after: SlotNumber | None, record: R) -> Slot[R]:
        """Write the entry that follows `after` (None: the first one). Raises SlotTaken if somebody else wrote it.

        After a StorageError the outcome is open: the entry may be there. Append the very same again, by this object:
        that finds out, and never writes twice. Until then nothing that the entry names may be deleted.
        """
        number = after.next() if after is not None else SlotNumber(1)
        data = wire.encode(self.kind, _Stored(self._writer, record))
        if not self.store.create(numbered(self.folder, number), data):
            raise SlotTaken(f"{numbered(self.folder, number)} was written by somebody else")
        slot = Slot(number, record)
        self._known[number] = slot
        return slot

    def forget(self, number: SlotNumber) -> None:
        """Delete an entry that retention has decided on; `Catalogue.forgettable` says which ones it may."""
        self.store.delete(numbered(self.folder, number))
        self._known.pop(number, None)

    def _numbers(self) -> list[SlotNumber]:
        """The numbers of all entries, without gaps other than those that deleting has made.

        A listing during which entries are written may show a newer one and lack an older one. All of them up to the
        newest one seen were there before a second listing begins: that one lacks none of them.
        """
        seen = self._list()
        if seen and seen[-1] - seen[0] + 1 != len(seen):
            newest = seen[-1]
            seen = [number for number in self._list() if number <= newest]
        return seen

    def _list(self) -> list[SlotNumber]:
        paths = (info.path for info in self.store.list(self.folder))
        numbers = (number_of(path) for path in paths if path.rpartition("/")[0] == self.folder)
        return sorted(number for number in numbers if number is not None)

    def _decode(self, data: bytes, path: str) -> R:
        try:
            body = wire.decode(self.kind, data, dict, path)
            stored: _Stored = from_plain(_Stored, body, path)
            record: R = from_plain(self.records, stored.record, f"{path}.record")
        except NewerVersion:
            raise
        except CorruptObject as error:
            raise LogDamaged(
                error.what, hint=f"the log {self.folder} cannot be followed past it: put the slot's own bytes back"
            ) from error
        return record
