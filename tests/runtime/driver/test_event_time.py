"""How far event time has come: told by sources, through channels, and from one life to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.driver.graph_running import watermarks_of
from headgate.gate.elements import ChannelId, Watermark
from headgate.gate.flow import Topology
from headgate.recovery.fetch import SnapshotFiles
from headgate.step.operators import Keyed
from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import InputState, SnapshotMetadata, TaskState
from jobs.running_number import number
from tests.runtime.driver.graph_world import GraphWorld
from tests.runtime.driver.life_world import LifeWorld
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.timeout(200)


def newest(world: LifeWorld) -> SnapshotMetadata:
    return SnapshotFiles(world.store, world.catalogue.snapshots[-1]).metadata()


def test_a_step_is_told_what_the_micro_batches_before_have_brought_less_the_delay(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []

    def watching(rows: pa.Table, keyed: Keyed) -> Any:
        seen.append((min(rows.column("id").to_pylist()) // 40, keyed.watermark_ms))
        return number(rows, keyed)

    world = LifeWorld(tmp_path, watching)
    world.delay_ms = 5
    world.write(4)  # two files, and so forty records, a micro-batch
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    assert set(seen) == {(0, None), (1, 39 - 5 - 1)}
    assert newest(world).watermark_ms == 79 - 5 - 1

    seen.clear()
    world.write(2)
    life = world.begin()
    life.read_all()
    until(lambda: life.heart.progress.watermark_ms == 119 - 5 - 1, "it is told behind the records")
    assert life.stop() is None
    assert set(seen) == {(2, 79 - 5 - 1)}, "as the snapshot has it"
    world.check_output()


def test_event_time_goes_through_channels_and_from_one_life_to_the_next(tmp_path: Path) -> None:
    world = GraphWorld(tmp_path)
    world.delay_ms = 0
    world.write(3)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    metadata = newest(world)
    assert metadata.watermark_ms == 59 - 1, "the least of the two: the ids on the right are higher by a million"
    assert {uid: task.watermark_ms for uid, task in metadata.tasks.items()} == {"pair": 58, "number": 58}
    right = metadata.tasks[VertexUid("pair")].inputs["right->pair"]
    assert (right.watermark_ms, right.idle, right.in_flight) == (1_000_059 - 1, False, ())

    world.event_times.clear()
    world.write_to("left", 2)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    assert world.event_times[0] == 58
    assert sorted(set(filter(None, world.event_times))) in ([58], [58, 78], [58, 78, 98])
    assert newest(world).watermark_ms == 98
    world.check_output()


def test_what_unaligned_barriers_have_overtaken_of_event_time_is_told_after_a_restore(tmp_path: Path) -> None:
    world = GraphWorld(tmp_path)
    world.delay_ms = 0
    world.slow_s = 0.05
    world.settings |= {
        "execution.checkpointing.unaligned.enabled": "true",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "50 ms",
    }
    world.write(6)
    world.fails_at, world.fails = 70, 1
    life = world.begin()
    until(lambda: world.fails == 0 or life.error, "it fails")
    life.until_restarted()
    life.read_all()
    assert life.stop() is None
    assert newest(world).watermark_ms == 118
    world.check_output()


LEFT, RIGHT = ChannelId(VertexUid("left"), VertexUid("pair")), ChannelId(VertexUid("right"), VertexUid("pair"))
TOPOLOGY = Topology({}, {VertexUid("pair"): (LEFT, RIGHT)}, {})


def test_a_task_that_the_snapshot_does_not_know_is_as_far_as_all_of_them_were() -> None:
    """A linear job that has got channels; a task that was cut elsewhere."""
    found = watermarks_of(TOPOLOGY, {}, 40)[VertexUid("pair")]
    assert (found.passed, found.levels) == (40, {LEFT: None, RIGHT: None})
    assert found.after(LEFT, Watermark(30)).after(RIGHT, Watermark(35)).passed == 40


def test_that_everybody_was_told_of_idleness_is_known_after_a_restore() -> None:
    idle = InputState(watermark_ms=5, idle=True)
    tasks = {VertexUid("pair"): TaskState({"left->pair": idle, "right->pair": idle}, 5)}
    found = watermarks_of(TOPOLOGY, tasks, None)[VertexUid("pair")]
    back = found.after(LEFT, Watermark(4))
    assert back.news_since(found) == (Watermark(5),), "those behind wait for it again"
