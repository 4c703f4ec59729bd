"""A long command goes on from what has passed on the very same commit, and from nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.kept_cells import KeptCells


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".gitignore").write_text("/work/\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(repository), *identity, *arguments], check=True, capture_output=True)


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "one")


def test_what_has_passed_is_kept_for_the_same_commit_and_arguments(repository: Path) -> None:
    KeptCells(repository, "matrix", "1", 7).keep("rocksdb:after-slot", "ok in 3 s:\n0 lost")
    assert KeptCells(repository, "matrix", "1", 7).lines() == {"rocksdb:after-slot": "ok in 3 s: 0 lost"}
    assert KeptCells(repository, "matrix", "1", 8).lines() == {}
    commit(repository)
    assert KeptCells(repository, "matrix", "1", 7).lines() == {}


def test_of_a_tree_that_differs_from_its_commit_nothing_is_kept_and_nothing_taken(repository: Path) -> None:
    KeptCells(repository, "matrix").keep("a", "ok")
    (repository / "changed").touch()
    KeptCells(repository, "matrix").keep("b", "ok")
    assert KeptCells(repository, "matrix").lines() == {}
    (repository / "changed").unlink()
    assert KeptCells(repository, "matrix").lines() == {"a": "ok"}


def test_where_there_is_no_commit_nothing_is_kept(tmp_path: Path) -> None:
    KeptCells(tmp_path, "matrix").keep("a", "ok")
    assert KeptCells(tmp_path, "matrix").lines() == {}
