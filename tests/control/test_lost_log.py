"""A log that is gone, whole or its end: every reader says so, nothing is started fresh, and a repair is the way out."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from headgate_contract.errors import LogDamaged, StreamRunning
from headgate_contract.heartbeats import Heartbeat, StreamState, write_heartbeat
from headgate_contract.history import Event, record_event
from headgate_contract.ids import Generation, SlotNumber
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.restore import RestoreFrom
from headgate_contract.settings import Settings
from headgate_control import Condition, Control
from headgate_control.signs import check_down
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

PATHS = StreamPaths(STREAM)
READERS: dict[str, Callable[[Control], object]] = {
    "explain": lambda control: control.explain(STREAM),
    "snapshots": lambda control: control.snapshots(STREAM),
    "history": lambda control: control.history(STREAM),
    "logs": lambda control: control.logs(STREAM),
    "start": lambda control: control.start(STREAM),
    "recover": lambda control: control.recover(STREAM),
    "restore": lambda control: control.restore(STREAM),
}


def lived(world: World, cli: Cli) -> None:
    """Deployed twice, started, three checkpoints, of which the last one is told of in history; its driver is gone."""
    assert cli("deploy", STREAM, "job.py").code == 0
    assert cli("deploy", STREAM, "job.py", "--set", "parallelism.default=3").code == 0
    world.started()
    for _ in range(3):
        world.snapshot()
    world.beat(StreamState.FAILED, cause="it broke")
    record_event(
        world.store, STREAM, Event(at_ms=1, what="checkpoint", outcome="EXECUTED", by="driver", generation=1, slot=4)
    )


def lose(world: World, what: str) -> None:
    path = world.root / what
    shutil.rmtree(path) if path.is_dir() else path.unlink()


LOST = {
    "the slots": (PATHS.slots, "has no entry, and its history tells of slot 4"),
    "the decisions": (PATHS.decisions, "decision 2 is missing, which generation 1 runs"),
    "the newest slot": (numbered(PATHS.slots, SlotNumber(4)), "ends with slot 3, and its history tells of slot 4"),
    "the newest decision": (numbered(PATHS.decisions, SlotNumber(2)), "decision 2 is missing"),
    "the first decision": (numbered(PATHS.decisions, SlotNumber(1)), "decision 1 is missing, 2 is there"),
    "a slot": (numbered(PATHS.slots, SlotNumber(2)), "slot 2 is missing, 3 is there"),
}


@pytest.mark.parametrize(("what", "says"), LOST.values(), ids=LOST.keys())
def test_every_reader_says_what_is_lost_and_nothing_is_started(world: World, cli: Cli, what: str, says: str) -> None:
    lived(world, cli)
    before = sorted(path for path in (world.root / PATHS.slots).iterdir() if path != world.root / what)
    lose(world, what)
    for name, reader in READERS.items():
        with pytest.raises(LogDamaged, match=says) as raised:
            reader(world.control())
        assert f"`headgate repair {STREAM}`" in raised.value.hint, name
    assert cli("deploy", STREAM, "job.py").code == 6
    for status in (world.control().status(STREAM), *world.control().fleet()):
        assert status.condition is Condition.UNREADABLE
        assert says in status.text
    assert what == PATHS.slots or sorted((world.root / PATHS.slots).iterdir()) == before


@pytest.mark.parametrize(("what", "says"), LOST.values(), ids=LOST.keys())
def test_a_repair_is_the_way_out(world: World, cli: Cli, what: str, says: str) -> None:
    lived(world, cli)
    lose(world, what)
    assert says
    assert cli("repair", STREAM).code == 6
    assert cli("repair", STREAM, "--execute").code == 0
    assert cli("repair", STREAM).code == 0, "once is enough"
    catalogue = world.control().status(STREAM)
    assert catalogue.condition is Condition.STOPPED
    explained = world.control().explain(STREAM)
    assert explained.next_generation == 2
    if what != PATHS.slots:
        assert isinstance(explained.decision, RestoreFrom)


def test_a_generation_that_left_only_its_heartbeat_was_started(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="it broke")
    world.age(numbered(PATHS.decisions, SlotNumber(1)), 60)
    lose(world, PATHS.slots)
    with pytest.raises(LogDamaged, match=r"has no entry, and fleet/heartbeats/orders\.g1\.json is there"):
        world.control().start(STREAM)
    assert cli("repair", STREAM, "--execute").code == 0
    assert world.control().explain(STREAM).next_generation == 2


def test_a_heartbeat_that_is_older_than_the_deployment_is_another_streams_of_that_name(world: World) -> None:
    world.deployed()
    world.beat(StreamState.FAILED, cause="it broke", age_s=60)
    assert world.control().status(STREAM).condition is Condition.NEVER_STARTED


def test_a_log_that_is_lost_while_one_watches_is_noticed_too(world: World, cli: Cli) -> None:
    lived(world, cli)
    watcher = world.control()
    assert watcher.status(STREAM).condition is Condition.FAILED
    lose(world, PATHS.slots)
    assert watcher.status(STREAM).condition is Condition.UNREADABLE


class TestHeartbeats:
    """One that cannot be read is told, is no sign of life, and hides none."""

    @pytest.fixture
    def garbage(self, world: World, cli: Cli) -> str:
        """A log that cannot be read, the good heartbeat of generation 1, and a file that is called generation 9's."""
        lived(world, cli)
        lose(world, numbered(PATHS.slots, SlotNumber(2)))
        path = PATHS.heartbeat(Generation(9))
        (world.root / path).write_bytes(b"\x00garbage")
        return path

    def test_status_tells_of_the_newest_good_one_and_of_the_damaged_one(self, world: World, garbage: str) -> None:
        status = world.control().status(STREAM)
        assert (status.generation, status.state) == (1, StreamState.FAILED)
        assert garbage in (status.heartbeat_fault or "")

    def test_a_repair_takes_it_for_neither_a_driver_nor_a_generation(
        self, world: World, cli: Cli, garbage: str
    ) -> None:
        plan = cli("repair", STREAM)
        assert f"no sign of life, nothing is concluded from it: {garbage}" in plan.out
        assert cli("repair", STREAM, "--execute").code == 0
        assert world.control().explain(STREAM).next_generation == 2

    def test_a_driver_behind_a_damaged_one_is_found_when_it_beats_again(self, world: World, garbage: str) -> None:
        def beats(seconds: float) -> None:
            assert seconds > 0
            world.store.delete(garbage)
            beat = Heartbeat(
                stream=STREAM,
                generation=Generation(9),
                counter=5,
                state=StreamState.RUNNING,
                at_ms=0,
                interval_ms=50,
            )
            write_heartbeat(world.store, beat)

        check_down(world.store, STREAM, Settings({}), sleep=lambda seconds: None)
        with pytest.raises(StreamRunning, match="generation 9 is running"):
            check_down(world.store, STREAM, Settings({}), sleep=beats)
