"""Finds the snapshot that a person names: by its number, its savepoint's name, or the place where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import BadInput, ObjectMissing, RestoreRefused, SnapshotUnknown
from headgate_contract.ids import CheckpointId, SavepointName
from headgate_contract.paths import METADATA, checked_url, directory_url, path_url, snapshot_at
from headgate_contract.places import Places
from headgate_contract.restore import ClaimMode, Located
from headgate_contract.snapshot import SnapshotRef, read_metadata
from headgate_contract.store import ObjectStore, local_folder
from headgate_contract.wire import sha256


def snapshot_named(text: str) -> CheckpointId | SavepointName | Located:
    """Digits are an id, what has a slash is a place, anything else a name. Raises InvalidName."""
    if "/" in text:
        return Located(text)
    return CheckpointId(int(text)) if text.isdecimal() else SavepointName(text)


def claim_mode_named(text: str) -> ClaimMode:
    """`no-claim` or `claim`, as Flink writes them too. Raises BadInput."""
    try:
        return ClaimMode(text.upper().replace("-", "_"))
    except ValueError:
        raise BadInput(f"the claim mode is {text!r}", hint="allowed are no-claim, claim") from None


def locate(store: ObjectStore, catalogue: Catalogue, place: Located, places: Places | None) -> SnapshotRef:
    """The snapshot that lies there. Raises SnapshotUnknown, naming the place, if there is none.

    Nothing is opened that `places` do not allow (None: somebody has allowed this one), but for what this stream has
    written there itself. A link below the root may lead anywhere, so what is there is judged as well.

    One that this stream completed itself is the same wherever it was copied to. Any other is given a number of its own
    here, above all that were given: its own would mean another snapshot in this log. It keeps that number for as
    long as it lies there.
    """
    location, folder = snapshot_at(_url(place.url, store.url))
    below = _below_root(store, location, folder)
    root, folder = (location, folder) if below is None else (None, below)
    if places is not None and not any((own.location, own.folder) == (root, folder) for own in catalogue.completed):
        places.check_snapshot(store.url if root is None else root, folder)
    where = f"{folder}/{METADATA}"
    try:
        data = (store if root is None else store.elsewhere(root)).read(where)
    except ObjectMissing:
        raise SnapshotUnknown(
            f"there is no snapshot at {place.url}: {location}/{folder} has no {METADATA}",
            hint="name the folder that has it"
            + ("" if "://" in place.url else ": a path without ./ or / in front is below the storage root"),
        ) from None
    metadata = read_metadata(data, where)
    for own in catalogue.completed:
        if (own.id, own.generation, own.metadata_sha256) == (metadata.id, metadata.generation, sha256(data)):
            return replace(own, location=root, folder=folder)
    may_be_own = metadata.stream == catalogue.stream and catalogue.generation(metadata.generation) is not None
    if may_be_own and not _was_foreign(catalogue, sha256(data)):
        why = "does not tell of it: it was never completed, or is of another stream of that name"
        told = any(own.id == metadata.id for own in catalogue.completed)
        if not told and metadata.id in catalogue.ids_of(metadata.generation):
            why = "cannot tell any more whether it is its own: that was retired long ago, and its entry was folded"
        raise RestoreRefused(
            f"{place.url} is snapshot {metadata.id} of a stream {metadata.stream}, and the log of this one {why}",
            hint="deploy the job under another name, with other folders for its sinks, and restore it there",
        )
    brought = SnapshotRef(
        catalogue.next_checkpoint,
        metadata.kind,
        metadata.generation,
        folder,
        len(data),
        sha256(data),
        metadata.name,
        location=root,
        foreign=True,
    )
    for known in catalogue.restored:
        if replace(known, id=brought.id) == brought:
            return known  # under two numbers, the retirement of one would delete the files of the other
    return brought


def _was_foreign(catalogue: Catalogue, metadata_sha256: str) -> bool:
    """Whether a generation of this log was started from these very bytes, as from another log."""
    return any(base.foreign and base.metadata_sha256 == metadata_sha256 for base in catalogue.restored)


def _below_root(store: ObjectStore, location: str, folder: str) -> str | None:
    """`folder` of `location`, as the root's store would open it, or None when its name is not below the root's."""
    if store.local is not None and location.startswith("file:"):
        path = local_folder(location) / folder
        return str(path.relative_to(store.local)) if store.local in path.parents else None
    above = f"{store.url}/"
    return f"{location}/{folder}".removeprefix(above) if f"{location}/".startswith(above) else None


def absolute_directory(text: str | None) -> str | None:
    """The URL of a directory that a person names, or none: a relative path is meant from here. Raises BadInput."""
    if text is None:
        return None
    if not text.strip():
        raise BadInput("no directory is named", hint="write a URL or a path, or leave it out")
    return directory_url(text if "://" in text else str(_absolute(text)))


def _url(text: str, root: str) -> str:
    if "://" in text:
        return checked_url(text)
    if text.startswith(("/", "./", "../", "~")):
        return checked_url(path_url(str(_absolute(text).resolve())))
    return f"{root}/{quote(text) if root.startswith('file:') else text}"


def _absolute(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~somebody
        raise BadInput(f"{text!r} is no path here: {error}", hint="write the path from / on") from None
