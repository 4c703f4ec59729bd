"""What a start may delete of what earlier lives left: never what a log tells of, folded long ago or not."""

from __future__ import annotations

import pytest

from headgate.driver.sweeping import leftovers
from headgate_contract.ids import CheckpointId, Generation, SavepointName
from headgate_contract.paths import StreamPaths
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata
from headgate_contract.store import ObjectStore, open_store
from tests.contract.lives import STREAM, Lives
from tests.contract.store_suite import unique

PATHS = StreamPaths(STREAM)


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{unique()}")


def put(store: ObjectStore, folder: str, id: int, name: str | None = None) -> str:
    metadata = SnapshotMetadata(
        stream=STREAM,
        id=CheckpointId(id),
        generation=Generation(1),
        kind=SnapshotKind.CHECKPOINT if name is None else SnapshotKind.SAVEPOINT,
        max_parallelism=1,
        created_ms=0,
        name=None if name is None else SavepointName(name),
    )
    store.create(f"{folder}/_metadata", metadata.encode())
    return f"{folder}/_metadata"


@pytest.mark.parametrize("folded", [False, True])
def test_a_retired_snapshot_that_somebody_put_back_stays(store: ObjectStore, folded: bool) -> None:
    lives = Lives()
    lives.start()
    retired = [lives.checkpoint(), lives.savepoint("nightly")]
    head = lives.checkpoint(retires=retired[:1])
    lives.retire(retired[1])
    lives.start(head)
    if folded:
        lives.fold()
        assert retired[0] not in lives.catalogue.completed
    for ref in retired:
        put(store, ref.folder, ref.id, ref.name)
    attempts = [put(store, PATHS.checkpoint(CheckpointId(4), Generation(1)), 4)]
    attempts.append(put(store, PATHS.savepoint(SavepointName("broken"), CheckpointId(5), Generation(1)), 5, "broken"))
    assert leftovers(store, lives.catalogue, Generation(2), None) == attempts
