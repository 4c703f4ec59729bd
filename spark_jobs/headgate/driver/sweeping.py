"""Finds what earlier lives left on shared storage that no log names: broken uploads, metadata without a slot."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import HeadgateError
from headgate_contract.ids import Generation
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
    found = [path for path in _below(store, paths.checkpoints) if not _completed(catalogue, path.rsplit("/", 1)[0])]
    found += _unfinished_savepoints(store, catalogue, generation)
    if named is not None:
        found += [path for path in _below(store, paths.shared) if path not in named]
    return found


def _unfinished_savepoints(store: ObjectStore, catalogue: Catalogue, generation: Generation) -> list[str]:
    """The files of attempts of earlier lives, in the folders that these lives gave them and nobody else can mean.

    People move and copy savepoints, and may do so right here: what has another name than an attempt, or holds metadata
    of another place, is theirs.
    """
    paths = StreamPaths(catalogue.stream)
    known = {ref.where.removeprefix(f"{store.url}/") for ref in catalogue.restored}
    attempts: dict[str, list[str]] = {}
    for path in _below(store, paths.savepoints):
        folder = "/".join(path.split("/", len(paths.savepoints.split("/")) + 1)[:-1])
        attempt = paths.attempt_of(folder)
        earlier = attempt is not None and attempt[1] < generation
        if earlier and folder not in known and not _completed(catalogue, folder):
            attempts.setdefault(folder, []).append(path)
    return [
        path
        for folder, files in attempts.items()
        if f"{folder}/{METADATA}" not in files or _lies_where_it_was_written(store, folder, paths)
        for path in files
    ]


def _completed(catalogue: Catalogue, folder: str) -> bool:
    """Whether the log tells of a snapshot there, retired and folded long ago too: somebody may have put it back."""
    attempt = StreamPaths(catalogue.stream).attempt_of(folder)
    return attempt is not None and attempt[0] in catalogue.ids_of(attempt[1])


def _below(store: ObjectStore, folder: str) -> Iterator[str]:
    return (info.path for info in store.list(folder))


def _lies_where_it_was_written(store: ObjectStore, folder: str, paths: StreamPaths) -> bool:
    """Whether the metadata in `folder` is of the very attempt whose folder this is."""
    path = f"{folder}/{METADATA}"
    try:
        found = read_metadata(store.read(path), path)
    except HeadgateError:
        return False
    return (
        found.stream == paths.stream
        and found.name is not None
        and folder == paths.savepoint(found.name, found.id, found.generation)
    )
