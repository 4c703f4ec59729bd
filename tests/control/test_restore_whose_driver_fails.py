"""Rescale and restore of a stream that ran well, whose new driver does not come up: it runs again as it ran before."""

from __future__ import annotations

import pytest

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import LaunchFailed
from headgate_contract.ids import Generation, StreamName
from headgate_contract.records import Deployed, GenerationStarted, StopWanted
from headgate_contract.restore import RestoreFrom
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef
from headgate_control import Condition
from headgate_control.launch import Launcher, LaunchInProgress
from headgate_control.starting import Starter
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

pytestmark = pytest.mark.e2e

AT_THREE = "MODE = lambda settings: '{}' if settings['parallelism.default'] == 3 else 'runs'\n"
"""A job that does otherwise with three subtasks."""
GOES_ON = "it was stopped for that, and goes on as it was, as generation 3"


def running(world: World, mode: str = "exits", **settings: str) -> World:
    """A stream that runs well with two subtasks, and would not with three."""
    world.write_job(AT_THREE.format(mode))
    world.deployed(parallelism__default="2", **settings)
    world.control().start(STREAM)
    return world


def newest(catalogue: Catalogue) -> tuple[GenerationStarted, Deployed, SnapshotRef]:
    """The newest generation, what it runs, and what it was started from."""
    start = catalogue.newest_generation
    assert start is not None
    ran = catalogue.deployed_at(start.deployed)
    assert ran is not None
    assert isinstance(start.decision, RestoreFrom)
    return start, ran, start.decision.snapshot


def parallelism(deployed: Deployed | None) -> int:
    assert deployed is not None
    return int(Settings(deployed.settings)["parallelism.default"])


def test_a_rescale_whose_driver_does_not_come_up_is_taken_back(world: World, cli: Cli) -> None:
    running(world)
    said = cli("rescale", STREAM, "3")
    assert said.code == 8
    assert "generation 2 of stream orders did not come up: " in said.all
    assert "ERROR the port 4040 is taken" in said.all
    assert GOES_ON in said.all
    catalogue = world.catalogue()
    start, ran, taken = newest(catalogue)
    assert start.generation == 3
    assert world.control().status(STREAM).condition is Condition.RUNNING
    assert taken == [ref for ref in catalogue.completed if ref.generation == 1][-1]
    assert parallelism(ran) == 2
    assert parallelism(catalogue.deployed) == 2, "the next start runs it, too"
    assert start.deployed == catalogue.deployed_number


def test_a_restore_of_an_older_snapshot_is_taken_back_to_what_the_stop_has_taken(world: World, cli: Cli) -> None:
    running(world)
    world.control().savepoint(STREAM, "old")
    world.control().checkpoint(STREAM)
    world.deployed(parallelism__default="3")
    said = cli("restore", STREAM, "--from", "old")
    assert (said.code, GOES_ON in said.all) == (8, True)
    catalogue = world.catalogue()
    start, ran, taken = newest(catalogue)
    (left,) = [ref for ref in catalogue.completed if ref.id == 3]
    assert (taken, taken.generation) == (left, 1), "what it had done since the old one is not lost"
    assert parallelism(ran) == 2
    assert start.deployed == 1
    assert catalogue.deployed_number == 2, "what a person has deployed stays deployed"
    assert world.control().status(STREAM).condition is Condition.RUNNING


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LaunchInProgress("generation 2 is still restoring"), "is still restoring$"),
        (LaunchFailed("nobody knows why"), r"nobody knows why; generation 2 \(process \d+ on .*\) may be at work"),
    ],
)
def test_no_second_driver_is_started_beside_one_that_may_come_up(
    world: World, monkeypatch: pytest.MonkeyPatch, error: LaunchFailed, told: str
) -> None:
    running(world, "mute")

    def fail(self: Launcher, driver: object, deployed: Deployed) -> None:
        raise error

    monkeypatch.setattr(Launcher, "wait_running", fail)
    monkeypatch.setattr("headgate_control.as_it_ran._ENDING_S", 0.1)
    with pytest.raises(LaunchFailed, match=told):
        world.control().restore(STREAM, parallelism=3)
    assert len(world.catalogue().generations) == 2


def test_a_stop_that_a_person_asks_for_meanwhile_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running(world)
    give_up = Starter.give_up

    def with_alice(self: Starter, stream: StreamName, generation: Generation, by: str, error: LaunchFailed) -> None:
        world.decide(StopWanted(generation=generation, by="alice", reason="stop", at_ms=1))
        give_up(self, stream, generation, by, error)

    monkeypatch.setattr(Starter, "give_up", with_alice)
    with pytest.raises(LaunchFailed, match="4040 is taken; it stays stopped: alice wanted that meanwhile"):
        world.control().restore(STREAM, parallelism=3)
    assert world.control().lost() == []
    assert len(world.catalogue().generations) == 2


def test_if_it_does_not_run_as_before_either_both_are_told_and_how_to_go_on(world: World, cli: Cli) -> None:
    running(world)
    (world.folder / "mark").touch()
    world.write_job("import pathlib\nMODE = 'exits' if pathlib.Path('mark').exists() else 'runs'\n")
    world.deployed(parallelism__default="2")
    said = cli("restore", STREAM)
    assert said.code == 8
    assert "generation 2 of stream orders did not come up: " in said.all
    assert "does not go on as it was: " in said.all
    taken = world.catalogue().snapshots[0]
    assert f"nothing is lost: once that is mended, `headgate restore {STREAM} --from {taken.id}` goes on" in said.all
    assert len(world.catalogue().generations) == 2, "what has failed just now is not started again"


def test_a_start_that_fails_behind_somebody_elses_stop_takes_nothing_back(world: World, cli: Cli) -> None:
    running(world)
    world.control().stop(STREAM)
    said = cli("restore", STREAM, "--parallelism", "3")
    assert (said.code, "stopped for that" in said.all) == (8, False)
    assert len(world.catalogue().generations) == 2


def test_what_it_had_before_it_failed_after_all_is_not_left_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that completed a checkpoint before it ended did come up: its output counts."""
    running(world)
    wait = Starter.give_up

    def with_a_checkpoint(
        self: Starter, stream: StreamName, generation: Generation, by: str, error: LaunchFailed
    ) -> None:
        world.snapshot()
        wait(self, stream, generation, by, error)

    monkeypatch.setattr(Starter, "give_up", with_a_checkpoint)
    with pytest.raises(LaunchFailed, match=GOES_ON):
        world.control().restore(STREAM, parallelism=3)
    _, ran, taken = newest(world.catalogue())
    assert (taken.generation, parallelism(ran)) == (2, 2)
