"""A target that goes away under a sink: nothing is published to what is in its place, nor made there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.errors import SinkFailed
from headgate_contract.ids import CheckpointId
from tests.runtime.sink.world import World, visible_ids

Gone = Callable[[Path], None]


def renamed(out: Path) -> None:
    out.rename(out.with_name("elsewhere"))


def dropped(out: Path) -> None:
    renamed(out)
    out.mkdir()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def world(out: Path) -> World:
    return World(out.as_uri())


def back(out: Path) -> None:
    if out.exists():
        assert list(out.iterdir()) == [], "nothing is made where the target was"
        out.rmdir()
    out.with_name("elsewhere").rename(out)


@pytest.mark.parametrize("gone", [renamed, dropped])
def test_nothing_is_published_or_prepared_where_the_target_was(world: World, out: Path, gone: Gone) -> None:
    committer = world.committer(1)
    committer.begin(frozenset(), [], [], frozenset())
    world.complete(1, 1)
    staged = world.stage(1, [200])
    gone(out)
    for attempt in (
        lambda: committer.commit(CheckpointId(1), world.groups[1]),
        lambda: committer.prepare(staged),
    ):
        with pytest.raises(SinkFailed, match=r"the target file://.*/out of sink out is gone, or is another one"):
            attempt()
    back(out)
    committer.prepare(staged)
    committer.commit(CheckpointId(1), world.groups[1])
    assert visible_ids(world.url) == [100, 101]


@pytest.mark.parametrize("gone", [renamed, dropped])
def test_a_life_that_goes_on_with_output_refuses_a_target_that_does_not_know_it(
    world: World, out: Path, gone: Gone
) -> None:
    world.begin(1, [])
    gone(out)
    with pytest.raises(SinkFailed, match=r"has no record of stream orders, which has written there before.*--fresh"):
        world.committer(2).expect()
    back(out)
    world.committer(2).expect()


def test_a_copy_of_the_target_is_gone_on_with(world: World, out: Path) -> None:
    """What was brought back from a backup has the record: whether all files are there is looked at one by one."""
    committer = world.committer(1)
    committer.begin(frozenset(), [], [], frozenset())
    world.complete(1, 1)
    shutil.copytree(out, out.with_name("copy"))
    shutil.rmtree(out)
    out.with_name("copy").rename(out)
    committer.commit(CheckpointId(1), world.groups[1])
    assert visible_ids(world.url) == [100, 101]
