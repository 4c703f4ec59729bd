"""A file sink's own records are damaged or gone: nothing is guessed, and behind a repair every record is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headgate.sink.files_committer import FilesCommitter
from headgate_contract.errors import SinkDamaged, SinkFailed
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.store import ObjectInfo
from tests.runtime.sink.stepping_store import KillAt, Killed, SteppingStore
from tests.runtime.sink.world import STREAM, World

HOME = "_headgate/orders/out"
LIFE, CARRIED, RETAINED, BACK, HIDDEN, OLD = (
    f"{HOME}/lives/00000003.json",
    *(f"{HOME}/manifests/0000000{group}.json" for group in (6, 2, 3, 4, 1)),
)
RECORDS = (LIFE, CARRIED, RETAINED, BACK, HIDDEN, OLD)


def flipped(*places: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        return bytes(byte ^ (1 if at in places else 0) for at, byte in enumerate(data))

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "one bit": flipped(40),
    "two bits": flipped(40, 60),
    "cut": lambda data: data[:50],
    "emptied": lambda data: b"",
    "gone": lambda data: None,
}
WAYS = {"on": (1, 2, 3, 6), "back": (1, 2), "to the other branch": (1, 2, 4, 5), "fresh": ()}


def well_travelled(split_moves: bool = False) -> World:
    """Group 3 was gone back behind and is back, 4 and 5 are hidden, 6 is the newest: 1, 2, 3 and 6 are shown."""
    world = World(split_moves=split_moves)
    for generation, (lineage, groups) in enumerate([([], (1, 2, 3)), ([1, 2], (4, 5)), ([1, 2, 3], (6,))], start=1):
        world.begin(generation, lineage)
        for group in groups:
            world.complete(generation, group)
            world.commit(generation, group)
    assert world.visible() == world.rows(1, 2, 3, 6)
    return world


def damage(world: World, path: str, how: str) -> None:
    damaged = DAMAGES[how](world.store.read(path))
    if damaged is None:
        world.store.delete(path)
    else:
        world.store.replace(path, damaged)


def retained(world: World, groups: Iterable[int] = (2, 6)) -> list[tuple[CheckpointId, tuple[dict[str, object], ...]]]:
    return [(CheckpointId(id), world.groups[id]) for id in groups]


def begin(world: World, generation: int, lineage: tuple[int, ...]) -> None:
    world.begin(generation, lineage, carried=[6] if 6 in lineage else [], abandoned=[] if 6 in lineage else [6])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", RECORDS)
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_start_is_refused_by_name_or_shows_the_truth(how: str, path: str, way: str) -> None:
    world = well_travelled()
    damage(world, path, how)
    before = {info.path for info in world.store.list("")}
    refused = ""
    try:
        begin(world, 4, WAYS[way])
    except SinkDamaged as error:
        refused = str(error)
    if refused:
        assert "`headgate repair orders` tells a way out" in refused
        assert {info.path for info in world.store.list("")} == before, "nothing was changed"
    else:
        assert world.visible() == world.rows(*WAYS[way])
    world.forget()


@pytest.mark.parametrize(
    ("how", "path"),
    [(how, path) for how in DAMAGES for path in (RECORDS if how in ("two bits", "gone") else (LIFE, HIDDEN))],
)
def test_behind_a_repair_each_way_on_shows_every_record_once(how: str, path: str) -> None:
    world = well_travelled()
    damage(world, path, how)
    held = world.committer(1).holdings(whole=True)
    assert held is not None
    [fault] = held.faults
    assert fault.path == (path if path != LIFE or how != "gone" else f"{HOME}/lives")
    assert ("its own bytes" in fault.becomes) == (how == "one bit")
    world.committer(4).take_over(retained(world))
    for generation, way in enumerate([*WAYS, "on"], start=4):
        begin(world, generation, WAYS[way])
        assert world.visible() == world.rows(*WAYS[way]), way
    again = world.committer(1).holdings(whole=True)
    assert again is not None
    assert again.faults == ()
    world.forget()


def test_all_of_them_at_once() -> None:
    world = well_travelled()
    for path in [info.path for kind in ("lives", "manifests") for info in world.store.list(f"{HOME}/{kind}")]:
        damage(world, path, "emptied" if path.endswith("3.json") else "gone")
    world.committer(4).take_over(retained(world))
    for generation, way in enumerate(WAYS, start=4):
        begin(world, generation, WAYS[way])
        assert world.visible() == world.rows(*WAYS[way]), way


@pytest.mark.parametrize("split_moves", [False, True])
@pytest.mark.parametrize("path", [LIFE, BACK])
def test_the_mending_may_be_broken_off_anywhere(split_moves: bool, path: str) -> None:
    calls: list[str] = []
    world = well_travelled(split_moves)
    damage(world, path, "cut")
    world.committer(4, before=calls.append).take_over(retained(world))
    for at in range(len(calls)):
        world = well_travelled(split_moves)
        damage(world, path, "cut")
        with pytest.raises(Killed):
            world.committer(4, before=KillAt(at)).take_over(retained(world))
        world.committer(5).take_over(retained(world))
        begin(world, 5, WAYS["back"])
        assert world.visible() == world.rows(1, 2), calls[at]
        world.forget()


def test_files_of_another_sink_in_the_same_folder_are_left_to_it() -> None:
    """Their names look alike, and do not tell the sink."""
    world = well_travelled()
    other = World(world.url, sink=type(world.sink)("late"))
    other.begin(1, [])
    other.complete(1, 3)
    other.commit(1, 3)
    damage(world, BACK, "gone")
    world.committer(4).take_over(retained(world))
    begin(world, 4, WAYS["back"])
    assert world.visible() == sorted(world.rows(1, 2) + other.rows(3))


def test_under_a_damaged_manifest_another_logs_files_are_still_taken_back() -> None:
    world = well_travelled()
    strange = World(world.url, dict(world.groups))
    strange.groups[6] = strange.stage(3, [666])
    world.store.delete(f"{HOME}/published/00000006")
    world.store.delete(CARRIED)
    for handle in world.groups[6]:
        stem = f"part-00000006-g{handle['generation']}-{handle['subtask']}-{handle['unique']}{handle['suffix']}"
        world.store.move(stem, handle["staged"])
    strange.commit(3, 6)
    assert world.visible() == sorted([*world.rows(1, 2, 3), 666])
    damage(world, CARRIED, "cut")
    world.committer(4).take_over(retained(world))
    begin(world, 4, WAYS["on"])
    assert world.visible() == world.rows(1, 2, 3, 6)


def test_behind_a_repair_a_group_is_shown_without_those_of_its_files_that_are_gone() -> None:
    """They went with an output folder that was replaced by an older copy; the plan has told of it."""
    world = well_travelled()
    world.complete(3, 7)
    world.store.delete(world.groups[7][0]["staged"])
    with pytest.raises(SinkFailed, match="cannot publish group 7: 1 of its 2 files is missing"):
        world.begin(4, (1, 2, 3, 6, 7), carried=[7])
    for _ in range(2):
        world.committer(4).take_over(retained(world, (6, 7)), frozenset({CheckpointId(7)}))
    for generation in (4, 5):
        world.begin(generation, (1, 2, 3, 6, 7), carried=[7])
        assert world.visible() == [*world.rows(1, 2, 3, 6), 701]


def test_behind_a_repair_a_group_that_is_whole_is_left_to_the_beginning() -> None:
    world = well_travelled()
    world.complete(3, 7)
    before = {info.path for info in world.store.list("")}
    world.committer(4).take_over(retained(world, (6, 7)), frozenset({CheckpointId(7)}))
    assert {info.path for info in world.store.list("")} == before


class Torn(SteppingStore):
    """Its listing of a folder lasts while somebody publishes: it has what he made last, and not what he made first."""

    def list(self, folder: str) -> list[ObjectInfo]:
        before = {info.path for info in self.inner.list(folder)}
        self._before(folder)
        return [info for info in self.inner.list(folder) if "/manifests/" not in info.path or info.path in before]


def test_what_a_frozen_driver_publishes_while_a_life_looks_is_no_damage() -> None:
    world = World()
    world.begin(1, [])
    world.complete(1, 1)
    store = Torn(world.store, lambda folder: world.commit(1, 1) if folder == HOME else None)
    late = FilesCommitter(store, STREAM, world.sink, Generation(2), world.history)
    assert late.begin(frozenset(), [], [], frozenset()).retracted == (1,)
    assert world.visible() == []
