"""A keyed count on Headgate against the stateless floor, in one run: the quick guard of `make bench-quick`.

Both sides read the same source (Spark's rate-micro-batch), add the same hash and go through the same shuffle, in one
Spark session, in alternating rounds. The floor's step counts its rows and keeps nothing; Headgate's side is a whole
life of a driver, checkpoints included. What is compared is the median time between the ends of two micro-batches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.one_life import SharedSession, counting_job, live
from headgate.driver.engine import EngineSetup, Json, MicroBatch
from headgate.job.tasks import graph_plan
from headgate.spark.chain import SUBTASK, add_key, apply_transforms
from headgate.spark.session import start_session
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings

WARM_UP = 3
TARGETS = {200_000: 0.6, 1_000: 1 / 1.3}


class TimedEngine(SharedSession):
    """Notes when each micro-batch ended, and asks for the end after `batches`."""

    def __init__(self, setup: EngineSetup, batches: int, enough: Callable[[], None]) -> None:
        super().__init__(setup)
        self.ends: list[float] = []
        self._batches = batches
        self._enough = enough

    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        def timed(batch: MicroBatch) -> None:
            handler(batch)
            self.ends.append(time.perf_counter())
            if len(self.ends) == self._batches:
                self._enough()

        super().begin(positions, timed)


def headgate_round(base: Path, settings: Settings, rows: int, keys: int, batches: int) -> list[float]:
    """One life; the times between the ends of its micro-batches."""
    engine = live(base, settings, counting_job(rows, keys), lambda setup, enough: TimedEngine(setup, batches, enough))
    return _between(engine.ends[:batches])


def floor_round(base: Path, settings: Settings, rows: int, keys: int, batches: int) -> list[float]:
    """The same micro-batches and shuffle with a step that keeps nothing."""
    session = start_session("bench", settings, base / "engine")
    plan = graph_plan(counting_job(rows, keys))
    parallelism = settings["parallelism.default"]
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    frame = source.option("numPartitions", session.sparkContext.defaultParallelism).load()
    (task,) = plan.tasks
    (way,) = task.inputs
    frame = add_key(
        task.port(way), apply_transforms(way.transforms, frame), parallelism, settings["pipeline.max-parallelism"]
    )
    ends: list[float] = []
    enough = threading.Event()

    def count(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [sum(part.num_rows for part in parts)]})

    def on_batch(batch: DataFrame, _: int) -> None:
        batch.repartitionById(parallelism, F.col(SUBTASK)).drop(SUBTASK).mapInArrow(count, "n bigint").collect()
        ends.append(time.perf_counter())
        if len(ends) == batches:
            enough.set()

    query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", (base / "query").as_uri()).start()
    if not enough.wait(300):
        raise RuntimeError(f"the floor did not run: {query.exception()}")
    query.stop()
    return _between(ends[:batches])


def _between(ends: list[float]) -> list[float]:
    return [after - before for before, after in zip(ends[WARM_UP:], ends[WARM_UP + 1 :], strict=False)]


def compare(settings: Settings, rows: int, keys: int, batches: int, rounds: int) -> float:
    """How fast Headgate is, as a share of the floor."""
    floor: list[float] = []
    ours: list[float] = []
    for _ in range(rounds):
        for found, run in ((floor, floor_round), (ours, headgate_round)):
            with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
                found.extend(run(Path(folder), settings, rows, keys, batches))
    bottom, top = statistics.median(floor), statistics.median(ours)
    print(
        f"{rows:>7} rows a batch, {keys} keys: floor {bottom * 1000:6.1f} ms ({rows / bottom:9,.0f} rows/s), "
        f"headgate {top * 1000:6.1f} ms ({rows / top:9,.0f} rows/s), ratio {bottom / top:.2f}",
        flush=True,
    )
    return bottom / top


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="hashmap")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = Settings({"execution.checkpointing.interval": "2 s", "state.backend.type": arguments.backend})
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as scratch:
        session = start_session("bench", settings, Path(scratch))
        session.sparkContext.setLogLevel("OFF")
        met = _all_targets(settings, arguments)
        session.stop()
    print(f"bench: {met} of {len(TARGETS)} targets met")
    return 0 if met == len(TARGETS) else 1


def _all_targets(settings: Settings, arguments: argparse.Namespace) -> int:
    met = 0
    for rows, target in TARGETS.items():
        ratio = compare(settings, rows, arguments.keys, arguments.batches, arguments.rounds)
        met += ratio >= target
        print(f"        target: ratio >= {target:.2f}: {'met' if ratio >= target else 'NOT MET'}", flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())
