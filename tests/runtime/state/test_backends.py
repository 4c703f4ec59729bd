"""Backends by name, and state that moves from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.state.backends import BACKENDS, backend_named, restore
from headgate.state.base import RestoredPiece
from headgate.state.errors import RestoreGap, StateMigrationError, UnknownBackend
from headgate.state.hashmap import HashMapBackend
from headgate.state.key_groups import KeyGroupRange, subtask_range
from headgate.state.rocksdb import RocksDBBackend
from tests.runtime.state.runs import Run, memory_directory
from tests.runtime.state.samples import (
    KEYS,
    MAX_PARALLELISM,
    RECENT,
    STATES,
    VALUES,
    WHOLE,
    Model,
    freeze,
    put_in_model,
)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with memory_directory(tmp_path) as directory:
        yield directory


def test_a_backend_is_found_by_its_name() -> None:
    assert isinstance(backend_named("hashmap"), HashMapBackend)
    assert isinstance(backend_named("rocksdb"), RocksDBBackend)
    assert sorted(BACKENDS) == ["hashmap", "rocksdb"]


@pytest.mark.parametrize(
    ("name", "hint"), [("rocksDB", "did you mean 'rocksdb'"), ("heap", "use one of: hashmap, rocksdb")]
)
def test_an_unknown_backend_is_refused_with_the_nearest_known(name: str, hint: str) -> None:
    with pytest.raises(UnknownBackend, match=hint):
        backend_named(name)


@pytest.mark.parametrize(("old", "new"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_state_of_one_backend_restores_in_another_at_another_parallelism(old: str, new: str, directory: Path) -> None:
    """F105: map, value, list, several namespaces."""
    source, target = Run(backend_named(old), directory), Run(backend_named(new), directory)
    model: dict[str, Model] = {state.name: {} for state in STATES}
    versions = [
        source.write_shares(source.backend.empty((), share, MAX_PARALLELISM, "e"), share, 0, model)
        for share in (subtask_range(i, 2, MAX_PARALLELISM) for i in range(2))
    ]
    pieces = [RestoredPiece(version, directory) for version in versions]
    held: dict[str, Model] = {state.name: {} for state in STATES}
    for i in range(3):
        share = subtask_range(i, 3, MAX_PARALLELISM)
        restored = restore(target.backend, pieces, STATES, share, MAX_PARALLELISM, directory, f"r{i}")
        assert (restored.backend, restored.key_groups) == (new, share)
        for state in STATES:
            held[state.name] |= target.read(restored, state)
    assert held == model


def test_pieces_of_both_backends_restore_together(directory: Path) -> None:
    model: Model = {}
    pieces = []
    for name, share in (("hashmap", KeyGroupRange(0, 7)), ("rocksdb", KeyGroupRange(8, 15))):
        run = Run(backend_named(name), directory)
        models: dict[str, Model] = {state.name: {} for state in STATES}
        version = run.write_shares(run.backend.empty((), share, MAX_PARALLELISM, "e"), share, 0, models)
        model |= models["recent"]
        pieces.append(RestoredPiece(version, directory))
    target = Run(HashMapBackend(), directory)
    whole = restore(target.backend, pieces, [], WHOLE, MAX_PARALLELISM, directory, "r")
    assert target.read(whole, RECENT) == model
    with pytest.raises(RestoreGap):
        restore(target.backend, pieces[1:], [], KeyGroupRange(0, 15), MAX_PARALLELISM, directory, "r")


def test_a_change_of_backend_does_not_hide_a_change_of_schema(directory: Path) -> None:
    run = Run(RocksDBBackend(), directory)
    rows = KEYS["recent"][:2]
    version = run.write(None, RECENT, rows, [VALUES["recent"][1]] * 2)
    model: Model = {}
    put_in_model(RECENT, model, rows, [VALUES["recent"][1]] * 2)
    assert {freeze(row) for row in rows} == set(model)
    changed = type(RECENT)("recent", RECENT.kind, RECENT.key, RECENT.value)
    piece = RestoredPiece(version, directory)
    with pytest.raises(StateMigrationError, match="namespace"):
        restore(HashMapBackend(), [piece], [changed], WHOLE, MAX_PARALLELISM, directory, "r")
