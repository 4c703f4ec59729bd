"""A driver that is killed takes all that it has started along: other process groups, and what is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import psutil
import pytest

from headgate_contract.process import identify
from headgate_control.processes import LAUNCH_VARIABLE, kill_group, kill_left_by
from tests.control.world import until

LAUNCH = "8f14e45fceea167a5a36dedd4bea2543"
WORKER = "import os, time; os.setpgid(0, 0); print('ready', flush=True); time.sleep(60)"
DRIVER = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {WORKER!r}])
time.sleep(60)
"""


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, LAUNCH_VARIABLE: LAUNCH}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, start_new_session=True, env=environment
    )
    assert process.stdout is not None
    process.stdout.readline()
    workers = psutil.Process(process.pid).children()
    yield process
    for left in [*workers, process]:
        with suppress(psutil.NoSuchProcess):  # its new parent has seen its end
            left.kill()
    process.communicate()


def is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two looks
        return True


@pytest.mark.parametrize("frozen", [False, True])
def test_workers_of_a_group_of_their_own_end_with_their_driver(driver: subprocess.Popen[bytes], frozen: bool) -> None:
    (worker,) = psutil.Process(driver.pid).children()
    identity = identify(driver.pid)
    assert identity is not None
    if frozen:
        worker.send_signal(signal.SIGSTOP)
        driver.send_signal(signal.SIGSTOP)
    assert kill_group(identity)
    until(lambda: driver.poll() == -signal.SIGKILL)
    until(lambda: is_over(worker))


def test_what_a_dead_driver_has_left_ends_also_if_it_is_stopped_and_nothing_of_another_launch(
    driver: subprocess.Popen[bytes],
) -> None:
    """Spark's JVM ends by itself when its driver is gone: but not while it is stopped."""
    (worker,) = psutil.Process(driver.pid).children()
    identity = identify(driver.pid)
    assert identity is not None
    assert kill_left_by(identity, LAUNCH) == 0, "it lives"
    driver.kill()
    until(lambda: driver.poll() == -signal.SIGKILL)
    assert not kill_group(identity)
    assert kill_left_by(identity, "another launch") == 0
    assert kill_left_by(replace(identity, boot="another boot"), LAUNCH) == 0
    assert not is_over(worker)
    worker.send_signal(signal.SIGSTOP)
    assert kill_left_by(identity, LAUNCH) == 1
    until(lambda: is_over(worker))


def test_nothing_of_another_process_is_touched(driver: subprocess.Popen[bytes]) -> None:
    (worker,) = psutil.Process(driver.pid).children()
    identity = identify(driver.pid)
    assert identity is not None
    assert not kill_group(replace(identity, started="ticks:1"))
    assert driver.poll() is None
    assert worker.status() != psutil.STATUS_ZOMBIE
