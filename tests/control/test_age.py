"""What a start and a poll cost of a stream that has run for months: by requests, each of which takes 20 ms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.codec import to_plain
from headgate_contract.folding import FOLD_EVERY, Folding
from headgate_contract.heartbeats import Heartbeat, StreamState, write_heartbeat
from headgate_contract.ids import CheckpointId, Generation, SlotNumber
from headgate_contract.log import Slot
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    slot_log,
)
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.stream_logs import StreamLogs
from headgate_control.catalogues import Catalogues
from headgate_control.outcomes import Condition
from headgate_control.status import Observer
from headgate_control.watch import Watch
from tests.contract.far_store import Far
from tests.contract.lives import STREAM, snapshot

ENTRIES = 50_000
GENERATIONS = 40
PATHS = StreamPaths(STREAM)


def slots() -> Iterator[Slot[SlotRecord]]:
    """A start now and then, and checkpoints, each of which subsumes the one before."""
    head: SnapshotRef | None = None
    generation = 0
    for number in range(1, ENTRIES + 1):
        if number % (ENTRIES // GENERATIONS) == 1 and generation < GENERATIONS - 1:  # the last one runs for long
            generation += 1
            yield Slot(
                SlotNumber(number),
                GenerationStarted(
                    generation=Generation(generation),
                    decision=RestoreFrom(head, "newest") if head is not None else StartFresh("new"),
                    first_checkpoint=head.id.next() if head is not None else CheckpointId(1),
                    deployed=1,
                    by="anna",
                    host="host",
                    at_ms=number,
                    launch=f"launch-{generation}",
                    log="/log",
                ),
            )
            continue
        ref = snapshot(head.id + 1 if head is not None else 1, generation)
        committed = (head.id,) if head is not None else ()
        yield Slot(
            SlotNumber(number),
            SnapshotCompleted(generation=Generation(generation), snapshot=ref, committed=committed, retires=committed),
        )
        head = ref


@cache
def _whole() -> Catalogue:
    deployed = Deployed(job="/j", job_sha256="0", directory="/", settings={}, plan={}, by="anna", at_ms=1)
    others = (Retired(snapshots=(), by="anna", reason="nightly", at_ms=1) for _ in range(2000))
    decisions: list[DecisionRecord] = [deployed, *others]
    return Catalogue(
        STREAM, tuple(slots()), tuple(Slot(SlotNumber(n), record) for n, record in enumerate(decisions, start=1))
    )


def entry(kind: str, path: str, record: object) -> bytes:
    return wire.encode(kind, {"writer": "w", "record": to_plain(record)}, path)


@pytest.fixture
def store() -> Far:
    return _stored().copy()


@cache
def _stored() -> Far:
    """What the product leaves on storage of so long a life: its drivers folded it as they went."""
    near, whole = Far({}, {}), _whole()
    for decision in whole.decisions:
        path = numbered(PATHS.decisions, decision.number)
        near.replace(path, entry("decision", path, decision.record))
    done = 0
    for upto in (ENTRIES - 3 * FOLD_EVERY, ENTRIES - 2 * FOLD_EVERY, ENTRIES - FOLD_EVERY + 1, ENTRIES):
        for slot in whole.slots[done:upto]:  # those that are deleted by and by are not made
            if isinstance(slot.record, GenerationStarted) or slot.number >= ENTRIES - 4 * FOLD_EVERY:
                path = numbered(PATHS.slots, slot.number)
                near.replace(path, entry("slot", path, slot.record))
        done = upto
        if upto < ENTRIES:
            Folding(near, Catalogue(STREAM, whole.slots[:upto], whole.decisions)).fold()
    beat(near)
    return near


def beat(near: Far, counter: int = 1, state: StreamState = StreamState.RUNNING) -> None:
    newest = Generation(GENERATIONS - 1)
    write_heartbeat(
        near,
        Heartbeat(stream=STREAM, generation=newest, counter=counter, state=state, at_ms=1, interval_ms=2000),
    )


def append(far: Far, catalogue: Catalogue) -> None:
    """The driver completes a checkpoint, which costs others nothing."""
    newest, ref = catalogue.newest_slot, snapshot(catalogue.next_checkpoint, GENERATIONS - 1)
    record = SnapshotCompleted(generation=ref.generation, snapshot=ref, retires=(CheckpointId(ref.id - 1),))
    slot_log(far.near(), STREAM).append(newest, record)


def test_a_start_reads_for_less_than_a_second(store: Far) -> None:
    catalogue = read_catalogue(store, STREAM)
    assert catalogue.newest_slot == ENTRIES
    assert store.waited_s < 0.5, "5 s are allowed; one entry after the other it would be 1,000 s"
    assert store.requests < FOLD_EVERY + 10
    assert catalogue.snapshots == _whole().snapshots
    assert catalogue.next_checkpoint == _whole().next_checkpoint


def test_a_restart_inside_a_driver_reads_nothing_again(store: Far) -> None:
    logs = StreamLogs(store, STREAM)
    logs.begin(read_catalogue(store, STREAM).entries)
    store.start()
    logs.read()
    assert store.requests == 2, "a listing of each log, from its newest entry on"


def test_a_poll_costs_three_requests_and_one_for_each_new_entry(store: Far) -> None:
    catalogues = Catalogues(store)
    observer = Observer(store, catalogues, Watch())
    assert observer.status(STREAM).condition is Condition.RUNNING
    for counter in range(2, 5):
        beat(store.near(), counter)
        store.start()
        (status,) = observer.fleet([STREAM])
        assert (status.condition, store.requests) == (Condition.RUNNING, 3)
    append(store, catalogues.read(STREAM))
    store.start()
    assert observer.status(STREAM).newest_snapshot == catalogues.read(STREAM).snapshots[0]
    assert store.requests == 3 + 1 + 2


def test_a_poll_that_finds_nothing_new_judges_no_entry_anew(store: Far) -> None:
    catalogues = Catalogues(store)
    assert catalogues.read(STREAM) is catalogues.read(STREAM)


def test_who_polls_for_long_folds_for_himself(store: Far) -> None:
    catalogues = Catalogues(store)
    for _ in range(5 * FOLD_EVERY):
        append(store, catalogues.read(STREAM))
    catalogue = catalogues.read(STREAM)
    assert catalogue.newest_slot == ENTRIES + 5 * FOLD_EVERY
    assert len(catalogue.slots) < 4 * FOLD_EVERY + GENERATIONS


def test_a_stream_that_is_lost_costs_no_more_in_the_long_run(store: Far) -> None:
    observer = Observer(store, Catalogues(store), Watch())
    beat(store.near(), 9, StreamState.FAILED)
    assert observer.status(STREAM).condition is Condition.FAILED
    store.start()
    assert observer.status(STREAM).lost is not None
    assert store.requests == 3
