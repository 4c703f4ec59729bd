"""The log of lines: what counts after crashes, torn writes, frozen drivers and trimming."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.source.line_log import LineLog, LogPosition, SegmentWriter
from headgate.source.line_ranges import LineView
from headgate_contract.errors import (
    Conflict,
    CorruptObject,
    Fenced,
    JobInvalid,
    RestoreRefused,
    StorageError,
    StreamFailed,
)
from headgate_contract.store_local import LocalStore
from tests.runtime.source.logs import FOLDER, append, batches, lines_from, make_log


@pytest.fixture
def log(tmp_path: Path) -> LineLog:
    return make_log(tmp_path)


def _begin(log: LineLog, segment: int, data: bytes = b"") -> SegmentWriter:
    writer = log.begin(segment, resumes=True)
    if data:
        append(writer, data)
    return writer


class TestReading:
    def test_a_new_log_begins_at_its_first_segment_and_is_empty(self, log):
        _begin(log, 3)
        view = LineView(log, 3)
        assert view.beginning() == LogPosition(3, 0)
        assert view.latest(LogPosition(3, 0), 10) == LogPosition(3, 0)
        assert view.ranges(LogPosition(3, 0), LogPosition(3, 0), 2) == []

    def test_a_life_reads_on_through_all_segments_that_count(self, log):
        _begin(log, 1, b"a\nb\n")
        _begin(log, 2)
        _begin(log, 3, b"c\n")
        _begin(log, 5, b"d\ne\n")
        assert lines_from(LineView(log, 5), LogPosition(1, 2)) == ["b", "c", "d", "e"]

    def test_only_whole_lines_are_read_and_the_rest_when_it_has_come(self, log):
        writer = _begin(log, 1, b"whole\nha")
        view = LineView(log, 1)
        assert view.latest(LogPosition(1, 0), None) == LogPosition(1, 6)
        append(writer, b"lf\n")
        assert lines_from(view, LogPosition(1, 6)) == ["half"]

    def test_a_micro_batch_takes_whole_lines_up_to_its_limit_across_segments(self, log):
        _begin(log, 1, b"aaa\nbbb\n")
        _begin(log, 2, b"ccc\nddd\neee\n")
        assert batches(LineView(log, 2), LogPosition(1, 0), 9) == [["aaa", "bbb"], ["ccc", "ddd"], ["eee"]]
        assert batches(LineView(log, 2), LogPosition(1, 0), 12) == [["aaa", "bbb", "ccc"], ["ddd", "eee"]]

    def test_a_micro_batch_ends_where_a_line_no_longer_fits_whatever_follows(self, log):
        _begin(log, 1, b"aaaa\nbbbbbbbbb\n")
        _begin(log, 2, b"c\n")
        assert batches(LineView(log, 2), LogPosition(1, 0), 7) == [["aaaa"], ["bbbbbbbbb"], ["c"]]

    def test_a_line_above_the_limit_comes_alone(self, log):
        _begin(log, 1, b"a\n" + b"x" * 200_000 + b"\nb\n")
        taken = batches(LineView(log, 1), LogPosition(1, 0), 5)
        assert [[len(line) for line in batch] for batch in taken] == [[1], [200_000], [1]]

    def test_an_idle_log_gives_back_the_very_position_that_it_was_asked_from(self, log):
        _begin(log, 1, b"a\n")
        _begin(log, 2)
        assert LineView(log, 2).latest(LogPosition(1, 2), 100) == LogPosition(1, 2)

    def test_ranges_split_only_at_line_ends(self, log):
        lines = [f"{number:x}" * (number % 50 + 1) for number in range(40_000)]
        _begin(log, 1, "".join(f"{line}\n" for line in lines).encode())
        view = LineView(log, 1)
        end = view.latest(LogPosition(1, 0), None)
        ranges = view.ranges(LogPosition(1, 0), end, 4)
        assert len(ranges) == 4
        assert [part.start for part in ranges] == [0, *(part.end for part in ranges[:-1])]
        assert lines_from(view, LogPosition(1, 0)) == lines

    def test_bytes_that_are_no_utf_8_are_replaced_and_never_take_the_next_line_with_them(self, log):
        _begin(log, 1, b"gr\xc3\xbcn\n\xe2\x82\n\xff\xfe!\ncarriage\r\n\n\x0b\x1c\xe2\x80\xa8\n")
        expected = ["grün", "�", "��!", "carriage", "", "\x0b\x1c\u2028"]
        assert lines_from(LineView(log, 1), LogPosition(1, 0)) == expected

    def test_lines_that_were_cut_away_behind_our_back_are_missed_by_name(self, log):
        _begin(log, 1, b"a\nb\n")
        view = LineView(log, 1)
        end = view.latest(LogPosition(1, 0), None)
        parts = view.ranges(LogPosition(1, 0), end, 1)
        log.lines(1).write_bytes(b"a\n")
        from headgate.source.line_ranges import read_lines

        with pytest.raises(StorageError, match="lacks lines between the bytes 0 and 4"):
            read_lines(parts[0])


class TestSealing:
    def test_a_torn_line_is_cut_off_and_asked_for_again(self, log):
        _begin(log, 1, b"one\ntwo\nthr")
        writer = _begin(log, 2)
        assert writer.durable_byte() == len(b"one\ntwo\n")
        append(writer, b"three\n")
        assert lines_from(LineView(log, 2), LogPosition(1, 0)) == ["one", "two", "three"]

    def test_what_a_frozen_driver_appends_to_its_sealed_segment_counts_for_nobody(self, log):
        frozen = _begin(log, 1, b"one\n")
        successor = _begin(log, 2, b"two\n")
        append(frozen, b"TWO\nTHREE\n")
        append(successor, b"three\n")
        assert lines_from(LineView(log, 2), LogPosition(1, 0)) == ["one", "two", "three"]
        _begin(log, 3, b"four\n")
        assert lines_from(LineView(log, 3), LogPosition(1, 4)) == ["two", "three", "four"]

    def test_a_driver_that_comes_after_its_successor_is_fenced(self, log):
        _begin(log, 3)
        with pytest.raises(Fenced, match="generation 3 reads on already, 2 came too late"):
            _begin(log, 2)

    def test_a_segment_is_begun_once(self, log):
        _begin(log, 2)
        with pytest.raises(Conflict, match="generation 2 has begun its segment"):
            _begin(log, 2)

    def test_a_segment_that_a_frozen_driver_makes_between_look_and_act_is_followed_by_nobody(self, log, tmp_path):
        class SawOnlyTheFirst(LineLog):
            def segments(self) -> list[int]:
                return [1]

        _begin(log, 1, b"one\n")
        _begin(log, 3, b"two\n")
        late = SawOnlyTheFirst(LocalStore(tmp_path), FOLDER, "lines").begin(2, resumes=True)
        append(late, b"TWO\n")
        _begin(log, 4, b"three\n")
        assert lines_from(LineView(log, 3), LogPosition(1, 0)) == ["one", "two"]
        assert lines_from(LineView(log, 4), LogPosition(1, 0)) == ["one", "two", "three"]

    def test_a_life_that_died_before_its_header_stood_is_no_segment(self, log, tmp_path):
        _begin(log, 1, b"one\n")
        log.lines(2).write_bytes(b"never announced\n")
        _begin(log, 3, b"two\n")
        assert lines_from(LineView(log, 3), LogPosition(1, 0)) == ["one", "two"]

    def test_a_log_that_was_not_resumed_is_not_resumed_later(self, log):
        append(log.begin(1, resumes=False), b"one\n")
        with pytest.raises(JobInvalid, match="begun with resume=False"):
            log.begin(2, resumes=True)

    def test_resume_may_change_while_the_log_is_empty(self, log):
        log.begin(1, resumes=False)
        assert log.begin(2, resumes=True).durable_byte() == 0


class TestPositions:
    @pytest.mark.parametrize(
        ("position", "why"),
        [
            (LogPosition(2, 0), "that segment is not in the log"),
            (LogPosition(1, 5), "the segment ends at 4"),
            (LogPosition(3, 5), "the segment ends at 4"),
        ],
    )
    def test_a_position_that_the_log_does_not_hold_is_refused_by_name(self, log, position, why):
        _begin(log, 1, b"one\n")
        _begin(log, 3, b"two\n")
        with pytest.raises(RestoreRefused, match=why):
            log.check(log.spans(3), position)

    def test_a_log_that_lost_a_segment_is_refused_where_it_is_needed_and_only_there(self, log):
        _begin(log, 1, b"one\n")
        _begin(log, 2, b"two\n")
        _begin(log, 3, b"three\n")
        log.lines(1).unlink()
        log.check(log.spans(3), LogPosition(2, 0))
        with pytest.raises(RestoreRefused, match=r"00000001\.lines is gone or has been cut"):
            log.check(log.spans(3), LogPosition(1, 0))

    def test_a_segment_that_is_gone_is_not_sealed_as_empty(self, log):
        _begin(log, 1, b"one\n")
        log.lines(1).unlink()
        with pytest.raises(StorageError, match=r"00000001\.lines is gone"):
            _begin(log, 2)

    def test_a_damaged_header_is_named(self, log, tmp_path):
        _begin(log, 1, b"one\n")
        (tmp_path / FOLDER / "00000001.json").write_text("{")
        with pytest.raises(CorruptObject, match=r"00000001\.json"):
            _begin(log, 2)


class TestTrimming:
    def test_segments_before_the_oldest_position_go_and_the_rest_is_read_as_before(self, log):
        _begin(log, 1, b"one\n")
        _begin(log, 2, b"two\n")
        _begin(log, 3, b"three\n")
        _begin(log, 4, b"four\n")
        assert log.trim(4, LogPosition(3, 6)) == [1, 2]
        view = LineView(log, 4)
        assert view.beginning() == LogPosition(3, 0)
        assert lines_from(view, LogPosition(3, 0)) == ["three", "four"]
        assert log.trim(4, LogPosition(3, 6)) == []
        with pytest.raises(RestoreRefused):
            log.check(log.spans(4), LogPosition(2, 0))

    def test_the_byte_of_the_servers_stream_survives_trimming(self, log):
        _begin(log, 1, b"one\n")
        _begin(log, 2, b"two\n")
        log.trim(2, LogPosition(2, 0))
        assert _begin(log, 3).durable_byte() == 8


def test_who_reads_the_log_hears_why_it_was_given_up(log):
    _begin(log, 1, b"one\n")
    log.give_up(1, "the server speaks no lines")
    with pytest.raises(StreamFailed, match="the server speaks no lines"):
        LineView(log, 1).latest(LogPosition(1, 0), None)
    _begin(log, 2)
    assert lines_from(LineView(log, 2), LogPosition(1, 0)) == ["one"]
