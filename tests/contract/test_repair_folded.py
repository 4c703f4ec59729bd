"""A log that was folded is damaged where its summary ends: readers begin there, and so a repair has to look there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate_contract.catalogue import read_catalogue
from headgate_contract.damage import carry_out, read_entries
from headgate_contract.errors import Conflict, LogDamaged
from headgate_contract.ids import Generation, SlotNumber
from headgate_contract.paths import numbered
from headgate_contract.records import Repaired, decision_log, slot_log
from headgate_contract.repair import RepairFacts, RepairPlan, Was, plan_repair
from headgate_contract.store import ObjectStore
from headgate_contract.summary import newest_summary
from tests.contract.lives import STREAM
from tests.contract.test_folding import PATHS, Stream


def plan(store: ObjectStore, wanted: str = "") -> RepairPlan:
    return plan_repair(
        RepairFacts(
            stream=STREAM,
            slots=read_entries(slot_log(store, STREAM)),
            summary=newest_summary(store, STREAM)[0],
            decisions=read_entries(decision_log(store, STREAM)),
            wanted=wanted,
            repair="r1",
            by="anna",
            at_ms=1,
        )
    )


@pytest.fixture
def stream() -> Stream:
    """It was folded twice: its newest summary ends at slot 12 and decision 2, a wish."""
    stream = Stream()
    stream.write(lambda lives: lives.start())
    folding = stream.folding()
    stream.checkpoints(7)
    folding.fold()
    stream.checkpoints(4)
    stream.write(lambda lives: lives.want_stop(Generation(1)))
    folding.fold()
    return stream


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize(("folder", "last", "changed"), [(PATHS.slots, 12, "slots"), (PATHS.decisions, 2, "decisions")])
def test_the_entry_at_which_the_summary_ends_is_written_again_word_by_word(
    stream: Stream, later: int, folder: str, last: int, changed: str
) -> None:
    stream.checkpoints(later)
    store = stream.open()
    store.delete(numbered(folder, SlotNumber(last)))
    with pytest.raises(LogDamaged):
        read_catalogue(store, STREAM)
    planned = plan(store)
    assert [(change.number, change.was, change.is_lost) for change in getattr(planned, changed)] == [
        (last, Was.MISSING, False)
    ]
    carry_out(store, planned)
    found = read_catalogue(store, STREAM)
    assert found == planned.after
    assert found.snapshots == stream.whole.snapshots
    assert found.decisions == stream.whole.decisions
    assert isinstance(found.slots[-1].record, Repaired)
    assert not plan(store).needed


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2]])
def test_what_a_summary_covers_and_nobody_reads_needs_no_repair(
    stream: Stream, damage: Callable[[bytes], bytes]
) -> None:
    store = stream.open()
    path = numbered(PATHS.slots, SlotNumber(12))
    store.replace(path, damage(store.read(path)))
    assert read_catalogue(store, STREAM).snapshots == stream.whole.snapshots
    assert not plan(store).needed


def test_a_repair_that_was_frozen_until_the_number_of_its_end_was_folded_away_has_not_happened(stream: Stream) -> None:
    store = stream.open()
    planned = plan(store, wanted="a sink holds what is of another log")
    assert planned.closing is not None
    folding = stream.folding()
    for _ in range(3):
        stream.checkpoints(4)
        folding.fold()
    end = numbered(PATHS.slots, planned.closing.number)
    assert store.stat(end) is None
    with pytest.raises(Conflict, match="others have written"):
        carry_out(store, planned)
    assert store.stat(end) is None
    assert read_catalogue(store, STREAM).snapshots == stream.whole.snapshots
