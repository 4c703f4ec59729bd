"""Finds what earlier lives left on shared storage that no log names: broken uploads, metadata without a slot."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import HeadgateError
from headgate_contract.ids import Generation, StreamName
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.snapshot import read_metadata
from headgate_contract.store import ObjectStore


def leftovers(
    store: ObjectStore, catalogue: Catalogue, generation: Generation, named: Collection[str] | None
) -> list[str]:
    """What may be deleted, asked by a life that has just begun and has uploaded nothing.

    Earlier lives are fenced and complete nothing more. Whether a later one has begun must be looked at after this and
    before the deletion: then nothing that was listed is of it, and what it writes has other names. `named` are the
    shared files that snapshots need, or None if that is not known.
    """
    paths = StreamPaths(catalogue.stream)
    known = {ref.folder for ref in catalogue.completed}
    found = [path for path in _below(store, paths.checkpoints) if path.rsplit("/", 1)[0] not in known]
    unfinished: dict[str, list[str]] = {}
    for path in _below(store, paths.savepoints):
        folder = "/".join(path.split("/", len(paths.savepoints.split("/")) + 1)[:-1])
        if folder not in known:
            unfinished.setdefault(folder, []).append(path)
    for folder, files in unfinished.items():
        metadata = f"{folder}/{METADATA}"
        if metadata not in files or _is_of(store, metadata, catalogue.stream, generation - 1):
            found += files
    if named is not None:
        found += [path for path in _below(store, paths.shared) if path not in named]
    return found


def _below(store: ObjectStore, folder: str) -> Iterator[str]:
    return (info.path for info in store.list(folder))


def _is_of(store: ObjectStore, path: str, stream: StreamName, newest: int) -> bool:
    """Whether the metadata at `path` is of `stream` itself, of the life `newest` or an earlier one."""
    try:
        metadata = read_metadata(store.read(path), path)
    except HeadgateError:
        return False
    return metadata.stream == stream and metadata.generation <= newest
