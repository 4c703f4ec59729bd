"""Where Airflow finds streams.yaml, what it declares, and what is watched: also where it cannot be read just now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from airflow.sdk import conf

from headgate_airflow.last_good import Noted, note, recalled
from headgate_contract.errors import BadConfiguration
from headgate_contract.ids import StreamName
from headgate_contract.roots import checked_root, same_root
from headgate_control.fleet_file import DeclaredStream, FleetFile, Mistake
from headgate_control.fleet_reading import read_fleet

FILE = "HEADGATE_STREAMS_FILE"
ROOT = "HEADGATE_ROOT"


def streams_file(path: Path | str | None = None) -> Path:
    """The fleet's file: $HEADGATE_STREAMS_FILE, or `path`, or streams.yaml in the DAGs folder."""
    chosen = os.environ.get(FILE) or path
    return (Path(chosen) if chosen else Path(conf.get("core", "dags_folder")) / "streams.yaml").absolute()


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The fleet as its file says it, and as it last said it where it cannot be read now."""

    file: FleetFile
    watched: Mapping[str, str | None]
    """By name the root of each stream that the file names, or named when it could last be read."""
    default_root: str | None
    """Where streams without a root of their own are; None leaves it to the connection."""
    earlier_roots: tuple[str, ...] = ()
    """What the file or the environment named once: something may be at work there still."""
    ignored: frozenset[str] = frozenset()
    """Streams on these roots that are neither watched nor warned of."""

    @property
    def by_root(self) -> Mapping[str | None, list[str]]:
        """What is watched, grouped by where it is: every stream of the file, and every root, also one without any.

        Plain strings, since Airflow stores nothing else.
        """
        groups: dict[str | None, list[str]] = {}
        for name, root in self.watched.items():
            groups.setdefault(_same(root or self.default_root), []).append(str(name))
        for root in (*self._named, *self.earlier_roots):
            groups.setdefault(_same(root), [])
        return groups

    @property
    def former_roots(self) -> frozenset[str | None]:
        """Those that are watched and that nothing names any more."""
        now = {_same(root) for root in self._named}
        return frozenset(root for root, streams in self.by_root.items() if not streams and root not in now)

    @property
    def not_told(self) -> frozenset[str]:
        """Streams that may be at work on any root without a word: ignored, or in the file but nobody knows where."""
        return self.ignored.union(name for name in self.file.left_out if name not in self.watched)

    @property
    def _named(self) -> tuple[str, ...]:
        return (*self.file.roots, *((self.default_root,) if self.default_root else ()))

    @property
    def names(self) -> list[str]:
        """Of all streams that can be asked for."""
        return sorted({*map(str, self.file.streams), *self.file.left_out, *self.watched})

    def root_of(self, stream: str) -> str | None:
        """Where `stream` is: by its own entry, or the last good one; else where the fleet is. Raises BadConfiguration.

        None leaves it to the connection.
        """
        if stream in self.watched:
            return self.watched[stream] or self.default_root
        return self.default_root


def declared_fleet(path: Path | str | None = None) -> Fleet:
    """The fleet, whatever its file looks like; a good version is remembered for when there is a bad one."""
    file = read_fleet(streams_file(path))
    earlier = recalled(file.path)
    watched = dict(file.located if file.is_read else earlier.streams)
    watched |= {
        name: earlier.streams[name] for name in file.left_out if name in earlier.streams and name not in watched
    }
    try:
        default = file.root or root_of_environment()
    except BadConfiguration as error:
        file = _without_default_root(file, error)
        default, watched = None, {name: root for name, root in watched.items() if root is not None}
    ignored = file.ignored if file.is_read else frozenset(earlier.ignored)
    kept = tuple(root for root in earlier.roots if root not in file.ignored_roots)
    fleet = Fleet(file=file, watched=watched, default_root=default, earlier_roots=kept, ignored=ignored)
    if file.is_read:
        roots = tuple(root for root in fleet.by_root if root is not None)
        note(file.path, Noted(watched, roots, tuple(ignored)), forgotten=file.ignored_roots.difference(roots))
    return fleet


def root_of_environment() -> str | None:
    """$HEADGATE_ROOT. Raises BadConfiguration if no root can be there."""
    text = os.environ.get(ROOT)
    return checked_root(text, f"${ROOT}") if text else None


def _without_default_root(file: FleetFile, error: BadConfiguration) -> FleetFile:
    """The file if what stands in for its root cannot be meant: of streams that need it nobody knows where they are."""
    concerned = [name for name, declared in file.streams.items() if declared.root is None]
    mistakes = [Mistake(stream=name, what=f"stream {name}: {error.what}", hint=error.hint) for name in concerned]
    kept = {name: declared for name, declared in file.streams.items() if declared.root is not None}
    return replace(file, streams=kept, mistakes=(*file.mistakes, *mistakes))


def _same(root: str | None) -> str | None:
    return same_root(root) if root is not None else None


def declared_stream(stream: str, path: Path | str | None = None) -> DeclaredStream | None:
    """What the file says of `stream`, or None if there is no file, or it does not name the stream."""
    return read_fleet(streams_file(path)).streams.get(StreamName(stream))


def need_declared(stream: str, path: Path | str | None = None) -> DeclaredStream:
    """What the file says of `stream`. Raises BadConfiguration for a mistake in it, or NotFound."""
    file = streams_file(path)
    if not file.exists():
        raise BadConfiguration(f"{file} is not there", hint=f"write it, or say in ${FILE} where it is")
    return read_fleet(file).stream(stream)
