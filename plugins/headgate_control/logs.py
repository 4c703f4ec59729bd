"""Reads a driver's log from its end, over its rotated files, and finds in it why the driver ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import NotFound
from headgate_contract.ids import Generation
from headgate_contract.process import this_host
from headgate_control.outcomes import LogTail

_BLOCK = 64 << 10
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>.+)')
_ERROR_LINE = re.compile(r"\b(ERROR|FATAL|CRITICAL|Exception|Error)\b")
_OURS = re.compile(r"/site-packages/|/headgate(_\w+)?/")
_LOOK_AT = 400


def log_of(catalogue: Catalogue, generation: Generation | None, lines: int) -> LogTail:
    """The end of a generation's log, by default the newest's. Raises NotFound if it is not on this host."""
    start = catalogue.newest_generation if generation is None else catalogue.generation(generation)
    if start is None:
        newest = catalogue.newest_generation
        if newest is None:
            raise NotFound(f"stream {catalogue.stream} has no log: it was never started")
        raise NotFound(
            f"stream {catalogue.stream} has no generation {generation}", hint=f"its newest is {newest.generation}"
        )
    path = Path(start.log)
    if start.host != this_host() or not rotated(path):
        raise NotFound(
            f"the log of generation {start.generation} of stream {catalogue.stream} is not on {this_host()}",
            hint=f"it is {start.log} on {start.host}",
        )
    return LogTail(
        stream=catalogue.stream,
        generation=start.generation,
        host=start.host,
        path=start.log,
        lines=tuple(tail(path, lines)),
    )


def rotated(log: Path) -> list[Path]:
    """The log's files that exist, oldest first: `driver.log.2`, `driver.log.1`, `driver.log`."""
    backups = [(int(path.suffix[1:]), path) for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdigit()]
    found = [path for _, path in sorted(backups, reverse=True)]
    return [*found, log] if log.exists() else found


def tail(log: Path, lines: int) -> list[str]:
    """The last `lines` lines over all files of the log, oldest first."""
    found: list[str] = []
    for path in reversed(rotated(log)):
        if len(found) >= lines:
            break
        found = _last_lines(path, lines - len(found)) + found
    return found


def _last_lines(path: Path, lines: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(0, 2)
        position, data = file.tell(), b""
        while position > 0 and data.count(b"\n") <= lines:
            step = min(_BLOCK, position)
            position -= step
            file.seek(position)
            data = file.read(step) + data
    return data.decode(errors="replace").splitlines()[-lines:] if lines > 0 else []


def follow(log: Path) -> Iterator[list[str]]:
    """What is added to the log from now on, in pieces, as often as asked; empty while nothing is. Survives rotation."""
    size = log.stat().st_size if log.exists() else 0
    rest = ""
    while True:
        try:
            with log.open("rb") as file:
                if file.seek(0, 2) < size:  # rotated: it begins anew
                    size, rest = 0, ""
                file.seek(size)
                data = file.read()
        except FileNotFoundError:  # between two names while it is rotated
            size, rest, data = 0, "", b""
        size += len(data)
        *whole, rest = (rest + data.decode(errors="replace")).split("\n")
        yield whole


def root_cause(lines: list[str], job: str, directory: str) -> str:
    """Why a driver ended: its last traceback's error with the job's own frame, else its last words."""
    found = _from_traceback(lines[-_LOOK_AT:], job, directory)
    if found is not None:
        return found
    said = [line.strip() for line in lines[-_LOOK_AT:] if line.strip()]
    errors = [line for line in said if _ERROR_LINE.search(line)]
    if errors:
        return errors[-1]
    return " | ".join(said[-3:]) if said else "it wrote nothing to its log"


def _from_traceback(lines: list[str], job: str, directory: str) -> str | None:
    """The last error that was raised, and the last place in the job's own files that led to it."""
    starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return None
    raised = next((line for line in lines[starts[-1] + 1 :] if line and not line[0].isspace()), None)
    if raised is None:
        return None
    frames = [frame for frame in map(_FRAME.match, lines[starts[0] :]) if frame is not None]
    own = [frame for frame in frames if frame["file"] == job] or [
        frame for frame in frames if frame["file"].startswith(f"{directory}/") and not _OURS.search(frame["file"])
    ]
    where = f" ({own[-1]['file']}, line {own[-1]['line']}, in {own[-1]['where'].strip()})" if own else ""
    return raised.strip() + where
