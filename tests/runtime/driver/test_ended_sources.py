"""Lives whose sources end: who is through finishes, holds up nobody, and the stream stops by itself when all are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headgate.coordinator.coordinator import INPUT_ENDED
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation, RequestId, VertexUid
from headgate_contract.mailbox import Mailbox, Outcome, Request, RequestKind
from headgate_contract.records import Restarted, Stopped
from headgate_contract.snapshot import SnapshotMetadata
from tests.runtime.driver.graph_world import KEYS, RIGHT, GraphWorld
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import until

pytestmark = pytest.mark.timeout(200)

BOTH = frozenset({"left", "right"})
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}


@pytest.fixture
def world(tmp_path: Path) -> GraphWorld:
    world = GraphWorld(tmp_path)
    world.says_last_words = world.number_says_last_words = True
    return world


def newest(world: LifeWorld) -> SnapshotMetadata:
    found = world.newest_metadata()
    assert found is not None
    return found


def has_ended(world: LifeWorld, source: str) -> bool:
    found = world.newest_metadata()
    return found is not None and bool(found.sources[VertexUid(source)].position.get("ended"))


def stopped(world: LifeWorld) -> list[Stopped]:
    return [record for record in world.records if isinstance(record, Stopped)]


def check_last_words(world: GraphWorld) -> None:
    """`pair` has said its own of each key once, and `number`, which has numbered those, too."""
    ids = [*range(world.ids["left"]), *range(RIGHT, world.ids["right"])]
    counts = {key: sum(1 for id in ids if id % KEYS == key) for key in range(KEYS)}
    once = dict.fromkeys(range(KEYS), 1)
    assert Counter(row["key"] for row in world.rows("pairs") if row["id"] == -1) == once
    assert Counter(row["key"] for row in world.rows("out") if row["id"] == -2) == once
    said = {row["key"]: row["number"] for row in world.rows("out") if row["id"] == -1}
    assert said == {key: count + 1 for key, count in counts.items()}, "behind all of its records"
    for folder in ("pairs", "out"):
        assert sorted(row["id"] for row in world.rows(folder) if row["id"] >= 0) == sorted(ids)


@pytest.mark.parametrize("settings", [{}, UNALIGNED], ids=["aligned", "unaligned"])
def test_a_job_whose_sources_end_finishes_and_stops_by_itself(world: GraphWorld, settings: dict[str, str]) -> None:
    world.bounded = BOTH
    world.settings |= settings
    world.write_to("left", 6)
    world.write_to("right", 2)
    assert world.begin().wait() is None
    check_last_words(world)
    (end,) = stopped(world)
    assert end.reason == INPUT_ENDED
    assert end.snapshot == newest(world).id
    assert set(newest(world).finished) == {"pair", "number"}


def test_what_is_started_from_there_ends_at_once_and_says_nothing_twice(world: GraphWorld) -> None:
    world.bounded = BOTH
    world.write(3)
    assert world.begin().wait() is None
    assert world.begin().wait() is None
    assert world.begin(settings={"parallelism.default": "3"}).wait() is None
    check_last_words(world)
    assert len(stopped(world)) == 3


def test_files_that_come_when_the_source_has_ended_are_not_of_its_input(world: GraphWorld) -> None:
    world.bounded = BOTH
    world.write(2)
    assert world.begin().wait() is None
    ids = dict(world.ids)
    world.write(1)
    assert world.begin().wait() is None
    world.ids = ids
    check_last_words(world)


def test_a_source_that_is_not_bounded_any_more_goes_on_where_it_ended(world: GraphWorld) -> None:
    world.says_last_words = world.number_says_last_words = False
    world.bounded = BOTH
    world.write(2)
    assert world.begin().wait() is None
    world.bounded = frozenset()
    life = world.begin()
    world.write(2)
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_one_input_ends_and_the_other_goes_on_with_checkpoints(world: GraphWorld) -> None:
    world.says_last_words = world.number_says_last_words = False
    world.bounded = frozenset({"left"})
    world.write(3)
    life = world.begin()
    life.read_all()
    until(lambda: life.error or has_ended(world, "left"), "it is told as ended")
    before = len(world.catalogue.completed)
    world.write_to("right", 4)
    life.read_all()
    life.until_completed(before + 2)
    assert life.heart.state is StreamState.RUNNING
    assert life.stop() is None
    assert newest(world).finished == ()
    life = world.begin()
    world.write_to("right", 2)
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_an_ended_source_holds_up_no_event_time(world: GraphWorld) -> None:
    world.says_last_words = world.number_says_last_words = False
    world.delay_ms = 0
    world.bounded = frozenset({"left"})
    world.write_to("left", 1)
    world.write_to("right", 3)
    life = world.begin()
    life.read_all()
    until(lambda: life.error or (life.heart.progress.watermark_ms or 0) >= RIGHT, "right alone tells the event time")
    assert life.stop() is None


@pytest.mark.parametrize("settings", [{}, UNALIGNED], ids=["aligned", "unaligned"])
def test_over_failures_the_end_comes_once(world: GraphWorld, settings: dict[str, str]) -> None:
    world.bounded = BOTH
    world.settings |= settings
    world.settings["restart-strategy.type"] = "fixed-delay"
    world.settings["restart-strategy.fixed-delay.delay"] = "50 ms"
    world.slow_s = 0.05
    world.write_to("left", 8)
    world.write_to("right", 3)
    world.fails_at, world.fails = -1, 1  # at the last words of `pair`, when that is through
    assert world.begin().wait() is None
    assert any(isinstance(record, Restarted) for record in world.records)
    check_last_words(world)


def test_a_savepoint_that_is_asked_for_before_the_end_is_taken(world: GraphWorld) -> None:
    world.bounded = frozenset({"left"})
    world.write(2)
    life = world.begin()
    life.read_all()
    life.ask("save", RequestKind.SAVEPOINT, name="sp")
    assert life.answer("save").outcome is Outcome.DONE
    assert life.stop() is None


def test_a_linear_job_ends_with_its_source(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.bounded = frozenset({"records"})
    world.write(5)
    assert world.begin().wait() is None
    world.check_output()
    assert [end.reason for end in stopped(world)] == [INPUT_ENDED]
    assert newest(world).finished == ("number",)
    assert world.begin().wait() is None
    world.check_output()


def test_a_source_that_ends_while_a_drain_finishes_has_ended_in_its_savepoint(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.write(1)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.bounded = frozenset({"records"})  # of which everything was read
    begun: list[Running] = []
    world.finish = lambda keyed: until(
        lambda: begun and told_ended(begun[0]), "the coordinator knows that it has ended"
    )
    drain = Request(
        id=RequestId("drain"),
        kind=RequestKind.STOP,
        generation=Generation(2),
        args={"savepoint": "last", "drain": True},
        deadline_ms=60_000,
        by="ann",
        at_ms=0,
    )
    Mailbox(world.store, STREAM).ask(drain)
    begun.append(world.begin())
    assert begun[0].wait() is None
    assert newest(world).name == "last"
    assert has_ended(world, "records")


def told_ended(life: Running) -> bool:
    assert life.life._alive is not None
    return life.life._alive._coordinator.is_through


def test_a_task_that_another_job_had_finished_finishes_here(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.bounded = frozenset({"records"})
    world.write(1)
    assert world.begin().wait() is None
    assert newest(world).finished == ("number",)
    world.step_uid = "counted"
    assert world.begin(leaves=["number"]).wait() is None
    assert newest(world).finished == ("counted",)


def test_an_empty_input_ends_at_once(tmp_path: Path) -> None:
    world = LifeWorld(tmp_path)
    world.bounded = frozenset({"records"})
    assert world.begin().wait() is None
    world.write(1)
    assert world.begin().wait() is None
    assert world.output() == []
