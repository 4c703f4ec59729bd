"""A stream that lives at several parallelisms while records flow, and what its snapshots and files say of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate_contract.paths import METADATA
from headgate_contract.restore import RestoreFrom
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata, SnapshotRef, SubtaskState, read_metadata
from headgate_contract.store import open_store
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone

PARALLELISMS = (2, 3, 1, 4)
MAX_PARALLELISM = 128
SETTINGS = {
    "execution.checkpointing.num-retained": "1000",  # every snapshot can be looked at in the end
    "heartbeat.interval": "200 ms",
}
_PATIENCE_S = 120
_ROWS, _KEYS = 50, 60
_FILE = re.compile(r"part-\d+-g(?P<generation>\d+)-(?P<subtask>\d+)-")


class Feeder:
    """Writes files of records, each whole, until it is told to end."""

    def __init__(self, folder: Path, pause_s: float) -> None:
        self._folder = folder
        self._pause_s = pause_s
        self._random = np.random.default_rng(11)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self.records = 0

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def end(self) -> int:
        """How many records there are now; no more come."""
        self._ending.set()
        self._thread.join()
        return self.records

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            ids = np.arange(self.records, self.records + _ROWS, dtype=np.int64)
            keys = self._random.integers(0, _KEYS, _ROWS)
            partial = self._folder / f".{self.records:08d}"
            pq.write_table(pa.table({"id": ids, "key": keys}), partial)
            partial.rename(self._folder / f"{self.records:08d}.parquet")
            self.records += _ROWS


class FlowingStream:
    """A stream into which records flow all the time; at the end its output must be the truth."""

    def __init__(self, base: Path, *, engine: str, backend: str, interval: str, pause_s: float) -> None:
        settings = {**SETTINGS, "execution.checkpointing.interval": interval}
        self.stream = StreamUnderFire(base, engine=engine, backend=backend, settings=settings, files_per_batch=50)
        self.parallelism: dict[int, int] = {}
        """Of each generation."""
        self._feeder = Feeder(self.stream.given, pause_s)
        self._launched: Launched | None = None

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Records flow from here on; in the end the stream has taken in all of them and stopped, and is checked."""
        self._feeder.start()
        try:
            self._start(PARALLELISMS[0])
            yield
            assert self._launched is not None
            records, launched = self._feeder.end(), self._launched
            self.stream.wait(launched.generation, lambda beat: beat.progress.records == records, _PATIENCE_S)
            self.stream.control().stop(self.stream.name)
            wait_gone(launched.process.pid)
            verdict = check(self.stream.given, self.stream.output)
            assert verdict.ok, str(verdict)
        finally:
            self._feeder.end()
            if self._launched is not None and Path(f"/proc/{self._launched.process.pid}").exists():
                kill_group(self._launched)

    def live(self) -> None:
        """Until this life has taken in records and completed some checkpoints."""
        assert self._launched is not None
        self.stream.wait(
            self._launched.generation,
            lambda beat: beat.progress.batches > 2 and beat.progress.checkpoints > 2,
            _PATIENCE_S,
        )

    def rescale(self, parallelism: int, *, savepoint: bool) -> None:
        """Go on with so many subtasks. On Spark by stop, deployment and start: the check need not start Spark, too."""
        control, name = self.stream.control(), self.stream.name
        if self.stream.engine == "spark":
            control.stop(name, savepoint=savepoint)
            self._start(parallelism)
        else:
            self._note(control.restore(name, savepoint_first=savepoint, parallelism=parallelism), parallelism)
        self._assert_restored_from(SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT)

    def switch_backend(self) -> None:
        """From the next start on."""
        self.stream.backend = "rocksdb" if self.stream.backend == "hashmap" else "hashmap"
        self.stream.deploy()

    def resume(self, ref: SnapshotRef, parallelism: int) -> None:
        """Go back to this very snapshot."""
        control = self.stream.control()
        launched = control.restore(self.stream.name, snapshot=ref.id, savepoint_first=False, parallelism=parallelism)
        assert isinstance(launched.decision, RestoreFrom)
        assert launched.decision.snapshot == ref
        self._note(launched, parallelism)

    def _start(self, parallelism: int) -> None:
        self.stream.settings = {**self.stream.settings, "parallelism.default": str(parallelism)}
        self.stream.deploy({"HEADGATE_TEST_ENGINE": "stand-in"})
        self._note(self.stream.start(), parallelism)

    def _note(self, launched: Launched, parallelism: int) -> None:
        self._launched = launched
        self.parallelism[launched.generation] = parallelism

    def _assert_restored_from(self, kind: SnapshotKind) -> None:
        assert self._launched is not None
        decision = self._launched.decision
        assert isinstance(decision, RestoreFrom)
        assert (decision.snapshot.kind, decision.snapshot.generation) == (kind, self._launched.generation - 1)

    # ---- what is seen from outside

    def metadata(self, ref: SnapshotRef) -> SnapshotMetadata:
        path = f"{ref.folder}/{METADATA}"
        return read_metadata(open_store(self.stream.root).read(path), path)

    def acknowledged(self) -> dict[int, set[tuple[tuple[int, int, int], ...]]]:
        """By generation: the subtasks whose acks its snapshots were made of, each with its first and last key group."""
        found: dict[int, set[tuple[tuple[int, int, int], ...]]] = {}
        for ref in self.stream.catalogue().snapshots:
            for vertex in self.metadata(ref).vertices.values():
                if vertex.subtasks:
                    found.setdefault(ref.generation, set()).add(tuple(map(_ids, vertex.subtasks)))
        return found

    def written(self) -> dict[int, dict[int, set[int]]]:
        """By generation and subtask, as the names of the visible files tell them: the keys of the rows."""
        found: dict[int, dict[int, set[int]]] = {}
        for path in self.stream.output.glob("part-*.parquet"):
            match = _FILE.match(path.name)
            assert match is not None, path.name
            keys = set(pq.read_table(path, columns=["key"])["key"].to_pylist())
            found.setdefault(int(match["generation"]), {}).setdefault(int(match["subtask"]), set()).update(keys)
        return found

    def assert_subtasks(self) -> None:
        """Each generation's snapshots and files are those of its parallelism's subtasks: their own keys, no others."""
        acknowledged, written = self.acknowledged(), self.written()
        assert set(acknowledged) == set(written) == set(self.parallelism)
        for generation, parallelism in self.parallelism.items():
            assert acknowledged[generation] == {tuple(flinks_ranges(parallelism))}, generation
            by_subtask = written[generation]
            assert set(by_subtask) == set(range(parallelism)), generation
            assert sum(map(len, by_subtask.values())) == len(set().union(*by_subtask.values())), "one owner for a key"


def _ids(state: SubtaskState) -> tuple[int, int, int]:
    return state.subtask, state.first_key_group, state.last_key_group


def flinks_ranges(parallelism: int, groups: int = MAX_PARALLELISM) -> list[tuple[int, int, int]]:
    """Subtask, first and last key group, as KeyGroupRangeAssignment computes them."""
    return [
        (index, (index * groups + parallelism - 1) // parallelism, ((index + 1) * groups - 1) // parallelism)
        for index in range(parallelism)
    ]
