"""Lives whose sink has lost something: what it published, or its own record of that."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from headgate.driver.lives import GivenUp, is_final
from headgate.job.plan import describe
from headgate.recovery.fetch import SnapshotFiles
from headgate_contract.errors import SinkDamaged
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.records import Deployed, Repaired, decision_log, slot_log
from headgate_contract.settings import Settings
from tests.runtime.driver.failing_lives import failing_world, restarts
from tests.runtime.driver.life_world import STREAM, LifeWorld

HOME = "out/_headgate/numbers/out"
OUT = VertexUid("out")


def test_a_record_of_the_sinks_own_that_is_damaged_is_restarted_from_once_and_no_more(tmp_path: Path) -> None:
    world = failing_world(tmp_path, {70: 1})
    world.write(3)
    life = world.begin()
    life.read_all()
    world.calm()  # a commit would meet the damage first
    (tmp_path / HOME / "lives/00000001.json").write_bytes(b"torn")
    world.write(1)
    error = life.wait()
    assert isinstance(error, GivenUp)
    assert is_final(error), "nor does anybody start it again by himself"
    assert "lives/00000001.json is not a manifest file" in str(error)
    assert "`headgate repair numbers` tells a way out" in str(error)
    assert len(restarts(world)) == 1, "the one after the step's own failure"


class Output:
    """An output folder that is replaced by a copy of itself, and put back later."""

    def __init__(self, world: LifeWorld) -> None:
        self.world = world
        self.out = world.base / "out"

    def copied(self) -> None:
        self.world.calm()
        shutil.copytree(self.out, self.world.base / "out.copy")
        self.out.rename(self.world.base / "out.gone")
        (self.world.base / "out.copy").rename(self.out)

    def put_back(self) -> None:
        """What was published in the copy is lost."""
        self.world.calm()
        shutil.rmtree(self.out)
        (self.world.base / "out.gone").rename(self.out)
        assert len(self.world.output()) < self.world.written

    def newest_before(self) -> CheckpointId:
        """The newest snapshot of which everything is there."""
        there = {int(path.stem) for path in (self.world.base / HOME / "manifests").iterdir()}
        for ref in self.world.catalogue.snapshots:
            held = SnapshotFiles(self.world.store, ref).metadata()
            if {group.id for group in held.committables if group.sinks.get(OUT)} | set(
                held.published.values()
            ) <= there:
                return ref.id
        raise AssertionError("there is none")


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    world = failing_world(tmp_path, {})
    world.settings["execution.checkpointing.num-retained"] = 100
    plan = describe(world.plan(), Settings(world.settings))
    deployed = Deployed(job="", job_sha256="", directory=str(tmp_path), settings={}, plan=plan, by="ann", at_ms=0)
    decision_log(world.store, STREAM).append(None, deployed)
    world.write(3)
    return world


def test_an_output_that_is_an_older_copy_ends_a_life_with_its_next_commit(world: LifeWorld) -> None:
    life, output = world.begin(), Output(world)
    life.read_all()
    output.copied()
    world.write(2)
    output.put_back()
    shown = world.output()
    world.write(1)
    error = life.wait()
    assert isinstance(error, GivenUp)
    assert re.search(r"of sink out of stream numbers has no group \d+, which was published there", str(error))
    assert "`headgate repair numbers` says how its records are published again" in str(error)
    assert world.output() == shown, "nothing is published behind what is lost"


def lost_while_stopped(world: LifeWorld) -> Output:
    """Published in a copy and lost with it; the last snapshot has no output."""
    life, output = world.begin(), Output(world)
    life.read_all()
    output.copied()
    world.write(2)
    life.read_all()
    world.calm()
    assert life.stop() is None
    output.put_back()
    return output


def test_an_output_that_is_an_older_copy_is_refused_by_a_start(world: LifeWorld) -> None:
    output = lost_while_stopped(world)
    error = world.begin().wait()
    assert isinstance(error, SinkDamaged)
    assert is_final(error)
    assert "was an older copy put in its place?" in str(error)
    life = world.begin(output.newest_before())  # whose output is there: what came behind it is published anew
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_behind_a_repair_what_is_lost_is_given_up(world: LifeWorld) -> None:
    lost_while_stopped(world)
    catalogue, shown = world.catalogue, len(world.output())
    repaired = Repaired(
        repair="r",
        next_generation=catalogue.next_generation,
        next_checkpoint=catalogue.next_checkpoint.next(),
        by="ann",
        reason="a group is gone",
        at_ms=0,
    )
    slot_log(world.store, STREAM).append(catalogue.newest_slot, repaired)
    for generation in (2, 3):
        world.write(1)
        life = world.begin()
        life.read_all()
        assert life.stop() is None, generation
    assert len(world.output()) == shown + 40


def test_of_a_sink_that_was_removed_nothing_is_expected_when_it_comes_back(world: LifeWorld) -> None:
    """Its folder may be removed meanwhile, with what is in it: nobody writes there."""
    held = []
    for uid in ("out", "other"):
        world.sink_uid = uid
        for _ in range(2):
            world.write(1)
            life = world.begin()
            life.read_all()
            assert life.stop() is None
        held.append(SnapshotFiles(world.store, world.catalogue.snapshots[0]).metadata())
    assert [sorted(each.published) for each in held] == [["console", "out"], ["console", "other"]]
