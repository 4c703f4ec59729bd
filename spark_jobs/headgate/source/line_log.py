"""A durable log of lines: whole lines in segments, one for each life of a driver, so that they can be read again.

Below the storage root, in the source's folder:

    00000003.lines   the lines of segment 3, byte for byte as they came: one process appends, nobody changes
    00000003.json    its header, created exclusively, after the file: what it follows, up to which length
    00000003.failed  why that process gave up, if it did

A segment has the number of the generation that fills it. Which segments count, and how far, is said by the newest
header: it follows one segment up to a length, whose header follows another, and so on. So nothing that a frozen driver
does later counts: what it appends lies behind the length that its successor named, and a segment that it makes too late
is followed by nobody.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headgate_contract import wire
from headgate_contract.errors import Conflict, Fenced, JobInvalid, ObjectMissing, RestoreRefused, StorageError
from headgate_contract.store import ObjectStore

BLOCK = 1 << 16
_HEADER = re.compile(r"([0-9]{8,})\.json")


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A place between two lines."""

    segment: int
    byte: int

    def to_json(self) -> dict[str, int]:
        return {"segment": self.segment, "byte": self.byte}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Self:
        return cls(int(plain["segment"]), int(plain["byte"]))


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment stands on."""

    segment: int
    follows: int | None
    length: int
    """Where the segment that it follows ends: whatever lies behind does not count."""
    before: int
    """The bytes of all lines before this segment: how much of the server's stream the log had when it began."""
    resumes: bool
    """Whether the server was asked to go on from a byte: only then `before` is a byte of its stream."""
    writer: str
    """Makes the header's bytes unique to who wrote it."""


@dataclass(frozen=True, slots=True)
class Span:
    """A segment as far as it counts."""

    segment: int
    length: int | None
    """None: it is the newest one, and still grows."""


class LineLog:
    """The log of one source of one stream, on a file system that all readers see."""

    def __init__(self, store: ObjectStore, folder: str, source: str) -> None:
        assert store.local is not None, "the lines are in files that are appended to"
        self._store = store
        self._place = store.local / folder
        self._folder = folder
        self.source = source
        """Whose log it is, for errors."""

    def lines(self, segment: int) -> Path:
        """The file of a segment's lines."""
        return self._place / f"{segment:08d}.lines"

    def segments(self) -> list[int]:
        """The numbers of all segments that have a header, in order."""
        names = (info.path.rsplit("/", 1)[-1] for info in self._store.list(self._folder))
        return sorted(int(match[1]) for match in map(_HEADER.fullmatch, names) if match)

    def header(self, segment: int) -> SegmentHeader:
        path = self._path(segment, "json")
        found: SegmentHeader = wire.decode("segment", self._store.read(path), SegmentHeader, path, path)
        return found

    def begin(self, segment: int, *, resumes: bool) -> SegmentWriter:
        """Begin a new segment, which seals the newest one before it.

        Raises Fenced if a newer generation has begun one, Conflict if this one has.
        """
        known = self.segments()
        if known and known[-1] > segment:
            raise Fenced(f"source {self.source!r}: generation {known[-1]} reads on already, {segment} came too late")
        header = SegmentHeader(segment, None, 0, 0, resumes, uuid.uuid4().hex)
        if known and known[-1] < segment:
            header = self._following(header, self.header(known[-1]))
        self._store.create(self._path(segment, "lines"), b"")
        path = self._path(segment, "json")
        if segment in known or not self._store.create(path, wire.encode("segment", header, path)):
            raise Conflict(f"source {self.source!r}: generation {segment} has begun its segment of the log already")
        return SegmentWriter(self, header)

    def _following(self, header: SegmentHeader, last: SegmentHeader) -> SegmentHeader:
        length = durable_length(self.lines(last.segment))
        before = last.before + length
        if before and last.resumes is not header.resumes:
            raise JobInvalid(
                f"source {self.source!r}: its log was begun with resume={last.resumes}, the job says {header.resumes}: "
                "nobody knows where in the server's stream it stands",
                hint="set resume back, or give the source a new uid and start with --fresh",
            )
        return SegmentHeader(header.segment, last.segment, length, before, header.resumes, header.writer)

    def spans(self, newest: int) -> tuple[Span, ...]:
        """The segments that count for the life that fills `newest`, oldest first."""
        spans = [Span(newest, None)]
        header = self.header(newest)
        while header.follows is not None:
            spans.append(Span(header.follows, header.length))
            header = self.header(header.follows)
        return tuple(reversed(spans))

    def give_up(self, segment: int, why: str) -> None:
        """Leave word, for whoever reads the log, that nothing more will be appended."""
        self._store.replace(self._path(segment, "failed"), f"{why}\n".encode())

    def given_up(self, segment: int) -> str | None:
        """Why nothing more will be appended, or None."""
        path = self._path(segment, "failed")
        try:
            return self._store.read(path).decode().strip()
        except ObjectMissing:
            return None

    def trim(self, newest: int, oldest: LogPosition) -> list[int]:
        """Delete the lines of the segments that lie wholly before `oldest`; headers stay. Which ones went.

        `oldest` must be the oldest position of all retained snapshots: what is trimmed cannot be replayed.
        """
        spans = self.spans(newest)
        self.check(spans, oldest)
        old = [span.segment for span in spans[: [span.segment for span in spans].index(oldest.segment)]]
        return [segment for segment in old if self._store.delete(self._path(segment, "lines"))]

    def check(self, spans: tuple[Span, ...], position: LogPosition) -> None:
        """Raise RestoreRefused if `position`, or a line behind it, is not in the log."""
        held = {span.segment: span.length for span in spans}
        if position.segment not in held:
            raise self._refused(position, "that segment is not in the log")
        for span in spans:
            if span.segment < position.segment:
                continue
            needed = position.byte if span.segment == position.segment else 0
            length = durable_length(self.lines(span.segment)) if span.length is None else span.length
            if needed > length:
                raise self._refused(position, f"the segment ends at {length}")
            if _size(self.lines(span.segment)) < length:
                raise self._refused(position, f"{self.lines(span.segment)} is gone or has been cut")

    def _refused(self, position: LogPosition, why: str) -> RestoreRefused:
        return RestoreRefused(
            f"source {self.source!r} cannot go on at byte {position.byte} of segment {position.segment}: {why}",
            hint=f"restore a newer snapshot, or bring {self._place} back",
        )

    def _path(self, segment: int, suffix: str) -> str:
        return f"{self._folder}/{segment:08d}.{suffix}"


class SegmentWriter:
    """Appends to one segment. For one thread."""

    def __init__(self, log: LineLog, header: SegmentHeader) -> None:
        self.log = log
        self.segment = header.segment
        self._before = header.before
        self._length = 0
        self._path = log.lines(header.segment)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def write(self, data: memoryview | bytes) -> int:
        """Append some of `data`; how much. What is not written must follow before anything else. Raises OSError."""
        written = os.write(self._file, data)
        self._length += written
        return written

    def durable_byte(self) -> int:
        """The byte of the server's stream behind the last line; all before it is on disk."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be synced: {error.strerror}") from error
        return self._before + self._length

    def close(self) -> None:
        os.close(self._file)


def durable_length(path: Path) -> int:
    """How many bytes of whole lines a segment's file holds; they are on disk when this returns."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            os.fsync(file.fileno())
            return last_line_end(file.fileno(), 0, size)
    except FileNotFoundError:
        raise StorageError(
            f"the log's segment {path} is gone", hint="bring it back: its lines are not anywhere else"
        ) from None
    except OSError as error:
        raise StorageError(f"the log's segment {path} cannot be read: {error.strerror}") from error


def last_line_end(file: int, start: int, end: int) -> int:
    """The end of the last whole line between two bytes of a file, or `start` if none ends there."""
    at = end
    while at > start:
        low = max(start, at - BLOCK)
        found = os.pread(file, at - low, low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        at = low
    return start


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
