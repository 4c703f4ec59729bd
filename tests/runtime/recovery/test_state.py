"""A vertex's state comes back at any parallelism and on any backend, from what its subtasks left in a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate
from headgate.recovery.fetch import SnapshotFiles
from headgate.recovery.state import RestoredVertex, restore_vertex
from headgate.source.positions import InlineBook
from headgate.state.key_groups import subtask_range
from headgate.state.vertex import StatefulVertex
from headgate.step.operators import AggregateOperator
from headgate_contract.errors import SnapshotDamaged
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from tests.runtime.driver.stage import Snapshot, Stage
from tests.runtime.step.vertex import COUNTS, MAX_PARALLELISM, few_hashes, scratch

OPERATOR = AggregateOperator.of("counts", ("user",), {"n": headgate.count()})
USERS = [f"user-{number}" for number in range(12)]
REF = SnapshotRef(CheckpointId(1), SnapshotKind.CHECKPOINT, Generation(3), "nowhere", 1, "00")
Hash = Callable[[tuple[Any, ...]], int]


class Lives:
    """The lives of one vertex: each is restored from the snapshot that ended the one before."""

    def __init__(self, directory: Path, hash_of: Hash = few_hashes) -> None:
        self.directory = directory
        self.hash_of = hash_of
        self.truth: Counter[str] = Counter()
        self.number = 0
        self.last: tuple[Stage, Snapshot] | None = None

    def live(self, backend: str, parallelism: int, batches: list[list[str]]) -> RestoredVertex | None:
        """Restore, run these micro-batches, take a snapshot."""
        self.number += 1
        folder = self.directory / f"life-{self.number}"
        folder.mkdir()
        store = self.last[0].plain if self.last is not None else None
        stage = Stage(folder, InlineBook("lines", "files"), backend, parallelism=parallelism, store=store)
        stage.vertex.hash_of = self.hash_of
        restored = None
        if self.last is not None:
            snapshot = self.last[1]
            vertex = stateful(folder, backend, parallelism)
            restored = restore_vertex(
                SnapshotFiles(stage.plain, REF), snapshot.vertices[COUNTS], vertex, f"g{self.number}.restore"
            )
            stage.vertex.versions = dict(restored.versions)
        for users in batches:
            out = stage.vertex.batch(pa.table({"user": pa.array(users, pa.string())}))
            self.truth.update(users)
            assert {row["user"]: row["n"] for row in out} == {user: self.truth[user] for user in users}
        self.last = (stage, stage.complete(self.number))
        stage.taker.close()
        return restored

    def check(self, backend: str, parallelism: int) -> None:
        """Every key that ever was is found again, with its count."""
        self.live(backend, parallelism, [sorted(self.truth)] if self.truth else [])


def stateful(directory: Path, backend: str, parallelism: int, max_parallelism: int = MAX_PARALLELISM) -> StatefulVertex:
    return StatefulVertex(
        uid=COUNTS,
        name="Counts",
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        backend=backend,
        directory=directory,
    )


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.mark.parametrize("backends", [("hashmap",) * 4, ("rocksdb",) * 4, ("hashmap", "rocksdb", "hashmap", "rocksdb")])
def test_f59_f78_state_lands_by_key_groups_at_two_three_and_one_subtasks(
    directory: Path, backends: tuple[str, ...]
) -> None:
    lives = Lives(directory)
    for backend, parallelism in zip(backends, (2, 3, 1, 2), strict=True):
        lives.live(backend, parallelism, [USERS[:8], USERS[4:]])
    lives.check("hashmap", 5)


histories = st.lists(
    st.tuples(
        st.sampled_from(["hashmap", "hashmap", "rocksdb"]),
        st.integers(1, 5),
        st.lists(st.lists(st.sampled_from(USERS), min_size=1, max_size=8), max_size=2),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_any_lives_in_a_row_lose_no_key_and_double_none(lives_of: list[tuple[str, int, list[list[str]]]]) -> None:
    with scratch() as directory:
        lives = Lives(directory)
        for backend, parallelism, batches in lives_of:
            lives.live(backend, parallelism, batches)
        lives.check("hashmap", 3)


def hash_into(group: int) -> Hash:
    """Every key in one key group."""
    return lambda key: ((group << 32) // MAX_PARALLELISM - 2**31) << 32


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("group", [0, 7, 8, 15])
def test_subtasks_that_never_had_a_record_are_empty_wherever_they_stood(
    directory: Path, backend: str, group: int
) -> None:
    lives = Lives(directory, hash_into(group))
    for parallelism in (2, 3, 1, 4, 2):
        lives.live(backend, parallelism, [USERS[:3]])
        assert lives.last is not None
        snapshot = lives.last[1]
        owner = group * parallelism // MAX_PARALLELISM
        assert owner in [part.subtask for part in snapshot.vertices[COUNTS].subtasks]
    lives.check(backend, 16)


def test_a_vertex_that_never_had_a_record_at_all_is_restored_as_nothing(directory: Path) -> None:
    lives = Lives(directory)
    lives.live("hashmap", 2, [])
    restored = lives.live("rocksdb", 3, [])
    assert restored == RestoredVertex({}, 0)


def test_f65_at_the_same_parallelism_each_subtask_gets_exactly_its_own_files(directory: Path) -> None:
    lives = Lives(directory)
    lives.live("hashmap", 2, [USERS])
    assert lives.last is not None
    before = lives.last[1].vertices[COUNTS]
    restored = lives.live("hashmap", 2, [])
    assert restored is not None
    for part in before.subtasks:
        version = restored.versions[part.subtask]
        assert [file["name"] for file in version["files"]] == [handle.name for handle in part.files]
        assert version["key_groups"] == [part.first_key_group, part.last_key_group]
    assert restored.bytes == sum(handle.length for part in before.subtasks for handle in part.files)


def test_each_restored_version_owns_the_key_groups_of_its_subtask(directory: Path) -> None:
    lives = Lives(directory)
    lives.live("hashmap", 2, [USERS])
    restored = lives.live("hashmap", 3, [])
    assert restored is not None
    for subtask, version in restored.versions.items():
        owned = subtask_range(subtask, 3, MAX_PARALLELISM)
        assert version["key_groups"] == [owned.start, owned.end]


def test_what_was_fetched_does_not_stay_beside_what_was_made_of_it(directory: Path) -> None:
    lives = Lives(directory)
    lives.live("hashmap", 2, [USERS])
    lives.live("rocksdb", 3, [])
    folders = sorted(path.name for path in (directory / "life-2").iterdir())
    assert folders == ["0", "1", "2"]


def test_a_damaged_file_fails_the_restore_by_name(directory: Path) -> None:
    lives = Lives(directory)
    lives.live("hashmap", 2, [USERS])
    assert lives.last is not None
    stage, snapshot = lives.last
    stage.plain.delete(snapshot.paths[0])
    with pytest.raises(SnapshotDamaged, match=r"^streams/orders/shared/.* of checkpoint 1 is missing"):
        lives.live("hashmap", 3, [])
