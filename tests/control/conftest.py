"""What the tests of the control plane share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headgate_contract.heartbeats import read_heartbeat
from headgate_contract.paths import HEARTBEATS, heartbeat_of
from headgate_control.launch import reap
from headgate_control.outcomes import ProcessSign
from headgate_control.processes import sign_of, wait_gone
from tests.control.command_line import Cli, headgate
from tests.control.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An empty root; every driver that a test leaves behind on it is ended."""
    monkeypatch.setenv("HEADGATE_WORK", str(tmp_path / "work"))
    made = World(tmp_path)
    yield made
    monkeypatch.undo()  # storage answers again
    for info in made.store.list(HEARTBEATS):
        whose = heartbeat_of(info.path)
        seen = read_heartbeat(made.store, *whose) if whose is not None else None
        process = seen.heartbeat.process if seen is not None and seen.heartbeat is not None else None
        if process is not None and process.pid != os.getpid() and sign_of(process) is ProcessSign.ALIVE:
            with suppress(ProcessLookupError):  # it ends this moment
                os.kill(process.pid, signal.SIGKILL)
            wait_gone(process, 60)
    reap()


@pytest.fixture
def cli(world: World, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, in the world's folder and with its root as $HEADGATE_ROOT."""
    monkeypatch.chdir(world.folder)
    monkeypatch.setenv("HEADGATE_ROOT", str(world.root))
    return headgate
