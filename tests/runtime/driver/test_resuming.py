"""Whole lives, without Spark: what stays when a checkpoint or a life comes to nothing, and where the next goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.recovery.fetch import SnapshotFiles
from headgate.sink.files_committer import FilesCommitter
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import Fenced, RestoreRefused, StreamFailed
from headgate_contract.history import read_history
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.paths import METADATA
from headgate_contract.records import SnapshotCompleted, Stopped
from headgate_contract.snapshot import SnapshotRef
from tests.runtime.driver.life_world import NUMBERED, STREAM, LifeWorld, number, refuse_output
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
    assert stored(world) == set(), "nothing of it is left"
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


def test_f35_a_sink_is_called_at_the_trigger_and_gets_at_the_restore_what_it_gave(
    world: LifeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Flink's hooks are for: a system outside that has its part in a checkpoint."""
    heard: list[tuple[str, list[Any]]] = []
    prepare, begin = FilesCommitter.prepare, FilesCommitter.begin

    def hear_trigger(sink: FilesCommitter, handles: Sequence[Any], **how: Any) -> Any:
        given = prepare(sink, handles, **how)
        heard.append(("trigger", list(given)))
        return given

    def hear_restore(sink: FilesCommitter, lineage: Any, carried: Sequence[Any], *rest: Any) -> Any:
        heard.append(("restore", [handle for _, handles in carried for handle in handles]))
        return begin(sink, lineage, carried, *rest)

    monkeypatch.setattr(FilesCommitter, "prepare", hear_trigger)
    monkeypatch.setattr(FilesCommitter, "begin", hear_restore)
    world.write(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "commit", refuse_output)
        assert world.begin().wait() is not None
    (first, nothing), *triggers = heard
    assert (first, nothing) == ("restore", [])
    given = [handle for what, handles in triggers for handle in handles if what == "trigger"]
    assert given
    heard.clear()
    assert world.begin().stop() is None
    assert heard[0] == ("restore", given)
    world.check_output()


def test_f35_what_a_snapshot_carries_of_a_sink_that_is_gone_refuses_the_restore_unless_allowed(
    world: LifeWorld,
) -> None:
    world.write(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "commit", refuse_output)
        assert world.begin().wait() is not None
    world.sink_uid = "renamed"
    assert isinstance(world.begin().wait(), RestoreRefused)
    assert world.begin(leaves=["out"]).stop() is None


def test_f150_a_stateless_step_that_is_added_hinders_no_restore(
    world: LifeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None

    def with_one_more_step() -> GraphPlan:
        job = headgate.Job("numbers")
        source = headgate.sources.files(str(world.base / "in"), format="parquet", schema="id BIGINT, key BIGINT")
        records = job.source("records", source).key_by("key")
        numbered = records.process("number", number, output=NUMBERED, state={"count": world.state})
        numbered.map_arrow(lambda batch: batch).sink("out", headgate.sinks.files(world.base / "out"))
        return graph_plan(job)

    monkeypatch.setattr(world, "plan", with_one_more_step)
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def own_files(world: LifeWorld, ref: SnapshotRef) -> set[str]:
    return {handle.path for handle in SnapshotFiles(world.store, ref).metadata().handles()}


def test_f158_resumed_by_hand_from_retained_checkpoints_several_times_in_a_row_on_either_backend(
    world: LifeWorld,
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "3"}
    chosen = None
    for turn, backend in enumerate(("hashmap", "hashmap", "rocksdb", "rocksdb", "hashmap", "hashmap")):
        world.write(2)
        before = world.shared_files()
        life = world.begin(chosen, {"state.backend.type": backend})
        if chosen is not None:
            assert world.catalogue.base_of(life.generation) == world.catalogue.find(chosen)
        life.read_all()
        for asked in ("full", "increment"):
            life.ask(f"{asked}-{turn}", RequestKind.CHECKPOINT)
            assert life.answer(f"{asked}-{turn}").outcome is Outcome.DONE
        world.write(2)
        life.read_all()
        assert life.stop() is None
        world.check_output()
        last, increment, full = world.catalogue.snapshots
        assert own_files(world, full)
        assert not own_files(world, full) & before, "the first one of a life is full"
        assert own_files(world, increment) == own_files(world, full), "the next one is incremental"
        chosen = (last, increment, full)[turn % 3].id


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_f67_what_a_retained_checkpoint_shares_whose_metadata_cannot_be_read_stays_with_it(
    world: LifeWorld, backend: str
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "5", "state.backend.type": backend}
    world.write(2)
    life = world.begin()
    life.read_all()
    for asked in ("one", "two"):
        life.ask(asked, RequestKind.CHECKPOINT)
        assert life.answer(asked).outcome is Outcome.DONE
    assert life.stop() is None
    *unread, first = world.catalogue.snapshots
    needed = {handle.path for ref in unread for handle in SnapshotFiles(world.store, ref).metadata().handles()}
    whole = {f"{ref.folder}/{METADATA}": world.store.read(f"{ref.folder}/{METADATA}") for ref in unread}
    for path in whole:
        world.store.replace(path, b"torn")
    life = world.begin(first.id, {"execution.checkpointing.num-retained": "3"})
    life.ask("three", RequestKind.CHECKPOINT)
    assert life.answer("three").outcome is Outcome.DONE
    until(lambda: world.store.stat(f"{first.folder}/{METADATA}") is None, "the oldest is retired and deleted")
    assert life.stop() is None
    assert needed <= world.shared_files()


def test_f56_f58_only_what_is_below_the_lowest_retained_checkpoint_and_in_no_use_is_ever_deleted(
    world: LifeWorld,
) -> None:
    world.settings |= BY_HAND | {"execution.checkpointing.num-retained": "2"}
    deleted: list[str] = []
    wrong: list[str] = []

    def look(call: str) -> None:
        what, _, path = call.partition(" ")
        if what != "delete" or not path.startswith((CHECKPOINTS, f"streams/{STREAM}/shared")):
            return
        deleted.append(path)
        retained = [ref for ref in read_catalogue(world.store.inner, STREAM).snapshots if ref.name is None]
        files = {
            handle.path for ref in retained for handle in SnapshotFiles(world.store.inner, ref).metadata().handles()
        }
        lowest = min(ref.id for ref in retained)
        if path in files or (path.startswith(CHECKPOINTS) and int(path.split("/")[3].split("-")[1]) >= lowest):
            wrong.append(call)

    world.faults.act = look
    life = world.begin()
    for turn, kind in enumerate([RequestKind.CHECKPOINT, RequestKind.SAVEPOINT, *6 * [RequestKind.CHECKPOINT]]):
        world.write(1)
        life.read_all()
        life.ask(f"r{turn}", kind, **({"name": "between"} if kind is RequestKind.SAVEPOINT else {}))
        assert life.answer(f"r{turn}").outcome is Outcome.DONE
    assert life.stop() is None
    assert world.begin("between").stop() is None, "one that goes back behind them all"
    assert world.begin().stop() is None
    assert wrong == []
    order = [int(path.split("/")[3].split("-")[1]) for path in deleted if path.startswith(CHECKPOINTS)]
    assert order[:5] == [1, 3, 4, 5, 6], "the oldest first"
    assert order == sorted(order)
    assert [path for path in deleted if "/shared/" in path]


def test_the_micro_batches_of_a_checkpoint_publish_one_file_for_each_subtask(world: LifeWorld) -> None:
    world.write(12)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    staged = list(world.base.rglob("staged/*"))
    life.ask("now", RequestKind.CHECKPOINT)
    assert life.answer("now").outcome is Outcome.DONE
    until(lambda: world.output() != [], "the group is committed")
    assert life.stop() is None
    published = list(world.base.rglob("part-*.parquet"))
    subtasks = {path.name.split("-")[3] for path in published}
    assert len(staged) > len(published) == len(subtasks), "micro-batches staged more files than were published"
    world.check_output()
