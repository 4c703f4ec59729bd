"""Finds the snapshot that a person names: by its number, its savepoint's name, or the place where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import BadInput, ObjectMissing, RestoreRefused, SnapshotUnknown
from headgate_contract.ids import CheckpointId, SavepointName
from headgate_contract.paths import METADATA, checked_url, directory_url, snapshot_at
from headgate_contract.restore import ClaimMode, Located
from headgate_contract.snapshot import SnapshotRef, read_metadata
from headgate_contract.store import ObjectStore
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


def locate(store: ObjectStore, catalogue: Catalogue, place: Located) -> SnapshotRef:
    """The snapshot that lies there. Raises SnapshotUnknown, naming the place, if there is none.

    One that this stream completed itself is the same wherever it was copied to. Any other is given a number of its own
    here, above all that were given: its own would mean another snapshot in this log. It keeps that number for as
    long as it lies there.
    """
    location, folder = snapshot_at(_url(place.url, store.url))
    if f"{location}/".startswith(f"{store.url}/"):
        root, folder = None, f"{location}/{folder}".removeprefix(f"{store.url}/")
    else:
        root = location
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
        raise RestoreRefused(
            f"{place.url} is snapshot {metadata.id} of a stream {metadata.stream}, and the log of this one does not "
            "tell of it: it was never completed, or is of another stream of that name",
            hint="deploy the job under another name, and restore it there",
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


def absolute_directory(text: str) -> str:
    """The URL of a directory that a person names: a relative path is meant from here. Raises BadInput."""
    if not text.strip():
        raise BadInput("no directory is named", hint="write a URL or a path, or leave it out")
    return directory_url(text if "://" in text else str(Path(text).expanduser().absolute()))


def _url(text: str, root: str) -> str:
    if "://" in text:
        return checked_url(text)
    if text.startswith(("/", "./", "../", "~")):
        return checked_url(f"file://{Path(text).expanduser().absolute().resolve()}")
    return f"{root}/{text}"
