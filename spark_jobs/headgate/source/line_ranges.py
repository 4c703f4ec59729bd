"""What a micro-batch reads of a log of lines: how far it goes, which ranges it falls into, and their lines."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from headgate.source.line_log import (
    BLOCK,
    LineLog,
    LogPosition,
    Span,
    durable_length,
    last_line_end,
)
from headgate_contract.errors import StorageError, StreamFailed

SMALLEST_RANGE = 1 << 18
"""Ranges are not split below this: a task costs more than its lines."""


@dataclass(frozen=True, slots=True)
class LineRange:
    """Whole lines of one file."""

    path: str
    start: int
    end: int


class LineView:
    """The log as the life that fills `newest` sees it."""

    def __init__(self, log: LineLog, newest: int) -> None:
        self._log = log
        self._newest = newest
        self._seen = (0, 0)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        return self._log.spans(self._newest)

    def beginning(self) -> LogPosition:
        """Where the log begins: behind what was trimmed."""
        first = self._newest
        for span in reversed(self.spans):
            if not self._log.lines(span.segment).exists():
                break
            first = span.segment
        return LogPosition(first, 0)

    def latest(self, start: LogPosition, max_bytes: int | None) -> LogPosition:
        """How far a micro-batch from `start` goes: `max_bytes` of lines at most, but one line, if there is one.

        Everything before it is on disk. Raises StreamFailed when the log will not grow any more.
        """
        why = self._log.given_up(self._newest)
        if why is not None:
            raise StreamFailed(why)
        end, left = start, max_bytes
        for span, low, high in self._between(start, None):
            stop = self._cut(span, low, high, left, at_least_one=end == start)
            if stop > low:
                end = LogPosition(span.segment, stop)
            if stop < high:
                break
            left = None if left is None else left - (stop - low)
        return end

    def _cut(self, span: Span, low: int, high: int, left: int | None, *, at_least_one: bool) -> int:
        """The end of the last line within `left` bytes from `low`."""
        if left is None or high - low <= left:
            return high
        with self._log.lines(span.segment).open("rb") as file:
            cut = last_line_end(file.fileno(), low, low + left)
            return cut if cut > low or not at_least_one else _next_line_end(file.fileno(), low + left, high)

    def _between(self, start: LogPosition, end: LogPosition | None) -> list[tuple[Span, int, int]]:
        """The parts of the segments from `start` to `end`, or to the log's end."""
        parts = []
        for span in self.spans:
            if span.segment < start.segment or (end is not None and span.segment > end.segment):
                continue
            low = start.byte if span.segment == start.segment else 0
            high = end.byte if end is not None and span.segment == end.segment else self._length(span)
            if high > low:
                parts.append((span, low, high))
        return parts

    def _length(self, span: Span) -> int:
        """How much of a segment counts. Of the growing one that is what is on disk by now."""
        if span.length is not None:
            return span.length
        path = self._log.lines(span.segment)
        size = os.stat(path).st_size
        if size != self._seen[0]:
            self._seen = (size, durable_length(path))
        return self._seen[1]

    def ranges(self, start: LogPosition, end: LogPosition, parallelism: int) -> list[LineRange]:
        """The lines between two positions, as about `parallelism` ranges."""
        parts = self._between(start, end)
        total = sum(high - low for _, low, high in parts)
        size = max(SMALLEST_RANGE, -(-total // parallelism))
        found = []
        for span, low, high in parts:
            path = self._log.lines(span.segment)
            with path.open("rb") as file:
                at = low
                while at < high:
                    stop = high if high - at <= size else _next_line_end(file.fileno(), at + size - 1, high)
                    found.append(LineRange(str(path), at, stop))
                    at = stop
        return found


def read_lines(part: LineRange) -> pa.Array:
    """The lines of a range, without their ends. A byte that is no UTF-8 becomes U+FFFD; the log keeps it as it came."""
    with Path(part.path).open("rb") as file:
        file.seek(part.start)
        data = file.read(part.end - part.start)
    if len(data) != part.end - part.start or not data.endswith(b"\n"):
        raise StorageError(
            f"{part.path} lacks lines between the bytes {part.start} and {part.end}, which were read before",
            hint="somebody cut or changed it: bring it back",
        )
    lines = data[:-1].decode("utf-8", "replace").split("\n")
    if b"\r\n" in data:
        lines = [line.removesuffix("\r") for line in lines]
    return pa.array(lines, pa.string())


def _next_line_end(file: int, start: int, end: int) -> int:
    """The end of the line that the byte `start` is in."""
    at = start
    while at < end:
        found = os.pread(file, min(BLOCK, end - at), at).find(b"\n")
        if found >= 0:
            return at + found + 1
        at += BLOCK
    return end
