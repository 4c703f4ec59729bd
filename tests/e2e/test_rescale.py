"""One stream's life at 2, 3, 1 and 4 subtasks, records flowing: exact, and each subtask with its key groups only."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.testing.stand_in import hash_keys
from headgate_contract.snapshot import SnapshotKind
from tests.crash.rescaling import MAX_PARALLELISM, PARALLELISMS, FlowingStream, flinks_ranges

pytestmark = pytest.mark.e2e


@pytest.fixture(params=["hashmap", "rocksdb"])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> FlowingStream:
    return FlowingStream(tmp_path, engine="stand-in", backend=request.param, interval="200 ms", pause_s=0.03)


def test_f78_f157_rescaled_from_incremental_checkpoints_each_subtask_has_its_range_and_the_output_is_exact(
    life: FlowingStream,
):
    with life.flowing():
        for parallelism in PARALLELISMS[1:]:
            life.live()
            life.rescale(parallelism, savepoint=False)
        life.live()
    life.assert_subtasks()
    files = [{handle.path for handle in life.metadata(ref).handles()} for ref in life.stream.catalogue().snapshots]
    assert any(newer & older for newer, older in pairwise(files)), "no checkpoint was incremental"


def test_f154_rescaled_from_savepoints_each_key_is_with_the_subtask_of_its_key_group(life: FlowingStream):
    with life.flowing():
        for parallelism in PARALLELISMS[1:]:
            life.live()
            life.rescale(parallelism, savepoint=True)
        life.live()
    life.assert_subtasks()
    for generation, by_subtask in life.written().items():
        for subtask, keys in by_subtask.items():
            _, first, last = flinks_ranges(life.parallelism[generation])[subtask]
            assert all(first <= group <= last for group in _key_groups(sorted(keys)))


@pytest.mark.parametrize("life", ["hashmap"], indirect=True)
def test_f158_resumed_by_hand_from_one_retained_checkpoint_several_times_on_either_backend(life: FlowingStream):
    with life.flowing():
        life.live()
        retained = [ref for ref in life.stream.catalogue().snapshots if ref.kind is SnapshotKind.CHECKPOINT]
        chosen = next(ref for ref in reversed(retained) if life.metadata(ref).records)
        for parallelism in (2, 3, 1):
            life.switch_backend()
            life.resume(chosen, parallelism)
            life.live()
    assert len(life.parallelism) == 4


def _key_groups(keys: list[int]) -> list[int]:
    """The upper bits of the hash, from the lowest one on: 128 key groups."""
    hashes = hash_keys(pa.table({"key": pa.array(keys, pa.int64())}), ("key",))
    return [(value + 2**63) * MAX_PARALLELISM >> 64 for value in hashes.tolist()]
