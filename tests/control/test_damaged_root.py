"""The file that says which root this is, damaged or gone: said once, nothing is claimed, and there is a way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.errors import NotARoot, RootLost
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import StreamName
from headgate_contract.paths import ROOT
from headgate_contract.root_store import RootStore
from headgate_control import Control
from headgate_control.outcomes import Condition
from tests.contract.stored_values import resealed
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

OTHER = StreamName("others")
Harm = Callable[[Path], None]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def delete(path: Path) -> None:
    path.unlink()


HARMS = [flip, empty, cut, delete]


@pytest.fixture(params=HARMS)
def harm(request: pytest.FixtureRequest) -> Harm:
    found: Harm = request.param
    return found


def harmed(world: World, harm: Harm) -> bytes:
    """Two streams that ran and are stopped, on a root whose file is damaged then; what it was."""
    for stream in (STREAM, OTHER):
        world.deployed(stream)
        world.started(stream=stream)
        world.snapshot(stream=stream)
        world.beat(StreamState.FAILED, cause="it broke", stream=stream)
    own = (world.root / ROOT).read_bytes()
    harm(world.root / ROOT)
    return own


@pytest.mark.parametrize(
    "verb", [["status"], ["status", STREAM], ["explain", STREAM], ["snapshots", STREAM], ["history", STREAM]]
)
def test_every_verb_that_looks_says_it_once_with_the_way_out(world: World, cli: Cli, verb: list[str]) -> None:
    for each in HARMS:
        if not (world.root / ROOT).exists():
            world.make_root()
        own = harmed(world, each)
        result = cli(*verb)
        assert result.code == 6, result.all
        assert result.all.count(ROOT) == 1, result.all
        assert "`headgate repair` (without a stream)" in result.all
        (world.root / ROOT).write_bytes(own)


def test_a_start_is_refused_before_it_claims_anything(world: World, harm: Harm) -> None:
    harmed(world, harm)
    before = world.catalogue()
    for verb in (
        lambda: world.control().start(STREAM),
        lambda: world.control().start(STREAM, fresh=True),
        lambda: world.control().recover(STREAM),
        lambda: world.control().restore(STREAM),
    ):
        with pytest.raises(NotARoot, match="says which root"):
            verb()
    assert world.catalogue() == before


def test_a_root_that_is_damaged_between_the_look_and_the_claim_leaves_no_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deployed()
    control = world.control()

    def damaged_at_last(self: RootStore) -> None:
        raise NotARoot("it is damaged")

    monkeypatch.setattr(RootStore, "identity", damaged_at_last)
    with pytest.raises(NotARoot):
        control.start(STREAM)
    assert not world.catalogue().slots
    assert control.status(STREAM).condition is Condition.NEVER_STARTED


def test_a_repair_of_the_root_changes_nothing_until_it_is_told_to(world: World, cli: Cli, harm: Harm) -> None:
    own = harmed(world, harm)
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    plan = cli("repair")
    assert plan.code == 6
    assert ("its own bytes, which the checksum proves" in plan.out) == (harm is flip)
    assert "`headgate repair --execute` carries it out" in plan.out
    assert {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()} == before
    assert cli("repair", "--execute").code == 0
    assert ((world.root / ROOT).read_bytes() == own) == (harm is flip)
    assert cli("repair").code == 0, "once is enough"
    assert world.control().start(STREAM).generation == 2


def test_what_lay_there_is_kept(world: World, cli: Cli) -> None:
    harmed(world, cut)
    torn = (world.root / ROOT).read_bytes()
    assert cli("repair", "--execute").code == 0
    assert (world.root / f"{ROOT}.damaged").read_bytes() == torn


def test_a_deployment_may_do_it_too_if_a_person_says_so(world: World, cli: Cli, harm: Harm) -> None:
    harmed(world, harm)
    refused = cli("deploy", STREAM, "job.py")
    assert (refused.code, "--adopt-root" in refused.all) == (6, True)
    assert cli("deploy", STREAM, "job.py", "--adopt-root").code == 0
    assert world.control().start(STREAM).generation == 2


def test_a_driver_of_the_identity_that_is_lost_does_nothing_more_there(world: World, cli: Cli) -> None:
    driver = RootStore(world.store, RootStore(world.store).identity().id)
    harmed(world, cut)
    with pytest.raises(RootLost, match=rf"{ROOT} .*bring the file back as it was.*headgate repair --execute"):
        driver.create("streams/orders/x", b"1")
    assert cli("repair", "--execute").code == 0
    with pytest.raises(RootLost, match="is not the one that was worked on"):
        driver.create("streams/orders/x", b"1")


def test_a_place_that_holds_nothing_is_repaired_by_nobody(world: World) -> None:
    (world.root / ROOT).unlink()
    control: Control = world.control()
    for execute in (False, True):
        with pytest.raises(NotARoot, match="is no storage root of Headgate"):
            control.repair_root(execute=execute)
    assert not (world.root / ROOT).exists()


def test_what_another_release_wrote_is_not_damaged(world: World, cli: Cli) -> None:
    harmed(world, lambda path: path.write_bytes(resealed(path.read_bytes(), b'"version":1', b'"version":9')))
    assert cli("repair", "--execute").code == 6
