"""Records that fail a stream again and again: told with their place, given up; what passes is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.driver.lives import GivenUp, is_final
from headgate.driver.poison import Repeated, Trouble
from headgate.source.place import Place
from headgate.step.blame import author_failed, passes, passes_by_name
from headgate.testing.stand_in import StandInEngine
from headgate_contract.errors import BatchFailed, RecordFailed
from headgate_contract.history import read_history
from headgate_contract.ids import VertexUid
from tests.runtime.driver.failing_lives import QUICK, failing_world, restarts
from tests.runtime.driver.graph_world import GraphWorld
from tests.runtime.driver.life_world import STREAM

ALWAYS = 1000
A = "source 'a'"


def trouble(*files: str, cause: str = "ValueError: 7 is bad", where: str = "source 'a'", count: int = 4) -> Trouble:
    return Trouble(Place(where=where, parts=files, since={"count": count}), cause)


def test_the_same_records_are_those_of_micro_batches_that_share_a_file_or_begin_alike() -> None:
    first = trouble("x", "y")
    assert first.is_again(trouble("y", "z", count=5, cause="ValueError: 19 is bad"))
    assert not first.is_again(trouble("z"))
    assert not first.is_again(trouble("x", where="source 'b'"))
    assert not first.is_again(trouble("x", cause="KeyError: 7 is bad"))
    assert trouble(count=5).is_again(trouble(count=5))
    assert not trouble(count=5).is_again(trouble(count=6))


def test_what_waited_in_a_channel_is_known_by_its_files_or_by_where_the_sources_stood() -> None:
    def place(file: str, count: int) -> Place:
        return Place(where="channel a->b", parts=(file,), behind={"a": {"count": count}, "c": {"initial": True}})

    assert place("x", 3).is_at(place("y", 3))
    assert place("x", 3).is_at(place("x", 4))
    assert not place("x", 3).is_at(place("y", 4))
    assert str(place("x", 3)) == "channel a->b, behind file 3 of source 'a', from the beginning of source 'c'"


def test_what_comes_by_a_channel_is_known_by_what_it_was_made_of_wherever_the_sources_stood() -> None:
    def place(count: int, *files: str) -> Place:
        since = {"count": count}
        return Place(where="channel a->b, from source 'a'", parts=files, since=since, behind={"a": {"count": count}})

    assert place(3, "x", "y").is_at(place(2, "y", "z"))
    assert not place(3, "x").is_at(place(2, "y"))
    assert str(place(3, "/x")) == "channel a->b, from source 'a', in /x, its file 4"


def test_where_many_files_are_told_of_only_the_first_are_named() -> None:
    many = Place(where=A, parts=tuple(f"/{number}" for number in range(1000)), since={"count": 0})
    told = Place.decode(many.encode())
    assert len(told.parts) == 100
    assert str(told) == f"{A}, in one of 1000 files from /0 on, its files 1 to 1000"


def test_only_lives_in_a_row_count() -> None:
    repeated = Repeated()
    assert [repeated.note(trouble("x")) for _ in range(3)] == [1, 2, 3]
    assert [repeated.note(None), repeated.note(trouble("x")), repeated.note(trouble("y"))] == [0, 1, 1]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (Place(where=A, parts=("file:///in/a%20b",), since={"count": 4}), "in /in/a b, its file 5"),
        (
            Place(where=A, parts=("/a", "/b\n", "/c"), since={"initial": True}),
            "in one of 3 files from /a to /c, its files 1 to 3",
        ),
        (Place(where=A, parts=("/b\n",), since={"count": 0}), "in '/b\\n', its file 1"),
        (Place(where=A, since={"offset": "7"}, until="9"), "behind 7 up to 9"),
        (Place(where=A, since={"initial": True}, until="9", found="line 2"), "line 2, from its beginning up to 9"),
    ],
)
def test_a_place_is_told_in_a_line(place: Place, told: str) -> None:
    assert str(place) == f"{A}, {told}"


class OperationalError(Exception):
    """What database drivers call it when the database is away."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((error, False) for error in (ValueError(), KeyError("x"), RuntimeError(), Exception(), AssertionError())),
        *((error, True) for error in (ConnectionError(), OSError(), MemoryError(), TimeoutError(), OperationalError())),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_network_or_a_machine_raises_passes_and_what_the_records_make_an_author_raise_does_not(
    error: Exception, expected: bool
) -> None:
    assert passes(error) is expected
    assert passes_by_name(type(error).__name__) is expected
    assert isinstance(author_failed("it", error), RecordFailed) is not expected
    assert isinstance(author_failed("it", error), BatchFailed)


def test_a_value_that_was_missed_because_a_database_was_away_passes() -> None:
    error = ValueError("no value")
    error.__context__ = OperationalError()
    assert passes(error)


def test_a_record_that_fails_each_life_is_given_up_with_its_place(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: ALWAYS})
    world.write(4)
    life = world.begin()
    error = life.wait()
    assert isinstance(error, GivenUp)
    assert is_final(error)
    assert len(restarts(world)) == 2
    told = str(error)
    assert "ValueError: not good" in told
    assert "source 'records', in " in told
    assert (
        "3 times in a row at the same records of source 'records' (restart-strategy.max-failures-per-position)" in told
    )
    assert "mend or remove the record" in told
    assert all("source 'records', in " in record.cause for record in restarts(world))
    (last,) = [
        event for event in read_history(world.store, STREAM) if (event.what, event.outcome) == ("restart", "FAILED")
    ]
    assert "source 'records', in " in last.text


def test_how_often_is_a_setting(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 3})
    world.settings["restart-strategy.max-failures-per-position"] = "4"
    world.write(4)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()


@pytest.mark.parametrize("error", [lambda: ConnectionError("the lookup service is away"), MemoryError])
def test_what_passes_is_tried_as_often_as_the_strategy_says(tmp_path: Path, error: Callable[[], Exception]) -> None:
    world = failing_world(tmp_path, {47: 5}, error=error)
    world.write(4)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert len(restarts(world)) == 5


def test_a_stream_that_has_come_past_the_record_begins_to_count_anew(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: 2, 150: 2})
    world.write(8)
    life = world.begin()
    life.read_all()
    assert life.stop() is None
    world.check_output()
    assert len(restarts(world)) == 4


@pytest.mark.parametrize("interval", ["50 ms", "1 h"])
@pytest.mark.parametrize("unaligned", ["true", "false"])
def test_a_record_that_fails_a_step_behind_a_channel_is_given_up_too(
    tmp_path: Path, interval: str, unaligned: str
) -> None:
    world = GraphWorld(tmp_path)
    world.settings |= {
        **QUICK,
        "restart-strategy.fixed-delay.attempts": "30",
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.unaligned.enabled": unaligned,
    }
    world.slow_s = 0.02
    world.fails_at, world.fails = 50, ALWAYS
    world.write(6)
    error = world.begin().wait()
    assert isinstance(error, GivenUp)
    told = str(error)
    assert "50 is not good" in told
    assert f"channel pair->number, from source 'left', in {tmp_path}/left/00000040.parquet, its file 3" in told
    assert "at the same records of channel pair->number, from source 'left'" in told
    assert len(restarts(world)) < 15


class StubbornEngine(StandInEngine):
    """Something of a life goes on in its process, so that no other one may follow there."""

    def halt(self) -> bool:
        return super().halt() and False


def test_failures_at_the_same_records_are_counted_over_the_drivers_that_follow_each_other_by_themselves(
    tmp_path: Path,
) -> None:
    world = failing_world(tmp_path, {47: ALWAYS})
    world.engine_class = StubbornEngine
    world.write(4)
    for by_itself in (False, True):
        error = world.begin(by_itself=by_itself).wait()
        assert error is not None
        assert not is_final(error)
    world.launch(by_itself=True)  # it dies before it has said a word
    error = world.begin(by_itself=True).wait()
    assert isinstance(error, GivenUp), error
    assert "the stream failed 3 times in a row at the same records of source 'records'" in str(error)


def test_who_starts_a_stream_that_failed_of_a_record_begins_to_count_anew(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: ALWAYS})
    world.engine_class = StubbornEngine
    world.write(4)
    for by_itself in (False, True, False, True):
        error = world.begin(by_itself=by_itself).wait()
        assert error is not None
        assert not is_final(error), error


def test_a_driver_that_fails_of_something_else_ends_the_row(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {47: ALWAYS})
    world.engine_class = StubbornEngine
    world.write(4)
    told = []
    for passing in (False, True, False, False, False):
        world.step.error = (lambda: ConnectionError("away")) if passing else (lambda: ValueError("not good"))  # type: ignore[attr-defined]
        told.append(is_final(world.begin(by_itself=bool(told)).wait() or Exception()))
    assert told == [False, False, False, False, True]


class UnreadableFolder(StandInEngine):
    """Its query ends by itself, since nobody can list its folder as it stands."""

    def failure(self) -> str | None:
        return super().failure() or ("source 'records': subfolders 1, 2" if any(self.read) else None)

    def blamed(self) -> VertexUid | None:
        return VertexUid("records")

    @property
    def read(self) -> list[bool]:
        return [feed.looked_ms is not None for feed in self._feeds.values()]


def test_a_folder_that_nobody_can_list_as_it_stands_gives_the_stream_up(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {})
    world.settings["restart-strategy.fixed-delay.attempts"] = "30"
    world.engine_class = UnreadableFolder
    world.write(1)
    error = world.begin().wait()
    assert isinstance(error, GivenUp), error
    assert "source 'records': subfolders 1, 2" in str(error)
    assert "failed 3 times in a row at the same records of source 'records'" in str(error)
    assert len(restarts(world)) < 5
