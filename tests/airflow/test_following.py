"""What a look at a stream means for a task that waits on it: every condition has one outcome."""

from __future__ import annotations

import pytest

from headgate_airflow.following import (
    ENDED,
    GONE_WRONG,
    RUNS,
    SUPERSEDED,
    newest_above,
    outcome_of,
    own_generation,
)
from headgate_contract.catalogue import Catalogue
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.log import Slot
from headgate_contract.records import GenerationStarted
from headgate_contract.restore import StartFresh
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_control import Condition, StreamStatus

ORDERS = StreamName("orders")
WAITED_FOR = {
    Condition.NEVER_STARTED: None,
    Condition.LAUNCHED: None,
    Condition.RESTORING: None,
    Condition.SILENT: None,
    Condition.RUNNING: RUNS,
    Condition.STOPPING: ENDED,
    Condition.STOPPED: ENDED,
    Condition.FAILED: GONE_WRONG,
    Condition.LOST: GONE_WRONG,
    Condition.UNREADABLE: GONE_WRONG,
}


def seen(condition: Condition, generation: int | None = 3) -> StreamStatus:
    number = Generation(generation) if generation is not None else None
    return StreamStatus(stream=ORDERS, condition=condition, text="", generation=number)


@pytest.mark.parametrize("condition", Condition)
def test_every_condition_of_the_generation_that_is_waited_for_means_something(condition: Condition) -> None:
    assert outcome_of(seen(condition), 3) == WAITED_FOR[condition]


@pytest.mark.parametrize("condition", Condition)
def test_a_newer_generation_supersedes_in_whatever_condition(condition: Condition) -> None:
    assert outcome_of(seen(condition), 2) == SUPERSEDED


@pytest.mark.parametrize("condition", Condition)
def test_who_waits_for_any_generation_goes_on_until_one_runs(condition: Condition) -> None:
    assert outcome_of(seen(condition), None) == (RUNS if condition is Condition.RUNNING else None)


def history(*starts: tuple[str, int | None]) -> Catalogue:
    """A log of generation starts: by whom, and which lost generation each replaced."""
    slots = tuple(
        Slot(
            SlotNumber(number),
            GenerationStarted(
                generation=Generation(number),
                decision=StartFresh(""),
                first_checkpoint=CheckpointId(1),
                deployed=1,
                by=by,
                host="h",
                at_ms=0,
                launch=f"l{number}",
                log="",
                replaces=Generation(replaces) if replaces is not None else None,
            ),
        )
        for number, (by, replaces) in enumerate(starts, start=1)
    )
    return Catalogue(ORDERS, slots, ())


@pytest.mark.parametrize(
    ("starts", "own"),
    [
        ([], None),
        ([("me", None)], 1),
        ([("somebody", None)], None),
        ([("me", None), ("restore", 1), ("restore", 2)], 3),
        ([("me", None), ("restore", 1), ("somebody", None)], None),
        ([("somebody", None), ("restore", 1)], None),
        ([("somebody", None), ("me", None)], 2),
    ],
    ids=["never run", "mine", "another's", "mine, replaced twice", "then another's", "another's, replaced", "mine now"],
)
def test_a_generation_is_own_if_own_hands_started_it_or_what_it_replaces(
    starts: list[tuple[str, int | None]], own: int | None
) -> None:
    assert own_generation(history(*starts), "me") == own


def snapshot(number: int, kind: SnapshotKind) -> SnapshotRef:
    return SnapshotRef(CheckpointId(number), kind, Generation(1), "", 0, "")


@pytest.mark.parametrize(
    ("newer_than", "kind", "found"),
    [(0, "savepoint", 3), (3, "savepoint", None), (0, "checkpoint", 4), (3, None, 4), (4, None, None)],
)
def test_a_snapshot_that_is_waited_for_is_newer_and_of_its_kind(
    newer_than: int, kind: str | None, found: int | None
) -> None:
    savepoint, checkpoint = SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT
    taken = [snapshot(1, savepoint), snapshot(3, savepoint), snapshot(4, checkpoint), snapshot(2, checkpoint)]
    best = newest_above(taken, newer_than, kind)
    assert (best.id if best is not None else None) == found
