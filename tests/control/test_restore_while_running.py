"""Rescale and restore of a stream that runs well, one short-lived checkpoint after the other."""

from __future__ import annotations

import pytest

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import BadConfiguration, Conflict, RestoreRefused, StreamRunning
from headgate_contract.ids import Generation, RequestId, SavepointName, StreamName
from headgate_contract.records import Deployed, StopWanted
from headgate_contract.restore import RestoreFrom
from headgate_contract.settings import Settings
from headgate_control import Asked, Condition
from headgate_control.deploy import Deployer
from headgate_control.stopping import StopOrder, Stopper
from tests.control.command_line import Cli
from tests.control.world import STREAM, World, until

pytestmark = pytest.mark.e2e

OURS = RequestId("stop-to-restore")
QUICK_CHECKPOINTS = "MODE = 'checkpoints'\nCHECK = 0.3\n"
"""A checkpoint each 50 ms, of which one is kept, and a check that takes six of them."""


@pytest.fixture
def running(world: World) -> World:
    world.write_job(QUICK_CHECKPOINTS)
    world.deployed()
    world.control().start(STREAM)
    until(lambda: len(world.catalogue().completed) > 2)
    return world


def test_each_rescale_goes_on_from_what_the_stop_took(running: World, cli: Cli) -> None:
    for parallelism in (3, 2, 5):
        said = cli("rescale", STREAM, str(parallelism))
        assert said.code == 0, said.all
        catalogue = running.catalogue()
        newest, deployed = catalogue.newest_generation, catalogue.deployed
        assert newest is not None
        assert deployed is not None
        assert isinstance(newest.decision, RestoreFrom)
        stopped = [ref for ref in catalogue.completed if ref.generation == newest.generation - 1][-1]
        assert newest.decision.snapshot == stopped
        assert Settings(deployed.settings)["parallelism.default"] == parallelism
    assert len(catalogue.generations) == 4


def test_each_restore_of_the_newest_does_too(running: World, cli: Cli) -> None:
    for options in ([], ["--no-savepoint"], ["--parallelism", "3"]):
        said = cli("restore", STREAM, *options)
        assert said.code == 0, said.all
    assert running.control().status(STREAM).condition is Condition.RUNNING


def test_explain_tells_what_a_start_would_do_however_often_checkpoints_come_and_go(world: World) -> None:
    """Not as fast as those above: it looks five times, and a machine that is busy takes its time for each."""
    world.write_job(QUICK_CHECKPOINTS)
    world.deployed(heartbeat__interval="500 ms")
    world.control().start(STREAM)
    until(lambda: len(world.catalogue().completed) > 1)
    for _ in range(5):
        assert isinstance(world.control().explain(STREAM, parallelism=3).decision, RestoreFrom)


def test_a_restore_that_is_refused_beforehand_stops_nothing_and_advises_no_loss(running: World, cli: Cli) -> None:
    gone = running.catalogue().completed[0].id
    control = running.control()
    control.savepoint(STREAM, "old")
    said = cli("restore", STREAM, "--from", str(gone))
    assert said.code == 3
    assert f"is not stopped for it, and runs on: checkpoint {gone} is retired" in said.all
    for loses in ("--fresh", "--fall-back", "old"):
        assert loses not in said.all
    assert control.status(STREAM).condition is Condition.RUNNING
    assert len(running.catalogue().generations) == 1


def test_a_rescale_whose_checkpoint_would_use_a_damaged_file_is_refused_and_a_savepoint_needs_it_not(
    world: World, cli: Cli
) -> None:
    world.deployed(headgate__fall_back="true")
    control = world.control()
    control.start(STREAM)
    control.savepoint(STREAM, "old")
    control.checkpoint(STREAM)
    newest = world.catalogue().snapshots[0]
    world.state_file(newest).write_bytes(b"damaged")
    said = cli("rescale", STREAM, "3")
    assert said.code == 5
    assert "is not stopped for it, and runs on: checkpoint 2 cannot be restored: the state file" in said.all
    assert f"with a savepoint at its end (`headgate restore {STREAM}`) it is not needed" in said.all
    assert control.status(STREAM).condition is Condition.RUNNING
    assert cli("rescale", STREAM, "3", "--savepoint").code == 0
    newest_generation = world.catalogue().newest_generation
    assert newest_generation is not None
    assert isinstance(newest_generation.decision, RestoreFrom)
    assert newest_generation.decision.snapshot == world.catalogue().completed[2]


def test_what_comes_out_behind_the_stop_starts_the_stream_again_as_it_ran(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deployed()
    control = world.control()
    control.start(STREAM)
    control.savepoint(STREAM, "chosen")
    chosen = world.catalogue().snapshots[0]
    stop = Stopper.stop

    def stop_and_lose(self: Stopper, stream: StreamName, order: StopOrder) -> Asked:
        asked = stop(self, stream, order)
        (world.root / chosen.folder / "positions.bin").unlink(missing_ok=True)
        return asked

    monkeypatch.setattr(Stopper, "stop", stop_and_lose)
    said = cli("restore", STREAM, "--from", "chosen", "--parallelism", "3")
    assert said.code == 5
    assert "positions.bin is missing; it was stopped for that, and goes on as it was, as generation 2" in said.all
    assert "--fresh" not in said.all
    catalogue = world.catalogue()
    newest = catalogue.newest_generation
    assert newest is not None
    assert isinstance(newest.decision, RestoreFrom)
    assert newest.decision.snapshot == catalogue.completed[-1]
    assert catalogue.deployed_number == 1
    assert control.status(STREAM).condition is Condition.RUNNING


def test_if_that_fails_too_the_message_says_how_to_go_on(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deployed()
    control = world.control()
    control.start(STREAM)
    stop = Stopper.stop

    def stop_and_edit(self: Stopper, stream: StreamName, order: StopOrder) -> Asked:
        asked = stop(self, stream, order)
        world.write_job("# edited\n")
        return asked

    monkeypatch.setattr(Stopper, "stop", stop_and_edit)
    said = cli("restore", STREAM)
    assert said.code == 4
    assert "has changed since it was deployed; it was stopped for that, and could not be started again" in said.all
    taken = world.catalogue().snapshots[0]
    assert (
        f"nothing is lost: once that is mended, `headgate restore {STREAM} --from {taken.id}` goes on from {taken}"
        in said.all
    )


def test_a_driver_that_dies_over_the_stop_is_restored_as_after_any_crash(world: World, cli: Cli) -> None:
    world.write_job("MODE = 'dies-at-stop'")
    world.deployed()
    world.control().start(STREAM)
    assert cli("restore", STREAM).code == 0
    newest = world.catalogue().newest_generation
    assert newest is not None
    assert newest.generation == 2


def test_a_job_that_is_deployed_while_a_rescale_is_checked_is_not_taken_back(
    running: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescaled = Deployer.rescaled

    def deploy_meanwhile(self: Deployer, catalogue: Catalogue, parallelism: int, by: str) -> Deployed:
        found = rescaled(self, catalogue, parallelism, by)
        running.deployed(parallelism__default="7")
        return found

    monkeypatch.setattr(Deployer, "rescaled", deploy_meanwhile)
    said = cli("rescale", STREAM, "3")
    assert (said.code, "was deployed anew while this was checked" in said.all) == (4, True)
    assert running.control().status(STREAM).condition is Condition.RUNNING


def test_whoever_stopped_it_for_a_restore_that_is_refused_has_it_started_again_too(world: World) -> None:
    """Airflow's task stops it in one step and restores it in the next."""
    world.deployed()
    control = world.control()
    control.start(STREAM)
    control.savepoint(STREAM, "chosen")
    control.stop(STREAM, id=OURS)
    (world.root / world.catalogue().completed[0].folder / "positions.bin").write_bytes(b"damaged")
    with pytest.raises(RestoreRefused, match="was stopped for that, and goes on as it was, as generation 2"):
        control.restore(STREAM, snapshot=SavepointName("chosen"), stopped_by=OURS)
    assert control.status(STREAM).condition is Condition.RUNNING


def test_a_second_check_that_fails_behind_its_stop_has_it_started_again_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deployed()
    control = world.control()
    control.start(STREAM)
    control.check_restore(STREAM, parallelism=3, savepoint_first=True)
    control.stop(STREAM, savepoint=True, id=OURS)

    def fail(self: Deployer, catalogue: Catalogue, parallelism: int, by: str) -> Deployed:
        raise BadConfiguration("the check of the job took more than 60 s")

    monkeypatch.setattr(Deployer, "rescaled", fail)
    told = "more than 60 s; it was stopped for that, and goes on as it was, as generation 2"
    with pytest.raises(BadConfiguration, match=told):
        control.restore(STREAM, parallelism=3, savepoint_first=False, stopped_by=OURS)
    assert control.status(STREAM).condition is Condition.RUNNING
    with pytest.raises(StreamRunning, match="was stopped for a restore, and runs again: generation 2"):
        control.restore(STREAM, parallelism=3, savepoint_first=False, stopped_by=OURS)
    assert len(world.catalogue().generations) == 2


def test_a_stop_that_a_person_asks_for_meanwhile_stays(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stopper.stop

    def with_alice(self: Stopper, stream: StreamName, order: StopOrder) -> Asked:
        monkeypatch.setattr(Stopper, "stop", stop)
        running.decide(StopWanted(generation=Generation(1), by="alice", reason="stop", at_ms=1))
        return stop(self, stream, order)

    monkeypatch.setattr(Stopper, "stop", with_alice)
    with pytest.raises(Conflict, match="alice wanted that meanwhile"):
        running.control().restore(STREAM, parallelism=3)
    assert running.control().status(STREAM).condition is Condition.STOPPED
    assert len(running.catalogue().generations) == 1
