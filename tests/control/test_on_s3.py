"""The control plane on an S3 root: the same verbs, and the driver gets the options that the root needs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_control import Condition, Control, Launched
from headgate_control.processes import wait_gone
from tests.control.world import QUICK, STANDIN, STREAM, until
from tests.servers.moto import make_bucket, moto_server, options

pytestmark = [pytest.mark.servers, pytest.mark.e2e]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as found:
        make_bucket(found, "control")
        yield found


@pytest.fixture
def control(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    monkeypatch.setenv("HEADGATE_WORK", str(tmp_path / "work"))
    made = Control.open(f"s3://control/{tmp_path.name}", options=options(endpoint), by="anna", programs=STANDIN)
    yield made
    for status in made.fleet():
        if status.process is not None and status.live:
            os.killpg(status.process.pid, signal.SIGKILL)


def test_a_stream_lives_is_lost_and_comes_back(control: Control, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    settings = {**QUICK, "heartbeat.interval": "200 ms"}
    control.deploy(STREAM, tmp_path / "job.py", settings, directory=tmp_path)
    first = control.start(STREAM)
    assert control.checkpoint(STREAM).snapshot == 1
    os.killpg(first.process.pid, signal.SIGKILL)
    assert wait_gone(first.process, 60)
    until(control.lost)
    said = control.explain(STREAM)
    found = control.recover(STREAM)
    assert isinstance(found, Launched)
    assert found.decision == said.decision
    assert control.stop(STREAM, savepoint="final").snapshot == 2
    assert control.status(STREAM).condition is Condition.STOPPED
