"""The watchdog ends what has not moved, and the process if it must; a driver that nobody watches is silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from headgate.driver import processes, watchdog
from headgate.driver.pulse import Heart
from headgate.driver.under_way import (
    BATCH_TIMEOUT,
    SOURCE_TIMEOUT,
    TIMEOUT,
    DriverSpent,
    NoProgress,
    Part,
    Remedy,
    UnderWay,
)
from headgate.driver.watchdog import Actions, Watchdog
from headgate_contract.errors import StreamFailed
from headgate_contract.heartbeats import Heartbeat, StreamState, read_heartbeat
from headgate_contract.ids import Generation, StreamName
from headgate_contract.settings import Settings
from headgate_contract.store_local import LocalStore
from tests.runtime.driver.waiting import until

STREAM = StreamName("numbers")
JVM = Part("Spark's JVM has not answered", TIMEOUT, Remedy.REPLACE)
BATCH = Part("micro-batch 3 has been under way", BATCH_TIMEOUT, Remedy.RESTART)


@dataclass
class Kennel:
    """A watchdog that looks when it is told to, and what it has done."""

    store: LocalStore
    settings: dict[str, str] = field(default_factory=dict)
    stopped: list[psutil.Process] = field(default_factory=list)
    ended: list[StreamFailed] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.under_way = UnderWay()
        self.heart = Heart(self.store, STREAM, Generation(1))
        self.dog = Watchdog(self.under_way, Settings(self.settings), self.heart, self.actions())

    def actions(self) -> Actions:
        return Actions(
            end_life=self.ended.append,
            tell=self.told.append,
            end_processes=lambda: self.done.append("processes end"),
            kill=lambda pid: self.done.append(f"kill {pid}"),
            die=lambda code: self.done.append(f"exit {code}"),
            stopped=lambda: self.stopped,
        )

    def beat(self) -> Heartbeat:
        seen = read_heartbeat(self.store, STREAM, Generation(1))
        assert seen is not None
        assert seen.heartbeat is not None
        return seen.heartbeat

    def look(self, times: int) -> None:
        for _ in range(times):
            self.now_ms += 1_000
            self.dog.look(self.now_ms)


@pytest.fixture
def kennel(tmp_path: Path) -> Iterator[Kennel]:
    found = Kennel(LocalStore(tmp_path))
    yield found
    found.dog.close()


def test_a_batch_that_hangs_ends_the_life_once_and_is_told(kennel: Kennel) -> None:
    with kennel.under_way.during(BATCH):
        kennel.look(3_600)
        assert kennel.ended == []
        kennel.look(600)
    (cause,) = kennel.ended
    assert isinstance(cause, NoProgress)
    said = f"no progress: micro-batch 3 has been under way for 3600 s ({BATCH_TIMEOUT} allows 1 h)"
    assert str(cause) == said
    until(lambda: kennel.told == [said], "it is told")
    assert kennel.heart.progress.standstills == 1
    assert kennel.done == [], "the process may go on"


def test_what_stands_still_again_is_ended_again(kennel: Kennel) -> None:
    for _ in range(2):
        with kennel.under_way.during(BATCH):
            kennel.look(3_700)
        kennel.look(1)
    assert len(kennel.ended) == kennel.heart.progress.standstills == 2


def test_a_jvm_that_hangs_ends_the_process_and_all_that_it_has_started(kennel: Kennel) -> None:
    with kennel.under_way.during(JVM):
        kennel.look(70)
    (cause,) = kennel.ended
    assert isinstance(cause, DriverSpent)
    assert kennel.done == ["processes end"]


def test_of_two_that_hang_the_one_counts_for_which_the_process_has_to_go(kennel: Kennel) -> None:
    with kennel.under_way.during(Part("a batch", TIMEOUT, Remedy.RESTART)), kennel.under_way.during(JVM):
        kennel.look(70)
    (cause,) = kennel.ended
    assert isinstance(cause, DriverSpent)


def test_a_driver_that_does_not_end_is_ended_in_mid_sentence(kennel: Kennel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_ENDING_S", 0.01)
    with kennel.under_way.during(JVM):
        kennel.look(70)
        until(lambda: kennel.done[-1:] == ["exit 9"], "it dies")
    assert kennel.beat().state is StreamState.FAILED
    assert "Spark's JVM has not answered" in (kennel.beat().cause or "")


def test_a_driver_whose_storage_hangs_too_dies_all_the_same(kennel: Kennel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_ENDING_S", 0.01)
    monkeypatch.setattr(watchdog, "_LAST_WORD_S", 0.01)
    release = threading.Event()
    monkeypatch.setattr(kennel.heart, "become", lambda *_: release.wait())
    with kennel.under_way.during(JVM):
        kennel.look(70)
        until(lambda: kennel.done[-1:] == ["exit 9"], "it dies")
    release.set()


def test_what_stands_still_is_in_the_heartbeat_before_it_is_ended(kennel: Kennel) -> None:
    with kennel.under_way.during(JVM):
        kennel.look(31)
        kennel.heart.become(StreamState.RESTORING)
        (standing,) = kennel.beat().standing
    assert str(standing) == f"Spark's JVM has not answered for 30 s ({TIMEOUT} allows 1 min)"
    kennel.look(1)
    kennel.heart.become(StreamState.RUNNING)
    assert kennel.beat().standing == (), "it has moved on"
    assert kennel.ended == []


def test_none_of_the_defaults_ends_a_stream_that_is_only_slow(kennel: Kennel) -> None:
    """An hour of micro-batches, each just within its time, while the source waits for records that do not come."""
    source = Part("source records has been looking", SOURCE_TIMEOUT, Remedy.RESTART)
    for look in range(3):
        kennel.under_way.saw(source, look)
        with kennel.under_way.during(BATCH):
            kennel.look(590)
        kennel.under_way.saw(source, None)
        kennel.look(4_000)
    assert kennel.ended == []


def test_by_never_nothing_is_ended(tmp_path: Path) -> None:
    kennel = Kennel(LocalStore(tmp_path), dict.fromkeys((TIMEOUT, SOURCE_TIMEOUT, BATCH_TIMEOUT), "0"))
    with kennel.under_way.during(BATCH), kennel.under_way.during(JVM):
        kennel.look(10_000)
    assert kennel.ended == []


def test_it_looks_often_enough_for_the_shortest_time_that_is_allowed(tmp_path: Path) -> None:
    assert Kennel(LocalStore(tmp_path), {TIMEOUT: "2 s"}).dog.pause_s == pytest.approx(0.2)
    assert Kennel(LocalStore(tmp_path)).dog.pause_s == 1.0


def test_a_watchdog_that_is_awake_goes_on_after_a_mistake(
    kennel: Kennel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = threading.Event()

    def fail() -> None:
        looked.set()
        raise RuntimeError("a mistake of ours")

    kennel.dog.pause_s = 0.01
    monkeypatch.setattr(kennel.under_way, "now", fail)
    kennel.dog.start()
    assert looked.wait(10)
    looked.clear()
    assert looked.wait(10)
    kennel.dog.close()


def test_a_driver_that_nobody_watches_gives_no_sign_of_life(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    heart = Heart(store, STREAM, Generation(1))
    awake = threading.Event()
    asked = threading.Event()

    def is_awake() -> bool:
        asked.set()
        return awake.is_set()

    heart.beats_while = is_awake
    heart.know(10, "")
    heart.start()
    assert asked.wait(10)
    assert read_heartbeat(store, STREAM, Generation(1)) is None
    awake.set()
    until(lambda: read_heartbeat(store, STREAM, Generation(1)), "it beats again")
    heart.close()


# ---- processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that has one of its own, which does not heed SIGTERM."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        for left in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            processes.kill(left.pid)  # unless it has just ended
        process.kill()


def family(child: subprocess.Popen[bytes]) -> list[psutil.Process]:
    own = psutil.Process(child.pid)
    return [own, *own.children(recursive=True)]


def is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # since it was asked for
        return True


def test_a_process_that_was_stopped_is_seen_and_told_and_killed(
    kennel: Kennel, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = family(child)
    monkeypatch.setattr(processes, "started_here", lambda: everybody)
    assert processes.stopped() == []
    os.kill(everybody[1].pid, signal.SIGSTOP)
    until(lambda: processes.stopped() == everybody[1:], "it is seen")
    kennel.stopped = processes.stopped()
    kennel.look(80)
    (cause,) = kennel.ended
    assert isinstance(cause, NoProgress)
    assert f"(process {everybody[1].pid}), which the driver has started, has been stopped" in str(cause)
    assert kennel.done == [f"kill {everybody[1].pid}"]
    processes.kill(everybody[1].pid)
    until(lambda: is_over(everybody[1]), "it is over")


def test_of_several_that_were_stopped_each_is_killed(kennel: Kennel, child: subprocess.Popen[bytes]) -> None:
    """As a daemon of Python workers is, and the workers that it has made."""
    kennel.stopped = everybody = family(child)
    kennel.look(80)
    assert len(kennel.ended) == 1
    assert sorted(kennel.done) == sorted(f"kill {each.pid}" for each in everybody)


@pytest.mark.parametrize("grace_s", [0.0, 0.2])
def test_all_that_a_driver_has_started_ends_stopped_or_deaf(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, grace_s: float
) -> None:
    everybody = family(child)
    assert len(everybody) == 2
    monkeypatch.setattr(processes, "started_here", lambda: [each for each in everybody if each.is_running()])
    os.kill(child.pid, signal.SIGSTOP)
    processes.end_all(grace_s)
    until(lambda: all(is_over(each) for each in everybody), "they are over")


PARENT = """
import os, subprocess, sys
os.setpgid(0, 0)
nowhere = subprocess.DEVNULL
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=nowhere, stderr=nowhere)
print(left.pid, flush=True)
os._exit(0)
"""
LEADER = f"""
import psutil, subprocess, sys
from headgate.driver import processes
made = subprocess.run([sys.executable, "-c", {PARENT!r}], capture_output=True, text=True, check=True)
found = [process.pid for process in processes.started_here()]
processes.end_all(0)
def is_left(process):
    try:
        return process.is_running() and process.status() != "zombie"
    except psutil.NoSuchProcess:
        return False
left = [each for each in processes.started_here() if is_left(each)]
print(found == [int(made.stdout)], left)
"""


def test_orphans_of_other_process_groups_are_the_drivers_too() -> None:
    """As Python workers are whose JVM has died: a driver leads a session, and they stay in it."""
    found = subprocess.run(
        [sys.executable, "-c", LEADER], capture_output=True, text=True, check=True, start_new_session=True, timeout=50
    )
    assert found.stdout.split() == ["True", "[]"], found
