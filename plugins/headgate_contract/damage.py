"""Reads a log entry by entry, whatever is wrong with some, and carries a repair's plan out."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

from headgate_contract import wire
from headgate_contract.codec import to_plain
from headgate_contract.errors import Conflict, CorruptObject, NewerVersion, ObjectMissing, OlderVersion
from headgate_contract.ids import SlotNumber
from headgate_contract.log import ExclusiveLog
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.repair import Change, Entry, RepairPlan, Was
from headgate_contract.store import ObjectStore
from headgate_contract.summary import summary_numbers

R = TypeVar("R")


def read_entries(log: ExclusiveLog[R]) -> list[Entry[R]]:
    """Every entry that is there, oldest first, also those that cannot be read.

    Raises NewerVersion and OlderVersion: what another release wrote is whole, and not for this one to judge.
    """
    found: list[Entry[R]] = []
    for number in log.numbers():
        path = numbered(log.folder, number)
        try:
            data = log.store.read(path)
        except ObjectMissing:
            continue
        found.append(_entry(log, number, data, path))
    return found


def _entry(log: ExclusiveLog[R], number: SlotNumber, data: bytes, path: str) -> Entry[R]:
    try:
        return Entry(number, log.decode(data, path))
    except (NewerVersion, OlderVersion):
        raise
    except CorruptObject as error:
        own = wire.mended(data)
        try:
            return Entry(number, log.decode(own, path) if own is not None else None, error.what)
        except CorruptObject:
            return Entry(number, None, error.what)


def carry_out(store: ObjectStore, plan: RepairPlan) -> None:
    """Make the logs what `plan` says. What lies where something else is written is copied aside before.

    The end comes first: it fences whoever knew the log as it was, a second repair too. What is broken off behind it is
    found by the next repair. Raises Conflict if somebody has written meanwhile: at the end, with nothing changed, or at
    a number that was missing, where what he wrote stays.
    """
    if plan.closing is None:
        return
    paths = StreamPaths(plan.stream)
    end = numbered(paths.slots, plan.closing.number)
    if not store.create(end, _encoded("slot", plan.closing.record, end)):
        raise Conflict(
            f"somebody has written to its log while stream {plan.stream} was to be repaired: {end} is there",
            hint=f"look at `headgate status {plan.stream}`, and plan the repair again",
        )
    if any(number >= plan.closing.number for number in summary_numbers(store, plan.stream)):
        store.delete(end)  # the number was free again: what was completed under it is folded
        raise Conflict(
            f"others have written to its log since the repair of stream {plan.stream} was planned, and folded that",
            hint="plan the repair again",
        )
    aside = paths.repaired(plan.closing.record.repair)
    for change in plan.slots:
        _write(store, "slot", paths.slots, change, f"{aside}/slots")
    for decided in plan.decisions:
        _write(store, "decision", paths.decisions, decided, f"{aside}/decisions")
    for path in plan.strangers:
        store.replace(f"{aside}/{path.removeprefix(paths.root).lstrip('/')}", store.read(path))
        store.delete(path)


def _write(store: ObjectStore, kind: str, folder: str, change: Change[Any], aside: str) -> None:
    path, new = numbered(folder, change.number), _encoded(kind, change.record, numbered(folder, change.number))
    if change.was is Was.MISSING:
        if not store.create(path, new):
            raise Conflict(f"somebody has written {path} while it was repaired", hint="plan the repair again")
        return
    data = store.read(path)
    store.replace(numbered(aside, change.number), data)
    store.replace(path, (wire.mended(data) if change.mended else None) or new)


def _encoded(kind: str, record: object, path: str) -> bytes:
    return wire.encode(kind, {"writer": uuid.uuid4().hex, "record": to_plain(record)}, path)
