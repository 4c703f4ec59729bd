"""Spells every name below a file sink's target, and reads them back.

    part-00000005-g7-0-3f2a9c1d04.parquet        visible: checkpoint 5, staged by generation 7, subtask 0
    part-00000005-g7-0-3f2a9c1d04-r1.parquet     the same file, visible again after it had been retracted once
    _headgate/STREAM/SINK/
      staged/g7-r0-a0-e12-s0-t0-3f2a9c1d04       written by a task; no reader takes it for data
      manifests/00000005.json                    the files of group 5, created exclusively
      published/00000005                         all files of the group have been where readers look
      aside/00000005-1b2c3d4e5f60.json       what another log's driver published as group 5, taken back by a repair
      lives/00000003.json                        which groups count, as of the third life; created exclusively
      retracted/part-00000005-g7-0-3f2a9c1d04.parquet.1    hidden by a restore, kept for a later one

A file is a token that moves along the names of its *places*, always on and never back: 0 staged, 1 visible,
2 retracted, 3 visible again, and so on. No name is ever used twice. So whoever acts on old knowledge finds the file
gone and moves nothing: a frozen driver that wakes cannot undo what was decided since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.sink.base import Handle, SinkTask
from headgate_contract.codec import from_plain, to_plain
from headgate_contract.ids import CheckpointId, StreamName, VertexUid

STAGED, PUBLISHED = 0, 1
SUFFIXES = {"parquet": ".parquet", "json": ".json", "csv": ".csv"}

_HIDDEN = "_headgate"
_DATA = r"part-(?P<group>\d{8,})-g(?P<generation>\d+)-(?P<subtask>\d+)-(?P<unique>[0-9a-f]+)"
_SUFFIX = "(?P<suffix>" + "|".join(re.escape(suffix) for suffix in SUFFIXES.values()) + ")"
_VISIBLE = re.compile(rf"{_DATA}(?:-r(?P<times>\d+))?{_SUFFIX}")
_RETRACTED = re.compile(rf"{_DATA}{_SUFFIX}\.(?P<times>\d+)")
_STAGED = re.compile(r"g(?P<generation>\d+)-r\d+-a\d+-e\d+-s\d+-t\d+-[0-9a-f]+")
_NUMBER = re.compile(r"(?P<group>\d{8,})(?:\.json)?")


@dataclass(frozen=True, slots=True)
class SinkFile:
    """One file of one group, at whichever place it is."""

    staged: str
    """Its first name, relative to the target."""
    generation: int
    """The one that staged it."""
    subtask: int
    unique: str
    suffix: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a group consists of."""

    TYPE: ClassVar[str] = "group"
    group: CheckpointId
    generation: int
    """Whose checkpoint completed the group."""
    files: tuple[SinkFile, ...]
    writer: str = ""
    """Makes the bytes unique to whoever created the manifest."""


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """The names of one sink of one stream, relative to the target."""

    stream: StreamName
    sink: VertexUid

    @property
    def folder(self) -> str:
        return f"{_HIDDEN}/{self.stream}/{self.sink}"

    @property
    def staged(self) -> str:
        return f"{self.folder}/staged"

    @property
    def manifests(self) -> str:
        return f"{self.folder}/manifests"

    @property
    def lives(self) -> str:
        return f"{self.folder}/lives"

    def aside(self, group: CheckpointId, unique: str) -> str:
        """Where the manifest of somebody else's group is kept, once a repair has taken that back."""
        return f"{self.folder}/aside/{group:08d}-{unique[:12]}.json"

    def stage(self, task: SinkTask, unique: str) -> str:
        name = (
            f"g{task.generation}-r{task.restart}-a{task.attempt}-e{task.epoch}"
            f"-s{task.subtask}-t{task.task_attempt}-{unique}"
        )
        return f"{self.staged}/{name}"

    def manifest(self, group: CheckpointId) -> str:
        return f"{self.manifests}/{group:08d}.json"

    def published(self, group: CheckpointId) -> str:
        return f"{self.folder}/published/{group:08d}"

    def place(self, group: CheckpointId, file: SinkFile, place: int) -> str:
        """The name of `file` at its `place`: even ones are hidden, odd ones visible."""
        if place == STAGED:
            return file.staged
        stem = f"part-{group:08d}-g{file.generation}-{file.subtask}-{file.unique}"
        times = place // 2
        if place % 2 == 0:
            return f"{self.folder}/retracted/{stem}{file.suffix}.{times}"
        return f"{stem}-r{times}{file.suffix}" if times else f"{stem}{file.suffix}"

    def staged_by(self, path: str) -> int | None:
        """The generation that staged what lies at `path`, or None if that is no staged file of this sink."""
        folder, _, name = path.rpartition("/")
        match = _STAGED.fullmatch(name)
        return int(match["generation"]) if match and folder == self.staged else None

    def published_of(self, path: str) -> CheckpointId | None:
        """The group of which `path` says that all its files have been where readers look."""
        folder, _, name = path.rpartition("/")
        return CheckpointId(int(name)) if folder == f"{self.folder}/published" and name.isdecimal() else None

    def manifest_of(self, path: str) -> CheckpointId | None:
        """The group whose manifest lies at `path`."""
        folder, _, name = path.rpartition("/")
        match = _NUMBER.fullmatch(name)
        return CheckpointId(int(match["group"])) if match and folder == self.manifests else None

    def place_of(self, path: str) -> tuple[CheckpointId, int] | None:
        """Of which group `path` is a visible or retracted file, by its name, and at which place it is.

        Visible names do not tell the sink: another sink's file in the same target looks alike.
        """
        found = self._named(path)
        return found[:2] if found is not None else None

    def file_named(self, path: str, length: int) -> tuple[CheckpointId, SinkFile] | None:
        """The file that is at `path`, as far as its name and `length` tell, and the group that it is of.

        How many rows it has they do not, nor under which name it was staged.
        """
        found = self._named(path)
        if found is None:
            return None
        group, _, match = found
        generation, subtask, unique = int(match["generation"]), int(match["subtask"]), match["unique"]
        staged = f"{self.staged}/g{generation}-r0-a0-e0-s{subtask}-t0-{unique}"
        return group, SinkFile(staged, generation, subtask, unique, match["suffix"], 0, length)

    def _named(self, path: str) -> tuple[CheckpointId, int, re.Match[str]] | None:
        folder, _, name = path.rpartition("/")
        if not folder and (match := _VISIBLE.fullmatch(name)):
            return CheckpointId(int(match["group"])), 2 * int(match["times"] or 0) + 1, match
        if folder == f"{self.folder}/retracted" and (match := _RETRACTED.fullmatch(name)):
            return CheckpointId(int(match["group"])), 2 * int(match["times"]), match
        return None


def others_in(folders: Callable[[str], Sequence[str]], own: SinkLayout) -> list[SinkLayout]:
    """The other sinks that have published to the same target; `folders` names those below a folder."""
    every = [
        SinkLayout(StreamName(stream), VertexUid(sink))
        for stream in folders(_HIDDEN)
        for sink in folders(f"{_HIDDEN}/{stream}")
    ]
    return [layout for layout in every if layout != own]


def is_shown(path: str) -> bool:
    """Does `path`, relative to the target, lie where readers look? All the rest is Headgate's own."""
    return "/" not in path


def handle_of(file: SinkFile, target: str) -> Handle:
    """What a writer returns for a staged file; `target` is for people who look at a snapshot."""
    return {**to_plain(file), "target": target}


def file_of(handle: Mapping[str, Any]) -> SinkFile:
    """The staged file that `handle` names. Raises CorruptObject if no file sink made it."""
    plain = {key: value for key, value in handle.items() if key != "target"}
    file: SinkFile = from_plain(SinkFile, plain, "a handle")
    return file
