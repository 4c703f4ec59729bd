"""Any history of lives, torn writes and frozen drivers: from every position the log gives the same lines again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.source.line_log import LogPosition, SegmentWriter
from headgate.source.line_ranges import LineView
from tests.runtime.source.logs import append, lines_from, make_log

LINES = st.lists(st.text(alphabet="ab0é", max_size=6), min_size=1, max_size=5)


class LivesOfALog(RuleBasedStateMachine):
    """The model is the list of the lines that counted, and how many of them each position that was taken has."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.log = make_log(self.root)
        self.lines: list[str] = []
        self.taken: list[tuple[LogPosition, int]] = []
        self.frozen: list[SegmentWriter] = []
        self.torn = False

    @initialize(resumes=st.booleans())
    def first_life(self, resumes: bool) -> None:
        self.resumes = resumes
        self.writer = self.log.begin(1, resumes=resumes)
        self.view = LineView(self.log, 1)
        self.taken = [(self.view.beginning(), 0)]

    @precondition(lambda self: not self.torn)
    @rule(lines=LINES)
    def lines_come(self, lines: list[str]) -> None:
        append(self.writer, "".join(f"{line}\n" for line in lines).encode())
        self.lines += lines

    @precondition(lambda self: not self.torn)
    @rule(piece=st.text(alphabet="ab0é", min_size=1, max_size=6))
    def a_write_is_cut_in_the_middle(self, piece: str) -> None:
        append(self.writer, piece.encode())
        self.torn = True

    @rule(gap=st.integers(1, 3))
    def the_next_life_begins(self, gap: int) -> None:
        self.frozen.append(self.writer)
        self.writer = self.log.begin(self.writer.segment + gap, resumes=self.resumes)
        self.view = LineView(self.log, self.writer.segment)
        self.torn = False
        assert self.writer.durable_byte() == len("".join(f"{line}\n" for line in self.lines).encode())

    @precondition(lambda self: self.frozen)
    @rule(data=st.data(), lines=LINES)
    def a_frozen_driver_appends(self, data: st.DataObject, lines: list[str]) -> None:
        writer = data.draw(st.sampled_from(self.frozen))
        append(writer, "".join(f"{line}\n" for line in lines).encode())

    @rule(most=st.integers(1, 30))
    def a_micro_batch_is_taken(self, most: int) -> None:
        start, count = self.taken[-1]
        end = self.view.latest(start, most)
        read = lines_from(self.view, start)
        taken = len(read) - len(lines_from(self.view, end))
        self.taken.append((end, count + taken))

    @rule(data=st.data())
    def an_older_snapshot_is_restored(self, data: st.DataObject) -> None:
        back_to = data.draw(st.integers(0, len(self.taken) - 1))
        del self.taken[back_to + 1 :]

    @invariant()
    def every_position_gives_the_lines_behind_it(self) -> None:
        for position, count in self.taken:
            self.log.check(self.log.spans(self.writer.segment), position)
            assert lines_from(self.view, position) == self.lines[count:]

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            for writer in [*self.frozen, self.writer]:
                writer.close()
        shutil.rmtree(self.root)


TestLivesOfALog = LivesOfALog.TestCase
TestLivesOfALog.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
