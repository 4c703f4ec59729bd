"""Whole lives, without Spark: run, asked, stopped, fenced, failed; the output is compared with the truth."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.driver.engine import MicroBatch
from headgate.driver.lives import describe_error
from headgate.recovery.fetch import SnapshotFiles
from headgate.step.operators import Keyed
from headgate.step.task import StepAck, StepTask
from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import Fenced, RestoreRefused, StreamFailed
from headgate_contract.heartbeats import StreamState
from headgate_contract.history import read_history
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.measures import CheckpointCost, RecoveryKind, RecoveryTime
from headgate_contract.records import GenerationStarted, SnapshotCompleted, Stopped
from headgate_contract.restore import Newest, Refuse
from headgate_contract.snapshot import SnapshotKind
from jobs.running_number import number
from tests.runtime.driver.life_world import STREAM, LifeWorld
from tests.runtime.driver.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


def test_f157_lives_in_a_row_number_every_record_once_at_any_parallelism_and_on_any_backend(world: LifeWorld) -> None:
    for parallelism, backend in ((2, "hashmap"), (3, "rocksdb"), (1, "hashmap")):
        world.write(5)
        life = world.begin(settings={"parallelism.default": parallelism, "state.backend.type": backend})
        life.read_all()
        assert life.stop() is None
        world.check_output()
    last = world.records[-1]
    assert isinstance(last, Stopped)
    assert last.reason == "SIGTERM"
    assert last.snapshot == world.catalogue.snapshots[0].id


@pytest.mark.parametrize("retention", ["RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"])
def test_f54_f57_a_cancel_keeps_or_deletes_the_checkpoints_as_their_retention_says(
    world: LifeWorld, retention: str
) -> None:
    world.write(3)
    life = world.begin(settings={"execution.checkpointing.externalized-checkpoint-retention": retention})
    life.ask("keep", RequestKind.SAVEPOINT, name="kept")
    assert life.answer("keep").outcome is Outcome.DONE
    for completed in (1, 2):
        world.write(1)  # without anything new no checkpoint is taken
        life.read_all()
        life.until_completed(completed)
    life.ask("cancel", RequestKind.CANCEL)
    assert life.wait() is None

    def left() -> set[str]:
        return {info.path.split("/")[2] for info in world.store.list(f"streams/{STREAM}")}

    kept = {ref.kind for ref in world.catalogue.snapshots}
    if retention == "RETAIN_ON_CANCELLATION":
        assert {"checkpoints", "shared", "savepoints"} <= left()
        assert kept == {SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT}
    else:
        until(lambda: not {"checkpoints", "shared"} & left(), "also what was being uploaded is deleted")
        assert kept == {SnapshotKind.SAVEPOINT}
        refused = world.decide(Newest())
        assert isinstance(refused, Refuse), "the next start does not go back to the savepoint by itself"
        assert "is retired" in refused.reason
    named = world.begin("kept")
    named.read_all()
    assert named.stop() is None
    world.check_output()


def test_a_wall_clock_that_jumps_by_hours_changes_nothing(world: LifeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    monkeypatch.setattr("headgate.driver.clock.wall_ms", lambda: chance.randrange(4_000_000_000_000))
    for turn in range(3):
        world.write(2)
        life = world.begin("first" if turn == 2 else None)  # its clock may say that it is the newest, or not
        life.read_all()
        if turn == 0:
            life.ask("sp", RequestKind.SAVEPOINT, name="first")
            assert life.answer("sp").outcome is Outcome.DONE
        assert life.stop() is None
        world.check_output()
    decisions = [record.decision.reason for record in world.records if isinstance(record, GenerationStarted)]
    assert decisions[:2] == ["the stream has never run", "the newest snapshot that generation 1 completed"]
    assert decisions[2].startswith("savepoint first ")


def test_f57_older_checkpoints_are_retired_with_their_files_and_the_heart_tells_of_progress(world: LifeWorld) -> None:
    life = world.begin(settings={"execution.checkpointing.num-retained": "2"})
    for completed in range(1, 6):
        world.write(1)
        life.read_all()
        life.until_completed(completed)
    until(lambda: life.heart.progress.checkpoints >= 5, "the heart knows, too")
    assert life.stop() is None
    kept = world.catalogue.snapshots
    assert len(kept) == 2

    def folders() -> set[str]:
        return {info.path.rsplit("/", 1)[0] for info in world.store.list(f"streams/{STREAM}/checkpoints")}

    until(lambda: folders() == {ref.folder for ref in kept}, "retired ones are gone")
    needed = [SnapshotFiles(world.store, ref).metadata().handles() for ref in kept]
    assert world.shared_files() == {handle.path for handles in needed for handle in handles}
    beat = world.heartbeat(1)
    assert beat.state is StreamState.STOPPING, "the process says that it has stopped, when it has"
    assert beat.progress.checkpoints >= 5
    assert beat.progress.records == world.written
    assert beat.progress.last_snapshot is not None


def test_every_checkpoint_and_every_start_tells_what_it_cost_and_the_heart_of_the_last(world: LifeWorld) -> None:
    for _ in range(2):
        world.write(2)
        life = world.begin()
        life.read_all()
        life.until_measured()
        assert life.stop() is None
    told = [event.measures for event in read_history(world.store, STREAM)]
    costs = [cost for cost in told if isinstance(cost, CheckpointCost)]
    assert {cost.checkpoint for cost in costs} == {ref.id for ref in world.catalogue.completed}
    assert sum(cost.uploaded_bytes for cost in costs) > 0
    assert all(0 <= cost.uploaded_bytes <= (cost.full_bytes or 0) for cost in costs)
    assert all(cost.snapshot_ms > 0 and cost.coordination_ms > 0 for cost in costs)
    ways = [way for way in told if isinstance(way, RecoveryTime)]
    assert [(way.generation, way.kind) for way in ways] == [(1, RecoveryKind.START), (2, RecoveryKind.START)]
    assert ways[0].loaded_bytes == 0
    assert ways[1].loaded_bytes > 0
    assert ways[1].snapshot is not None
    assert min(ways[1].load_state_ms, ways[1].reset_source_ms, ways[1].reset_sink_ms, ways[1].redeploy_ms) > 0
    extra = world.heartbeat(2).progress.extra
    assert extra["checkpoint_ms"] > 0
    assert "checkpoint_bytes" in extra


def test_a_checkpoint_that_is_declined_tells_what_it_cost_until_then_and_why(world: LifeWorld) -> None:
    world.settings["execution.checkpointing.tolerable-failed-checkpoints"] = "1000"
    world.faults.refused = [f"upload streams/{STREAM}/shared"]
    world.write(2)
    life = world.begin()
    life.read_all()
    until(lambda: life.error or life.heart.progress.failed_checkpoints, "a checkpoint fails")
    world.faults.refused = []
    life.until_completed(1)
    assert life.stop() is None
    failed = [event for event in read_history(world.store, STREAM) if event.outcome == "FAILED"]
    assert "was given up: state number declined: cannot upload" in failed[0].text
    cost = failed[0].measures
    assert isinstance(cost, CheckpointCost)
    assert cost.persist_ms > 0
    assert (cost.coordination_ms, cost.full_bytes) == (0.0, None)


def test_people_ask_for_savepoints_and_for_a_stop_and_are_answered(world: LifeWorld) -> None:
    world.write(2)
    life = world.begin(settings={"execution.checkpointing.interval": "1 h"})
    life.read_all()
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    assert life.answer("sp").result["name"] == "before"
    life.ask("again", RequestKind.SAVEPOINT, name="before")
    assert life.answer("again").outcome is Outcome.FAILED
    world.write(2)
    life.ask("stop", RequestKind.STOP, savepoint="last")
    stopped = life.answer("stop")
    assert (stopped.outcome, stopped.result["name"]) == (Outcome.DONE, "last")
    assert life.wait() is None
    assert {ref.name for ref in world.catalogue.snapshots if ref.kind is SnapshotKind.SAVEPOINT} == {"before", "last"}
    back = world.begin("before", {"execution.checkpointing.interval": "1 h"})
    back.read_all()
    assert back.stop() is None
    world.check_output()


def test_a_step_that_fails_ends_the_life_with_its_cause_and_commits_nothing(tmp_path: Path) -> None:
    def fail(rows: pa.Table, keyed: Keyed) -> Any:
        if 47 in rows.column("id").to_pylist():
            raise ValueError("47 is not good")
        return number(rows, keyed)

    world = LifeWorld(tmp_path, fail)
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(3)
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert str(error).startswith(
        "micro-batch 1 failed: process 'number' failed with ValueError: 47 is not good (test_life"
    )
    assert world.output() == []
    assert describe_error(error) == str(error)
    assert describe_error(KeyError("x")) == "KeyError: 'x'"
    assert describe_error(OSError("jdbc:postgresql://me:SECRET@db/x")) == "OSError: jdbc:postgresql://...@db/x"
    world.step = number
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_state_that_is_declared_otherwise_is_refused_before_anything_is_read_or_published(world: LifeWorld) -> None:
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    before = world.output()
    world.write(1)
    world.state = pa.schema({"n": pa.string()})
    error = world.begin().wait()
    assert isinstance(error, RestoreRefused)
    assert "state 'count'" in str(error)
    assert world.output() == before


class DoublingEngine(StandInEngine):
    """Acknowledges a subtask twice, as a shuffle gone wrong would."""

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        return [*super().run(batch, task), *super().run(batch, task)]


def test_a_subtask_that_acknowledges_twice_fails_the_life(world: LifeWorld) -> None:
    world.engine_class = DoublingEngine
    world.write(1)
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert "the step acknowledged a subtask twice: [0, 0, 1, 1]" in str(error)
    assert world.output() == []


class ForgettingEngine(StandInEngine):
    """Loses the ack of a subtask."""

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        return super().run(batch, task)[:-1]


def test_a_subtask_that_does_not_acknowledge_fails_the_life(world: LifeWorld) -> None:
    world.engine_class = ForgettingEngine
    world.write(1)
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert "of 2 subtasks the step acknowledged only [0]" in str(error)
    assert world.output() == []


def test_an_engine_that_cannot_be_opened_fails_the_life_before_anything_is_read(world: LifeWorld) -> None:
    (world.base / "in").rmdir()
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert "does not exist" in str(error)


class EndingEngine(StandInEngine):
    """Ends by itself, as Spark may."""

    def failure(self) -> str | None:
        return "the Spark context has stopped"


def test_an_engine_that_ends_by_itself_fails_the_life(world: LifeWorld) -> None:
    world.engine_class = EndingEngine
    error = world.begin().wait()
    assert isinstance(error, StreamFailed)
    assert str(error).startswith("the Spark context has stopped; not restarted: ")


class DyingEngine(StandInEngine):
    """Goes away while a micro-batch runs, as a JVM may."""

    is_gone = False

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        self.is_gone = True
        raise ConnectionRefusedError(111, "Connection refused")

    def failure(self) -> str | None:
        return "Spark's JVM is gone" if self.is_gone else None


def test_a_batch_that_fails_because_its_engine_is_gone_says_so(world: LifeWorld) -> None:
    world.engine_class = DyingEngine
    world.write(1)
    assert str(world.begin().wait()).startswith("Spark's JVM is gone; not restarted: ")


def test_a_stop_by_signal_whose_snapshot_fails_is_tried_again(
    world: LifeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.driver.life._BETWEEN_STOPS_S", 0.1)
    world.write(1)
    life = world.begin(settings={"execution.checkpointing.interval": "1 h"})
    life.read_all()
    world.faults.refused, world.faults.times = ["upload"], 1
    assert life.stop() is None
    assert [type(record) for record in world.records[1:]] == [SnapshotCompleted, Stopped]
    assert life.heart.progress.failed_checkpoints == 1
    world.check_output()


def test_a_life_whose_successor_has_started_is_fenced_at_once_and_completes_nothing_more(world: LifeWorld) -> None:
    world.write(2)
    life = world.begin()
    life.read_all()
    life.until_completed(1)
    world.take_over()
    before = [record for record in world.records if isinstance(record, SnapshotCompleted)]
    error = life.wait()
    assert isinstance(error, Fenced)
    assert [record for record in world.records if isinstance(record, SnapshotCompleted)] == before
