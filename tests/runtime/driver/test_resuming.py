"""Whole lives, without Spark: what stays when a checkpoint or a life comes to nothing, and where the next goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.job.plan import LinearPlan, linear_plan
from headgate_contract.errors import Fenced, StreamFailed
from headgate_contract.history import read_history
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.records import SnapshotCompleted, Stopped
from tests.runtime.driver.life_world import NUMBERED, STREAM, LifeWorld, number
from tests.runtime.driver.waiting import until

CHECKPOINTS = f"streams/{STREAM}/checkpoints"
BY_HAND = {"execution.checkpointing.interval": "1 h"}


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


def stored(world: LifeWorld) -> set[str]:
    """Every file of a checkpoint, or shared between them."""
    return {info.path for info in world.store.list(CHECKPOINTS)} | world.shared_files()


def test_f33_a_checkpoint_that_cannot_be_stored_is_discarded_with_every_part_of_it(world: LifeWorld) -> None:
    world.write(2)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    seen: list[set[str]] = []
    world.faults.act = lambda call: seen.append(stored(world)) if call.startswith(f"create {CHECKPOINTS}") else None
    world.faults.refused, world.faults.times = [f"create {CHECKPOINTS}"], 1
    life.ask("now", RequestKind.CHECKPOINT)
    assert life.answer("now").outcome is Outcome.FAILED
    assert seen[0], "its parts had been uploaded"
    until(lambda: stored(world) == set(), "nothing of it is left")
    assert not [record for record in world.records if isinstance(record, SnapshotCompleted)]
    assert life.stop() is None
    world.check_output()


def test_f23_who_asked_for_a_checkpoint_is_answered_when_its_statistics_have_been_noted(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    noted: list[tuple[int, list[str]]] = []

    def look(call: str) -> None:
        if call.startswith(f"create streams/{STREAM}/answers/"):
            told = [event.text for event in read_history(world.store.inner, STREAM) if event.what == "checkpoint"]
            noted.append((life.heart.progress.checkpoints, told))

    world.faults.act = look
    life.ask("now", RequestKind.CHECKPOINT)
    assert life.answer("now").outcome is Outcome.DONE
    assert noted == [(1, ["checkpoint 1 is complete and committed"])]
    assert life.stop() is None


@pytest.mark.parametrize("way", ["failed", "fenced"])
def test_f54_a_life_that_is_cut_short_deletes_nothing_and_its_successor_goes_on(tmp_path: Path, way: str) -> None:
    def fail(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
        if broken:
            raise ValueError("no more")
        return number(rows, keyed)

    broken = False
    world = LifeWorld(tmp_path, fail)
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "3"}
    world.write(2)
    life = world.begin()
    for asked in ("one", "two"):
        world.write(1)
        life.read_all()
        life.ask(asked, RequestKind.CHECKPOINT)
        assert life.answer(asked).outcome is Outcome.DONE
    before = stored(world)
    if way == "fenced":
        world.launch()
        assert isinstance(life.wait(), Fenced)
    else:
        broken = True
        world.write(1)
        assert isinstance(life.wait(), StreamFailed)
        broken = False
    assert stored(world) >= before
    assert len(world.catalogue.snapshots) == 2
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_f54_what_is_retained_outlives_the_end_in_good_order(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    assert life.stop() is None
    assert isinstance(world.records[-1], Stopped)
    [kept] = world.catalogue.snapshots
    assert {path.rsplit("/", 1)[0] for path in stored(world)} == {kept.folder, f"streams/{STREAM}/shared"}


def test_f150_a_stateless_step_that_is_added_hinders_no_restore(
    world: LifeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None

    def with_one_more_step() -> LinearPlan:
        job = headgate.Job("numbers")
        source = headgate.sources.files(str(world.base / "in"), format="parquet", schema="id BIGINT, key BIGINT")
        records = job.source("records", source).key_by("key")
        numbered = records.process("number", number, output=NUMBERED, state={"count": world.state})
        numbered.map_arrow(lambda batch: batch).sink("out", headgate.sinks.files(world.base / "out"))
        return linear_plan(job)

    monkeypatch.setattr(world, "plan", with_one_more_step)
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_f158_resumed_by_hand_from_retained_checkpoints_several_times_in_a_row_on_either_backend(
    world: LifeWorld,
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "3"}
    chosen = None
    for turn, backend in enumerate(("hashmap", "hashmap", "rocksdb", "rocksdb", "hashmap", "hashmap")):
        world.write(2)
        life = world.begin(chosen, {"state.backend.type": backend})
        if chosen is not None:
            assert world.catalogue.base_of(life.generation) == world.catalogue.find(chosen)
        life.read_all()
        for asked in ("one", "two"):
            life.ask(f"{asked}-{turn}", RequestKind.CHECKPOINT)
            assert life.answer(f"{asked}-{turn}").outcome is Outcome.DONE
            world.write(1)
            life.read_all()
        assert life.stop() is None
        world.check_output()
        newest, *_, oldest = (ref.id for ref in world.catalogue.snapshots)
        chosen = oldest if turn % 2 else newest
