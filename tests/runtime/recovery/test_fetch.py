"""A snapshot's files are taken for what they are only after their length and checksum were compared."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate_contract import wire
from headgate_contract.errors import NewerVersion, SnapshotDamaged
from headgate_contract.ids import CheckpointId, Generation, SavepointName, StreamName
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata, SnapshotRef, StateHandle
from headgate_contract.store import ObjectStore, open_store
from tests.contract.stored_values import resealed

CONTENT = bytes(range(256)) * 40
SHARED = StateHandle("words.arrow", "shared/words.arrow", len(CONTENT), wire.sha256(CONTENT))


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}")


def ref_of(data: bytes, *, savepoint: bool = False) -> SnapshotRef:
    kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
    name = SavepointName("upgrade") if savepoint else None
    return SnapshotRef(CheckpointId(7), kind, Generation(1), "here", len(data), wire.sha256(data), name)


def metadata() -> SnapshotMetadata:
    return SnapshotMetadata(
        stream=StreamName("orders"),
        id=CheckpointId(7),
        generation=Generation(1),
        kind=SnapshotKind.CHECKPOINT,
        max_parallelism=16,
        created_ms=0,
    )


def remove(store: ObjectStore, path: str) -> None:
    store.delete(path)


def shorten(store: ObjectStore, path: str) -> None:
    store.replace(path, store.read(path)[:-1])


def flip(store: ObjectStore, path: str) -> None:
    data = bytearray(store.read(path))
    data[len(data) // 2] ^= 1
    store.replace(path, bytes(data))


DAMAGES: dict[str, tuple[Callable[[ObjectStore, str], None], str]] = {
    "missing": (remove, "is missing"),
    "short": (shorten, f"has {len(CONTENT) - 1} bytes instead of {len(CONTENT)}"),
    "flipped": (flip, "has another checksum than it was written with"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("way", ["read", "fetch"])
def test_a_damaged_file_is_named_with_what_is_wrong_and_what_to_do(
    store: ObjectStore, tmp_path: Path, damage: str, way: str
) -> None:
    store.create(SHARED.path, CONTENT)
    spoil, message = DAMAGES[damage]
    spoil(store, SHARED.path)
    files = SnapshotFiles(store, ref_of(b""))
    ways: dict[str, Callable[[], object]] = {
        "read": lambda: files.read(SHARED),
        "fetch": lambda: files.fetch([(SHARED, tmp_path / "words.arrow")]),
    }
    with pytest.raises(SnapshotDamaged) as caught:
        ways[way]()
    assert caught.value.what == f"shared/words.arrow of checkpoint 7 {message}"
    assert "headgate snapshots" in caught.value.hint


def test_whole_files_come_as_they_are(store: ObjectStore, tmp_path: Path) -> None:
    store.create(SHARED.path, CONTENT)
    files = SnapshotFiles(store, ref_of(b""))
    assert files.read(SHARED) == CONTENT
    targets = [tmp_path / f"{number}.arrow" for number in range(9)]
    assert files.fetch((SHARED, target) for target in targets) == 9 * len(CONTENT)
    assert all(target.read_bytes() == CONTENT for target in targets)
    assert files.fetch([]) == 0


def test_f84_a_savepoints_files_are_named_from_its_own_folder_and_a_checkpoints_from_the_root(
    store: ObjectStore,
) -> None:
    own = StateHandle("words.arrow", "state/words.arrow", 1, "00")
    assert ref_of(b"", savepoint=True).path(own) == "here/state/words.arrow"
    assert ref_of(b"").path(SHARED) == "shared/words.arrow"


def test_metadata_are_the_bytes_that_completed(store: ObjectStore) -> None:
    data = metadata().encode()
    store.create("here/_metadata", data)
    assert SnapshotFiles(store, ref_of(data)).metadata() == metadata()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove, "here/_metadata of checkpoint 7 is missing"),
        (shorten, r"here/_metadata of checkpoint 7 has \d+ bytes, it completed with \d+"),
        (flip, "here/_metadata of checkpoint 7 has another checksum than it completed with"),
    ],
)
def test_f53_damaged_metadata_are_never_skipped(
    store: ObjectStore, spoil: Callable[[ObjectStore, str], None], message: str
) -> None:
    data = metadata().encode()
    store.create("here/_metadata", data)
    spoil(store, "here/_metadata")
    with pytest.raises(SnapshotDamaged, match=message):
        SnapshotFiles(store, ref_of(data)).metadata()


def test_metadata_that_completed_as_nonsense_are_damaged_and_newer_ones_are_said_to_be_newer(
    store: ObjectStore,
) -> None:
    nonsense = b"{}"
    store.create("here/_metadata", nonsense)
    with pytest.raises(SnapshotDamaged, match="here/_metadata is not a snapshot file"):
        SnapshotFiles(store, ref_of(nonsense)).metadata()
    newer = resealed(metadata().encode(), b'"version":', b'"version":9')
    store.replace("here/_metadata", newer)
    with pytest.raises(NewerVersion, match="version 9"):
        SnapshotFiles(store, ref_of(newer)).metadata()
