"""Another parallelism: the same job is deployed with it, once it is sure that the restore will not be refused."""

from __future__ import annotations

import pytest

from headgate_contract.errors import BadConfiguration, Conflict, RequestFailed, SnapshotUnknown
from headgate_contract.ids import CheckpointId
from headgate_contract.restore import StartFresh
from headgate_contract.settings import Settings
from headgate_control import Condition
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

pytestmark = pytest.mark.e2e


def test_the_job_is_deployed_with_it_and_the_stream_goes_on_from_where_it_stopped(world: World) -> None:
    before = world.deployed(parallelism__default="2")
    control = world.control()
    control.start(STREAM)
    launched = control.restore(STREAM, parallelism=3)
    catalogue = world.catalogue()
    newest, deployed = catalogue.newest_generation, catalogue.deployed
    assert newest is not None
    assert deployed is not None
    assert newest.generation == launched.generation
    assert newest.deployed == catalogue.deployed_number
    assert {**deployed.settings, "parallelism.default": "2"} == before.settings
    assert Settings(deployed.settings)["parallelism.default"] == 3
    assert (deployed.job, deployed.job_sha256, deployed.directory) == (
        before.job,
        before.job_sha256,
        before.directory,
    )
    said = [event for event in control.history(STREAM) if event.what == "deploy"]
    assert [(event.outcome, event.details["parallelism"]) for event in said] == [("ISSUED", 3), ("EXECUTED", 3)]


@pytest.mark.parametrize("parallelism", [0, 129])
def test_one_that_cannot_be_stops_nothing_and_is_not_deployed(world: World, parallelism: int) -> None:
    world.deployed()
    control = world.control()
    control.start(STREAM)
    with pytest.raises(BadConfiguration, match=r"parallelism\.default"):
        control.restore(STREAM, parallelism=parallelism)
    assert control.status(STREAM).condition is Condition.RUNNING
    assert world.catalogue().deployed_number == 1


def test_explain_tells_of_another_parallelism_and_records_nothing(world: World) -> None:
    world.deployed()
    control = world.control()
    assert isinstance(control.explain(STREAM, parallelism=3).decision, StartFresh)
    with pytest.raises(BadConfiguration, match=r"parallelism\.default"):
        control.explain(STREAM, parallelism=129)
    assert world.catalogue().deployed_number == 1


def test_explain_says_for_how_many_subtasks_it_has_judged(world: World, cli: Cli) -> None:
    world.deployed()
    asked = cli("explain", STREAM, "--parallelism", "3")
    assert asked.out.startswith("stream orders, next generation 1, with 3 subtasks, as was asked; 2 are deployed\n")
    assert cli("explain", STREAM).out.startswith("stream orders, next generation 1, with 2 subtasks\n")
    assert cli("explain", STREAM, "--parallelism", "3", "--json").json["parallelism"] == 3


def test_a_restore_that_is_refused_a_stop_that_fails_or_a_changed_job_changes_nothing(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    control = world.control()
    control.start(STREAM)
    with pytest.raises(SnapshotUnknown):
        control.restore(STREAM, snapshot=CheckpointId(9), parallelism=3)
    with pytest.raises(RequestFailed):
        control.restore(STREAM, parallelism=3)
    world.write_job("MODE = 'runs'")
    with pytest.raises(Conflict, match="has changed since it was deployed"):
        control.restore(STREAM, parallelism=3)
    assert control.status(STREAM).condition is Condition.RUNNING
    assert world.catalogue().deployed_number == 1


def test_the_command_line_rescales_from_a_checkpoint_a_savepoint_or_with_a_restore(world: World, cli: Cli) -> None:
    world.deployed()
    world.control().start(STREAM)
    rescaled = cli("rescale", STREAM, "3").out
    assert "generation 2 is running" in rescaled
    assert rescaled.endswith("\nit was stopped before with snapshot 1\n")
    assert [ref.kind.value for ref in world.catalogue().snapshots] == ["checkpoint"]
    assert "generation 3 is running" in cli("rescale", STREAM, "1", "--savepoint").out
    assert world.catalogue().snapshots[0].name is not None
    assert "generation 4 is running" in cli("restore", STREAM, "--from", "1", "--parallelism", "4").out
    deployed = world.catalogue().deployed
    assert deployed is not None
    assert Settings(deployed.settings)["parallelism.default"] == 4
    assert cli("rescale", STREAM, "many").code == 2
