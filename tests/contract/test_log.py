"""One slot has one writer, whoever knows what, freezes, wakes or loses an answer."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import LogDamaged, RootLost, SlotTaken, StorageError
from headgate_contract.ids import Generation, SlotNumber, StreamName
from headgate_contract.log import LogMoved, Slot
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import (
    GenerationStarted,
    Retired,
    SlotLog,
    SnapshotCompleted,
    Stopped,
    decision_log,
    slot_log,
)
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotRef
from headgate_contract.store import Listing, ObjectStore, open_store
from headgate_contract.store_memory import MemoryStore
from tests.contract.lives import STREAM, snapshot, started
from tests.contract.profiles import MACHINE
from tests.contract.store_suite import race, unique

SLOTS = StreamPaths(STREAM).slots


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{unique()}")


@pytest.fixture
def log(store: ObjectStore) -> SlotLog:
    return slot_log(store, STREAM)


def completed(id: int, generation: int = 1) -> SnapshotCompleted:
    return SnapshotCompleted(generation=Generation(generation), snapshot=snapshot(id, generation))


class TestAppend:
    def test_the_first_slot_is_number_one_and_each_follows_the_one_before(self, log: SlotLog) -> None:
        first = log.append(None, started(1))
        second = log.append(first.number, completed(1))
        assert (first.number, second.number) == (1, 2)
        assert log.read() == (first, second)

    def test_a_slot_that_somebody_else_wrote_is_lost_and_can_be_read(self, log: SlotLog, store: ObjectStore) -> None:
        theirs = slot_log(store, STREAM).append(None, started(1, launch="theirs"))
        with pytest.raises(SlotTaken, match=r"slots/00000001\.json was written by somebody else"):
            log.append(None, started(1, launch="mine"))
        assert log.peek(SlotNumber(1)) == theirs

    def test_two_who_write_the_very_same_record_are_told_apart(self, store: ObjectStore) -> None:
        slot_log(store, STREAM).append(None, started(1))
        with pytest.raises(SlotTaken):
            slot_log(store, STREAM).append(None, started(1))

    def test_a_repeat_by_the_same_writer_finds_its_own_slot(self, log: SlotLog) -> None:
        assert log.append(None, started(1)) == log.append(None, started(1))
        with pytest.raises(SlotTaken):
            log.append(None, started(1, launch="another"))

    def test_of_racing_launches_one_wins(self, store: ObjectStore) -> None:
        def launch(racer: int) -> bool:
            try:
                slot_log(store, STREAM).append(None, started(1, launch=str(racer)))
            except SlotTaken:
                return False
            return True

        won = race(launch)
        assert won.count(True) == 1
        (slot,) = slot_log(store, STREAM).read()
        assert isinstance(slot.record, GenerationStarted)
        assert slot.record.launch == str(won.index(True))

    def test_a_record_that_has_no_json_form_writes_nothing(self, log: SlotLog) -> None:
        with pytest.raises(TypeError, match="no JSON form"):
            log.append(None, started(1, launch=float("nan")))  # type: ignore[arg-type]
        assert log.read() == ()


class TestPredecessor:
    """An entry is made only where the one before it is: in another folder it would be a hole in this one."""

    def test_an_entry_whose_predecessor_is_gone_is_not_made(self, log: SlotLog, store: ObjectStore) -> None:
        first = log.append(None, started(1))
        store.delete(numbered(SLOTS, first.number))
        with pytest.raises(RootLost, match=r"slots/00000001\.json is gone from memory://.*not the log that was read"):
            log.append(first.number, completed(1))
        assert store.list(SLOTS) == []

    def test_nor_if_another_one_is_in_its_place(self, log: SlotLog, store: ObjectStore) -> None:
        first = log.append(None, started(1))
        store.delete(numbered(SLOTS, first.number))
        slot_log(store, STREAM).append(None, started(1))
        with pytest.raises(RootLost, match=r"is not the entry that was there"):
            log.append(first.number, completed(1))

    def test_who_has_only_read_it_is_told_as_well(self, log: SlotLog, store: ObjectStore) -> None:
        first = log.append(None, started(1))
        reader = slot_log(store, STREAM)
        assert reader.peek(first.number) == first
        store.replace(numbered(SLOTS, first.number), b"another")
        with pytest.raises(RootLost):
            reader.append(first.number, completed(1))

    def test_who_has_not_read_it_remembers_what_was_there_first(self, log: SlotLog, store: ObjectStore) -> None:
        first = log.append(None, started(1))
        other = slot_log(store, STREAM)
        other.confirm(first.number)
        store.replace(numbered(SLOTS, first.number), b"another")
        with pytest.raises(RootLost):
            other.confirm(first.number)


class TestRead:
    def test_an_empty_log_has_no_entries(self, log: SlotLog) -> None:
        assert log.read() == ()
        assert log.peek(SlotNumber(1)) is None

    def test_what_was_read_once_is_not_read_again(self, log: SlotLog, store: ObjectStore) -> None:
        log.append(None, started(1))
        reader = slot_log(store, STREAM)
        log.append(SlotNumber(1), completed(1))
        before = reader.read()
        store.replace(numbered(SLOTS, SlotNumber(1)), b"torn")
        assert reader.read() == before
        with pytest.raises(LogDamaged):
            slot_log(store, STREAM).read()

    def test_a_log_that_is_not_what_was_known_is_not_gone_on_from(self, log: SlotLog, store: ObjectStore) -> None:
        first = log.append(None, started(1))
        log.append(first.number, completed(1))
        readers = [slot_log(store, STREAM) for _ in range(2)]
        for reader in readers:
            reader.read()
        store.replace(numbered(SLOTS, SlotNumber(2)), b"another one's, longer or shorter")
        with pytest.raises(LogMoved):
            readers[0].read()
        store.delete(numbered(SLOTS, SlotNumber(2)))
        with pytest.raises(LogMoved):
            readers[1].read()

    def test_what_a_summary_covers_is_not_read(self, log: SlotLog, store: ObjectStore) -> None:
        log.append(None, started(1))
        for id in (1, 2, 3):
            log.append(SlotNumber(id), completed(id))
        store.replace(numbered(SLOTS, SlotNumber(1)), b"torn")
        reader = slot_log(store, STREAM)
        reader.begin(SlotNumber(2))
        assert [slot.number for slot in reader.read()] == [3, 4]
        reader.begin(SlotNumber(4))
        assert reader.read() == ()
        log.append(SlotNumber(4), completed(4))
        assert [slot.number for slot in reader.read()] == [5]
        assert [slot.number for slot in reader.read()] == [5]

    def test_more_than_eight_digits_of_slots_go_on(self, log: SlotLog, store: ObjectStore) -> None:
        last = SlotNumber(99_999_999)
        store.create(numbered(SLOTS, last), b"the one before")
        slot = log.append(last, started(1))
        store.delete(numbered(SLOTS, last))
        assert slot.number == 100_000_000
        assert slot_log(store, STREAM).read() == (slot,)

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ({"writer": "w"}, "lacks the field 'record'"),
            ({"record": {}}, "lacks the field 'writer'"),
            ({"writer": "w", "record": None}, "record should be a dict, not NoneType"),
            (
                {"writer": "w", "record": {"type": "unheard-of"}},
                "has the type 'unheard-of', known are generation-started",
            ),
            ({"writer": "w", "record": {"type": ["stopped"]}}, "has the type"),
            (
                {"writer": "w", "record": {"type": "stopped", "generation": 0, "reason": ""}},
                "0 is not a valid generation",
            ),
            ({"writer": "w", "record": {"type": "stopped", "generation": 1}}, "lacks the field 'reason'"),
            (
                {"writer": "w", "record": {"type": "stopped", "generation": 1, "reason": "", "x": 1}},
                "unknown fields: x",
            ),
            ({"writer": 1, "record": {"type": "stopped", "generation": 1, "reason": ""}}, "writer should be a str"),
        ],
    )
    def test_a_slot_that_says_what_no_slot_can_say_is_named(
        self, log: SlotLog, store: ObjectStore, body: dict[str, object], says: str
    ) -> None:
        path = numbered(SLOTS, SlotNumber(1))
        store.create(path, wire.encode("slot", body, path))
        with pytest.raises(LogDamaged, match=rf"slots/00000001\.json.*{says}"):
            log.read()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("streams/orders/slots/00000002.json", "streams/orders/slots/00000003.json"),
        ("streams/other/slots/00000002.json", "streams/orders/slots/00000002.json"),
        ("streams/orders/decisions/00000001.json", "streams/orders/slots/00000001.json"),
        ("streams/other/decisions/00000001.json", "streams/orders/decisions/00000001.json"),
    ],
)
def test_an_entry_that_was_written_for_another_place_is_refused(store: ObjectStore, source: str, target: str) -> None:
    for stream in (STREAM, StreamName("other")):
        first = slot_log(store, stream).append(None, started(1))
        slot_log(store, stream).append(first.number, completed(1))
        decision_log(store, stream).append(None, Retired(snapshots=(), by="anna", reason="", at_ms=1))
    store.replace(target, store.read(source))
    with pytest.raises(LogDamaged, match=f"{target} is (misplaced: it was written as '{source}'|a decision file)"):
        read_catalogue(store, STREAM)


class TornListing(MemoryStore):
    """Lists as a folder is listed while somebody writes to it: a newer entry is seen and an older one is not."""

    unseen: tuple[str, ...] = ()
    """What each of the next listings does not show."""

    def list(self, folder: str) -> Listing:
        unseen, self.unseen = self.unseen[:1], self.unseen[1:]
        return [info for info in super().list(folder) if not any(name in info.path for name in unseen)]


def test_a_listing_that_lacks_a_slot_which_was_written_meanwhile_makes_no_hole() -> None:
    store = TornListing(f"memory://{unique()}")
    log = slot_log(store, STREAM)
    log.append(None, started(1))
    for id in (1, 2, 3):
        log.append(SlotNumber(id), completed(id))
    store.unseen = ("00000003",)
    assert [slot.number for slot in slot_log(store, STREAM).read()] == [1, 2, 3, 4]
    store.unseen = ("00000003",)
    assert read_catalogue(store, STREAM).newest_slot == 4


class BusyListing(TornListing):
    """While it is listed for the second time two more slots are written, of which the listing shows only the newer."""

    def list(self, folder: str) -> Listing:
        if not self.unseen:
            log = slot_log(open_store(self.url), STREAM)
            log.append(SlotNumber(4), completed(4))
            log.append(SlotNumber(5), completed(5))
            self.unseen = ("00000005",)
        return super().list(folder)


def test_a_second_listing_is_torn_as_well_and_makes_no_hole_either() -> None:
    store = BusyListing(f"memory://{unique()}")
    log = slot_log(open_store(store.url), STREAM)
    log.append(None, started(1))
    for id in (1, 2, 3):
        log.append(SlotNumber(id), completed(id))
    store.unseen = ("00000003",)
    assert [slot.number for slot in slot_log(store, STREAM).read()] == [1, 2, 3, 4]


class Vanishing(MemoryStore):
    """Deletes an object between the listing that shows it and the read of it, as a fold at work does."""

    victim: str = ""

    def read(self, path: str) -> bytes:
        if self.victim and self.victim in path:
            self.delete(path)
        return super().read(path)


def test_a_slot_that_a_fold_deletes_while_the_log_is_read_is_not_left_out() -> None:
    store = Vanishing(f"memory://{unique()}")
    log = slot_log(store, STREAM)
    log.append(None, started(1))
    log.append(SlotNumber(1), completed(1))
    log.append(SlotNumber(2), started(2, RestoreFrom(snapshot(1), ""), first_checkpoint=2))
    store.victim = "00000002"
    with pytest.raises(LogMoved, match=r"00000002\.json was listed and is gone"):
        slot_log(store, STREAM).read()


class OpenOutcome(MemoryStore):
    """Fails once when told to, before or after it has done what was asked."""

    fails: str = ""

    def create(self, path: str, data: bytes) -> bool:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise StorageError("the connection broke")
        done = super().create(path, data)
        if fails == "after":
            raise StorageError("the answer was lost")
        return done


@dataclass
class Writer:
    """A launcher or a driver: what it knows of the log, and which generation it started."""

    name: str
    log: SlotLog
    newest: SlotNumber | None = None
    generation: Generation | None = None
    ids: int = 0
    fenced: bool = False
    stopped: bool = False
    wrote: list[SlotNumber] = field(default_factory=list)


class SlotLogMachine(RuleBasedStateMachine):
    """Writers with their own views of one log launch, complete, freeze (do nothing for long), wake and stop."""

    def __init__(self) -> None:
        super().__init__()
        self.store = OpenOutcome(f"memory://{unique()}")
        self.writers = [Writer(f"w{number}", slot_log(self.store, STREAM)) for number in range(4)]
        self.truth: list[tuple[str, Generation]] = []
        """Who wrote each slot, and for which generation."""

    @rule(who=st.integers(0, 3))
    def look(self, who: int) -> None:
        """Somebody who runs no driver learns what the log says now."""
        writer = self.writers[who]
        if writer.generation is None:
            slots = writer.log.read()
            writer.newest = slots[-1].number if slots else None

    @rule(who=st.integers(0, 3), fails=st.sampled_from(["", "", "", "before", "after"]))
    def launch(self, who: int, fails: str) -> None:
        """Claim the slot after the newest that is known; the view may be old."""
        writer = self.writers[who]
        if writer.generation is not None:
            return
        view = Catalogue(
            STREAM, tuple(slot for slot in writer.log.read() if writer.newest and slot.number <= writer.newest), ()
        )
        newest = view.newest_generation
        base = view.history[0] if view.history else None
        record = started(
            1 if newest is None else newest.generation + 1,
            None if base is None else RestoreFrom(base, "newest"),
            first_checkpoint=view.next_checkpoint,
            launch=f"{writer.name}-{len(self.truth)}",
        )
        if self.write(writer, record, record.generation, fails):
            writer.generation, writer.ids = record.generation, record.first_checkpoint

    @rule(who=st.integers(0, 3), fails=st.sampled_from(["", "", "", "before", "after"]))
    def complete(self, who: int, fails: str) -> None:
        writer = self.writers[who]
        if writer.generation is None or writer.fenced or writer.stopped:
            return
        ref: SnapshotRef = snapshot(writer.ids, writer.generation)
        if self.write(writer, SnapshotCompleted(generation=writer.generation, snapshot=ref), writer.generation, fails):
            writer.ids += 1

    @rule(who=st.integers(0, 3))
    def stop(self, who: int) -> None:
        writer = self.writers[who]
        if writer.generation is None or writer.fenced or writer.stopped:
            return
        writer.stopped = self.write(writer, Stopped(generation=writer.generation, reason=""), writer.generation, "")

    @precondition(lambda self: any(writer.fenced or writer.stopped for writer in self.writers))
    @rule()
    def replace_the_ended(self) -> None:
        """A driver that has ended makes room for another one, which knows nothing yet."""
        for place, writer in enumerate(self.writers):
            if writer.fenced or writer.stopped:
                self.writers[place] = Writer(f"{writer.name}'", slot_log(self.store, STREAM))

    def write(
        self,
        writer: Writer,
        record: GenerationStarted | SnapshotCompleted | Stopped,
        generation: Generation,
        fails: str,
    ) -> bool:
        """What a writer does: append; after an open outcome append again; after a lost race look who won."""
        number = SlotNumber(1) if writer.newest is None else writer.newest.next()
        is_free = number == len(self.truth) + 1
        self.store.fails = fails
        try:
            slot = self.append(writer, record)
        except SlotTaken:
            assert not is_free, f"slot {number} was free"
            won = writer.log.peek(number)
            assert won is not None
            if writer.generation is not None:
                assert isinstance(won.record, GenerationStarted), "only a successor's start can take a driver's slot"
                assert won.record.generation > writer.generation
                writer.fenced = True
            return False
        assert is_free, f"slot {number} had {self.truth[number - 1]} and was written again by {writer.name}"
        assert slot.number == number
        writer.newest = number
        writer.wrote.append(number)
        self.truth.append((writer.name, generation))
        return True

    def append(self, writer: Writer, record: GenerationStarted | SnapshotCompleted | Stopped) -> Slot[object]:
        try:
            return writer.log.append(writer.newest, record)  # type: ignore[return-value]
        except StorageError:
            return writer.log.append(writer.newest, record)  # type: ignore[return-value]

    @invariant()
    def the_log_holds_its_laws_and_every_slot_has_its_one_writer(self) -> None:
        catalogue = read_catalogue(self.store, STREAM)
        assert [slot.number for slot in catalogue.slots] == list(range(1, len(self.truth) + 1))
        assert [slot.record.generation for slot in catalogue.slots] == [generation for _, generation in self.truth]

    @invariant()
    def nobody_but_the_newest_generation_can_write(self) -> None:
        """Of all drivers only one knows the end of the log; every other one's next slot is its successor's start."""
        can = [w for w in self.writers if w.generation is not None and not w.stopped and w.newest == len(self.truth)]
        assert len(can) <= 1
        assert all(w.generation == self.truth[-1][1] for w in can)


TestSlotLogHistories = SlotLogMachine.TestCase
TestSlotLogHistories.settings = MACHINE
