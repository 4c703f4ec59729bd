"""Whatever is lost of a log, of its ends, or all of it: who reads it notices, or what is lost was folded before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import LogDamaged
from headgate_contract.folding import Folding
from headgate_contract.history import Event, record_event
from headgate_contract.ids import SlotNumber
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import DecisionRecord, Deployed, StreamCopy, decision_log, slot_log
from headgate_contract.store import ObjectStore, open_store
from headgate_control.catalogues import Catalogues
from tests.contract.lives import STREAM, Lives
from tests.contract.store_suite import unique

PATHS = StreamPaths(STREAM)


@dataclass
class Stored:
    """A stream's logs as they lie in a store, with the history and the copy that lie beside them."""

    store: ObjectStore
    lives: Lives
    written: int = 0
    decided: int = 0

    def write(self) -> None:
        """What is new in `lives`: decisions first, then slots, then what history tells of them."""
        decisions, slots = decision_log(self.store, STREAM), slot_log(self.store, STREAM)
        for decision in self.lives.every_decision[self.decided :]:
            decisions.append(SlotNumber(self.decided) if self.decided else None, decision.record)
            self.decided += 1
            self._copy(decision.number, decision.record)
        for slot in self.lives.every_slot[self.written :]:
            slots.append(SlotNumber(self.written) if self.written else None, slot.record)
            self.written += 1
        event = Event(at_ms=1, what="checkpoint", outcome="EXECUTED", by="driver", slot=self.written)
        record_event(self.store, STREAM, event)

    def _copy(self, number: SlotNumber, record: DecisionRecord) -> None:
        if isinstance(record, Deployed):
            copy = StreamCopy(stream=STREAM, number=number, root="", deployed=record)
            self.store.replace(PATHS.readable, wire.encode("stream", copy, PATHS.readable))

    def fold(self) -> None:
        Folding(self.store, read_catalogue(self.store, STREAM)).fold()

    def entries(self) -> list[str]:
        return [info.path for folder in (PATHS.slots, PATHS.decisions) for info in self.store.list(folder)]

    def read(self) -> Catalogue:
        """As every reader of the control plane does, each time anew."""
        return Catalogues(self.store).look(STREAM)

    def without(self, *paths: str) -> Catalogue | LogDamaged:
        """What a reader says while those are gone."""
        kept = {path: self.store.read(path) for path in paths}
        for path in paths:
            self.store.delete(path)
        try:
            return self.read()
        except LogDamaged as error:
            return error
        finally:
            for path, data in kept.items():
                self.store.create(path, data)


@pytest.fixture
def stored() -> Stored:
    """Two starts, four checkpoints, a savepoint, a restart, a stop, a restore of an older one: 12 slots."""
    lives = Lives()
    stored = Stored(open_store(f"memory://{unique()}"), lives)
    lives.deploy()
    lives.start()
    lives.checkpoint()
    older = lives.savepoint("before")
    lives.restart()
    lives.checkpoint(retires=[lives.catalogue.snapshots[-1]])
    lives.want_stop(lives.generation)
    lives.stop()
    stored.write()
    lives.deploy("other.py")
    lives.decisions[-1] = lives.every_decision[-1]
    lives.start(older)
    lives.checkpoint()
    lives.checkpoint()
    lives.restart()
    lives.checkpoint()
    return stored


def folded_twice(stored: Stored) -> None:
    """The completions of the first part are gone, the end is behind the newest summary."""
    stored.fold()
    start, *rest = stored.lives.every_slot[6:]
    every = stored.lives.every_slot
    for upto in (9, 10):
        stored.lives.every_slot = every[:upto]
        stored.write()
        stored.fold()
    stored.lives.every_slot = every
    assert start
    assert rest


@pytest.fixture(params=[False, True], ids=["whole", "folded"])
def log(stored: Stored, request: pytest.FixtureRequest) -> Stored:
    if request.param:
        folded_twice(stored)
    stored.write()
    assert stored.read().newest_slot == 11
    return stored


def lost_ones(log: Stored) -> Iterator[tuple[str, ...]]:
    entries = log.entries()
    yield from ((path,) for path in entries)
    yield from combinations(entries, 2)


def test_whichever_one_or_two_entries_are_gone_a_reader_notices_or_they_were_folded(log: Stored) -> None:
    whole, unnoticed = log.read(), []
    for paths in lost_ones(log):
        found = log.without(*paths)
        if isinstance(found, LogDamaged):
            assert f"`headgate repair {STREAM}`" in found.hint
        elif found != whole or not all(_is_folded(log, whole, path) for path in paths):
            unnoticed.append(paths)
    assert unnoticed == []


def _is_folded(log: Stored, whole: Catalogue, path: str) -> bool:
    summary = whole.summary
    if summary is None:
        return False
    covered = summary.slot if path.startswith(PATHS.slots) else summary.decision
    return covered is not None and path < numbered(path.rpartition("/")[0], covered)


@pytest.mark.parametrize("folder", [PATHS.slots, PATHS.decisions, PATHS.summaries])
def test_a_folder_that_is_gone_altogether_is_noticed(log: Stored, folder: str) -> None:
    paths = [info.path for info in log.store.list(folder)]
    if paths:
        found = log.without(*paths)
        assert isinstance(found, LogDamaged)
        assert f"`headgate repair {STREAM}`" in found.hint


def test_both_logs_that_are_gone_are_noticed_by_what_lies_beside_them(log: Stored) -> None:
    folders = (PATHS.slots, PATHS.decisions, PATHS.summaries)
    found = log.without(*(info.path for folder in folders for info in log.store.list(folder)))
    assert isinstance(found, LogDamaged)


def test_what_is_written_while_one_looks_is_not_taken_for_lost(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver goes on between the reading of the log and the look at history."""
    every = stored.lives.every_slot
    stored.lives.every_slot = every[:4]
    stored.write()
    list_after = type(stored.store).list_after

    def goes_on(self: ObjectStore, folder: str, name: str) -> object:
        if folder == PATHS.history and stored.written < len(every):
            stored.lives.every_slot = every[: stored.written + 1]
            stored.write()
        return list_after(self, folder, name)

    monkeypatch.setattr(type(stored.store), "list_after", goes_on)
    assert stored.read().newest_slot == len(every)
