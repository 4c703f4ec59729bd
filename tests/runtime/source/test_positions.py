"""What a snapshot keeps of a source's position: the list of files is shared between snapshots and never wrong."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.source.positions import FileListBook, InlineBook, Json
from headgate_contract.errors import SnapshotDamaged
from headgate_contract.snapshot import SourceState
from tests.runtime.source.shelf import Shelf


def _entries(first: int, count: int) -> list[Json]:
    return [
        {"path": f"file:///in/{number:06d}", "timestamp": 5, "batchId": 0} for number in range(first, first + count)
    ]


def _noted(*counts: int) -> FileListBook:
    book = FileListBook("records", "files")
    for count in counts:
        book.note(_entries(len(book.entries(10**9)), count))
    return book


def _position(count: int) -> Json:
    return {"batch": 3, "offset": '{"logOffset":3}', "count": count}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


class TestFileList:
    def test_a_short_list_is_inline_and_needs_no_file(self, shelf):
        state = _noted(FileListBook.INLINE).save(_position(FileListBook.INLINE), shelf.put)
        assert state.files == ()
        assert shelf.files == {}
        assert len(state.position["tail"]) == FileListBook.INLINE

    def test_a_long_list_is_a_compressed_file_of_its_own(self, shelf):
        state = _noted(FileListBook.INLINE + 1).save(_position(FileListBook.INLINE + 1), shelf.put)
        assert len(state.files) == 1
        assert state.position["tail"] == []
        lines = gzip.decompress(shelf.get(state.files[0])).splitlines()
        assert [json.loads(line) for line in lines] == _entries(0, FileListBook.INLINE + 1)

    def test_the_next_snapshots_share_a_confirmed_base_and_keep_the_rest_inline(self, shelf):
        book = _noted(1000)
        first = book.save(_position(1000), shelf.put)
        book.confirm(first)
        book.note(_entries(1000, 80))
        second = book.save(_position(1080), shelf.put)
        assert second.files == first.files
        assert second.position["tail"] == _entries(1000, 80)
        assert len(shelf.files) == 1

    def test_a_base_that_was_never_confirmed_is_not_shared(self, shelf):
        book = _noted(1000)
        first = book.save(_position(1000), shelf.put)
        second = book.save(_position(1000), shelf.put)
        assert second.files != first.files

    def test_a_savepoint_has_files_of_its_own(self, shelf):
        book = _noted(1000)
        base = book.save(_position(1000), shelf.put)
        book.confirm(base)
        alone = book.save(_position(1000), shelf.put, self_contained=True)
        assert len(alone.files) == 1
        assert alone.files != base.files

    def test_a_position_older_than_the_base_is_saved_whole(self, shelf):
        book = _noted(1000)
        book.confirm(book.save(_position(1000), shelf.put))
        older = book.save(_position(300), shelf.put)
        restored = FileListBook("records", "files")
        assert restored.load(older, shelf.get)["count"] == 300
        assert restored.entries(10**9) == _entries(0, 300)

    def test_a_restored_book_shares_no_base_of_the_earlier_life(self, shelf):
        book = _noted(1000)
        state = book.save(_position(1000), shelf.put)
        restored = FileListBook("records", "files")
        assert restored.load(state, shelf.get) == _position(1000)
        again = restored.save(_position(1000), shelf.put)
        assert not {handle.path for handle in again.files} & {handle.path for handle in state.files}

    def test_what_checkpoints_write_of_a_list_grows_with_the_list_and_not_with_its_square(self, shelf):
        """5,000 checkpoints of 20 files each: inline they hold no more than they may, and pieces are few and shared."""
        book, inline, most = FileListBook("records", "files"), 0, 0
        for checkpoint in range(5000):
            book.note(_entries(20 * checkpoint, 20))
            state = book.save(_position(20 * (checkpoint + 1)), shelf.put)
            book.confirm(state)
            inline += len(json.dumps(state.position))
            most = max(most, len(state.files))
            assert len(state.position["tail"]) <= FileListBook.INLINE
        entry, doublings = len(json.dumps(_entries(0, 1)[0])), math.log2(100_000 / FileListBook.INLINE)
        assert inline < 5000 * (FileListBook.INLINE * (entry + 4) + 300)
        assert most <= doublings + 1
        whole = _noted(100_000).save(_position(100_000), Shelf().put).files[0].length
        assert shelf.written < 1.5 * whole * doublings
        restored = FileListBook("records", "files")
        restored.load(state, shelf.get)
        assert restored.entries(10**9) == _entries(0, 100_000)

    def test_checkpoints_that_never_complete_leave_the_pieces_of_the_last_one_that_did(self, shelf):
        book = _noted(1000)
        confirmed = book.save(_position(1000), shelf.put)
        book.confirm(confirmed)
        for attempt in range(1, 5):
            book.note(_entries(900 + 100 * attempt, 100))
            state = book.save(_position(1000 + 100 * attempt), shelf.put)
            assert state.files[:1] == confirmed.files
        assert len(state.files) == 2

    @pytest.mark.parametrize("change", [{"count": 999}, {"pieces": [999]}, {"tail": [{}]}])
    def test_a_list_that_does_not_add_up_is_damage(self, shelf, change):
        state = _noted(1000).save(_position(1000), shelf.put)
        wrong = replace(state, position={**state.position, **change})
        with pytest.raises(SnapshotDamaged, match="source records: the snapshot lists"):
            FileListBook("records", "files").load(wrong, shelf.get)


def test_a_small_position_is_kept_as_it_is(shelf):
    book = InlineBook("words", "socket")
    position = {"batch": 3, "offset": '{"segment": 1, "byte": 20}'}
    state = book.save(position, shelf.put)
    assert state == SourceState("words", "socket", position)
    assert book.load(state, shelf.get) == position
    assert shelf.files == {}


class HistoryOfAFileList(RuleBasedStateMachine):
    """Checkpoints, declined ones, savepoints, restores in any order: each retained state gives its own list again."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.book = FileListBook("records", "files")
        self.files: list[Json] = []
        self.retained: list[tuple[SourceState, list[Json]]] = []
        self.number = 0

    @rule(count=st.sampled_from([1, 7, 90, 150, 400]))
    def files_are_handed_over(self, count: int) -> None:
        new = _entries(self.number, count)
        self.number += count
        self.files = [*self.files, *new]
        assert self.book.note(new) == len(self.files)

    @rule(behind=st.integers(0, 300))
    def a_checkpoint_completes_while_newer_files_come(self, behind: int) -> None:
        count = max(0, len(self.files) - behind)
        state = self.book.save(_position(count), self.shelf.put)
        self.book.confirm(state)
        self.retained.append((state, self.files[:count]))

    @rule()
    def a_checkpoint_is_declined_and_its_files_deleted(self) -> None:
        before = set(self.shelf.files)
        self.book.save(_position(len(self.files)), self.shelf.put)
        for path in set(self.shelf.files) - before:
            del self.shelf.files[path]

    @rule()
    def a_savepoint_is_taken(self) -> None:
        before = set(self.shelf.files)
        state = self.book.save(_position(len(self.files)), self.shelf.put, self_contained=True)
        assert not {handle.path for handle in state.files} & before
        self.retained.append((state, self.files))

    @precondition(lambda self: self.retained)
    @rule(data=st.data())
    def a_new_life_restores(self, data: st.DataObject) -> None:
        state, files = data.draw(st.sampled_from(self.retained))
        self.book = FileListBook("records", "files")
        assert self.book.load(state, self.shelf.get)["count"] == len(files)
        self.files = files

    @precondition(lambda self: len(self.retained) > 2)
    @rule()
    def the_oldest_is_retired_and_what_it_alone_needed_goes(self) -> None:
        gone, _ = self.retained.pop(0)
        needed = {handle.path for state, _ in self.retained for handle in state.files}
        for handle in gone.files:
            if handle.path not in needed:
                self.shelf.files.pop(handle.path, None)

    @invariant()
    def every_retained_state_gives_its_own_list(self) -> None:
        for state, files in self.retained[-3:]:
            book = FileListBook("records", "files")
            book.load(state, self.shelf.get)
            assert book.entries(10**9) == files


TestHistoryOfAFileList = HistoryOfAFileList.TestCase
TestHistoryOfAFileList.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
