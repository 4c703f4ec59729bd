"""One driver on real Spark in which everything fails once: each time it goes on by itself, and no record is lost."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate_contract.heartbeats import StreamState
from headgate_contract.records import Restarted
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import QUICK_JAVA, StreamUnderFire, kill_group, wait_gone

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

JOB = Path(__file__).parent / "jobs" / "fragile_number.py"
ROWS = 500


class Fragile:
    """The stream, and what it is given."""

    def __init__(self, base: Path, settings: dict[str, str]) -> None:
        self.wishes = base / "wishes"
        self.wishes.mkdir()
        self.stream = StreamUnderFire(
            base,
            settings={
                "execution.checkpointing.interval": "500 ms",
                "execution.checkpointing.timeout": "8 s",
                "restart-strategy.fixed-delay.delay": "200 ms",
                "restart-strategy.max-failures-per-position": "1000",  # it may fail as often as the test is slow
                **settings,
            },
            environment={"FRAGILE_WISHES": str(self.wishes)},
            job=JOB,
        )
        self.written = 0
        self.stream.given.mkdir(parents=True)
        self.write(4)
        self.stream.deploy()
        self.launched: Launched = self.stream.start()
        try:
            self.read_all()
        except BaseException:
            self.end()  # nobody else knows of it yet
            raise

    def write(self, files: int) -> None:
        for _ in range(files):
            ids = np.arange(self.written, self.written + ROWS)
            self.written += ROWS
            partial = self.stream.given / f".{ids[0]:08d}"
            pq.write_table(pa.table({"id": ids, "key": ids % 37}), partial)
            partial.rename(self.stream.given / f"{ids[0]:08d}.parquet")

    def read_all(self) -> None:
        self.wait(lambda: self.beat.progress.records >= self.written and self.beat.state is StreamState.RUNNING)

    @property
    def beat(self):
        beat = self.stream.beat(self.launched.generation)
        assert beat is not None
        assert beat.state is not StreamState.FAILED, beat.cause
        return beat

    @property
    def restarts(self) -> list[Restarted]:
        return [slot.record for slot in self.stream.catalogue().slots if isinstance(slot.record, Restarted)]

    def wait(self, condition: Callable[[], object], timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.beat
            time.sleep(0.1)

    def restarted(self, before: int) -> str:
        """Wait until it has gone on after one more failure, and for the rest of its records; what it told of them."""
        self.wait(lambda: len(self.restarts) > before)
        self.write(2)
        self.read_all()
        left = list((self.stream.base / "work").glob("*/*/engine/query-*"))
        assert len(left) == 1, "the names of all files ever, of each life before"
        return "; ".join(restart.cause for restart in self.restarts[before:])

    def finish(self) -> None:
        self.stream.control().stop(self.stream.name)
        wait_gone(self.launched.process.pid)
        verdict = check(self.stream.given, self.stream.output)
        assert verdict.ok, str(verdict)

    def end(self) -> None:
        if Path(f"/proc/{self.launched.process.pid}").exists():
            kill_group(self.launched)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fragile]:
    found = Fragile(tmp_path_factory.mktemp("fragile"), {"execution.checkpointing.num-retained": "2"})
    yield found
    try:
        found.finish()  # after all that has happened to it, in whichever tests ran
    finally:
        found.end()


def wish(fragile: Fragile, what: str) -> int:
    """Ask the step for a failure in its next micro-batch; how often it had restarted before."""
    before = len(fragile.restarts)
    (fragile.wishes / what).touch()
    fragile.write(1)
    return before


def test_a_task_that_fails_restarts_the_chain(fragile: Fragile) -> None:
    before = wish(fragile, "fail-task")
    assert "ValueError: the task was told to fail" in fragile.restarted(before)


def test_a_python_worker_that_dies_restarts_the_chain(fragile: Fragile) -> None:
    before = wish(fragile, "kill-worker")
    assert "Python worker" in fragile.restarted(before)


def test_a_checkpoint_that_expires_restarts_the_chain(fragile: Fragile) -> None:
    before = wish(fragile, "be-slow")
    assert "expired" in fragile.restarted(before)


def test_a_source_that_cannot_be_read_is_tried_until_it_can(fragile: Fragile) -> None:
    before = len(fragile.restarts)
    torn = fragile.stream.given / "torn.parquet"
    torn.write_bytes(b"no Parquet at all")
    fragile.wait(lambda: len(fragile.restarts) > before)
    torn.unlink()
    assert "torn.parquet" in fragile.restarted(before)


def exchange(one: Path, other: Path) -> None:
    """Both at once: between two renames the driver might make its folder anew."""
    here, both = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), both):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one))


def test_a_sink_that_cannot_be_written_to_is_tried_until_it_can(fragile: Fragile) -> None:
    before = len(fragile.restarts)
    output = fragile.stream.output
    away = output.with_name("away")
    away.write_text("no folder")
    exchange(output, away)
    fragile.write(1)
    fragile.wait(lambda: len(fragile.restarts) > before)
    exchange(output, away)
    assert str(output) in fragile.restarted(before)


def test_storage_that_takes_nothing_is_tried_until_it_does(fragile: Fragile) -> None:
    before = len(fragile.restarts)
    driver = psutil.Process(fragile.launched.process.pid)
    limits = driver.rlimit(resource.RLIMIT_FSIZE)
    driver.rlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # as on a full disk: no file of the driver's grows
    fragile.write(1)
    # Nothing can be told meanwhile. A life that has failed has no state on this host any more.
    fragile.wait(lambda: not list((fragile.stream.base / "work").glob("*/*/state")))
    driver.rlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in fragile.restarted(before)


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # a worker's child that has just ended
        return ""


def started_executors(fragile: Fragile) -> list[psutil.Process]:
    """What the JVM has started itself: before it is another program, a child of an executor looks like its parent."""
    driver = psutil.Process(fragile.launched.process.pid)
    started = [child for jvm in driver.children() for child in jvm.children()]
    return [child for child in started if "CoarseGrainedExecutorBackend" in command_line(child)]


def test_an_executor_that_dies_is_survived(tmp_path: Path) -> None:
    executors = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA}
    fragile = Fragile(tmp_path, {"spark.master": "local-cluster[2,1,1024]", **executors})
    try:
        fragile.wait(lambda: len(started_executors(fragile)) == 2)  # Spark does not wait for the second one
        fragile.write(20)
        os.kill(started_executors(fragile)[0].pid, signal.SIGKILL)
        fragile.write(4)
        fragile.read_all()
        fragile.finish()
    finally:
        fragile.end()
