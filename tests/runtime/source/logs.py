"""Makes logs of lines for tests, and reads them back as Spark does: by positions and ranges."""

from __future__ import annotations

from pathlib import Path

from headgate.source.line_log import LineLog, LogPosition, SegmentWriter
from headgate.source.line_ranges import LineView, read_lines
from headgate_contract.store_local import LocalStore

FOLDER = "streams/words/logs/lines"


def make_log(root: Path) -> LineLog:
    return LineLog(LocalStore(root), FOLDER, "lines")


def append(writer: SegmentWriter, data: bytes) -> None:
    """Write all of it; a local disk that is not full takes it at once."""
    assert writer.write(data) == len(data)


def lines_between(view: LineView, start: LogPosition, end: LogPosition, parallelism: int = 2) -> list[str]:
    found: list[str] = []
    for part in view.ranges(start, end, parallelism):
        found += read_lines(part).to_pylist()
    return found


def lines_from(view: LineView, start: LogPosition) -> list[str]:
    """All lines behind `start`, taken at once."""
    return lines_between(view, start, view.latest(start, None))


def batches(view: LineView, start: LogPosition, max_bytes: int) -> list[list[str]]:
    """All lines behind `start`, in micro-batches."""
    found = []
    while (end := view.latest(start, max_bytes)) != start:
        found.append(lines_between(view, start, end))
        start = end
    return found
