"""Remembers, on this machine, the streams of a fleet's file as it could last be read: their names and their roots.

That is all that a recovery needs of the file. Airflow reads the file again and again, in more than one process; each
that reads a good version leaves this note, and one that finds a bad version goes by it. A root that was ever named is
kept until the file says that it is to be ignored: whoever takes the last stream of a root out of the file has not
stopped it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG = logging.getLogger(__name__)
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Noted:
    """What is remembered of a file."""

    streams: Mapping[str, str | None] = field(default_factory=dict)
    """By name the root of each, as the file said it; None: it left that to $HEADGATE_ROOT or the connection."""
    roots: tuple[str, ...] = ()
    """All that it ever named, but for those that it has said to ignore."""
    ignored: tuple[str, ...] = ()
    """The streams that are none of its business."""


def recalled(file: Path) -> Noted:
    """What was noted of `file` here."""
    try:
        return _understood(_note_of(file).read_text())
    except FileNotFoundError:
        return Noted()
    except (OSError, *_DAMAGED) as error:
        LOG.warning("what was noted of %s cannot be read: %s", file, error)
        return Noted()


def note(file: Path, noted: Noted, forgotten: Collection[str] = ()) -> None:
    """Remember it, and the roots noted before, but for those that are `forgotten`.

    A note that cannot be written is not worth the fleet's DAGs.
    """
    path = _note_of(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else None
        roots = {*noted.roots, *(_still_known(path, before) if before is not None else ())}
        plain = {
            "file": str(file),
            "streams": dict(sorted(noted.streams.items())),
            "roots": sorted(roots - set(forgotten)),
            "ignored": sorted(noted.ignored),
        }
        text = json.dumps(plain, indent=1) + "\n"
        if before != text:
            _replace(path, text)
    except OSError as error:
        LOG.warning("cannot remember the streams of %s: %s", file, error)


def _still_known(path: Path, before: str) -> tuple[str, ...]:
    """The roots of the note that is replaced. One that is damaged is put aside, where a person can look at it."""
    try:
        return _understood(before).roots
    except _DAMAGED as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        LOG.warning("%s is damaged (%s): roots that only it knew of are not watched any more", aside, error)
        return ()


def _replace(path: Path, text: str) -> None:
    temp = path.with_name(f"{path.name}.{uuid.uuid4().hex}")  # threads, and hosts that share the folder, write too
    try:
        temp.write_text(text)
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)


def _understood(text: str) -> Noted:
    found = json.loads(text)
    streams = {str(name): None if root is None else str(root) for name, root in found["streams"].items()}
    return Noted(streams, tuple(map(str, found["roots"])), tuple(map(str, found.get("ignored", ()))))


def _note_of(file: Path) -> Path:
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    return home / "headgate" / f"{hashlib.sha256(str(file).encode()).hexdigest()[:16]}.json"
