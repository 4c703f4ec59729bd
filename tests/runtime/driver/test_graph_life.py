"""Lives of a job with channels, on the stand-in for Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.errors import RestoreRefused, SnapshotDamaged, StorageError
from headgate_contract.heartbeats import StreamState
from headgate_contract.history import read_history
from headgate_contract.ids import VertexUid
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.records import Restarted
from tests.runtime.driver.graph_world import KEYS, RIGHT, GraphWorld, RuledWorld
from tests.runtime.driver.life_world import STREAM, Running
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def world(tmp_path: Path) -> GraphWorld:
    return GraphWorld(tmp_path)


def test_every_record_of_both_inputs_comes_once_to_both_sinks(world: GraphWorld) -> None:
    world.write(4)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_a_successor_goes_on_where_the_last_checkpoint_stands(world: GraphWorld) -> None:
    world.write(3)
    life = world.begin()
    life.read_all()
    life.until_completed(2)
    world.write(2)
    assert life.stop() is None
    world.write_to("right", 3)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}


def in_flight(world: GraphWorld) -> list[int]:
    """How many micro-batches each retained snapshot holds of the channel between the steps."""
    found = []
    for ref in world.catalogue.snapshots:
        try:
            metadata = SnapshotFiles(world.store, ref).metadata()
        except SnapshotDamaged:
            if ref in world.catalogue.snapshots:
                raise
            continue  # retired since it was listed
        held = metadata.tasks[VertexUid("number")].inputs["pair->number"].in_flight
        found.append(sum(bool(each.files) for each in held))
    return found


LOOKED_AT = {**UNALIGNED, "execution.checkpointing.interval": "200 ms", "execution.checkpointing.num-retained": "3"}
"""So that a snapshot can be read before it is retired."""


def until_in_flight(world: GraphWorld, life: Running, batches: int) -> None:
    """Until a retained snapshot holds so many micro-batches of the channel, which is given more while it is looked."""

    until_fed(world, life, lambda: max(in_flight(world), default=0) >= batches, f"{batches} micro-batches in flight")


def until_fed(world: GraphWorld, life: Running, condition: Callable[[], bool], what: str) -> None:
    """Until this holds; meanwhile there is always something to read."""

    def fed() -> bool:
        if life.heart.progress.records >= world.written - 40:
            world.write(1)
        return condition()

    until(lambda: life.error or fed(), what)


def fails_once(world: GraphWorld, at: int) -> None:
    """`number` fails when it meets the record `at` for the first time, and restarts are allowed."""
    world.settings["restart-strategy.type"] = "fixed-delay"
    world.settings["restart-strategy.fixed-delay.delay"] = "50 ms"
    world.fails_at, world.fails = at, 1


def test_what_unaligned_barriers_have_overtaken_comes_first_after_a_restart(world: GraphWorld) -> None:
    world.settings |= UNALIGNED
    world.slow_s = 0.1
    world.write(10)
    fails_once(world, world.ids["left"])
    life = world.begin()
    life.until_completed(1)
    world.write(2)  # the first of these fails, so there is a checkpoint to go back to
    until(lambda: world.fails == 0 or life.error, "it fails")
    life.until_restarted()
    assert life.error is None
    life.read_all()
    assert life.stop() is None
    world.check_output()
    (restart,) = [record for record in world.records if isinstance(record, Restarted)]
    assert restart.snapshot is not None


def test_a_checkpoint_holds_the_files_of_what_is_in_flight_and_a_successor_begins_with_them(world: GraphWorld) -> None:
    world.settings |= LOOKED_AT
    world.slow_s = 0.2
    world.write(10)
    life = world.begin()
    until_in_flight(world, life, 3)
    world.settings["execution.checkpointing.interval"] = "1 h"  # what it ended with is what the next one begins with
    world.take_over()
    life.wait()
    held = in_flight(world)
    assert max(held) >= 1
    world.slow_s = 0.0
    life = world.begin(settings={"parallelism.default": "3"})
    life.read_all()
    assert life.stop() is None
    world.check_output()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        UNALIGNED,
        {**UNALIGNED, "execution.checkpointing.aligned-checkpoint-timeout": "100 ms"},
    ],
    ids=["aligned", "unaligned", "timeout"],
)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_exactly_once_over_failures_with_unequal_inputs(
    world: GraphWorld, settings: dict[str, str], backend: str
) -> None:
    world.settings |= {**settings, "state.backend.type": backend}
    world.slow_s = 0.03
    world.write_to("left", 10)
    world.write_to("right", 3)
    fails_once(world, 100)
    life = world.begin()
    until(lambda: world.fails == 0 or life.error, "it fails")
    life.until_restarted()
    world.write_to("right", 4)
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_a_stop_lets_the_channels_run_dry_before_its_last_snapshot(world: GraphWorld) -> None:
    world.settings |= {**UNALIGNED, "execution.checkpointing.interval": "1 h"}
    world.slow_s = 0.1
    world.write(5)
    life = world.begin()
    until(lambda: life.heart.progress.batches >= 4, "some are on their way")
    assert life.stop() is None
    assert in_flight(world) == [0]
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_savepoints_are_aligned_and_restore_at_another_parallelism(world: GraphWorld) -> None:
    world.settings |= UNALIGNED
    world.slow_s = 0.1
    world.write(6)
    life = world.begin()
    until(lambda: life.heart.progress.batches >= 4, "some are on their way")
    life.ask("sp", RequestKind.SAVEPOINT, name="before")
    assert life.answer("sp").outcome is Outcome.DONE
    world.write(1)
    life.read_all()
    assert life.stop() is None
    world.check_output()
    saved = SnapshotFiles(world.store, next(ref for ref in world.catalogue.snapshots if ref.name == "before"))
    tasks = saved.metadata().tasks
    assert {channel for task in tasks.values() for channel in task.inputs} == {
        "left->pair",
        "right->pair",
        "pair->number",
    }
    assert not any(each.in_flight for task in tasks.values() for each in task.inputs.values())
    life = world.begin("before", settings={"parallelism.default": "4"})
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_scratch_files_of_channels_are_deleted_when_nobody_needs_them(world: GraphWorld) -> None:
    world.write(10)
    life = world.begin()
    life.read_all()
    folder = world.base / "g1" / "state" / "r0.channels"
    world.write(2)
    life.read_all()
    life.until_completed(2)  # there may be no more: one for what has come, and one that notes what is published
    world.write(1)
    life.read_all()
    until(lambda: len(list(folder.iterdir())) <= 4, "the scratch is deleted")
    assert life.stop() is None
    world.check_output()


@pytest.mark.timeout(280)  # up to ten rounds of some seconds
def test_at_least_once_loses_nothing_and_doubles_what_came_behind_a_barrier(world: GraphWorld) -> None:
    """The left channel is full, the right one is not: what comes behind the right one's barrier goes into the state
    before the left one's has come, and is read again after the failure. It fails until that has happened."""
    world.settings["execution.checkpointing.mode"] = "AT_LEAST_ONCE"
    world.settings["restart-strategy.fixed-delay.attempts"] = "100"  # by default one
    world.pair_s = 0.02

    def fill_and_fail() -> None:
        world.write_to("left", 20)
        fails_once(world, world.ids["left"] - 20)

    def have_it_fail() -> None:
        while world.fails and not life.error:
            world.write_to("right", 1, rows=5)
            time.sleep(0.1)
        until(lambda: life.error or {row["id"] for row in world.output()} == wanted(), "nothing is lost")
        assert life.error is None

    def wanted() -> set[int]:
        return {*range(world.ids["left"]), *range(RIGHT, world.ids["right"])}

    def doubled() -> list[int]:
        """Those of the right one: the left one's barrier came last, which it need not do each time."""
        return [id for id, times in Counter(row["id"] for row in world.output()).items() if times > 1 and id >= RIGHT]

    fill_and_fail()
    life = world.begin()
    have_it_fail()
    for _ in range(10):
        if doubled():
            break
        fill_and_fail()
        have_it_fail()
    assert life.stop() is None
    assert {row["id"] for row in world.output()} == wanted()
    assert doubled(), "nothing was doubled, ten times: at least once does as exactly once"


def test_f139_channel_state_that_cannot_be_written_does_not_spoil_the_next_checkpoint(world: GraphWorld) -> None:
    world.settings |= {**LOOKED_AT, "execution.checkpointing.tolerable-failed-checkpoints": "1000"}
    world.slow_s = 0.1
    refused: list[str] = []

    def refuse_channel_files(call: str) -> None:
        if call.startswith("upload") and ".pair.arrow" in call and len(refused) < 3:
            refused.append(call)
            raise StorageError(f"cannot {call}: no space left on device")

    world.faults.act = refuse_channel_files
    world.write(8)
    life = world.begin()
    until_fed(world, life, lambda: len(refused) == 3, "the channel's files are refused")
    enough = len(world.catalogue.completed) + 2
    until_fed(world, life, lambda: len(world.catalogue.completed) >= enough, "checkpoints complete")
    until_in_flight(world, life, 1)
    world.slow_s = 0.0
    life.read_all()
    assert life.stop() is None
    assert life.heart.progress.failed_checkpoints >= 1
    world.check_output()


def test_f140_what_was_in_flight_is_left_behind_only_where_somebody_says_so(world: GraphWorld) -> None:
    world.settings |= LOOKED_AT
    world.slow_s = 0.2
    world.write(10)
    life = world.begin()
    until_in_flight(world, life, 3)
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.take_over()
    life.wait()
    held = {ref.id: batches for ref, batches in zip(world.catalogue.snapshots, in_flight(world), strict=True)}
    chosen = next(id for id, batches in held.items() if batches)
    without = "execution.checkpointing.recover-without-channel-state.checkpoint-id"
    world.slow_s = 0.0
    life = world.begin(chosen, settings={without: str(int(chosen))})
    life.read_all()
    assert life.stop() is None
    lost = world.written - len({row["id"] for row in world.output()})
    assert lost == 20 * held[chosen], "of each micro-batch in flight twenty records"
    assert len({row["id"] for row in world.pairs()}) == world.written
    events = [event.text for event in read_history(world.store, STREAM)]
    assert any(f"micro-batches with {lost} records in flight in snapshot {chosen} are left behind" in e for e in events)


def test_a_drain_lets_every_step_say_its_last_words_each_behind_those_before_it(world: GraphWorld) -> None:
    world.write(3)
    world.says_last_words = True
    life = world.begin()
    until(lambda: life.heart.progress.batches >= 2, "some are on their way")
    life.ask("end", RequestKind.STOP, savepoint="last", drain=True)
    assert life.wait() is None
    rows = world.output()
    words = [row for row in rows if row["id"] < 0]
    assert sorted(row["key"] for row in words) == list(range(KEYS)), "of each key one, which `pair` has said"
    said = {row["key"]: row["number"] for row in words}
    numbers = Counter(row["key"] for row in rows)
    assert said == dict(numbers), "behind everything else of its key"


def test_a_step_to_which_nothing_has_come_in_this_life_finishes_what_it_has_from_the_last_one(
    world: GraphWorld,
) -> None:
    world.write(2)
    world.number_says_last_words = True
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    life = world.begin()
    until(lambda: life.heart.state is StreamState.RUNNING or life.error, "it runs")
    life.ask("end", RequestKind.STOP, savepoint="last", drain=True)
    assert life.wait() is None
    assert sorted(row["key"] for row in world.output() if row["id"] == -2) == list(range(KEYS))


def test_a_step_behind_several_others_a_fan_out_and_a_broadcast_input(tmp_path: Path) -> None:
    """Left and right are merged, limited by a rule that is broadcast, and numbered."""
    world = RuledWorld(tmp_path)
    world.write(3)
    world.write_rule(limit=5)
    life = world.begin()
    life.read_all()
    until(lambda: any(row["number"] > 0 for row in world.output()) or life.error, "the rule is known")
    world.write(3)
    life.read_all()
    assert life.stop() is None
    merged = [row["id"] for row in world.rows("merged")]
    assert sorted(merged) == sorted([*range(world.ids["left"]), *range(RIGHT, world.ids["right"])])
    assert Counter(row["key"] for row in world.output()).keys() == set(range(5))
    before = len(world.output())
    world.write(2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    assert len(world.output()) > before, "the rule has outlived the restart"
    for key in range(5):
        numbers = sorted(row["number"] for row in world.output() if row["key"] == key)
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_job_that_has_lost_the_channel_of_what_is_in_flight_is_refused(world: GraphWorld) -> None:
    world.settings |= LOOKED_AT
    world.slow_s = 0.2
    world.write(10)
    life = world.begin()
    until_in_flight(world, life, 1)
    world.settings["execution.checkpointing.interval"] = "1 h"
    world.take_over()
    life.wait()
    assert in_flight(world)[0]
    world.slow_s = 0.0
    world.number_uid = "renumber"
    error = world.begin(leaves=["number"]).wait()
    assert isinstance(error, RestoreRefused)
    assert "in flight in pair->number, and the job has no such channel" in str(error)
    world.number_uid = "number"
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_a_task_that_ends_by_anything_at_all_fails_the_stream(world: GraphWorld) -> None:
    world.fails_at, world.fails, world.failure = 20, 1, SystemExit("enough")
    world.write(3)
    error = world.begin().wait()
    assert "task number failed" in str(error)
    assert "enough" in str(error)
