"""Real Spark is frozen, or its folders are deleted: the stream is back by itself, and nothing is lost or doubled."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate_contract.heartbeats import Heartbeat, StreamState
from headgate_contract.history import read_history
from headgate_contract.ids import StreamName
from headgate_contract.records import Restarted
from headgate_contract.store import open_store
from headgate_control.supervise import Sighting, Supervisor
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_drivers

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

ROWS = 500


class Supervised:
    """A stream that is watched as `headgate supervise` does, whichever generation of it runs."""

    def __init__(self, base: Path) -> None:
        settings = {"headgate.progress.timeout": "6 s", "restart-strategy.fixed-delay.delay": "200 ms"}
        self.stream = StreamUnderFire(base, settings=settings)
        self.written = 0
        self.told: list[Sighting] = []
        self._stop = threading.Event()
        self.stream.given.mkdir(parents=True)
        self.write(4)
        self.stream.deploy()
        self.stream.start()
        supervisor = Supervisor(self.stream.control(), self.told.append)
        self._thread = threading.Thread(target=supervisor.run, args=(0.5, self._stop), daemon=True)
        self._thread.start()
        self.read_all()

    def write(self, files: int) -> None:
        for _ in range(files):
            ids = np.arange(self.written, self.written + ROWS)
            self.written += ROWS
            partial = self.stream.given / f".{ids[0]:08d}"
            pq.write_table(pa.table({"id": ids, "key": ids % 37}), partial)
            partial.rename(self.stream.given / f"{ids[0]:08d}.parquet")

    @property
    def generation(self) -> int:
        newest = self.stream.catalogue().newest_generation
        assert newest is not None
        return newest.generation

    @property
    def beat(self) -> Heartbeat | None:
        return self.stream.beat(self.generation)

    def read_all(self) -> None:
        self.wait(
            lambda: (
                (beat := self.beat) is not None
                and beat.state is StreamState.RUNNING
                and beat.progress.records >= self.written
            )
        )

    def wait(self, condition: Callable[[], object], timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, (self.beat, self.told)
            time.sleep(0.1)

    def session(self) -> list[psutil.Process]:
        """The driver, its JVM and its Python workers."""
        beat = self.beat
        assert beat is not None
        assert beat.process is not None
        driver = psutil.Process(beat.process.pid)
        return [driver, *driver.children(recursive=True)]

    def events(self, what: str) -> list[str]:
        store = open_store(self.stream.root)
        return [event.text for event in read_history(store, StreamName(self.stream.name)) if event.what == what]

    def restarts(self) -> list[Restarted]:
        return [slot.record for slot in self.stream.catalogue().slots if isinstance(slot.record, Restarted)]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    base = tmp_path_factory.mktemp("supervised")
    try:
        found = Supervised(base)
        yield found
        found.close()
        found.stream.control().stop(found.stream.name)
        verdict = check(found.stream.given, found.stream.output)
        assert verdict.ok, str(verdict)
    finally:
        kill_drivers(base)


def is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def over(processes: list[psutil.Process]) -> bool:
    return all(map(is_over, processes))


def is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name()
    except psutil.NoSuchProcess:  # Spark's workers come and go
        return False


def frozen(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of them that were there to be stopped."""
    found = []
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGSTOP)
            found.append(each)
    return found


def test_python_workers_that_are_frozen_are_replaced_in_the_driver(supervised: Supervised) -> None:
    generation, before = supervised.generation, len(supervised.restarts())
    supervised.write(1)
    supervised.read_all()
    workers = frozen(each for each in supervised.session()[1:] if not is_java(each))
    assert workers
    supervised.write(2)
    supervised.wait(lambda: len(supervised.restarts()) > before)
    supervised.read_all()
    # one that the driver saw later is ended later, and may have been given work once more
    assert "which the driver has started, has been stopped for" in supervised.restarts()[before].cause
    assert supervised.generation == generation
    supervised.wait(lambda: over(workers))
    supervised.read_all()


def test_a_jvm_that_is_frozen_is_replaced_with_its_driver(supervised: Supervised) -> None:
    generation, session = supervised.generation, supervised.session()
    (jvm,) = (each for each in session if is_java(each))
    jvm.send_signal(signal.SIGSTOP)
    supervised.write(2)
    supervised.wait(lambda: supervised.generation > generation)
    supervised.read_all()
    # whether the driver asked the JVM first, or saw first that somebody had stopped it
    causes = (
        "Spark's JVM has not answered",
        f"java (process {jvm.pid}), which the driver has started, has been stopped",
    )
    assert any(cause in text for text in supervised.events("progress") for cause in causes)
    failed = supervised.stream.beat(generation)
    assert failed is None or failed.progress.standstills >= 1  # its successor deletes it
    assert "lost" in [one.what for one in supervised.told if one.generation == generation]
    supervised.wait(lambda: over(session))


def test_a_driver_whose_working_folder_is_deleted_is_replaced(supervised: Supervised) -> None:
    generation = supervised.generation
    newest = supervised.stream.catalogue().newest_generation
    assert newest is not None
    folder = Path(newest.log).parent
    shutil.rmtree(folder.rename(folder.with_name("deleted")))  # at once: Spark goes on writing into it
    supervised.write(2)
    supervised.wait(lambda: supervised.generation > generation)
    supervised.read_all()
    lost = next(one for one in supervised.told if one.generation == generation and one.what == "lost")
    assert "was deleted while the driver ran" in lost.text
