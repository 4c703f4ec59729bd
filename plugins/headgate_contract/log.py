"""A log of slots on an object store: numbered without gaps, each created exclusively, never changed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headgate_contract import wire
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
    """An entry's bytes: the record, and a nonce that makes them unique to their writer."""

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

    def read(self) -> tuple[Slot[R], ...]:
        """Every entry that is there, oldest first. Raises LogDamaged for one that cannot be read; nothing is guessed."""
        numbers = sorted(n for n in (number_of(info.path) for info in self.store.list(self.folder)) if n is not None)
        present = set(numbers)
        for number in [n for n in self._known if n not in present]:
            del self._known[number]
        return tuple(self._load(number) for number in numbers)

    def peek(self, number: SlotNumber) -> Slot[R] | None:
        """The entry `number`, or None if nobody has written it yet."""
        if number in self._known:
            return self._known[number]
        try:
            return self._load(number)
        except ObjectMissing:
            return None

    def append(self, after: SlotNumber | None, record: R) -> Slot[R]:
        """Write the entry that follows `after` (None: the first one). Raises SlotTaken if somebody else wrote it."""
        number = after.next() if after is not None else SlotNumber(1)
        data = wire.encode(self.kind, _Stored(uuid.uuid4().hex, record))
        if not self.store.create(numbered(self.folder, number), data):
            raise SlotTaken(f"{numbered(self.folder, number)} was written by somebody else")
        slot = Slot(number, record)
        self._known[number] = slot
        return slot

    def forget(self, number: SlotNumber) -> None:
        """Delete an entry that retention has decided on."""
        self.store.delete(numbered(self.folder, number))
        self._known.pop(number, None)

    def _load(self, number: SlotNumber) -> Slot[R]:
        if number not in self._known:
            path = numbered(self.folder, number)
            data = self.store.read(path)
            try:
                stored = wire.decode(self.kind, data, dict, path)
                record = wire.from_plain(self.records, stored.get("record"), path)
            except NewerVersion:
                raise
            except CorruptObject as error:
                raise LogDamaged(
                    f"{error.what}",
                    hint=f"the log {self.folder} cannot be followed past it: put the slot's own bytes back",
                ) from error
            self._known[number] = Slot(number, record)
        return self._known[number]
