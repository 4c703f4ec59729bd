"""A long life on the stand-in: checkpoints and restarts by the thousand, and what there is of everything meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.step.operators import Keyed
from jobs.running_number import number
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import until

SETTINGS = {
    "execution.checkpointing.interval": "10 ms",
    "execution.checkpointing.num-retained": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 s",
}
_GROWING = ("slots", "history")
"""The folders of a stream that have an entry for each checkpoint, as docs/operations.md says."""


class FailsOnce:
    """Numbers records, and fails when it is told to, once."""

    def __init__(self) -> None:
        self.now = threading.Event()

    def __call__(self, rows: pa.Table, keyed: Keyed) -> Any:
        if self.now.is_set():
            self.now.clear()
            raise ValueError("told to fail")
        return number(rows, keyed)


@dataclass(frozen=True)
class Holds:
    """What there is at one moment."""

    checkpoints: int
    descriptors: int
    threads: int
    work: int
    """Files of the driver's working folder."""
    stream: int
    """Files of the stream on the root, but for those that come with each checkpoint."""
    growing: int
    """Bytes of those: of the log, the history, and what the sink knows of its output."""


class Soak:
    """One generation that fails again and again."""

    def __init__(self, base: Path) -> None:
        self.step = FailsOnce()
        self.world = LifeWorld(base, self.step)
        self.world.settings |= SETTINGS
        self.world.write(1)
        self.life: Running = self.world.begin()
        self.life.read_all()
        self._restarts = 0

    def run(self, restarts: int, each: int) -> Holds:
        """So many restarts, with checkpoints before each, every one with new records; what there is behind them."""
        for _ in range(restarts):
            for _ in range(each):
                self._checkpoint()
            self._restart()
            self._checkpoint()
        return self._holds()

    def _checkpoint(self) -> None:
        before = self.life.heart.progress.checkpoints
        self.world.write(1, rows=2)
        until(lambda: self.life.error or self.life.heart.progress.checkpoints > before, "a checkpoint completes")
        assert self.life.error is None, self.life.error

    def _restart(self) -> None:
        self._restarts += 1
        self.step.now.set()
        self.world.write(1, rows=2)
        until(lambda: self.life.error or self.life.heart.progress.restarts >= self._restarts, "it restarts")
        self.life.read_all()
        assert self.life.error is None, self.life.error

    def _holds(self) -> Holds:
        """Behind what is being deleted."""
        base, stream = self.world.base, self.world.base / "root" / "streams" / STREAM
        kept = int(SETTINGS["execution.checkpointing.num-retained"])
        until(lambda: len(list(stream.glob("checkpoints/*/_metadata"))) <= kept, "retired checkpoints are gone")
        growing = [stream / name for name in _GROWING] + [base / "out" / "_headgate"]
        return Holds(
            checkpoints=self.life.heart.progress.checkpoints,
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            work=len(_files([base / f"g{self.life.generation}"])),
            stream=len(_files([stream], but=growing)),
            growing=sum(_files(growing)),
        )

    def stop(self) -> None:
        assert self.life.stop() is None
        self.world.check_output()


def _files(folders: Iterable[Path], but: Iterable[Path] = ()) -> list[int]:
    """How long each of them is; the life goes on meanwhile, and what it deletes is none."""
    without, found = set(but), []
    for folder in folders:
        for place, below, names in os.walk(folder):
            below[:] = [name for name in below if Path(place, name) not in without]
            for name in names:
                with suppress(FileNotFoundError):
                    found.append(os.stat(Path(place, name)).st_size)
    return found
