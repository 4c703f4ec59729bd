"""The crash matrix: a driver is killed before and after each step of a checkpoint, and of a restore's seeding.

A cell is one place and one backend. It passes only if the kill hit where it was meant to, with something to lose, and
the next lives brought the output to the truth and left nothing behind. Checkpoints are asked for by hand, each when
there are new records: so it is known which one the kill hits. A part of the input comes before each of them, and the
last one behind the kill: however long a checkpoint takes, there is something left to read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotMetadata, read_metadata
from headgate_contract.store import open_store
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_drivers, wait_gone
from tests.crash.truth import write_input

STEPS = ("barrier", "sync", "upload", "ack", "prepare", "slot", "notify", "commit", "seed")
BACKENDS = ("hashmap", "rocksdb")
COMPLETE = ("after-slot", "before-commit", "after-commit", "before-notify", "after-notify")
"""At these points the checkpoint under way is complete already."""

_WORK_DONE = "after-commit"
"""Where the first life is killed if it is the second one's seeding that counts."""
_PATIENCE_S = 120
_FILES, _RECORDS_PER_FILE, _KEYS = 120, 100, 300
_AT_ONCE = 30
"""So many files come before each checkpoint, of which there are three at most."""
SETTINGS = {
    "execution.checkpointing.interval": "1 h",
    "execution.checkpointing.num-retained": "1",
    "heartbeat.interval": "200 ms",
}
PACE = {"spark": "200 ms", "stand-in": "50 ms"}
"""Between two micro-batches: the records must not be gone before the kill."""


@dataclass(frozen=True)
class Cell:
    """Where a driver is killed, and on which backend."""

    backend: str
    point: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.point}"


CELLS = tuple(Cell(backend, f"{side}-{step}") for backend, step, side in product(BACKENDS, STEPS, ("before", "after")))


class CellRun:
    """One cell's stream, below `base`; the seed chooses at which checkpoint it is killed."""

    def __init__(self, cell: Cell, base: Path, *, engine: str, seed: int, fault: str = "") -> None:
        self._cell = cell
        self._engine = engine
        self._number = random.Random(f"{seed}/{cell}").choice((2, 3))
        self._seed = seed
        self.stream = self._stream(base, engine, {"HEADGATE_TEST_BREAK": fault})

    @property
    def _margin(self) -> int:
        """How many records more than the last one each checkpoint has at least."""
        return 0

    def _stream(self, base: Path, engine: str, environment: dict[str, str]) -> StreamUnderFire:
        return StreamUnderFire(
            base,
            engine=engine,
            backend=self._cell.backend,
            environment=environment,
            settings={**SETTINGS, "headgate.trigger-interval": PACE[engine]},
            files_per_batch=1,
        )

    def _write_input(self) -> int:
        """All of it, to be given by and by; how many records that is."""
        records = _FILES * _RECORDS_PER_FILE
        self.stream.given.mkdir()
        write_input(self.stream.held_back, seed=self._seed, records=records, files=_FILES, keys=_KEYS)
        return records

    def _give(self, files: int = _AT_ONCE) -> None:
        self.stream.give(files)

    def run(self) -> str:
        """What happened. Raises AssertionError, or an error of the product, if the cell fails."""
        stream = self.stream
        records = self._write_input()
        stream.deploy({"HEADGATE_TEST_ENGINE": "stand-in"})  # the check of the job need not start Spark each time
        seeding = self._cell.point.endswith("-seed")
        reached = self._life_killed_at(_WORK_DONE if seeding else self._cell.point)
        assert reached < records, "every record was handed over before it was killed"
        if seeding:
            launched = stream.start_killed_at(self._cell.point)
            stream.wait_killed(launched, self._cell.point)
        self._assert_completed()
        return f"killed at checkpoint {self._number}; {self._last_life(records, reached)}"

    def end(self) -> None:
        """Leave no process, not even one whose start we did not see the end of."""
        kill_drivers(self.stream.base)

    def _life_killed_at(self, point: str) -> int:
        """Live until the kill, at the checkpoint of that number; how many records were handed over before its barrier.

        None of them is in an earlier checkpoint.
        """
        stream, point = self.stream, f"{point}#{self._number}"
        launched = stream.start_killed_at(point)
        reached = snapshot = 0
        for number in range(1, self._number + 1):
            self._give()
            reached = self._records_beyond(launched, snapshot + self._margin)
            self._ask(wait=number < self._number)
            snapshot = stream.newest_snapshot_records()
        stream.wait_killed(launched, point, _PATIENCE_S)
        return reached

    def _ask(self, *, wait: bool) -> None:
        """For a checkpoint, and wait for it or not."""
        self.stream.control().checkpoint(self.stream.name, wait=wait)

    def _records_beyond(self, launched: Launched, records: int) -> int:
        """Wait until more than so many were handed over; how many there are."""
        beat = self.stream.wait(launched.generation, lambda beat: beat.progress.records > records, _PATIENCE_S)
        return beat.progress.records

    def _assert_completed(self) -> None:
        """The log shows the kill where its name says."""
        point = self._cell.point
        wanted = self._number if point in COMPLETE or point.endswith("-seed") else self._number - 1
        completed = len(self.stream.catalogue().completed)
        assert completed == wanted, f"{completed} checkpoints are complete, at {point}#{self._number} it is {wanted}"

    def _last_life(self, records: int, reached: int) -> str:
        stream = self.stream
        self._hurry()
        launched = stream.start()
        assert isinstance(launched.decision, RestoreFrom), f"it began anew: {launched.decision.reason}"
        held = stream.metadata(launched.decision.snapshot)
        restored = held.records
        assert 0 < restored < records, f"the snapshot that was restored has {restored} of {records} records"
        stream.control().checkpoint(stream.name)
        stream.wait(launched.generation, lambda beat: beat.progress.records >= records, _PATIENCE_S)
        stream.control().stop(stream.name)
        wait_gone(launched.process.pid)
        verdict = self._verdict()
        left = leftovers(stream)
        assert not left, f"{len(left)} files are left that nobody names: {', '.join(left[:3])}"
        return (
            f"{launched.decision.snapshot} restored{self._more_of(held)}, at least {max(0, reached - restored)} "
            f"records replayed; {verdict}"
        )

    def _hurry(self) -> None:
        """The last life need not go at a pace, and gets what is left."""
        self._give(_FILES)
        self.stream.files_per_batch = _FILES

    def _more_of(self, restored: SnapshotMetadata) -> str:
        """What else there is to tell, and to require, of the snapshot that the last life began with."""
        return ""

    def _verdict(self) -> str:
        verdict = check(self.stream.given, self.stream.output)
        assert verdict.ok, str(verdict)
        return str(verdict)


def leftovers(stream: StreamUnderFire) -> list[str]:
    """What a stream that has stopped need not have any more: files that no retained snapshot names, staged output."""
    store, catalogue = open_store(stream.root), stream.catalogue()
    paths = StreamPaths(catalogue.stream)
    named = {f"{ref.folder}/{METADATA}" for ref in catalogue.snapshots}
    for path in list(named):
        named |= {handle.path for handle in read_metadata(store.read(path), path).handles()}
    stored = [info.path for folder in (paths.shared, paths.checkpoints) for info in store.list(folder)]
    staged = [str(path.relative_to(stream.output)) for path in stream.output.glob("_headgate/*/*/staged/*")]
    return [path for path in stored if path not in named] + staged
