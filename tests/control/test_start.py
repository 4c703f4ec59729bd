"""Starting: who gets the slot, what the driver is given, and how a driver that does not come up is told."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate_contract.errors import (
    BadInput,
    HeadgateError,
    LaunchFailed,
    LogDamaged,
    StorageError,
    StorageUnreachable,
    StreamRunning,
    StreamUnknown,
)
from headgate_contract.heartbeats import ProcessIdentity, Seen, StreamState, read_heartbeat
from headgate_contract.ids import CheckpointId
from headgate_contract.process import identify, this_host
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_control import Condition, Control, Launched, housekeeping, launch
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of, terminate, wait_gone
from tests.control.world import STANDIN, STREAM, World, until

pytestmark = pytest.mark.e2e


def outcome(call: Callable[[], object]) -> object:
    """What `call` returned or raised."""
    try:
        return call()
    except HeadgateError as error:
        return error


def test_start_waits_until_the_driver_runs(world: World) -> None:
    world.deployed()
    control = world.control()
    launched = control.start(STREAM)
    assert (launched.generation, launched.state) == (1, StreamState.RUNNING)
    assert isinstance(launched.decision, StartFresh)
    assert sign_of(launched.process) is ProcessSign.ALIVE
    status = control.status(STREAM)
    assert (status.condition, status.by, status.host) == (Condition.RUNNING, "anna", this_host())
    assert status.process == launched.process
    started = world.catalogue().newest_generation
    assert started is not None
    assert (started.decision, started.log) == (launched.decision, launched.log)


def test_the_driver_is_detached_and_gets_no_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "hush1")
    monkeypatch.setenv("AIRFLOW_CONN_DB", "hush2")
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "hush3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "for-the-root")
    world.deployed()
    launched = world.control().start(STREAM)
    pid = launched.process.pid
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    log = "\n".join(world.control().logs(STREAM, lines=1000).lines)
    assert f"cwd {world.folder}" in log
    assert "hush" not in log
    assert "AWS_SECRET_ACCESS_KEY=for-the-root" in log


def test_a_running_stream_is_not_started_again_and_says_who_where_since_when(world: World) -> None:
    world.deployed()
    launched = world.control().start(STREAM)
    with pytest.raises(StreamRunning) as raised:
        world.control("boris").start(STREAM)
    for part in ("generation 1", "running", "anna", this_host(), str(launched.process.pid), "UTC"):
        assert part in str(raised.value)
    assert len(world.catalogue().generations) == 1


def test_of_many_starts_at_once_one_launches_and_the_others_say_who(world: World) -> None:
    world.deployed()
    controls = [world.control(f"person-{number}") for number in range(6)]
    found: list[object] = []
    barrier = threading.Barrier(6)

    def start(control: Control) -> None:
        barrier.wait()
        found.append(outcome(lambda: control.start(STREAM)))

    threads = [threading.Thread(target=start, args=(control,)) for control in controls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [one for one in found if isinstance(one, Launched)]
    losers = [one for one in found if isinstance(one, StreamRunning)]
    assert (len(winners), len(losers)) == (1, 5), found
    newest = world.catalogue().newest_generation
    assert newest is not None
    assert len(world.catalogue().generations) == 1
    assert all(f"started by {newest.by}" in str(loser) for loser in losers)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("import nosuchmodule", ["exit code 1", "No module named 'nosuchmodule'", "job.py, line 1"]),
        ("MODE = 'exits'", ["exit code 3", "ERROR the port 4040 is taken"]),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ["signal SIGKILL"]),
        ("MODE = 'says-failed'", ["the source directory in/ does not exist"]),
    ],
)
def test_a_driver_that_dies_while_starting_fails_the_start_within_seconds(
    world: World, job: str, said: list[str]
) -> None:
    world.write_job(job)
    world.deployed(headgate__startup_timeout="60 s")
    begun = time.monotonic()
    with pytest.raises(LaunchFailed) as raised:
        world.control().start(STREAM)
    assert time.monotonic() - begun < 60, "it does not wait for the startup timeout"
    newest = world.catalogue().newest_generation
    assert newest is not None
    for part in (*said, f"its log is {newest.log} on {this_host()}"):
        assert part in str(raised.value)
    status = world.control().status(STREAM)
    assert status.condition is Condition.FAILED
    assert said[-1] in (status.cause or "")
    assert [(event.what, event.outcome) for event in world.control().history(STREAM)] == [
        ("start", "ISSUED"),
        ("start", "FAILED"),
    ]


def test_a_start_that_failed_is_not_restarted_behind_the_callers_back(world: World) -> None:
    world.write_job("MODE = 'exits'")
    world.deployed()
    with pytest.raises(LaunchFailed):
        world.control().start(STREAM)
    assert world.control().status(STREAM).lost is None
    world.write_job("")
    world.deployed()
    assert world.control().start(STREAM).generation == 2


def test_a_start_without_waiting_returns_at_once(world: World) -> None:
    world.deployed()
    assert world.control().start(STREAM, wait=False).state is StreamState.LAUNCHED
    until(lambda: world.control().status(STREAM).condition is Condition.RUNNING)


def test_a_driver_that_speaks_before_its_launcher_is_not_talked_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ProcessIdentity] = []

    def driver_speaks_first(pid: int) -> ProcessIdentity | None:
        world.beat(StreamState.FAILED, counter=7, cause="that was quick")
        found.extend(filter(None, [identify(pid)]))
        return identify(pid)

    monkeypatch.setattr(launch, "identify", driver_speaks_first)
    world.write_job("MODE = 'mute'")
    world.deployed()
    with pytest.raises(LaunchFailed, match="that was quick"):
        world.control().start(STREAM)
    assert wait_gone(found[0], 60), "what says that it has failed and does not end is ended"


def test_storage_that_does_not_answer_for_a_moment_fails_no_launch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_at_first(*args: Any) -> Seen | None:
        refused.append(args)
        if len(refused) <= 3:
            raise StorageError("not now")
        return read_heartbeat(*args)

    def refuse(*args: Any) -> Seen | None:
        raise StorageError("not now")

    refused: list[Any] = []
    world.deployed()
    world.control().start(STREAM)
    world.control().stop(STREAM)
    monkeypatch.setattr(launch, "read_heartbeat", refuse_at_first)
    monkeypatch.setattr(housekeeping, "read_heartbeat", refuse)
    assert world.control().start(STREAM).state is StreamState.RUNNING
    assert len(refused) > 3


def test_storage_that_never_answers_is_told_and_the_driver_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Seen | None:
        raise StorageError("not now")

    world.deployed(headgate__startup_timeout="1500 ms")
    with monkeypatch.context() as patch:
        patch.setattr(launch, "read_heartbeat", refuse)
        with pytest.raises(StorageError, match="not now"):
            world.control().start(STREAM)
    until(lambda: world.control().status(STREAM).condition is Condition.RUNNING)


def test_a_heartbeat_left_by_an_earlier_stream_of_this_name_is_not_the_drivers(world: World) -> None:
    world.deployed()
    world.beat(StreamState.FAILED, generation=1, cause="long ago")
    with pytest.raises(LogDamaged, match=r"slots has no entry, and fleet/heartbeats/orders\.g1\.json is there"):
        world.control().start(STREAM)  # who knows that it was deleted on purpose?
    assert world.control().repair(STREAM, execute=True).executed
    assert world.control().start(STREAM).state is StreamState.RUNNING
    assert world.control().status(STREAM).generation == 2


def test_a_working_folder_that_cannot_be_made_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "taken").write_text("")
    monkeypatch.setenv("HEADGATE_WORK", str(world.folder / "taken"))
    world.deployed()
    with pytest.raises(LaunchFailed, match=r"could not be started: .*Not a directory"):
        world.control().start(STREAM)
    assert world.control().status(STREAM).condition is Condition.FAILED


def test_each_launch_has_a_folder_of_its_own_and_old_working_state_is_tidied(world: World) -> None:
    world.deployed()
    control = world.control()
    first = control.start(STREAM)
    (Path(first.log).parent / "state").mkdir()
    control.stop(STREAM)
    second = control.start(STREAM)
    assert Path(first.log).parent != Path(second.log).parent
    assert [entry.name for entry in Path(first.log).parent.iterdir()] == ["driver.log"]


def test_what_explain_said_is_what_the_next_generation_records(world: World) -> None:
    world.deployed()
    control = world.control()

    def explained_then_started(*, fresh: bool = False, fall_back: bool = False) -> None:
        said = control.explain(STREAM, fresh=fresh, fall_back=fall_back)
        launched = control.start(STREAM, fresh=fresh, fall_back=fall_back)
        newest = world.catalogue().newest_generation
        assert newest is not None
        assert newest.decision == said.decision == launched.decision
        assert newest.generation == said.next_generation

    explained_then_started()
    control.checkpoint(STREAM)
    control.checkpoint(STREAM)
    control.cancel(STREAM)
    explained_then_started()
    control.checkpoint(STREAM)
    control.cancel(STREAM)
    world.damage_metadata(world.catalogue().snapshots[0])
    explained_then_started(fall_back=True)
    control.cancel(STREAM)
    explained_then_started(fresh=True)
    control.cancel(STREAM)
    said = control.explain(STREAM, snapshot=CheckpointId(1))
    assert control.restore(STREAM, snapshot=CheckpointId(1)).decision == said.decision
    assert isinstance(said.decision, RestoreFrom)


class TestRestore:
    def test_a_running_stream_is_stopped_first_with_a_savepoint(self, world: World) -> None:
        world.deployed()
        control = world.control()
        control.start(STREAM)
        control.checkpoint(STREAM)
        launched = control.restore(STREAM, snapshot=CheckpointId(1))
        assert launched.generation == 2
        assert isinstance(launched.decision, RestoreFrom)
        assert launched.decision.snapshot.id == 1
        assert [ref.kind.value for ref in world.catalogue().snapshots] == ["savepoint", "checkpoint"]
        assert [(event.what, event.outcome) for event in control.history(STREAM)][-4:] == [
            ("stop", "ISSUED"),
            ("stop", "EXECUTED"),
            ("restore", "ISSUED"),
            ("restore", "EXECUTED"),
        ]

    def test_a_restore_that_will_be_refused_stops_nothing(self, world: World) -> None:
        world.deployed()
        control = world.control()
        control.start(STREAM)
        assert isinstance(outcome(lambda: control.restore(STREAM, snapshot=CheckpointId(9))), Exception)
        assert control.status(STREAM).condition is Condition.RUNNING

    def test_without_a_savepoint_if_told_so(self, world: World) -> None:
        world.deployed()
        control = world.control()
        control.start(STREAM)
        control.restore(STREAM, savepoint_first=False)
        assert all(ref.name is None for ref in world.catalogue().snapshots)


def test_a_start_kills_what_is_left_of_a_lost_driver_only_if_it_may(world: World) -> None:
    world.deployed()
    control = world.control()
    first = control.start(STREAM)
    world.beat(StreamState.FAILED, counter=999, cause="a lie", process=first.process)
    world.freeze(first.process)  # it cannot take the lie back
    world.beat(StreamState.FAILED, counter=999, cause="a lie", process=first.process)
    second = control.start(STREAM, kill_old=False)
    assert sign_of(first.process) is ProcessSign.ALIVE
    os.kill(first.process.pid, signal.SIGCONT)  # it finds itself fenced
    assert wait_gone(first.process, 60)
    world.freeze(second.process)
    world.beat(StreamState.FAILED, counter=999, cause="a lie", process=second.process)
    control.start(STREAM)
    assert wait_gone(second.process, 60)


def test_a_stream_that_was_never_deployed_names_the_nearest(world: World) -> None:
    world.deployed()
    with pytest.raises(StreamUnknown, match="did you mean orders"):
        world.control().start("order")
    assert not (world.root / "streams/order").exists()


def test_a_root_that_cannot_be_written_is_said_first(world: World) -> None:
    (world.folder / "file").write_text("")
    with pytest.raises(StorageUnreachable):
        Control.open(str(world.folder / "file" / "root"), programs=STANDIN).start(STREAM)


@pytest.mark.parametrize(("guide", "folder"), [(None, 0o700), (0o2775, 0o2770)])
def test_a_drivers_working_folder_is_for_nobody_else_whatever_the_umask(
    world: World, guide: int | None, folder: int
) -> None:
    work = world.folder / "work"
    if guide is not None:
        work.mkdir()
        work.chmod(guide)
    world.deployed()
    before = os.umask(0)
    try:
        log = Path(world.control().start(STREAM).log)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (log.parent, log.parent.parent, work)]
    assert modes == [folder, folder, guide or folder]


@pytest.mark.parametrize("root", ["memory://here", "MEMORY://here", " memory://here"])
def test_a_root_in_memory_is_refused_by_every_verb(root: str) -> None:
    with pytest.raises(BadInput, match="lives in this process only"):
        Control.open(root, programs=STANDIN)


def test_term_stops_a_driver_cleanly(world: World) -> None:
    world.deployed()
    control = world.control()
    launched = control.start(STREAM)
    assert terminate(launched.process, grace_s=60)
    assert control.status(STREAM).condition is Condition.STOPPED
