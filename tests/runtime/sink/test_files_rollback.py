"""What the beginning of a life keeps, hides, shows again and deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.sink.base import BeginReport
from headgate_contract.errors import SinkFailed
from headgate_contract.ids import CheckpointId, VertexUid
from tests.runtime.sink.stepping_store import FreezeAt, KillAt, Killed
from tests.runtime.sink.world import SINK, STREAM, World

HOME = f"_headgate/{STREAM}/{SINK}"


@pytest.fixture
def world() -> World:
    """Generation 1 has published the groups 1, 2 and 3; nobody carries them any more."""
    world = World()
    world.begin(1, [])
    for group in (1, 2, 3):
        world.complete(1, group)
        world.commit(1, group)
    return world


def ids(*groups: int) -> tuple[CheckpointId, ...]:
    return tuple(map(CheckpointId, groups))


def test_groups_are_published_one_by_one_in_any_order_and_again(world: World) -> None:
    for group in (4, 5, 6):
        world.complete(1, group)
    world.commit(1, 5)
    assert world.visible() == world.rows(1, 2, 3, 5)
    world.commit(1, 4)
    world.commit(1, 5)
    world.commit(1, 4)
    assert world.visible() == world.rows(1, 2, 3, 4, 5)
    assert {handle["staged"] for handle in world.groups[6]} == set(world.staged())


def test_what_is_published_is_retracted_though_nobody_brings_its_handles(world: World) -> None:
    assert world.begin(2, [1]) == BeginReport(retracted=ids(2, 3))
    assert world.visible() == world.rows(1)


def test_what_was_retracted_is_reinstated_though_nobody_carries_it(world: World) -> None:
    world.begin(2, [1])
    assert world.begin(3, [1, 2]) == BeginReport(reinstated=ids(2))
    assert world.visible() == world.rows(1, 2)


def test_a_rollback_that_was_broken_off_is_completed_though_nobody_brings_the_handles(world: World) -> None:
    calls: list[str] = []
    world.copy().begin(2, [1], before=calls.append)
    for at in range(len(calls)):
        copy = world.copy()
        with pytest.raises(Killed):
            copy.begin(2, [1], before=KillAt(at))
        copy.begin(3, [1])
        assert copy.visible() == copy.rows(1)
        copy.forget()


def test_a_start_without_state_retracts_everything(world: World) -> None:
    assert world.begin(2, []).retracted == ids(1, 2, 3)
    assert world.visible() == []
    assert world.begin(3, [1, 2, 3]).reinstated == ids(1, 2, 3)


def test_retracted_files_are_kept_and_hidden(world: World) -> None:
    world.begin(2, [])
    kept = [info.path for info in world.store.list(f"{HOME}/retracted")]
    assert len(kept) == 6
    assert not any(path.endswith((".parquet", ".json", ".csv")) for path in kept)


def test_a_new_life_with_the_same_past_changes_nothing(world: World) -> None:
    before = {info.path for info in world.store.list("")}
    assert world.begin(2, [1, 2, 3]) == BeginReport()
    assert {info.path for info in world.store.list("")} - before == {f"{HOME}/lives/00000002.json"}


def test_the_same_beginning_again_leaves_no_second_record(world: World) -> None:
    world.begin(2, [1])
    assert world.begin(2, [1]) == BeginReport()
    assert [info.path for info in world.store.list(f"{HOME}/lives")] == [
        f"{HOME}/lives/00000001.json",
        f"{HOME}/lives/00000002.json",
    ]


def test_a_restart_within_one_driver_begins_again_under_the_same_generation(world: World) -> None:
    world.complete(1, 4)
    world.commit(1, 4)
    world.complete(1, 5)
    world.stage(1, [77])
    report = world.begin(1, [1, 2, 3, 4, 5], carried=[4, 5])
    assert report == BeginReport(committed=ids(4, 5), deleted=1)
    assert world.visible() == world.rows(1, 2, 3, 4, 5)
    world.complete(1, 6)
    world.commit(1, 6)
    assert world.visible() == world.rows(1, 2, 3, 4, 5, 6)


def test_a_group_that_was_given_up_unpublished_is_published_when_its_branch_is_restored(world: World) -> None:
    world.complete(1, 4)
    world.begin(2, [1, 2, 3], abandoned=[4])
    assert world.visible() == world.rows(1, 2, 3)
    world.complete(2, 5)
    world.commit(2, 5)
    report = world.begin(3, [1, 2, 3, 4], carried=[4])
    assert report == BeginReport(committed=ids(4), retracted=ids(5), reinstated=ids(4))
    assert world.visible() == world.rows(1, 2, 3, 4)


def test_staged_files_that_a_retained_snapshot_carries_are_not_deleted(world: World) -> None:
    world.complete(1, 4)
    lost = world.stage(1, [77])
    assert world.begin(2, [1, 2, 3]).deleted == 1
    assert set(world.staged()) == {handle["staged"] for handle in world.groups[4]}
    assert lost[0]["staged"] not in world.staged()


def test_staged_files_of_a_newer_generation_are_left_alone(world: World) -> None:
    """A frozen driver may be about to clean up while its successor already writes."""
    world.stage(7, [77])
    assert world.begin(2, [1, 2, 3]).deleted == 0
    assert len(world.staged()) == 1


def test_what_is_published_between_the_look_and_the_deletion_is_found_and_hidden(world: World) -> None:
    """The newest snapshot was damaged: nobody brings its handles, and the driver that completed it still runs."""
    world.complete(1, 4)
    handles = world.groups.pop(4)
    calls: list[str] = []
    world.copy().begin(2, [1, 2, 3], before=calls.append)
    begun = next(at for at, call in enumerate(calls) if call.startswith("create") and "/lives/" in call)
    for at in range(begun + 1):
        copy = world.copy()
        copy.groups[4] = handles
        copy.begin(2, [1, 2, 3], retained=[], before=FreezeAt(at, lambda copy=copy: copy.commit(1, 4)))
        assert copy.visible() == copy.rows(1, 2, 3)
        copy.forget()


def test_two_sinks_and_two_streams_share_a_target_without_touching_each_other(world: World) -> None:
    other = World(url=world.url, sink=VertexUid("other"))
    other.begin(1, [])
    for group in (1, 2, 3):
        other.complete(1, group, files=3)
        other.commit(1, group)
    both = sorted(world.rows(1, 2, 3) + other.rows(1, 2, 3))
    assert world.visible() == both
    world.begin(2, [1])
    assert world.visible() == sorted(world.rows(1) + other.rows(1, 2, 3))
    world.begin(3, [1, 2, 3])
    assert world.begin(4, [1, 2, 3]) == BeginReport()
    assert world.visible() == both
    other.begin(2, [])
    assert world.visible() == world.rows(1, 2, 3)


def test_files_that_a_consumer_took_away_do_not_hinder_a_restart(world: World) -> None:
    world.complete(1, 4)
    world.commit(1, 4)
    for info in world.store.list(""):
        if "/" not in info.path:
            world.store.delete(info.path)
    assert world.begin(2, [1, 2, 3, 4], carried=[4]).committed == ids(4)
    assert world.begin(3, [1, 2, 3]).retracted == ids(4)
    assert world.visible() == []


def test_the_same_group_under_other_files_is_refused(world: World) -> None:
    world.complete(1, 3)
    with pytest.raises(SinkFailed, match=r"manifests/00000003\.json holds other files than group 3 of this stream has"):
        world.commit(1, 3)
    with pytest.raises(SinkFailed, match=r"another copy of the root.*`headgate repair orders` tells"):
        world.begin(2, [1, 2, 3], carried=[3])


def test_a_stream_of_the_same_name_on_another_root_is_refused_in_every_generation(world: World) -> None:
    other = replace(world, history="second", groups={})
    for generation in (1, 2, 3, 7):
        with pytest.raises(SinkFailed, match=r"of another history of stream orders; give the sink another path, or"):
            other.begin(generation, [])
        other.complete(generation, generation)
        with pytest.raises(SinkFailed, match="of another history of stream orders"):
            other.commit(generation, generation)
        with pytest.raises(SinkFailed, match="of another history of stream orders"):
            other.begin(generation, [generation], carried=[generation])
    assert world.visible() == world.rows(1, 2, 3)
    assert world.begin(2, [1, 2, 3]).retracted == ()


def test_a_folder_of_an_older_release_goes_to_whom_stands_on_its_groups() -> None:
    old = World(history="")
    old.begin(1, [])
    old.complete(1, 1)
    old.commit(1, 1)
    for stranger in (1, 2, 3):
        with pytest.raises(SinkFailed, match="of another history of stream orders"):
            replace(old, history="second").begin(stranger, [])
    replace(old, history="first").begin(2, [1])
    with pytest.raises(SinkFailed, match="of another history of stream orders"):
        replace(old, history="second").begin(3, [1])
    assert replace(old, history="first").begin(3, []).retracted == ids(1)
