"""Old log entries are folded into summaries on a store, where whoever does it is broken off, is frozen, has rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest

from headgate_contract import summarising
from headgate_contract.catalogue import Catalogue, catalogue_of, read_catalogue
from headgate_contract.errors import LogDamaged, SlotTaken, StorageError
from headgate_contract.folding import Folding
from headgate_contract.id_ranges import Span
from headgate_contract.ids import Generation, SlotNumber
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import GenerationStarted, SlotRecord, SnapshotCompleted, decision_log, slot_log
from headgate_contract.restore import Fresh, Rollback, SinkRollback
from headgate_contract.store import Listing
from headgate_contract.store_memory import MemoryStore
from headgate_contract.stream_logs import StreamLogs, claim_slot
from headgate_contract.summary import summary_numbers
from tests.contract.histories import decide
from tests.contract.lives import OUT, STREAM, Lives, started
from tests.contract.same_answers import check_same_answers
from tests.contract.store_suite import unique
from tests.contract.stored_values import stored

PATHS = StreamPaths(STREAM)
EVERY = 4


class Stepping(MemoryStore):
    """Tells of each operation before and after it; whoever is told may fail it."""

    before: Callable[[str], None] = staticmethod(lambda operation: None)
    after: Callable[[str], None] = staticmethod(lambda operation: None)

    @contextmanager
    def _step(self, operation: str) -> Iterator[None]:
        self.before(operation)
        yield
        self.after(operation)

    def create(self, path: str, data: bytes) -> bool:
        with self._step(f"create {path}"):
            return super().create(path, data)

    def read(self, path: str) -> bytes:
        with self._step(f"read {path}"):
            return super().read(path)

    def list(self, folder: str) -> Listing:
        with self._step(f"list {folder}"):
            return super().list(folder)

    def delete(self, path: str) -> bool:
        with self._step(f"delete {path}"):
            return super().delete(path)

    def read_all(self, paths: list[str]) -> list[bytes | None]:  # type: ignore[override] # one after the other
        return [self._read_if_there(path) for path in paths]

    def delete_many(self, paths: list[str]) -> None:  # type: ignore[override] # one after the other
        for path in paths:
            self.delete(path)


class Stream:
    """A stream's logs on a store, and what is known of them without one."""

    def __init__(self) -> None:
        self.store = Stepping(f"memory://{unique()}")
        self.lives = Lives()
        self.lives.deploy()
        self._write_decisions()

    @property
    def whole(self) -> Catalogue:
        return self.lives.unfolded

    def copy(self) -> Stream:
        """Another one that is the same until now."""
        other = Stream()
        other.lives = deepcopy(self.lives)
        for info in self.open().list(""):
            other.open().replace(info.path, self.open().read(info.path))
        return other

    def open(self) -> MemoryStore:
        """The same objects, seen by somebody whom nobody stops."""
        return MemoryStore(self.store.url)

    def write(self, act: Callable[[Lives], object]) -> None:
        """Do it, and put what that adds to the logs on the store."""
        known = len(self.lives.slots)
        act(self.lives)
        for slot in self.lives.slots[known:]:
            after = SlotNumber(slot.number - 1) if slot.number > 1 else None
            slot_log(self.open(), STREAM).append(after, slot.record)
        self._write_decisions()

    def _write_decisions(self) -> None:
        log = decision_log(self.open(), STREAM)
        known = log.read()
        for slot in self.lives.decisions[len(known) :]:
            log.append(SlotNumber(slot.number - 1) if slot.number > 1 else None, slot.record)

    def checkpoints(self, count: int) -> None:
        """So many, each of which subsumes the one before."""
        for _ in range(count):
            self.write(lambda lives: lives.checkpoint(retires=[r for r in lives.catalogue.snapshots if not r.name]))

    def folding(self) -> Folding:
        return Folding(self.store, read_catalogue(self.open(), STREAM), EVERY)

    def check(self) -> None:
        """Whoever reads it now learns what the whole log says."""
        check_same_answers(self.whole, read_catalogue(self.open(), STREAM))

    def numbers(self, folder: str) -> list[int]:
        return [int(info.path[-13:-5]) for info in self.open().list(folder)]


def lived() -> Stream:
    """Three generations, one that restarted, one that stopped, a savepoint, wishes, a retired one, repeats accepted."""
    stream = Stream()
    stream.write(lambda lives: lives.start())
    stream.checkpoints(3)
    stream.write(lambda lives: lives.savepoint("kept"))
    stream.write(lambda lives: lives.savepoint("gone"))
    stream.write(lambda lives: lives.restart())
    stream.checkpoints(2)
    stream.write(lambda lives: lives.retire(lives.catalogue.snapshots[1]))
    stream.write(lambda lives: lives.want_stop(Generation(1)))
    stream.write(lambda lives: lives.stop(lives.catalogue.snapshots[0]))
    rollbacks = (SinkRollback(OUT, Rollback.DUPLICATES, (Span(2, 2),)),)
    stream.write(lambda lives: lives.start(lives.catalogue.history[0], accept_duplicates=True, rollbacks=rollbacks))
    stream.write(lambda lives: lives.deploy("job-2.py"))
    stream.write(lambda lives: lives.start(lives.catalogue.history[0]))
    stream.checkpoints(3)
    return stream


def fenced_slots(stream: Stream) -> list[SlotNumber]:
    """Behind which slots somebody may have been frozen who does not know it: what follows is not a completion."""
    return [SlotNumber(s.number - 1) for s in stream.whole.slots[1:] if not isinstance(s.record, SnapshotCompleted)]


def check_fenced(stream: Stream) -> None:
    """Whoever was frozen there and wakes, loses."""
    for newest in fenced_slots(stream):
        assert not stream.open().create(numbered(PATHS.slots, newest.next()), b"of one who was frozen"), newest
        assert slot_log(stream.open(), STREAM).peek(newest.next()) is not None


# ---- what is left


def test_a_long_life_leaves_two_summaries_and_few_entries() -> None:
    stream = lived()
    folding = stream.folding()
    for _ in range(20):
        stream.checkpoints(EVERY)
        folding.fold()
        stream.check()
    starts = [s.number for s in stream.whole.slots if not isinstance(s.record, SnapshotCompleted)]
    older, newer = stream.numbers(PATHS.summaries)
    assert newer - older == EVERY
    assert newer == stream.whole.newest_slot
    assert [n for n in stream.numbers(PATHS.slots) if n < older] == starts
    assert [n for n in stream.numbers(PATHS.slots) if n >= older] == list(range(older, newer + 1))
    assert stream.numbers(PATHS.decisions) == [1, 2, 3, 4]
    summary = read_catalogue(stream.open(), STREAM).summary
    assert summary is not None
    assert len(summary.slots) < 12
    assert len(summary.encode()) < 8000


def test_who_was_frozen_finds_his_next_number_taken_for_ever() -> None:
    stream = lived()
    assert len(fenced_slots(stream)) == 4
    folding = stream.folding()
    for _ in range(4):
        stream.checkpoints(EVERY)
        folding.fold()
        check_fenced(stream)


def test_a_driver_that_wakes_after_many_folds_learns_who_followed_it() -> None:
    stream = lived()
    frozen = stream.whole.newest_slot
    assert frozen is not None
    log = slot_log(stream.open(), STREAM)
    stream.write(lambda lives: lives.start(lives.catalogue.history[0]))
    folding = stream.folding()
    for _ in range(4):
        stream.checkpoints(EVERY)
        folding.fold()
    found = log.peek(frozen.next())
    assert found is not None
    assert isinstance(found.record, GenerationStarted)
    assert found.record.generation == 4


def test_who_was_frozen_right_behind_his_claim_does_not_delete_it() -> None:
    """Nobody has started his driver; others took it for lost, and have gone on and folded since."""
    stream = lived()
    record = stream.lives.start(stream.lives.catalogue.history[0])
    claimed = stream.lives.slots[-1].number
    woken: list[str] = []

    def meanwhile(made: str) -> None:
        if made.startswith("list") and PATHS.summaries in made and not woken:
            woken.append(made)
            stream.write(lambda lives: lives.start(lives.catalogue.history[0]))
            folding = Folding(stream.open(), read_catalogue(stream.open(), STREAM), EVERY)
            for _ in range(3):
                stream.checkpoints(EVERY)
                folding.fold()

    stream.store.before = meanwhile  # type: ignore[method-assign]
    with pytest.raises(SlotTaken, match="is ours, and others have gone on behind it since"):
        claim_slot(slot_log(stream.store, STREAM), STREAM, SlotNumber(claimed - 1), record)
    assert woken
    stream.check()
    check_fenced(stream)


# ---- broken off


def operations(stream: Stream) -> list[str]:
    """What a fold does, one after the other."""
    seen: list[str] = []
    stream.store.before = seen.append  # type: ignore[method-assign]
    stream.folding().fold()
    return seen


@cache
def _folded_twice() -> Stream:
    stream = lived()
    folding = stream.folding()
    for _ in range(2):
        folding.fold()
        stream.checkpoints(EVERY)
    return stream


def folded_twice() -> Stream:
    """So that the next fold deletes entries and a summary."""
    return _folded_twice().copy()


COUNT = len(operations(folded_twice()))


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("step", range(COUNT))
def test_a_fold_that_is_broken_off_anywhere_changes_no_answer(step: int, done: bool) -> None:
    stream = folded_twice()
    reader = StreamLogs(stream.open(), STREAM)
    reader.read()
    left = step

    def fail(operation: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StorageError(f"{operation}: the process is gone")

    setattr(stream.store, "after" if done else "before", fail)
    with pytest.raises(StorageError, match="the process is gone"):
        stream.folding().fold()
    stream.store.before = stream.store.after = lambda operation: None  # type: ignore[method-assign]
    stream.check()
    check_same_answers(stream.whole, catalogue_of(STREAM, reader.read()))
    check_fenced(stream)
    stream.checkpoints(1)
    folding = stream.folding()  # its successor's
    for _ in range(3):
        folding.fold()
        stream.check()
        stream.checkpoints(EVERY)
    check_same_answers(stream.whole, catalogue_of(STREAM, reader.read()))
    starts = {s.number for s in stream.whole.slots if not isinstance(s.record, SnapshotCompleted)}
    older = stream.numbers(PATHS.summaries)[0]
    assert {n for n in stream.numbers(PATHS.slots) if n < older} == {n for n in starts if n < older}


# ---- races


def launch(stream: Stream) -> None:
    stream.write(lambda lives: lives.start(lives.catalogue.history[0]))


def complete(stream: Stream) -> None:
    stream.checkpoints(1)


def complete_and_fold(stream: Stream) -> None:
    """A rival does so much that whatever one has read is deleted."""
    rival = Folding(stream.open(), read_catalogue(stream.open(), STREAM), EVERY)
    for _ in range(3):
        stream.checkpoints(EVERY)
        rival.fold()


RIVALS = [launch, complete, complete_and_fold]


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("step", range(COUNT))
def test_a_fold_races_with_whatever_others_do(step: int, rival: Callable[[Stream], None]) -> None:
    stream = folded_twice()
    folding = stream.folding()
    left = step

    def meanwhile(operation: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            rival(stream)

    stream.store.before = meanwhile  # type: ignore[method-assign]
    folding.fold()
    stream.check()
    check_fenced(stream)
    folding.fold()  # the frozen one goes on
    stream.check()
    stream.checkpoints(EVERY)
    stream.folding().fold()
    stream.check()


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("knows", [False, True], ids=["new", "knows an older state"])
@pytest.mark.parametrize("step", range(14))
def test_a_reader_races_with_whatever_others_do(step: int, knows: bool, rival: Callable[[Stream], None]) -> None:
    stream = folded_twice()
    reader = StreamLogs(stream.store, STREAM)
    if knows:
        reader.read()
        stream.checkpoints(2)
    left, before = step, stream.whole

    def meanwhile(operation: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            rival(stream)

    stream.store.before = meanwhile  # type: ignore[method-assign]
    seen = catalogue_of(STREAM, reader.read())
    stream.store.before = lambda operation: None  # type: ignore[method-assign]
    assert before.newest_slot is not None
    assert seen.newest_slot is not None
    assert before.newest_slot <= seen.newest_slot
    upto = tuple(slot for slot in stream.whole.slots if slot.number <= seen.newest_slot)
    check_same_answers(Catalogue(STREAM, upto, stream.whole.decisions), seen)
    check_same_answers(stream.whole, catalogue_of(STREAM, reader.read()))


def test_who_waits_knows_all_after_each_fold() -> None:
    stream = lived()
    readers = [StreamLogs(stream.open(), STREAM) for _ in range(2)]
    folding = stream.folding()
    for round_number in range(12):
        stream.checkpoints(EVERY - 1)
        if round_number % 3 == 0:
            launch(stream)
        folding.fold()
        check_same_answers(stream.whole, catalogue_of(STREAM, readers[0].read()))
    check_same_answers(stream.whole, catalogue_of(STREAM, readers[1].read()))


# ---- damage


def flip(stream: Stream, path: str, bit: int) -> None:
    data = bytearray(stream.open().read(path))
    data[(bit // 8) % len(data)] ^= 1 << (bit % 8)
    stream.open().replace(path, bytes(data))


@pytest.mark.parametrize("bit", range(0, 24_000, 2_411))
@pytest.mark.parametrize("which", [0, 1], ids=["the newest", "the one before"])
def test_a_bit_that_flips_in_a_summary_costs_nothing(which: int, bit: int, caplog: pytest.LogCaptureFixture) -> None:
    stream = folded_twice()
    stream.folding().fold()
    newest = summary_numbers(stream.open(), STREAM)
    assert len(newest) == 2
    flip(stream, numbered(PATHS.summaries, newest[which]), bit)
    stream.check()
    assert ("00000" in caplog.text) == (which == 0), "the damage is told where it is met"
    entries = stream.numbers(PATHS.slots)
    stream.checkpoints(EVERY)
    stream.folding().fold()
    assert set(entries) <= set(stream.numbers(PATHS.slots)) or which == 1, "nothing is deleted on its word"
    for _ in range(3):
        stream.checkpoints(EVERY)
        stream.folding().fold()
        stream.check()


def test_a_summary_without_another_is_named_when_it_is_damaged() -> None:
    stream = folded_twice()
    stream.folding().fold()
    for number in summary_numbers(stream.open(), STREAM):
        path = numbered(PATHS.summaries, number)
        stream.open().replace(path, stream.open().read(path)[:-100])
    newest = numbered(PATHS.summaries, summary_numbers(stream.open(), STREAM)[0])
    with pytest.raises(LogDamaged, match=rf"stream orders is damaged: {newest} .* slots that it covers are deleted"):
        read_catalogue(stream.open(), STREAM)


def test_a_bit_that_flips_in_both_costs_nothing_either() -> None:
    """The checksum proves what it was."""
    stream = folded_twice()
    stream.folding().fold()
    for number in summary_numbers(stream.open(), STREAM):
        flip(stream, numbered(PATHS.summaries, number), 1234)
    stream.check()


def test_a_first_summary_that_is_damaged_costs_nothing_for_all_entries_are_there() -> None:
    stream = lived()
    stream.folding().fold()
    (number,) = summary_numbers(stream.open(), STREAM)
    flip(stream, numbered(PATHS.summaries, number), 1234)
    stream.check()


def test_a_summary_of_slots_that_are_not_there_is_not_believed() -> None:
    """A backup that was put back in part."""
    stream = folded_twice()
    stream.folding().fold()
    newest = stream.whole.newest_slot
    assert newest is not None
    stream.open().delete(numbered(PATHS.slots, newest))
    with pytest.raises(LogDamaged, match=f"{numbered(PATHS.slots, newest)} is not what it was"):
        read_catalogue(stream.open(), STREAM)


def test_a_slot_behind_the_summary_that_is_gone_is_named() -> None:
    stream = folded_twice()
    stream.folding().fold()
    stream.checkpoints(3)
    assert stream.whole.newest_slot is not None
    gone = SlotNumber(stream.whole.newest_slot - 1)
    stream.open().delete(numbered(PATHS.slots, gone))
    with pytest.raises(LogDamaged, match=f"slot {gone} is missing, {gone + 1} is there"):
        read_catalogue(stream.open(), STREAM)


def test_a_stream_that_was_removed_and_made_anew_is_not_mistaken_for_the_old_one() -> None:
    stream = folded_twice()
    stream.folding().fold()
    reader = StreamLogs(stream.open(), STREAM)
    reader.read()
    stream.open().delete_all(PATHS.root)
    record: SlotRecord = started(1, launch="another")
    decision_log(stream.open(), STREAM).append(None, stream.whole.decisions[0].record)
    slot_log(stream.open(), STREAM).append(None, record)
    assert [slot.record for slot in reader.read().slots] == [record]


# ---- planted faults: what the tests above are for


def test_a_fold_that_frees_the_number_of_a_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarising, "_taken", lambda catalogue: iter(()))
    with pytest.raises(AssertionError):
        test_who_was_frozen_finds_his_next_number_taken_for_ever()


@pytest.mark.parametrize(
    ("what", "loses"),
    [
        ("retired", lambda summary: {"retired": (), "completed": summary.completed[:-1]}),
        ("a kept snapshot", lambda summary: {"slots": summary.slots[:1] + summary.slots[2:]}),
        ("a start", lambda summary: {"slots": summary.slots[1:]}),
        ("what was deployed", lambda summary: {"decisions": ()}),
    ],
)
def test_a_summary_that_would_answer_otherwise_is_not_written(
    what: str, loses: Callable[[object], dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = summarising.Summary

    def forgetful(**fields: object) -> object:
        whole = made(**fields)  # type: ignore[arg-type]
        return made(**{**fields, **loses(whole)})  # type: ignore[arg-type]

    stream = lived()
    monkeypatch.setattr(summarising, "Summary", forgetful)
    with pytest.raises(LogDamaged):
        stream.folding().fold()
    assert stream.numbers(PATHS.summaries) == []
    monkeypatch.undo()
    stream.check()


def test_what_wrote_the_newest_output_is_known_for_as_long_as_nothing_newer_has() -> None:
    """By it a start tells that its sink's target ought to hold something, and is not what a mount has left behind."""
    lives = Lives()
    lives.deploy("job-1.py")
    lives.start()
    taken = lives.checkpoint()
    lives.deploy("job-2.py")
    lives.start(taken)
    lives.restart()
    for _ in range(2):
        lives.fold()
        lives.start(taken)
        check_same_answers(lives.unfolded, lives.catalogue)
        assert lives.catalogue.newest_writer == lives.unfolded.generation(Generation(1))
        ran = lives.catalogue.deployed_at(1)
        assert ran is not None
        assert ran.job == "job-1.py"


def test_what_a_start_goes_back_behind_is_told_in_ranges_however_much_it_is() -> None:
    lives = Lives()
    lives.start()
    lives.checkpoint()
    summary = lives.fold()
    (ours,) = summary.completed
    lives.summary = replace(summary, completed=(replace(ours, ids=(Span(1, 6_000_000),)),))
    decision = decide(lives, Fresh())
    (rollback,) = decision.rollbacks
    assert rollback.groups == (Span(1, 6_000_000),)
    assert len(stored("slot", started(2, decision))) < 2_000
