"""Whatever is damaged, missing or foreign in a log: its repair leaves one that holds, loses no proof, and fences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.damage import carry_out, read_entries
from headgate_contract.errors import Conflict, LogDamaged, SlotTaken
from headgate_contract.ids import CheckpointId, Generation, SlotNumber
from headgate_contract.log import Slot
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import (
    DecisionRecord,
    GenerationStarted,
    Hole,
    Repaired,
    SlotRecord,
    SnapshotCompleted,
    StreamCopy,
    decision_log,
    slot_log,
)
from headgate_contract.repair import Entry, RepairFacts, RepairPlan, Was, plan_repair
from headgate_contract.restore import RestoreFrom
from headgate_contract.store import ObjectStore, open_store
from tests.contract.lives import STREAM, Lives
from tests.contract.profiles import PROPERTY
from tests.contract.store_suite import unique

PATHS = StreamPaths(STREAM)


def entries(slots: Iterable[Slot[SlotRecord]], lost: Iterable[int] = ()) -> list[Entry[SlotRecord]]:
    return [Entry(slot.number, slot.record) for slot in slots if slot.number not in set(lost)]


def facts(
    slots: list[Entry[SlotRecord]], decisions: list[Entry[DecisionRecord]] | None = None, **more: object
) -> RepairFacts:
    deployed = Lives()
    deployed.deploy()
    decided = [Entry(slot.number, slot.record) for slot in deployed.decisions] if decisions is None else decisions
    made = RepairFacts(stream=STREAM, slots=slots, summary=None, decisions=decided, repair="r1", by="anna", at_ms=1)
    return replace(made, **more)  # type: ignore[arg-type]


def plan(lives: Lives, lost: Iterable[int] = (), **more: object) -> RepairPlan:
    return plan_repair(facts(entries(lives.slots, lost), **more))


@pytest.fixture
def lives() -> Lives:
    """1 start g1, 2-4 checkpoints 1-3, 5 stopped, 6 start g2 from 3, 7-8 checkpoints 4, 5."""
    lives = Lives()
    lives.deploy()
    lives.start()
    three = [lives.checkpoint() for _ in range(3)]
    lives.stop()
    lives.start(three[-1])
    lives.checkpoint()
    lives.checkpoint()
    return lives


class TestPlan:
    def test_a_whole_log_needs_none(self, lives: Lives) -> None:
        found = plan(lives)
        assert not found.needed
        assert found.after == lives.catalogue

    def test_a_lost_completion_is_given_up_and_what_comes_later_is_kept(self, lives: Lives) -> None:
        found = plan(lives, [7])
        assert [(change.number, change.was, change.is_lost) for change in found.slots] == [(7, Was.MISSING, True)]
        assert [ref.id for ref in found.after.snapshots] == [5, 3, 2, 1]
        assert found.after.next_checkpoint == 7, "the lost slot may have completed another one"
        assert found.after.next_generation == 3
        assert found.closing is not None
        assert found.closing.number == 9
        assert found.after.lineage(found.after.snapshots[0]) == {1, 2, 3, 4, 5}, "4 may have been published"

    def test_a_completion_that_a_later_start_tells_of_is_proven(self, lives: Lives) -> None:
        found = plan(lives, [4])
        [change] = found.slots
        assert change.record == lives.slots[3].record
        assert [ref.id for ref in found.after.snapshots] == [5, 4, 3, 2, 1]

    def test_a_lost_start_is_assumed_to_go_on_from_the_newest_snapshot(self, lives: Lives) -> None:
        [change] = plan(lives, [6]).slots
        assert isinstance(change.record, GenerationStarted)
        assert isinstance(change.record.decision, RestoreFrom)
        assert change.record.decision.snapshot.id == 3
        assert "is lost, checkpoint 3 is assumed" in change.record.decision.reason

    def test_what_a_restart_went_on_from_tells_what_its_generation_was_started_from(self) -> None:
        lives = Lives()
        lives.start()
        first, _ = lives.checkpoint(), lives.checkpoint()
        lives.start(first)
        lives.restart()
        [change] = plan(lives, [4]).slots
        assert isinstance(change.record, GenerationStarted)
        assert isinstance(change.record.decision, RestoreFrom)
        assert change.record.decision.snapshot == first

    def test_a_lost_first_slot_is_written_anew_and_keeps_the_name_that_sinks_know(self, lives: Lives) -> None:
        [change] = plan(lives, [1], history="the-first-launch").slots
        assert isinstance(change.record, GenerationStarted)
        assert (change.record.generation, change.record.launch) == (1, "the-first-launch")

    def test_what_a_root_that_went_away_left_behind_is_kept_on_both_sides(self) -> None:
        lives = Lives()
        lives.start()
        for _ in range(25):
            lives.checkpoint()
        found = plan(lives, range(13, 26))
        assert [ref.id for ref in found.after.snapshots] == [25, *range(11, 0, -1)]
        assert found.after.lineage(found.after.snapshots[0]) == set(range(1, 26)), "sinks keep what was published"

    def test_slots_of_a_phantom_behind_those_of_a_rightful_successor_are_given_up(self, lives: Lives) -> None:
        phantom = Lives(slots=lives.slots[:4])
        for _ in range(6):
            phantom.checkpoint()
        mixed = [*lives.slots, *phantom.slots[8:]]
        found = plan_repair(facts(entries(mixed)))
        assert [(change.number, change.was) for change in found.slots] == [
            (9, Was.CONTRADICTS),
            (10, Was.CONTRADICTS),
        ]
        assert [ref.id for ref in found.given_up] == [8, 9]
        assert found.after.history == lives.catalogue.history

    def test_a_log_that_is_gone_goes_on_above_all_that_anything_tells_of(self) -> None:
        found = plan_repair(facts([], highest_generation=7, highest_checkpoint=40))
        assert (found.after.next_generation, found.after.next_checkpoint) == (8, 41)
        assert found.after.slots[0].number == 1

    def test_a_lost_deployment_comes_back_from_the_copy_beside_the_log(self, lives: Lives) -> None:
        lives.want_stop(Generation(1))
        deployed = lives.catalogue.deployed
        assert deployed is not None
        copy = StreamCopy(stream=STREAM, number=SlotNumber(1), root="", deployed=deployed)
        lost: list[Entry[DecisionRecord]] = [
            Entry(SlotNumber(1), None, "torn"),
            Entry(SlotNumber(2), lives.decisions[1].record),
        ]
        found = plan_repair(facts(entries(lives.slots), lost, copy=copy))
        assert found.after.decisions == tuple(lives.decisions)
        assert plan_repair(facts(entries(lives.slots), lost)).after.deployed is None
        assert found.closing is not None

    def test_snapshots_whose_files_are_gone_are_retired_only_if_the_log_has_lost_something(self, lives: Lives) -> None:
        first = lives.catalogue.completed[0]
        assert [ref.id for ref in plan(lives, [7], gone={first: "its metadata"}).after.snapshots] == [5, 3, 2]
        whole = plan(lives, gone={first: "its metadata"}, wanted="a sink is ahead")
        assert [ref.id for ref in whole.after.snapshots] == [5, 4, 3, 2, 1]

    def test_a_second_repair_whose_first_one_is_lost_keeps_what_came_behind_it(self, lives: Lives) -> None:
        lives.slots = list(plan(lives, [7], highest_generation=6).after.slots)
        lives.append(
            replace(
                lives.slots[0].record,  # type: ignore[type-var]
                generation=lives.catalogue.next_generation,
                first_checkpoint=lives.catalogue.next_checkpoint,
            )
        )
        lives.checkpoint()
        assert lives.generation == 7
        found = plan(lives, [9])
        assert [ref.id for ref in found.after.snapshots][:2] == [7, 5]
        assert found.after.next_generation == 8


@st.composite
def histories(draw: st.DrawFn) -> Lives:
    """A stream's life of some starts, completions, restarts, stops and retirements."""
    lives = Lives()
    lives.deploy()
    lives.start()
    verbs = st.sampled_from(["checkpoint"] * 4 + ["savepoint", "start", "older", "fresh", "restart", "stop", "deploy"])
    for verb in draw(st.lists(verbs, max_size=25)):
        catalogue = lives.catalogue
        match verb:
            case "start" | "older" | "fresh":
                kept = [ref for ref in catalogue.history if catalogue.is_retained(ref)]
                base = {"start": kept[:1], "older": kept[-1:], "fresh": []}[verb]
                lives.start(base[0] if base else None)
            case "deploy":
                lives.deploy(draw(st.sampled_from(["a.py", "b.py"])))
            case _ if catalogue.stopped is not None:
                continue
            case "checkpoint":
                old = [ref for ref in catalogue.snapshots if ref.name is None][2:]
                lives.checkpoint(retires=old if draw(st.booleans()) else (), skip=draw(st.integers(0, 2)))
            case "savepoint":
                lives.savepoint(f"s{len(lives.slots)}")
            case "restart":
                lives.restart()
            case "stop":
                lives.stop()
    return lives


@dataclass
class Damaged:
    """A log on a store, and what was done to it."""

    lives: Lives
    store: ObjectStore
    unreadable: set[int] = field(default_factory=set)
    """Slots of which nothing can be read any more."""
    strangers: set[int] = field(default_factory=set)
    """Slots that were written by somebody else."""


def _torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _zeros(data: bytes) -> bytes:
    return b"\0" * len(data)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": _torn,
    "empty": lambda data: b"",
    "zeros": _zeros,
    "two bits": lambda data: bytes([data[0] ^ 1, data[1] ^ 1]) + data[2:],
}
HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda data: data[:20] + bytes([data[20] ^ 4]) + data[21:],
    "appended": lambda data: data + b"\0\0\0",
    "laid out": lambda data: data.replace(b",", b", ").replace(b"\n", b""),
}


@st.composite
def damaged_logs(draw: st.DrawFn) -> Damaged:
    lives = draw(histories())
    store = open_store(f"memory://{unique()}")
    slots, decisions = slot_log(store, STREAM), decision_log(store, STREAM)
    for slot in lives.slots:
        slots.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)
    for each in lives.decisions:
        decisions.append(SlotNumber(each.number - 1) if each.number > 1 else None, each.record)
    found = Damaged(lives, store)
    numbers = st.sets(st.integers(1, len(lives.slots)), max_size=5)
    for number in draw(numbers):
        path = numbered(PATHS.slots, SlotNumber(number))
        kind = draw(st.sampled_from([*DAMAGE, *HARMLESS, "missing"]))
        if kind == "missing":
            store.delete(path)
        else:
            store.replace(path, (DAMAGE | HARMLESS)[kind](store.read(path)))
        if kind not in HARMLESS:
            found.unreadable.add(number)
    if draw(st.booleans()):
        number = draw(st.integers(1, len(lives.decisions)))
        store.replace(numbered(PATHS.decisions, SlotNumber(number)), b"")
    if draw(st.booleans()):
        _let_a_phantom_write(draw, found)
    return found


def _let_a_phantom_write(draw: st.DrawFn, found: Damaged) -> None:
    """Entries of a driver that went on in a copy of the log come back behind the end."""
    fork = draw(st.integers(1, len(found.lives.slots)))
    phantom = Lives(slots=found.lives.slots[:fork])
    if phantom.catalogue.stopped is None:
        for _ in range(len(found.lives.slots) - fork + draw(st.integers(1, 3))):
            phantom.checkpoint()
    other = slot_log(open_store(f"memory://{unique()}"), STREAM)
    for slot in phantom.slots:
        other.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)
        if slot.number <= len(found.lives.slots):
            continue
        path = numbered(PATHS.slots, slot.number)
        found.store.create(path, other.store.read(path))
        found.strangers.add(slot.number)


@PROPERTY
@given(damaged_logs(), st.booleans())
def test_whatever_is_damaged_the_repair_leaves_a_log_that_holds_keeps_all_proofs_and_fences(
    found: Damaged, whole: bool
) -> None:
    lives, store = found.lives, found.store
    knew = [slot_log(store, STREAM) for _ in range(2)]
    before = {entry.number for entry in read_entries(slot_log(store, STREAM))}
    planned = plan_repair(
        facts(
            read_entries(slot_log(store, STREAM)),
            read_entries(decision_log(store, STREAM)),
            repair=unique(),
            highest_generation=int(lives.generation),
            highest_checkpoint=max((int(ref.id) for ref in lives.catalogue.completed), default=0),
            whole=lives.catalogue.completed if whole else (),
        )
    )
    carry_out(store, planned)
    after = read_catalogue(store, STREAM)  # its laws hold
    assert after == planned.after
    # every snapshot that can be read, or that a readable start tells of, can be restored still
    readable = [slot for slot in lives.slots if slot.number not in found.unreadable]
    told = {slot.record.snapshot for slot in readable if isinstance(slot.record, SnapshotCompleted)}
    if not found.strangers:
        retired = {id for slot in readable for id in getattr(slot.record, "retires", ())}
        assert {ref for ref in told if ref.id not in retired} <= set(after.snapshots)
        assert not planned.given_up
    else:
        assert told & set(after.completed) >= {ref for ref in told if not _behind_a_hole(ref.id, found)}
    # nothing that was completed before can be completed again
    assert all(ref.id < after.next_checkpoint for ref in lives.catalogue.completed)
    # whoever knew any part of the log finds the next slot taken
    if planned.needed:
        for number in range(max(before | {0}) + 1):
            with pytest.raises(SlotTaken):
                _append_blindly(knew[0].store, SlotNumber(number) if number else None)
    # a second look finds nothing to do
    again = plan_repair(facts(read_entries(slot_log(store, STREAM)), read_entries(decision_log(store, STREAM))))
    assert not again.needed


def _behind_a_hole(id: CheckpointId, found: Damaged) -> bool:
    """Whether a slot was lost before `id` was completed: a phantom's record may then stand for what was lost."""
    number = next(
        slot.number
        for slot in found.lives.slots
        if isinstance(slot.record, SnapshotCompleted) and slot.record.snapshot.id == id
    )
    return any(lost < number for lost in found.unreadable)


def _append_blindly(store: ObjectStore, after: SlotNumber | None) -> None:
    """The append of a driver that knew the log up to `after`, and looks at nothing else."""
    number = after.next() if after is not None else SlotNumber(1)
    path = numbered(PATHS.slots, number)
    if not store.create(path, wire.encode("slot", {"writer": unique(), "record": {}}, path)):
        raise SlotTaken(path)


class TestCarriedOut:
    def test_what_was_there_is_moved_aside_byte_for_byte(self, lives: Lives) -> None:
        store = open_store(f"memory://{unique()}")
        log = slot_log(store, STREAM)
        for slot in lives.slots:
            log.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)
        path = numbered(PATHS.slots, SlotNumber(7))
        store.replace(path, b"torn")
        with pytest.raises(LogDamaged, match=f"`headgate repair {STREAM}` tells a way out"):
            read_catalogue(store, STREAM)
        planned = plan_repair(facts(read_entries(slot_log(store, STREAM))))
        carry_out(store, planned)
        assert store.read(f"{PATHS.root}/repaired/r1/slots/00000007.json") == b"torn"
        assert isinstance(read_catalogue(store, STREAM).slots[6].record, Hole)
        assert isinstance(read_catalogue(store, STREAM).slots[-1].record, Repaired)

    def test_somebody_who_writes_meanwhile_has_the_log_and_nothing_is_put_aside(self, lives: Lives) -> None:
        store = open_store(f"memory://{unique()}")
        log = slot_log(store, STREAM)
        for slot in lives.slots:
            log.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)
        store.replace(numbered(PATHS.slots, SlotNumber(7)), b"torn")
        planned = plan_repair(facts(read_entries(slot_log(store, STREAM))))
        lives.checkpoint()
        log.append(SlotNumber(8), lives.slots[-1].record)
        with pytest.raises(Conflict, match="has written to its log"):
            carry_out(store, planned)
        assert store.read(numbered(PATHS.slots, SlotNumber(7))) == b"torn"
        assert not store.list(f"{PATHS.root}/repaired")

    def test_what_somebody_deploys_meanwhile_stays(self, lives: Lives) -> None:
        store = open_store(f"memory://{unique()}")
        log = decision_log(store, STREAM)
        first, second, third = (replace(lives.decisions[0].record, job=job) for job in ("a.py", "b.py", "c.py"))
        log.append(None, first)
        copy = StreamCopy(stream=STREAM, number=SlotNumber(2), root="", deployed=second)
        planned = plan_repair(facts([], read_entries(log), copy=copy))
        log.append(SlotNumber(1), third)
        with pytest.raises(Conflict, match=r"has written .*decisions/00000002.json while"):
            carry_out(store, planned)
        assert read_catalogue(store, STREAM).deployed == third

    def test_a_repair_that_is_broken_off_is_repaired_again(self, lives: Lives) -> None:
        store = open_store(f"memory://{unique()}")
        log = slot_log(store, STREAM)
        for slot in lives.slots:
            log.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)
        for number in (3, 7):
            store.replace(numbered(PATHS.slots, SlotNumber(number)), b"torn")
        planned = plan_repair(facts(read_entries(slot_log(store, STREAM))))
        carry_out(store, replace(planned, slots=planned.slots[:1]))
        with pytest.raises(LogDamaged):
            read_catalogue(store, STREAM)
        second = plan_repair(facts(read_entries(slot_log(store, STREAM)), repair="r2"))
        carry_out(store, second)
        assert [ref.id for ref in read_catalogue(store, STREAM).snapshots] == [5, 3, 1]
        assert isinstance(read_catalogue(store, STREAM), Catalogue)


def test_what_may_have_completed_before_a_lost_start_is_taken_to_belong_to_it() -> None:
    lives = Lives()
    lives.start()
    first = lives.checkpoint()
    lives.stop()
    lives.start(first)
    second = [lives.checkpoint() for _ in range(2)]
    lives.stop()
    start = lives.start(second[-1])
    newest = lives.checkpoint()
    lost = [slot.number for slot in lives.slots if getattr(slot.record, "snapshot", None) in second]
    (number,) = (slot.number for slot in lives.slots if slot.record is start)
    after = plan(lives, [*lost, number]).after
    assert after.base_of(Generation(3)) == first, "the newest that is left"
    assert after.lineage(newest) >= {first.id, *(ref.id for ref in second), newest.id}
    assert not after.abandoned_by(newest)
