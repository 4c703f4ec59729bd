"""Gives each subtask its state of the snapshot: fetches files and re-slices them by key groups."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.recovery.fetch import SnapshotFiles
from headgate.state.backends import backend_named, restore
from headgate.state.key_groups import KeyGroupRange, subtask_range
from headgate.state.versions import RestoredPiece, StateVersion
from headgate.state.vertex import StatefulVertex
from headgate_contract.snapshot import StateHandle, VertexState

Json = dict[str, Any]


@dataclass(frozen=True)
class RestoredVertex:
    """The first versions of a vertex's subtasks, and the handles that they came from."""

    versions: dict[int, Json]
    bytes: int


def restore_vertex(files: SnapshotFiles, state: VertexState, vertex: StatefulVertex, identity: str) -> RestoredVertex:
    """Restore every subtask of `vertex` from `state`, at the vertex's own parallelism and on its own backend."""
    backend = backend_named(vertex.backend)
    versions: dict[int, Json] = {}
    fetched = 0
    staging = vertex.directory / "restore"
    for subtask in range(vertex.parallelism):
        key_groups = subtask_range(subtask, vertex.parallelism, vertex.max_parallelism)
        directory = vertex.directory / str(subtask)
        directory.mkdir(parents=True, exist_ok=True)
        pieces = []
        wanted: list[tuple[StateHandle, Path]] = []
        for old in state.subtasks:
            if KeyGroupRange(old.first_key_group, old.last_key_group).intersect(key_groups) is None:
                continue
            folder = staging / str(old.subtask)
            folder.mkdir(parents=True, exist_ok=True)
            wanted += [(handle, folder / handle.name) for handle in old.files if not (folder / handle.name).exists()]
            pieces.append(RestoredPiece(StateVersion.from_json(old.version), folder))
        fetched += files.fetch(wanted)
        if pieces:
            pieces = _with_gaps_filled(pieces, key_groups, vertex, identity)
            version = restore(
                backend, pieces, (), key_groups, vertex.max_parallelism, directory, f"{identity}.s{subtask}"
            )
            versions[subtask] = version.to_json()
    shutil.rmtree(staging, ignore_errors=True)
    return RestoredVertex(versions, fetched)


def _with_gaps_filled(
    pieces: list[RestoredPiece], key_groups: KeyGroupRange, vertex: StatefulVertex, identity: str
) -> list[RestoredPiece]:
    """A subtask that never had a record has no version in the snapshot: its key groups are empty."""
    backend = backend_named(vertex.backend)
    filled: list[RestoredPiece] = []
    at = key_groups.start
    for piece in sorted(pieces, key=lambda piece: piece.version.key_groups.start):
        held = piece.version.key_groups
        if held.start > at:
            filled.append(_empty(backend, at, held.start - 1, vertex, identity, piece.directory))
        filled.append(piece)
        at = held.end + 1
    if at <= key_groups.end:
        filled.append(_empty(backend, at, key_groups.end, vertex, identity, filled[-1].directory))
    return filled


def _empty(backend: Any, start: int, end: int, vertex: StatefulVertex, identity: str, directory: Path) -> RestoredPiece:
    version = backend.empty((), KeyGroupRange(start, end), vertex.max_parallelism, f"{identity}.empty")
    return RestoredPiece(version, directory)
