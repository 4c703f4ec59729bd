"""A process that outlives a CI run is named, and one that ends in time is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts import leftovers
from tests.house_rules import REPO

pytestmark = pytest.mark.e2e


def mark(name: str) -> str:
    """One that this process alone gives: the same tests may run beside these, in another checkout."""
    return f"{name} of {os.getpid()}"


@contextmanager
def left_behind(value: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the mark that waits for its input to end."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {leftovers.MARK: value})
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def test_a_process_that_is_left_running_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with left_behind(mark("a")) as process:
        assert leftovers.main(mark("a"), grace_s=0) == 1
    assert f"left running: pid {process.pid}" in capsys.readouterr().out


def test_another_runs_process_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with left_behind(mark("b")):
        assert leftovers.main(mark("c"), grace_s=0) == 0
    assert capsys.readouterr().out == ""


def test_a_process_that_ends_within_the_grace_is_forgiven() -> None:
    with left_behind(mark("d")) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert leftovers.main(mark("d"), grace_s=30) == 0


def test_an_airflow_process_that_renames_itself_keeps_the_mark() -> None:
    renamed = "import setproctitle, sys; setproctitle.setproctitle('airflow'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", renamed],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {leftovers.MARK: mark("e"), "SPT_NOENV": "1"},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [found.pid for found in leftovers.marked(mark("e"))] == [process.pid]
        process.communicate()


def test_ci_gives_its_processes_the_mark_and_asks_for_it_at_the_end() -> None:
    ci = (REPO / ".ci" / "run").read_text()
    assert "export HEADGATE_CI_RUN SPT_NOENV=1" in ci
    assert "scripts/leftovers.py" in ci
    assert "make test " in ci
