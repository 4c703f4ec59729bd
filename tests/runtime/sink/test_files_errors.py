"""What is lost, torn or not ours is said by name, before anything is changed."""

from __future__ import annotations

import logging

import pytest

from headgate_contract.errors import Fenced, SinkFailed
from headgate_contract.ids import CheckpointId
from tests.runtime.sink.stepping_store import FreezeAt
from tests.runtime.sink.world import World


@pytest.fixture
def world() -> World:
    """Generation 1 has published group 1 and completed 2."""
    world = World()
    world.begin(1, [])
    for group in (1, 2):
        world.complete(1, group)
    world.commit(1, 1)
    return world


def lose(world: World, group: int) -> str:
    path: str = world.groups[group][1]["staged"]
    assert world.store.delete(path)
    return path


def test_a_lost_staged_file_is_named_at_the_commit_with_what_to_do(world: World) -> None:
    path = lose(world, 2)
    with pytest.raises(SinkFailed) as failed:
        world.commit(1, 2)
    said = str(failed.value)
    assert path in said
    assert "group 2" in said
    assert "1 of its 2 files is missing" in said
    assert "restore a snapshot older than 2" in said
    assert "headgate snapshots orders" in said


def test_a_lost_staged_file_stops_a_start_before_anything_is_changed(world: World) -> None:
    path = lose(world, 2)
    before = {info.path for info in world.store.list("")}
    with pytest.raises(SinkFailed, match=path):
        world.begin(2, [1, 2], carried=[2])
    assert {info.path for info in world.store.list("")} == before


def test_a_restore_behind_the_lost_file_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    path = lose(world, 2)
    with caplog.at_level(logging.WARNING):
        world.begin(2, [1], abandoned=[2])
    assert world.visible() == world.rows(1)
    assert f"{path} of group 2 was gone when it was to be retracted" in caplog.text


def test_a_lost_retracted_file_stops_the_restore_that_needs_it(world: World) -> None:
    world.commit(1, 2)
    world.begin(2, [1])
    gone = world.store.list("_headgate/orders/out/retracted")[0].path
    world.store.delete(gone)
    with pytest.raises(SinkFailed, match="cannot publish group 2: 1 of its 2 files is missing"):
        world.begin(3, [1, 2])
    assert world.visible() == world.rows(1)


def test_a_torn_staged_file_is_refused_before_it_is_published(world: World) -> None:
    path = world.groups[2][0]["staged"]
    length = world.groups[2][0]["bytes"]
    world.store.replace(path, world.store.read(path)[:-1])
    with pytest.raises(SinkFailed, match=rf"{path} on memory://.* has {length - 1} bytes, {length} were written"):
        world.committer(1).prepare(world.groups[2])
    with pytest.raises(SinkFailed, match=rf"{path} of group 2 .* has {length - 1} bytes, {length} were staged"):
        world.begin(2, [1, 2], carried=[2])


def test_what_was_staged_is_synced_before_it_is_acked(world: World) -> None:
    calls: list[str] = []
    world.committer(1, calls.append).prepare(world.groups[2])
    assert [call for call in calls if call.startswith("sync")] == [f"sync {h['staged']}" for h in world.groups[2]]


def test_a_lost_file_is_named_when_it_is_prepared(world: World) -> None:
    path = lose(world, 2)
    with pytest.raises(SinkFailed, match=f"the staged file {path} on memory://.* is gone"):
        world.committer(1).prepare(world.groups[2])


def test_a_frozen_driver_whose_staged_files_its_successor_cleaned_away_is_told_that_it_is_fenced(world: World) -> None:
    handles = world.stage(1, [77])
    old = world.committer(1)
    world.begin(2, [1, 2], carried=[2])
    with pytest.raises(Fenced, match="generation 2 has begun"):
        old.prepare(handles)


def test_a_frozen_start_whose_files_its_successor_cleaned_away_is_told_that_it_is_fenced(world: World) -> None:
    look = FreezeAt(1, lambda: world.begin(3, [1], retained=[]))
    with pytest.raises(Fenced, match="generation 3 has begun"):
        world.begin(2, [1, 2], carried=[2], before=look)
    assert look.froze


def test_the_handles_of_another_kind_of_sink_are_refused(world: World) -> None:
    world.groups[2] = ({"rows": 3},)
    with pytest.raises(SinkFailed, match="the handles of sink out were made by another kind of sink"):
        world.begin(2, [1, 2], carried=[2])


def test_two_files_of_one_name_are_refused(world: World) -> None:
    first = world.groups[2][0]
    world.groups[2] = (first, {**first, "staged": first["staged"] + "0"})
    with pytest.raises(SinkFailed, match="two files of group 2 of sink out would get the same name"):
        world.commit(1, 2)


def test_a_handle_that_comes_twice_counts_once(world: World) -> None:
    rows = world.rows(2)
    world.groups[2] = (*world.groups[2], *world.groups[2])
    world.commit(1, 2)
    assert [id for id in world.visible() if id >= 200] == rows


def test_a_failed_attempt_is_discarded_and_a_group_without_files_leaves_no_trace(world: World) -> None:
    staged = len(world.staged())
    handles = world.stage(1, [77])
    world.committer(1).discard(handles)
    world.committer(1).discard(handles)
    assert len(world.staged()) == staged
    world.groups[3] = ()
    calls: list[str] = []
    world.commit(1, 3, calls.append)
    assert calls == []


def test_many_files_are_moved_by_several_threads_and_none_is_lost(world: World) -> None:
    world.complete(1, 3, files=30)
    committer = world.committer(1, threads=8)
    committer.prepare(world.groups[3])
    committer.commit(CheckpointId(3), world.groups[3])
    assert world.visible() == world.rows(1, 3)
