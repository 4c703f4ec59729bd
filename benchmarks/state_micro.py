"""Milliseconds that one step of one subtask spends on its state, without Spark: open, get, put, seal.

`cpu` is the mean processor time, RocksDB's own threads included; on a busy machine it is the figure to look at.

A step reads the count of each key in its batch, adds to it and stores it, as a keyed count does behind its group-by
(which is not measured). The times are those of this machine at this moment: compare the lines of one run, not of two.

    python benchmarks/state_micro.py [--steps 40] [--only hashmap] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "plugins"), str(REPOSITORY / "spark_jobs")]

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402

from headgate.state.backends import BACKENDS, backend_named  # noqa: E402
from headgate.state.base import (  # noqa: E402
    KeyBatch,
    StateBackend,
    StateDescriptor,
    StateKind,
    StateVersion,
    collect_garbage,
)
from headgate.state.key_groups import KeyGroupRange  # noqa: E402

MAX_PARALLELISM = 128
MINE = KeyGroupRange(0, 127)
WARM_UP = 5
KEPT_VERSIONS = 3


@dataclass(frozen=True)
class Load:
    """Batches of `rows` rows whose keys are drawn evenly from `keys` keys."""

    rows: int
    keys: int
    strings: bool = False
    slow: bool = False
    """Too much for a backend that works key by key, unless it has fewer steps."""

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.keys:,} {'strings of 20' if self.strings else 'ints'}"


LOADS = (
    Load(100_000, 50_000),
    Load(1_000, 50_000),
    Load(100_000, 50_000, strings=True),
    Load(100_000, 1_000_000, slow=True),
    Load(1_000_000, 500_000, slow=True),
)


@dataclass(frozen=True)
class KeySpace:
    """All keys of a load, sorted by their hash."""

    hashes: npt.NDArray[np.int64]
    keys: pa.Array

    @classmethod
    def of(cls, load: Load) -> KeySpace:
        numbers = np.arange(load.keys, dtype=np.uint64)
        mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        hashes = (mixed * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)
        order = np.argsort(hashes)
        keys = (
            pa.array([f"key-{i:016d}" for i in range(load.keys)]) if load.strings else pa.array(numbers.view(np.int64))
        )
        return cls(hashes[order], keys.take(pa.array(order)))

    def batches(self, load: Load, seed: int = 0) -> Iterator[tuple[KeyBatch, pa.Array]]:
        """Distinct keys with the number of their rows: what a group-by leaves of the batches."""
        random = np.random.default_rng(seed)
        while True:
            picked, counts = np.unique(random.integers(0, load.keys, load.rows), return_counts=True)
            keys = pa.RecordBatch.from_arrays([self.keys.take(pa.array(picked))], names=["key"])
            yield KeyBatch(self.hashes[picked], keys), pa.array(counts)


def run(
    backend: StateBackend, load: Load, steps: int, directory: Path
) -> tuple[list[float], float, list[StateVersion]]:
    """The seconds of each step, the mean of its processor time, and the versions."""
    space = KeySpace.of(load)
    state = StateDescriptor(
        "counts",
        StateKind.AGGREGATING,
        pa.schema([("key", pa.string() if load.strings else pa.int64())]),
        pa.schema([("n", pa.int64())]),
    )
    version: StateVersion | None = None
    versions: list[StateVersion] = []
    seconds = []
    processor = 0.0
    batches = space.batches(load)
    for number in range(steps + WARM_UP):
        batch, counts = next(batches)
        start, processor_start = time.perf_counter(), time.process_time()
        with backend.open(version, [state], MINE, MAX_PARALLELISM, directory, f"step-{number}") as session:
            table = session.table("counts")
            stored, _ = table.get(batch)
            before = stored.column("n").combine_chunks()
            total = pc.add(counts, before.fill_null(0) if before.null_count else before)
            table.put(batch, pa.table({"n": total}))
            version = session.seal()
        seconds.append(time.perf_counter() - start)
        processor += (time.process_time() - processor_start) * (number >= WARM_UP)
        versions.append(version)
        collect_garbage(directory, versions[-KEPT_VERSIONS:])
    return seconds[WARM_UP:], processor / steps, versions[WARM_UP:]


def report(name: str, load: Load, seconds: list[float], processor: float, versions: list[StateVersion]) -> None:
    ms = sorted(second * 1000 for second in seconds)
    written = [
        sum(file.length for file in version.files if file not in parent.files) for parent, version in pairwise(versions)
    ]
    print(
        f"{name:8} {load!s:36} median {statistics.median(ms):8.1f}  mean {statistics.mean(ms):8.1f}  "
        f"max {ms[-1]:8.1f}  cpu {processor * 1000:8.1f} ms   {len(versions[-1].files):3} files  "
        f"{statistics.mean(written) / 2**20:6.2f} MB written a step",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", choices=sorted(BACKENDS))
    parser.add_argument("--directory", type=Path, help="where the state lies (default: the system's temporary folder)")
    options = parser.parse_args()
    for name in [options.only] if options.only else sorted(BACKENDS):
        for load in LOADS:
            steps = options.steps if name == "hashmap" or not load.slow else max(2, options.steps // 10)
            with tempfile.TemporaryDirectory(dir=options.directory) as folder:
                report(name, load, *run(backend_named(name), load, steps, Path(folder)))


if __name__ == "__main__":
    main()
