"""The demos: what they find out about the machine, and that they leave nothing of an earlier run behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headgate_contract.errors import BadConfiguration
from scripts import crash_demo, demo


def java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it is of `version`."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_the_demo_goes_by_java_home_as_setup_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(java(tmp_path / "path", "1.8.0_392") / "bin"))
    with pytest.raises(demo.DemoFailed, match="Java 17 or newer"):
        demo.check_machine()
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "home", "21.0.1")))
    demo.check_machine()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(demo.DemoFailed, match="in JAVA_HOME"):
        demo.check_machine()


def test_the_demo_ends_an_airflow_that_was_kept_before_it_takes_its_home_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(Exception):
        """The old home is gone."""

    def no_server(*args: object, **options: object) -> None:
        raise Reached

    monkeypatch.setattr(demo, "TextServer", no_server)
    home = tmp_path / "demo" / "airflow"
    home.mkdir(parents=True)
    story = demo.Demo(tmp_path / "demo")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as kept:
        leader = {"name": "api-server", "pid": kept.pid, "created": psutil.Process(kept.pid).create_time()}
        demo.LocalAirflow(home)._state.write_text(json.dumps({"port": 1, "password": "", "leaders": [leader]}))
        with pytest.raises(Reached):
            story.begin()
        ended = kept.poll() is not None
        kept.kill()
    assert ended
    assert not home.exists()


def test_a_crash_demo_that_cannot_begin_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise BadConfiguration("no such engine")

    monkeypatch.setattr(crash_demo, "StreamUnderFire", refuse)
    monkeypatch.setattr(sys, "argv", ["crash_demo", "--backend", "hashmap"])
    assert crash_demo.main() == 1
    assert "hashmap: no such engine" in capsys.readouterr().out
