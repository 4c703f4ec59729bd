"""How a stream is judged from its logs, its heartbeat and its process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate_contract import wire
from headgate_contract.errors import StorageError, StreamRunning
from headgate_contract.heartbeats import ProcessIdentity, Standing, StreamState
from headgate_contract.ids import Generation, StreamName
from headgate_contract.paths import StreamPaths
from headgate_contract.process import identify, identity_here
from headgate_contract.records import StopWanted, StopWithdrawn
from headgate_contract.restart import GiveUp, RestartAfter
from headgate_contract.settings import Settings
from headgate_contract.store_local import LocalStore
from headgate_control.catalogues import Catalogues
from headgate_control.outcomes import Condition, NotNeeded, ProcessSign, StreamStatus
from headgate_control.signs import check_down
from headgate_control.status import Observer
from headgate_control.watch import Watch
from tests.control.world import STREAM, World

HEARTBEAT_TIMEOUT_S = 30.0
CONFIRM_S = 0.1  # two intervals


class Clock:
    """A steady clock that goes only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer(world: World, clock: Clock) -> Observer:
    return Observer(world.store, Catalogues(world.store), Watch(clock))


@pytest.fixture
def running(world: World) -> World:
    """Generation 1 of the stream, with a fresh heartbeat that says it runs."""
    world.deployed()
    world.started()
    world.beat()
    return world


@pytest.fixture
def dead_process() -> ProcessIdentity:
    process = subprocess.Popen([sys.executable, "-c", ""])
    found = identify(process.pid)
    process.wait()
    return found or identity_here(process.pid, "ticks:1")


@pytest.fixture
def live_process() -> Iterator[ProcessIdentity]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = identify(process.pid)
        assert found is not None
        yield found
        process.kill()


def watched(observer: Observer, clock: Clock, for_s: float) -> StreamStatus:
    """Look, wait, look again."""
    observer.status(STREAM)
    clock.now += for_s
    return observer.status(STREAM)


def test_deployed_but_never_started(world: World, observer: Observer) -> None:
    world.deployed()
    status = observer.status(STREAM)
    assert (status.condition, status.live, status.lost) == (Condition.NEVER_STARTED, False, None)


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        (StreamState.LAUNCHED, Condition.LAUNCHED),
        (StreamState.RESTORING, Condition.RESTORING),
        (StreamState.RUNNING, Condition.RUNNING),
        (StreamState.STOPPING, Condition.STOPPING),
    ],
)
def test_a_fresh_heartbeat_is_believed(
    running: World, observer: Observer, state: StreamState, condition: Condition
) -> None:
    running.beat(state)
    status = observer.status(STREAM)
    assert (status.condition, status.live) == (condition, True)


def test_claimed_without_any_heartbeat_is_launched_until_the_startup_timeout(
    world: World, observer: Observer, clock: Clock
) -> None:
    world.deployed()
    world.started()
    assert watched(observer, clock, 100).condition is Condition.LAUNCHED
    world.age_slot(1, 90)
    assert observer.status(STREAM).condition is Condition.LOST


def test_a_starting_driver_may_be_silent_until_the_startup_timeout(
    running: World, observer: Observer, clock: Clock
) -> None:
    running.beat(StreamState.LAUNCHED, age_s=10)
    assert watched(observer, clock, CONFIRM_S).condition is Condition.LAUNCHED
    running.beat(StreamState.LAUNCHED, age_s=90)
    assert watched(observer, clock, CONFIRM_S).condition is Condition.LOST


def test_a_stop_in_the_log_outweighs_every_heartbeat(running: World, observer: Observer) -> None:
    running.stopped()
    running.beat(StreamState.RUNNING)
    assert observer.status(STREAM).condition is Condition.STOPPED


def test_a_driver_that_says_it_failed_is_lost_at_once_with_its_cause(running: World, observer: Observer) -> None:
    running.beat(StreamState.FAILED, cause="SinkFailed: disk full")
    status = observer.status(STREAM)
    assert status.condition is Condition.FAILED
    assert status.lost is not None
    assert "disk full" in status.lost.reason
    assert status.lost.due_in_s == 0


def test_a_driver_that_has_given_up_is_not_restarted(running: World, observer: Observer) -> None:
    running.beat(StreamState.FAILED, cause="ValueError: 47; not restarted: no restart mends that", given_up=True)
    lost = observer.status(STREAM).lost
    assert lost is not None
    assert isinstance(lost.restart, GiveUp)
    assert "no restart mends that" in lost.reason
    assert isinstance(running.control().recover(STREAM), NotNeeded)
    assert len(running.catalogue().generations) == 1


def test_a_driver_that_restarts_by_itself_is_restoring_and_says_why(running: World, observer: Observer) -> None:
    running.beat(StreamState.RESTORING, cause="restart 2 in 1.5 s after: disk full")
    status = observer.status(STREAM)
    assert (status.condition, status.lost) == (Condition.RESTORING, None)
    assert "restart 2 in 1.5 s after: disk full" in status.text


def test_a_failed_driver_that_somebody_wanted_stopped_is_not_lost(running: World, observer: Observer) -> None:
    running.beat(StreamState.FAILED, cause="SinkFailed: disk full")
    running.decide(StopWanted(generation=Generation(1), by="anna", reason="stop", at_ms=1))
    status = observer.status(STREAM)
    assert (status.condition, status.lost) == (Condition.FAILED, None)


def test_old_by_the_storages_clock_is_only_silent_until_it_was_watched(
    running: World, observer: Observer, clock: Clock
) -> None:
    running.beat(age_s=HEARTBEAT_TIMEOUT_S * 2)
    first = observer.status(STREAM)
    assert (first.condition, first.live, first.lost) == (Condition.SILENT, True, None)
    clock.now += CONFIRM_S
    second = observer.status(STREAM)
    assert second.condition is Condition.LOST
    assert second.lost is not None


def test_old_by_a_wrong_storage_clock_but_beating_is_never_lost(
    running: World, observer: Observer, clock: Clock
) -> None:
    for counter in range(2, 12):
        running.beat(counter=counter, age_s=300)
        assert observer.status(STREAM).condition is Condition.SILENT
        clock.now += CONFIRM_S


def test_f176_silence_names_who_is_silent_and_each_beat_begins_the_count_anew(
    running: World, observer: Observer, clock: Clock
) -> None:
    running.beat(counter=1, age_s=HEARTBEAT_TIMEOUT_S * 2)
    observer.status(STREAM)
    clock.now += CONFIRM_S * 0.9
    assert observer.status(STREAM).condition is Condition.SILENT
    running.beat(counter=2, age_s=HEARTBEAT_TIMEOUT_S * 2)
    observer.status(STREAM)
    clock.now += CONFIRM_S * 0.9
    assert observer.status(STREAM).condition is Condition.SILENT, "it has beaten since"
    clock.now += CONFIRM_S * 0.2
    status = observer.status(STREAM)
    assert status.condition is Condition.LOST
    assert f"generation 1 on {status.host} has given no sign of life" in status.text


@pytest.mark.parametrize("release", [-1, 1])
def test_a_driver_of_another_release_is_not_lost_while_its_heart_beats(
    running: World, observer: Observer, clock: Clock, monkeypatch: pytest.MonkeyPatch, release: int
) -> None:
    """One side was upgraded before the stream was stopped, and its log can be read: nobody is started in its place."""
    monkeypatch.setitem(wire.VERSIONS, "heartbeat", wire.VERSIONS["heartbeat"] + release)
    running.beat()
    monkeypatch.undo()
    status = watched(observer, clock, 1000)
    assert (status.condition, status.lost) == (Condition.SILENT, None)
    assert "this Headgate reads version" in status.text
    with pytest.raises(StreamRunning, match="heartbeat of generation"):
        check_down(running.store, STREAM, Settings({}), sleep=lambda seconds: None)
    running.age(StreamPaths(STREAM).heartbeat(Generation(1)), HEARTBEAT_TIMEOUT_S * 2)
    assert watched(observer, clock, 2 * CONFIRM_S).condition is Condition.LOST, "it beats no more"


def test_unchanged_while_watched_but_young_is_not_lost(running: World, observer: Observer, clock: Clock) -> None:
    assert watched(observer, clock, 1000).condition is Condition.RUNNING


def test_a_process_that_is_gone_here_is_lost_at_once(
    running: World, observer: Observer, dead_process: ProcessIdentity
) -> None:
    running.beat(process=dead_process)
    status = observer.status(STREAM)
    assert (status.condition, status.process_sign) == (Condition.LOST, ProcessSign.GONE)


def test_a_reused_pid_is_not_the_driver(running: World, observer: Observer, live_process: ProcessIdentity) -> None:
    running.beat(process=replace(live_process, started="ticks:1"))
    assert observer.status(STREAM).condition is Condition.LOST


@pytest.mark.parametrize("elsewhere", ["host", "machine", "boot", "namespace"])
def test_a_process_of_another_place_says_nothing_whatever_has_its_pid_here(
    running: World,
    observer: Observer,
    clock: Clock,
    dead_process: ProcessIdentity,
    live_process: ProcessIdentity,
    elsewhere: str,
) -> None:
    for process in (dead_process, live_process):
        moved = replace(process, **{elsewhere: "another"})
        running.beat(process=moved)
        status = observer.status(STREAM)
        assert (status.condition, status.process_sign) == (Condition.RUNNING, ProcessSign.UNKNOWN)
        running.beat(process=moved, age_s=HEARTBEAT_TIMEOUT_S * 2)
        assert watched(observer, clock, CONFIRM_S).condition is Condition.LOST, "its silence tells"


def test_another_users_process_that_is_hidden_here_says_nothing(
    running: World, observer: Observer, dead_process: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(pid, number)

    running.beat(process=dead_process)
    monkeypatch.setattr(os, "kill", refuse)
    assert observer.status(STREAM).condition is Condition.RUNNING


def test_a_process_in_an_unknown_spelling_says_nothing_while_it_is_there(
    running: World, observer: Observer, live_process: ProcessIdentity
) -> None:
    running.beat(process=replace(live_process, started="1700000000.25"))
    assert observer.status(STREAM).condition is Condition.RUNNING


def test_a_live_process_does_not_excuse_silence(
    running: World, observer: Observer, clock: Clock, live_process: ProcessIdentity
) -> None:
    running.beat(process=live_process, age_s=HEARTBEAT_TIMEOUT_S * 2)
    status = watched(observer, clock, CONFIRM_S)
    assert (status.condition, status.process_sign) == (Condition.LOST, ProcessSign.ALIVE)


def test_a_corrupt_heartbeat_is_named_and_is_no_sign_of_life(running: World, observer: Observer, clock: Clock) -> None:
    path = StreamPaths(STREAM).heartbeat(Generation(1))
    (running.root / path).write_text("{}")
    status = watched(observer, clock, CONFIRM_S)
    assert status.condition is Condition.SILENT
    assert path in (status.heartbeat_fault or "")
    running.age(path, HEARTBEAT_TIMEOUT_S * 2)
    status = observer.status(STREAM)
    assert status.condition is Condition.LOST
    assert path in status.text


def test_a_lost_stream_that_was_wanted_stopped_counts_as_stopped(
    running: World, observer: Observer, dead_process: ProcessIdentity
) -> None:
    running.beat(process=dead_process)
    running.decide(StopWanted(generation=Generation(1), by="anna", reason="stop", at_ms=1))
    status = observer.status(STREAM)
    assert (status.condition, status.lost) == (Condition.STOPPED, None)
    assert "anna" in status.text


def test_a_wish_to_stop_that_was_taken_back_counts_no_more(
    running: World, observer: Observer, dead_process: ProcessIdentity
) -> None:
    running.beat(process=dead_process)
    running.decide(StopWanted(generation=Generation(1), by="anna", reason="stop", at_ms=1))
    running.decide(StopWithdrawn(generation=Generation(1), by="anna", reason="the savepoint failed", at_ms=1))
    assert observer.status(STREAM).condition is Condition.LOST


def test_a_zombie_of_an_older_generation_does_not_keep_its_successor_alive(
    running: World, observer: Observer, clock: Clock
) -> None:
    running.started(replaces=1)
    running.age_slot(2, 90)
    running.beat(counter=99, generation=1)
    assert watched(observer, clock, CONFIRM_S).condition is Condition.LOST


def test_an_unreadable_slot_stops_the_stream_by_name_and_hides_no_other(running: World, observer: Observer) -> None:
    other = StreamName("payments")
    running.deployed(other)
    running.started(stream=other)
    running.beat(stream=other)
    slot = StreamPaths(STREAM).slots + "/00000001.json"
    (running.root / slot).write_text("not a slot")
    by_name = {status.stream: status for status in observer.fleet()}
    assert by_name[STREAM].condition is Condition.UNREADABLE
    assert slot in by_name[STREAM].text
    assert by_name[STREAM].lost is None
    assert by_name[other].condition is Condition.RUNNING


def test_storage_that_refuses_one_object_hides_no_other_stream(
    running: World, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: LocalStore, path: str) -> bytes:
        if path in (StreamPaths(STREAM).slots + "/00000001.json", StreamPaths(mute).heartbeat(Generation(1))):
            raise StorageError(f"cannot read {path}: Permission denied")
        return unhindered(store, path)

    other, mute = StreamName("payments"), StreamName("returns")
    for stream in (other, mute):
        running.deployed(stream)
        running.started(stream=stream)
        running.beat(stream=stream)
    unhindered = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", refuse)
    by_name = {status.stream: status for status in observer.fleet()}
    assert [by_name[name].condition for name in (STREAM, mute, other)] == [
        Condition.UNREADABLE,
        Condition.SILENT,
        Condition.RUNNING,
    ]
    assert "Permission denied" in by_name[STREAM].text
    assert "Permission denied" in by_name[mute].text


def test_settings_that_only_a_newer_headgate_knows_hide_no_other_stream(running: World, observer: Observer) -> None:
    other = StreamName("payments")
    running.decide(replace(running.deployed(other), settings={"headgate.of-tomorrow": "1"}), other)
    running.started(stream=other)
    by_name = {status.stream: status for status in observer.fleet()}
    assert by_name[STREAM].condition is Condition.RUNNING
    assert by_name[other].condition is Condition.UNREADABLE
    assert "headgate.of-tomorrow" in by_name[other].text


class TestRestartsAreCounted:
    """The outer strategy's memory is the slot log."""

    def lose(self, world: World, *, replaces: int | None) -> None:
        world.started(replaces=replaces)
        world.beat(StreamState.FAILED, cause="again")

    def test_since_a_person_started_it(self, world: World, observer: Observer) -> None:
        world.deployed()
        verdicts = []
        for replaces in (None, 1, 2, 3, None, 5):
            self.lose(world, replaces=replaces)
            lost = observer.status(STREAM).lost
            assert lost is not None
            verdicts.append(lost.restart)
        attempts = [verdict.attempt if isinstance(verdict, RestartAfter) else None for verdict in verdicts]
        assert attempts == [1, 2, 3, None, 1, 2]
        assert isinstance(verdicts[3], GiveUp)

    def test_and_the_pause_counts_from_the_last_sign_of_life(self, world: World, observer: Observer) -> None:
        world.deployed(restart_strategy__fixed_delay__delay="10 s")
        world.started()
        world.age_slot(1, 60)
        world.beat(StreamState.FAILED, cause="once", age_s=4)
        lost = observer.status(STREAM).lost
        assert lost is not None
        assert 3 < lost.due_in_s < 6.5

    def test_and_a_long_life_resets_the_backoff(self, world: World, observer: Observer) -> None:
        world.deployed(restart_strategy__type="exponential-delay")
        for replaces in (None, 1, 2):
            self.lose(world, replaces=replaces)
        world.age_slot(3, 4000)
        lost = observer.status(STREAM).lost
        assert lost is not None
        assert isinstance(lost.restart, RestartAfter)
        assert lost.restart.attempt == 1


# ---- a heartbeat that beats while the stream does not move


def hung(for_s: float, allowed_s: float = 60) -> Standing:
    return Standing(
        what="Spark's JVM has not answered",
        for_ms=int(1000 * for_s),
        allowed_ms=int(1000 * allowed_s),
        setting="headgate.progress.timeout",
    )


HUNG = "no progress: Spark's JVM has not answered for 153 s (headgate.progress.timeout allows 1 min)"


def test_what_does_not_move_is_told(running: World, observer: Observer) -> None:
    running.beat(standing=(hung(153), hung(30)))
    status = observer.status(STREAM)
    assert (status.condition, status.lost) == (Condition.RUNNING, None), "its driver ends it"
    assert status.text == f"generation 1 is running, but makes {HUNG}"
    assert status.standing[0].for_ms == 153_000


@pytest.mark.parametrize(
    ("for_s", "allowed_s", "condition"),
    [
        (360, 60, Condition.RUNNING),
        (361, 60, Condition.LOST),
        (3_900, 3_600, Condition.RUNNING),
        (1_000_000, 0, Condition.RUNNING),
    ],
    ids=["it may be ending", "it is not", "its time is another one", "it may take any time"],
)
def test_a_driver_that_beats_and_does_not_end_itself_is_lost(
    running: World, observer: Observer, for_s: float, allowed_s: float, condition: Condition
) -> None:
    running.beat(standing=(hung(1, 10), hung(for_s, allowed_s)))
    status = observer.status(STREAM)
    assert status.condition is condition
    assert (status.lost is not None) == (condition is Condition.LOST)
    if condition is Condition.LOST:
        assert "was to end itself, but has not: no progress: Spark's JVM has not answered for 361 s" in status.text


def test_a_stream_that_is_to_stop_and_hangs_is_not_restarted(running: World, observer: Observer) -> None:
    running.decide(StopWanted(generation=Generation(1), by="ben", reason="stop", at_ms=1))
    running.beat(StreamState.STOPPING, standing=(hung(1_000),))
    status = observer.status(STREAM)
    assert (status.condition, status.lost) == (Condition.STOPPED, None)
