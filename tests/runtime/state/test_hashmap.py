"""The hashmap backend: the suite, and what only sorted segments promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.base import KeyBatch, RestoredPiece, StateBackend, StateDescriptor, StateKind, StateVersion
from headgate.state.errors import StateWriteFailed
from headgate.state.hashmap import HashMapBackend
from headgate.state.key_groups import subtask_range
from headgate.state.merging import SegmentPolicy
from tests.runtime.state.samples import MAX_PARALLELISM, WHOLE
from tests.runtime.state.suite import StateBackendSuite

EAGER = SegmentPolicy(fanout=2, smallest_tier=2, merge_budget=6, merge_factor=1, scan_rows=3)
NUMBERS = StateDescriptor("n", StateKind.VALUE, pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))


class TestHashMapBackend(StateBackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return HashMapBackend()


class TestHashMapBackendThatMergesAllTheTime(StateBackendSuite):
    """The same on a policy that merges small pieces, a few key groups at a time, at nearly every seal."""

    @pytest.fixture
    def backend(self) -> StateBackend:
        return HashMapBackend(EAGER)


def write(
    backend: StateBackend,
    parent: StateVersion | None,
    directory: Path,
    keys: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> StateVersion:
    hashes = keys.astype(np.int64) * np.int64(-7046029254386353131)  # wraps around: spread over all hashes
    key_groups = parent.key_groups if parent else WHOLE
    with backend.open(parent, [NUMBERS], key_groups, MAX_PARALLELISM, directory, "s") as session:
        batch, order = KeyBatch.of(hashes, pa.table({"k": keys}))
        low, high = session.hash_bounds
        mine = np.flatnonzero((batch.hashes >= low) & (batch.hashes <= high))
        session.table("n").put(batch.take(mine), pa.table({"n": keys[order][mine]}))
        return session.seal()


def test_a_long_stream_keeps_few_segments_and_few_rows_more_than_keys(tmp_path: Path) -> None:
    backend = HashMapBackend(SegmentPolicy(smallest_tier=16))
    random = np.random.default_rng(1)
    version: StateVersion | None = None
    written = put = 0
    for _ in range(150):
        keys = np.unique(random.integers(0, 3000, 100))
        before = {file.name for file in version.files} if version else set()
        version = write(backend, version, tmp_path, keys)
        put += len(keys)
        written += sum(file.rows for file in version.files if file.name not in before)
        assert len(version.files) <= 4 * 4
    assert version is not None
    assert sum(file.rows for file in version.files) <= 4 * 3000
    assert written <= 5 * put


def test_one_seal_merges_no_more_than_its_budget(tmp_path: Path) -> None:
    backend = HashMapBackend(SegmentPolicy(smallest_tier=16, merge_budget=1000, merge_factor=0))
    version: StateVersion | None = None
    random = np.random.default_rng(2)
    merged = []
    for _ in range(70):
        before = {file.name for file in version.files} if version else set()
        version = write(backend, version, tmp_path, np.unique(random.integers(0, 10**6, 200)))
        merged.append(sum(file.rows for file in version.files if file.name not in before) - 200)
    assert max(merged) <= 1000 * 1.2, "key groups are never cut, so a piece may be a little larger"
    assert version is not None
    with backend.open(version, [NUMBERS], WHOLE, MAX_PARALLELISM, tmp_path, "s") as session:
        assert session.table("n").count() > 13_000


def test_a_deletion_outlives_merges_that_do_not_reach_what_it_deletes(tmp_path: Path) -> None:
    backend = HashMapBackend(SegmentPolicy(smallest_tier=4))
    version = write(backend, None, tmp_path, np.arange(1000))
    base = version.files[0].name
    for _ in range(9):
        with backend.open(version, [NUMBERS], WHOLE, MAX_PARALLELISM, tmp_path, "s") as session:
            (stored,) = session.table("n").scan()
            gone = pa.RecordBatch.from_arrays([stored.column("k")[:1]], names=["k"])
            session.table("n").delete(KeyBatch(stored.column(0).to_numpy()[:1], gone))
            version = session.seal()
        assert version.files[-1].name == base
    assert len(version.files) < 6, "the deletions were merged with each other"
    with backend.open(version, [NUMBERS], WHOLE, MAX_PARALLELISM, tmp_path, "s") as session:
        assert session.table("n").count() == 1000 - 9


def test_deletions_leave_the_disk_when_nothing_older_is_left(tmp_path: Path) -> None:
    backend = HashMapBackend()
    version = write(backend, None, tmp_path, np.arange(100))
    for _ in range(4):
        with backend.open(version, [NUMBERS], WHOLE, MAX_PARALLELISM, tmp_path, "s") as session:
            (everything,) = list(session.table("n").scan()) or [None]
            if everything is not None:
                keys = pa.RecordBatch.from_arrays([everything.column("k")], names=["k"])
                session.table("n").delete(KeyBatch(everything.column(0).to_numpy(), keys))
            else:
                session.table("n").delete(KeyBatch(np.zeros(1, np.int64), pa.RecordBatch.from_pydict({"k": [0]})))
            version = session.seal()
    assert version.files == ()


def test_a_rescale_shares_the_old_files_and_rewrites_none(tmp_path: Path) -> None:
    """A new subtask's version names the old segments with its own slice of the key groups."""
    backend = HashMapBackend()
    fetched, local = tmp_path / "fetched", tmp_path / "local"
    fetched.mkdir()
    local.mkdir()
    whole = write(backend, None, fetched, np.arange(1000))
    shares = [
        backend.restore([RestoredPiece(whole, fetched)], [], key_groups, MAX_PARALLELISM, local, f"r{i}")
        for i, key_groups in enumerate(subtask_range(i, 3, MAX_PARALLELISM) for i in range(3))
    ]
    assert {file.name for share in shares for file in share.files} == {file.name for file in whole.files}
    assert [path.name for path in local.iterdir()] == [file.name for file in whole.files]
    assert (local / whole.files[0].name).samefile(fetched / whole.files[0].name)
    assert sum(file.rows for share in shares for file in share.files) == 1000
    assert [share.files[0].key_groups for share in shares] == [share.key_groups for share in shares]
    again = backend.restore(
        [RestoredPiece(share, local) for share in shares], [], WHOLE, MAX_PARALLELISM, local, "again"
    )
    assert {file.name for file in again.files} == {file.name for file in whole.files}


def test_a_failed_seal_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two states was written when the second one failed."""
    backend = HashMapBackend()
    other = StateDescriptor("o", StateKind.VALUE, NUMBERS.key, NUMBERS.value)
    session = backend.open(None, [NUMBERS, other], WHOLE, MAX_PARALLELISM, tmp_path, "s")
    batch, _ = KeyBatch.of(np.arange(3), pa.table({"k": [1, 2, 3]}))
    session.table("n").put(batch, pa.table({"n": [1, 2, 3]}))
    session.table("o").put(batch, pa.table({"n": [1, 2, 3]}))
    made = iter([tmp_path / "s~1.arrow", tmp_path / "absent" / "s~2.arrow"])
    monkeypatch.setattr("headgate.state.hashmap.unique_name", lambda *_: str(next(made)))
    with pytest.raises(StateWriteFailed, match="make room"):
        session.seal()
    assert list(tmp_path.iterdir()) == []
