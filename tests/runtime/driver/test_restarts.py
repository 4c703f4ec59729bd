"""Restarts inside the driver: what fails, what it goes on from, how often, and what is never mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.driver.engine import MicroBatch
from headgate.driver.lives import GivenUp, is_final
from headgate.recovery.fetch import SnapshotFiles
from headgate.sink.files_committer import FilesCommitter
from headgate.step.task import StepAck, StepTask
from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import SinkFailed, StorageError, SuppressRestarts
from headgate_contract.heartbeats import StreamState
from headgate_contract.history import read_history
from headgate_contract.ids import SavepointName
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.measures import RecoveryKind, RecoveryTime
from headgate_contract.paths import StreamPaths
from headgate_contract.records import SnapshotCompleted, Stopped
from tests.runtime.driver.failing_lives import QUICK, failing_world, restarts
from tests.runtime.driver.life_world import STREAM
from tests.runtime.driver.waiting import until
from tests.runtime.sink.stepping_store import SteppingStore

BACKENDS = ("hashmap", "rocksdb")


@pytest.mark.parametrize(
    "strategy",
    [
        QUICK,
        {
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.initial-backoff": "10 ms",
            "restart-strategy.exponential-delay.max-backoff": "20 ms",
        },
        {
            "restart-strategy.type": "failure-rate",
            "restart-strategy.failure-rate.max-failures-per-interval": "9",
            "restart-strategy.failure-rate.delay": "10 ms",
        },
    ],
    ids=lambda strategy: strategy["restart-strategy.type"],
)
def test_f177_a_step_that_fails_is_restarted_until_it_succeeds(tmp_path: Path, strategy: dict[str, str]) -> None:
    world = failing_world(tmp_path, {47: 2, 150: 1})
    world.settings.update(strategy)
    world.write(4)
    life = world.begin()
    life.read_all()
    world.write(5)
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert [record.restart for record in restarts(world)] == [1, 2, 3]
    assert all("ValueError: not good" in record.cause for record in restarts(world))
    assert life.heart.progress.restarts == 3


class NotingEngine(StandInEngine):
    """Notes the restart in which each subtask has run, and the state that it began with."""

    ran: list[tuple[int, int, frozenset[str]]]

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        assert task.keyed is not None
        for subtask, parent in enumerate(task.keyed.parents):
            files = [] if parent is None else [file["name"] for file in parent["files"]]
            self.ran.append((task.identity.restart, subtask, frozenset(files)))
        return super().run(batch, task)


def test_f175_a_failure_in_one_subtask_takes_the_whole_chain_back_and_no_other_stream(tmp_path: Path) -> None:
    """A chain is one region. Of two keys, on two subtasks, only one has a record that cannot be borne."""
    worlds, lives, engines = [], [], []
    for name, times in (("failing", {195: 1}), ("other", {})):
        world = failing_world(tmp_path / name, times)
        world.settings |= {"execution.checkpointing.interval": "1 h", "parallelism.default": "2"}
        engine = type("Noting", (NotingEngine,), {"ran": []})
        world.engine_class = engine
        world.write(3)
        worlds.append(world)
        engines.append(engine)
        lives.append(world.begin())
    for world, life in zip(worlds, lives, strict=True):
        life.read_all()
        life.ask("cp", RequestKind.CHECKPOINT)
        assert life.answer("cp").outcome is Outcome.DONE
        world.write(7)
        life.read_all()
    failing, other = worlds
    [checkpoint] = failing.catalogue.completed
    [restart] = restarts(failing)
    assert (restart.snapshot, "ValueError: not good" in restart.cause) == (checkpoint.id, True)
    [vertex] = SnapshotFiles(failing.store, checkpoint).metadata().vertices.values()
    kept = {part.subtask: frozenset(handle.name for handle in part.files) for part in vertex.subtasks}
    assert set(kept) == {0, 1}
    for subtask, files in kept.items():
        before, after = ([has for each, of, has in engines[0].ran if (each, of) == (n, subtask)] for n in (0, 1))
        assert before[-1] != files, "it had gone on since"
        assert after[0] == files, "and has gone back, whether it failed or not"
    assert lives[0].heart.progress.replayed > 0, "the source, too"
    assert restarts(other) == []
    assert {each for each, _, _ in engines[1].ran} == {0}
    for world, life in zip(worlds, lives, strict=True):
        assert life.stop() is None
        world.check_output()


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_goes_on_from_the_newest_checkpoint_and_replays_what_lies_behind_it(tmp_path: Path, backend: str) -> None:
    world = failing_world(tmp_path, {195: 1})
    world.settings.update({"execution.checkpointing.interval": "1 h", "state.backend.type": backend})
    world.write(3)
    life = world.begin()
    life.read_all()
    life.ask("cp", RequestKind.CHECKPOINT)
    newest = life.answer("cp").result["snapshot"]
    world.write(7)
    life.read_all()
    assert life.stop() is None
    world.check_output()
    (restart,) = restarts(world)
    assert restart.snapshot == newest
    told = [event for event in read_history(world.store, STREAM) if event.what == "restart"]
    (way,) = [event.measures for event in told if event.measures]
    assert isinstance(way, RecoveryTime)
    assert (way.kind, way.snapshot, way.detect_ms) == (RecoveryKind.RESTART, newest, 0.0)
    assert min(way.redeploy_ms, way.load_state_ms, way.reset_source_ms, way.reset_sink_ms, way.loaded_bytes) > 0
    assert 0 < life.heart.progress.replayed <= 140
    completed = [record.snapshot.id for record in world.records if isinstance(record, SnapshotCompleted)]
    assert completed == sorted(set(completed))


def test_before_any_checkpoint_it_begins_at_the_beginning(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {70: 1})
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(4)
    life = world.begin()
    until(lambda: restarts(world), "it restarts")
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert restarts(world)[0].snapshot is None


def test_f174_when_the_strategy_allows_no_more_the_root_cause_is_kept(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 99})
    world.settings["restart-strategy.fixed-delay.attempts"] = "2"
    world.write(3)
    error = world.begin().wait()
    assert isinstance(error, GivenUp)
    assert is_final(error)
    assert "ValueError: not good" in str(error)
    assert "the stream was restarted 2 times already" in str(error)
    assert len(restarts(world)) == 2
    told = [event for event in read_history(world.store, STREAM) if event.what == "restart"]
    assert told[-1].outcome == "FAILED"
    assert "ValueError: not good" in told[-1].text


def nested() -> Exception:
    try:
        raise SuppressRestarts("the account is closed")
    except SuppressRestarts as error:
        wrapped = RuntimeError("cannot go on")
        wrapped.__cause__ = error
        return wrapped


@pytest.mark.parametrize("error", [lambda: SuppressRestarts("the account is closed"), nested], ids=["itself", "nested"])
def test_f173_what_no_restart_mends_is_never_restarted(tmp_path: Path, error: Callable[[], Exception]) -> None:
    world = failing_world(tmp_path, {47: 1}, error=error)
    world.write(3)
    ended = world.begin().wait()
    assert isinstance(ended, GivenUp)
    assert is_final(ended)
    assert restarts(world) == []


def test_a_sink_that_fails_once_is_committed_by_the_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing_world(tmp_path, {})
    commit, failures = FilesCommitter.commit, ["the table is locked"]

    def fail_once(self: FilesCommitter, group: Any, handles: Any) -> None:
        if handles and failures:
            raise SinkFailed(failures.pop())
        commit(self, group, handles)

    monkeypatch.setattr(FilesCommitter, "commit", fail_once)
    world.write(4)
    life = world.begin()
    until(lambda: restarts(world), "it restarts")
    world.write(2)
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert [record.cause for record in restarts(world)] == ["the table is locked"]


def test_f163_checkpoints_that_fail_beyond_what_is_tolerated_restart_the_stream(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {})
    world.write(2)
    life = world.begin()
    life.read_all()
    life.until_completed(1)
    world.faults.times = 1
    world.faults.refused = ["upload"]
    world.write(3)
    until(lambda: restarts(world), "it restarts")
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert "tolerable-failed-checkpoints" in restarts(world)[0].cause
    needed = {
        handle.path
        for ref in world.catalogue.snapshots
        for handle in SnapshotFiles(world.store, ref).metadata().handles()
    }
    assert world.shared_files() == needed, "nothing of a failed attempt is left"


class LateStore(SteppingStore):
    """One slot is said not to be written, and appears when the next one wants its place."""

    late: bytes | None = None
    path = ""
    armed = False

    def create(self, path: str, data: bytes) -> bool:
        if self.armed and "/slots/" in path:
            self.armed, self.path, self.late = False, path, data
            raise StorageError(f"no answer to the creation of {path}")
        if path == self.path and self.late is not None:
            late, self.late = self.late, None
            super().create(path, late)
        return super().create(path, data)


def test_a_completion_that_lands_after_its_attempt_has_failed_is_what_the_restart_goes_on_from(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {})
    world.store = late = LateStore(world.store, lambda call: None)
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(3)
    life = world.begin()
    life.read_all()
    late.armed = True
    life.ask("cp", RequestKind.CHECKPOINT)
    until(lambda: restarts(world), "it restarts")
    assert life.answer("cp").outcome is Outcome.DONE, "it is complete, as the log says"
    world.write(2)
    life.read_all()
    assert life.stop() is None
    world.check_output()
    completed = next(record for record in world.records if isinstance(record, SnapshotCompleted))
    assert restarts(world)[0].snapshot == completed.snapshot.id


def test_a_stop_by_signal_does_not_wait_for_the_pause(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 1})
    world.settings["restart-strategy.fixed-delay.delay"] = "1 h"
    world.write(3)
    life = world.begin()
    until(lambda: life.heart.state is StreamState.RESTORING, "it waits")
    until(lambda: "ValueError: not good" in (world.heartbeat(1).cause or ""), "the cause is told")
    assert life.stop() is None
    assert isinstance(world.records[-1], Stopped)
    again = world.begin()
    again.read_all()
    assert again.stop() is None
    world.check_output()


def test_a_person_who_cancels_does_not_wait_for_the_pause_either(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 1})
    world.settings["restart-strategy.fixed-delay.delay"] = "1 h"
    world.write(3)
    life = world.begin()
    until(lambda: life.heart.state is StreamState.RESTORING, "it waits")
    life.ask("cancel", RequestKind.CANCEL)
    assert life.wait() is None
    assert isinstance(world.records[-1], Stopped)


def test_a_start_that_fails_is_told_and_not_restarted(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {})
    world.faults.refused = [f"list {StreamPaths(STREAM).shared}"]
    error = world.begin().wait()
    assert isinstance(error, StorageError)
    assert not is_final(error)
    world.faults.refused = []
    assert restarts(world) == []


def test_a_savepoint_whose_answer_was_lost_with_the_life_is_answered_by_the_next(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {67: 1})
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(3)
    life = world.begin()
    life.read_all()
    answers = StreamPaths(STREAM).answers
    world.faults.refused = [f"create {answers}"]
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    until(lambda: world.catalogue.find(SavepointName("before")), "the savepoint is there")
    world.write(1)
    until(lambda: restarts(world), "it restarts")
    world.faults.refused = []
    answer = life.answer("sp")
    assert (answer.outcome, answer.result["name"]) == (Outcome.DONE, "before")
    assert life.stop() is None


class StuckEngine(StandInEngine):
    """Cannot be halted, as a query that hangs in native code cannot."""

    def halt(self) -> bool:
        super().halt()
        return False


def test_what_cannot_be_ended_in_this_process_is_left_to_another_one(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 1})
    world.engine_class = StuckEngine
    world.write(3)
    error = world.begin().wait()
    assert error is not None
    assert "ValueError: not good" in str(error)
    assert not is_final(error), "another generation may follow"
    assert restarts(world) == []


def test_a_stop_is_heard_before_a_stream_that_fails_at_once_fails_again(tmp_path: Path) -> None:
    """Each life fails at its first record; the life that hears of the stop takes none in."""
    world = failing_world(tmp_path, {47: 999})
    world.settings["restart-strategy.fixed-delay.attempts"] = "1000"
    world.settings["restart-strategy.fixed-delay.delay"] = "300 ms"
    world.settings["restart-strategy.max-failures-per-position"] = "1000"
    world.settings["heartbeat.interval"] = "4 s"  # it is as deaf as that between two looks
    world.write(2)
    life = world.begin()
    life.read_all()
    life.until_completed(1)
    world.write(3)
    until(lambda: len(restarts(world)) > 1, "it restarts")
    life.ask("stop", RequestKind.STOP)
    assert life.answer("stop").outcome is Outcome.DONE
    assert life.wait() is None
    assert isinstance(world.records[-1], Stopped)
    assert len(restarts(world)) < 12


def test_a_pause_is_cut_short_once_by_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing_world(tmp_path, {})
    lives = world.begin().life
    lives.ask_to_stop("SIGTERM")
    assert lives._end_is_wanted()
    assert not lives._end_is_wanted()
    until(lambda: isinstance(world.records[-1], Stopped), "it stops")


def test_an_end_whose_writing_is_not_answered_is_written_again_and_told(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {})
    world.store = late = LateStore(world.store, lambda call: None)
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.write(1)
    life = world.begin()
    life.read_all()
    late.armed = True
    life.ask("cancel", RequestKind.CANCEL)
    assert life.answer("cancel").outcome is Outcome.DONE
    assert life.wait() is None
    assert isinstance(world.records[-1], Stopped)
    assert restarts(world) == []
