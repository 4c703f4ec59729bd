"""Names an immutable version of a subtask's state: which files it consists of, and which slice of each.

A version is a value. It travels as JSON in the ack of a step and in the metadata of a snapshot.
A file's name is born with the file (identity of the attempt ~ uuid) and never used again, so equal names mean equal
bytes, on every disk and on shared storage; the same file can belong to many versions.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.state.descriptors import StateDescriptor
from headgate.state.errors import MissingStateFile, StateFormatTooNew
from headgate.state.key_groups import KeyGroupRange

VERSION_FORMAT = 1
_SEPARATOR = "~"
_LONGEST_IDENTITY = 120


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of a version, or one slice of it.

    `key_groups` is the slice of the file that belongs to the version; the rest of the file is not part of it.
    `rows` counts the stored rows in that slice, deleted ones included (0 where the backend does not know).
    `level` grows with each merge. `local_name` is the name under which the backend itself wants the file.
    """

    name: str
    length: int
    table: str
    key_groups: KeyGroupRange
    rows: int = 0
    level: int = 0
    local_name: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "length": self.length,
            "table": self.table,
            "key_groups": [self.key_groups.start, self.key_groups.end],
            "rows": self.rows,
            "level": self.level,
            "local_name": self.local_name,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StateFile:
        return cls(**{**data, "key_groups": KeyGroupRange(*data["key_groups"])})


@dataclass(frozen=True, slots=True)
class StateVersion:
    """An immutable version of one subtask's state.

    The order of `files` is the backend's: newest first for segments. `descriptors` are those of all states in the
    version, also of states that the job that wrote it no longer declared.
    """

    backend: str
    identity: str
    key_groups: KeyGroupRange
    max_parallelism: int
    files: tuple[StateFile, ...] = ()
    descriptors: tuple[StateDescriptor, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": VERSION_FORMAT,
            "backend": self.backend,
            "identity": self.identity,
            "key_groups": [self.key_groups.start, self.key_groups.end],
            "max_parallelism": self.max_parallelism,
            "files": [file.to_json() for file in self.files],
            "descriptors": [descriptor.to_json() for descriptor in self.descriptors],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StateVersion:
        if data["format"] > VERSION_FORMAT:
            raise StateFormatTooNew(
                f"a state version has format {data['format']}, this release reads up to {VERSION_FORMAT}",
                hint="restore with the release that wrote it, or a newer one",
            )
        return cls(
            backend=data["backend"],
            identity=data["identity"],
            key_groups=KeyGroupRange(*data["key_groups"]),
            max_parallelism=data["max_parallelism"],
            files=tuple(StateFile.from_json(file) for file in data["files"]),
            descriptors=tuple(StateDescriptor.from_json(descriptor) for descriptor in data["descriptors"]),
        )


@dataclass(frozen=True, slots=True)
class RestoredPiece:
    """The version of one old subtask, and the directory into which its files were fetched."""

    version: StateVersion
    directory: Path


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a version as it lies on the local disk: what the uploader compares and uploads."""

    name: str
    path: Path
    length: int


def local_files(version: StateVersion, directory: Path) -> list[LocalFile]:
    """The files of a version, each once, whether or not they are there."""
    return [LocalFile(file.name, directory / file.name, file.length) for file in _distinct(version)]


def check_files(version: StateVersion, directory: Path) -> None:
    """Raise MissingStateFile unless every file of the version is there and has its length."""
    for file in _distinct(version):
        path = directory / file.name
        try:
            length = path.stat().st_size
        except FileNotFoundError:
            raise _missing(version, file, path, "is missing") from None
        if length != file.length:
            raise _missing(version, file, path, f"has {length} bytes instead of {file.length}")


def _missing(version: StateVersion, file: StateFile, path: Path, what: str) -> MissingStateFile:
    return MissingStateFile(
        f"state file {file.name} of version {version.identity!r} {what} ({path})",
        hint="fetch it from the snapshot, or restore the stream from its newest checkpoint",
    )


def link_files(piece: RestoredPiece, directory: Path) -> None:
    """Make the files of a piece appear in `directory`, by hard link where the file system can."""
    check_files(piece.version, piece.directory)
    for file in local_files(piece.version, piece.directory):
        target = directory / file.name
        if not target.exists():
            link_or_copy(file.path, target)


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for an immutable file; a copy where hard links cannot go."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return  # equal names mean equal bytes: another restore of the same file was faster
    except OSError:
        partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        shutil.copyfile(source, partial)
        partial.rename(target)


def unique_name(identity: str, suffix: str) -> str:
    """A file name that never comes again; `identity` in front says which attempt made the file."""
    return f"{file_prefix(identity)}{uuid.uuid4().hex}{suffix}"


def file_prefix(identity: str) -> str:
    """What the names of all files of one attempt begin with."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", identity)[:_LONGEST_IDENTITY] + _SEPARATOR


def collect_garbage(directory: Path, live: Iterable[StateVersion], running: Iterable[str] = ()) -> list[str]:
    """Delete what no live version names, and return the names.

    `running` are the identities of the attempts that may be writing at this moment: what they have made so far is
    kept, because no version names it yet. Leave none out; an attempt that nobody waits for any more need not be in it.
    """
    named = {file.name for version in live for file in version.files}
    prefixes = tuple(file_prefix(identity) for identity in running)
    deleted = []
    for path in sorted(directory.iterdir()):
        if path.name in named or (prefixes and path.name.startswith(prefixes)):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        deleted.append(path.name)
    return deleted


def _distinct(version: StateVersion) -> Iterator[StateFile]:
    seen: set[str] = set()
    for file in version.files:
        if file.name not in seen:
            seen.add(file.name)
            yield file
