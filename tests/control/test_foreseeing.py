"""What a stop for a restore would meet is looked for while checkpoints come and go: only what stays is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import RestoreRefused
from headgate_contract.ids import StreamName
from headgate_contract.restore import Newest, RestoreFrom
from headgate_control.catalogues import Catalogues
from headgate_control.explain import Question
from headgate_control.foreseeing import Foresight
from tests.control.world import STREAM, World

NEWEST = Question(wanted=Newest())


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A stream that runs, whose newest checkpoint has lost a file."""
    made = World(tmp_path)
    made.deployed()
    made.started()
    made.state_file(made.snapshot()).unlink()
    return made


def foresight(world: World, before_the_second_look: Callable[[], object]) -> Foresight:
    class Passing(Catalogues):
        looks = 0

        def read(self, stream: StreamName) -> Catalogue:
            self.looks += 1
            if self.looks == 2:
                before_the_second_look()
            return super().read(stream)

    return Foresight(store=world.store, catalogues=Passing(world.store))


def subsumed(world: World) -> Callable[[], object]:
    return lambda: world.snapshot(retires=(world.catalogue().snapshots[0].id,))


def check(world: World, found: Foresight) -> None:
    deployed = world.catalogue().deployed
    assert deployed is not None
    found.check(STREAM, 1, deployed, NEWEST, savepoint=False)


def test_a_damaged_checkpoint_that_stays_is_refused(world: World) -> None:
    with pytest.raises(RestoreRefused, match="checkpoint 1 cannot be restored"):
        check(world, foresight(world, lambda: None))


def test_one_that_was_subsumed_meanwhile_is_not_and_the_next_is_looked_at(world: World) -> None:
    check(world, foresight(world, subsumed(world)))


def test_the_next_is_refused_if_it_is_damaged_too(world: World) -> None:
    def damaged_too() -> None:
        subsumed(world)()
        world.state_file(world.catalogue().snapshots[0]).unlink()

    with pytest.raises(RestoreRefused, match="checkpoint 2 cannot be restored"):
        check(world, foresight(world, damaged_too))


def test_explain_looks_again_as_well(world: World) -> None:
    deployed = world.catalogue().deployed
    assert deployed is not None
    found = foresight(world, subsumed(world)).explain(STREAM, 1, deployed, NEWEST).decision
    assert isinstance(found, RestoreFrom)
    assert found.snapshot.id == 2
