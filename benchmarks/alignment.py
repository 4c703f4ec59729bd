"""What a barrier costs where the channels are full, in each way in which it may pass: `make bench-alignment`.

Two file sources go into a step (0.05 s an element), whose output goes through a channel to a slow one (1 s an element).
With the channel full, checkpoints are asked for one after the other, for half a minute at least: aligned, unaligned and
at least once, each in a driver of its own, one after the other in one run. Then the driver is killed, and the next one
goes on from the newest checkpoint, at full speed, to the end of the input.

Three targets:
- an unaligned checkpoint takes at most a third of the time of an aligned one, in the median;
- an unaligned checkpoint holds bytes that were in flight;
- after the restore the contents are right: exactly once every record once at both sinks, at least once none is missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headgate_contract.heartbeats import TERMINAL, Heartbeat, read_heartbeat
from headgate_contract.ids import StreamName
from headgate_contract.paths import METADATA
from headgate_contract.snapshot import SnapshotMetadata, read_metadata
from headgate_contract.store import open_store
from headgate_control import Control
from headgate_control.outcomes import Launched

JOB = Path(__file__).resolve().parents[1] / "spark_jobs" / "jobs" / "paired_numbers.py"
STREAM = "aligning"
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
MODES: Mapping[str, Mapping[str, str]] = {
    "aligned": {},
    "unaligned": UNALIGNED,
    "at least once": {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
}
SETTINGS = {
    "execution.checkpointing.interval": "1 h",
    "heartbeat.interval": "200 ms",
    "headgate.trigger-interval": "50 ms",
    "restart-strategy.type": "none",
}
FILES, ROWS, KEYS = {"left": 160, "right": 80}, 2_000, 1_000
"""More than is taken in while the checkpoints are made, in any of the ways."""
CHANNEL = "channel pair->number"
FULL = 8
"""How many micro-batches the channel before the slow step holds when it is full."""
FAST_S, SLOW_S = "0.05", "1"
THIRD = 1 / 3
WINDOW_S = 30.0
"""So long at least: the slow step takes a second for an element, and throughput is told in whole ones."""
PATIENCE_S = 600.0


@dataclass
class Found:
    """What one way is like."""

    durations_ms: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    """Bytes in flight in each checkpoint."""
    records_per_s: float = 0.0
    lost: int = 0
    doubled: int = 0

    @property
    def duration_ms(self) -> float:
        return statistics.median(self.durations_ms)


class Stream:
    """The job below `base`, in one mode."""

    def __init__(self, base: Path, mode: str) -> None:
        self.base = base
        self.mode = mode
        self.slow = {"PAIRED_PAIR_S": FAST_S, "PAIRED_SLOW_S": SLOW_S}
        first = 0
        for side, files in FILES.items():
            write_input(base / "in" / side, files, first)
            first += files * ROWS
        self.records = first

    def control(self) -> Control:
        mine = {
            "NUMBERS_IN": str(self.base / "in"),
            "NUMBERS_OUT": str(self.base / "out"),
            "HEADGATE_WORK": str(self.base / "work"),
            **self.slow,
        }
        with patch.dict(os.environ, mine):  # Control keeps a copy for its drivers
            return Control.open(str(self.base / "root"), by="the benchmark")

    def deploy(self) -> None:
        self.control().deploy(STREAM, JOB, {**SETTINGS, **MODES[self.mode]}, directory=self.base)

    def wait(self, launched: Launched, condition: Callable[[Heartbeat], bool]) -> Heartbeat:
        deadline, beat = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < deadline:
            seen = read_heartbeat(open_store(str(self.base / "root")), StreamName(STREAM), launched.generation)
            beat = seen.heartbeat if seen is not None else None
            if beat is not None and condition(beat):
                return beat
            if beat is not None and beat.state in TERMINAL:
                raise RuntimeError(f"generation {launched.generation} is {beat.state.value}: {beat.cause}")
            time.sleep(0.1)
        told = f"{beat.state.value}, {beat.progress}" if beat is not None else "it never told of itself"
        raise RuntimeError(f"{self.mode}: not within {PATIENCE_S:.0f} s: {told}")

    def newest(self) -> SnapshotMetadata:
        ref = self.control().snapshots(STREAM)[0]
        path = f"{ref.folder}/{METADATA}"
        return read_metadata(open_store(str(self.base / "root")).read(path), path)

    def seen(self, sink: str) -> np.ndarray:
        files = [str(path) for path in sorted((self.base / sink).glob("*.parquet"))]
        return ds.dataset(files, format="parquet").to_table(columns=["id"])["id"].to_numpy()


def write_input(folder: Path, files: int, first: int) -> None:
    random = np.random.default_rng(first)
    folder.mkdir(parents=True)
    for number in range(files):
        ids = np.arange(first + number * ROWS, first + (number + 1) * ROWS)
        keys = random.integers(0, KEYS, ROWS)
        pq.write_table(pa.table({"id": ids, "key": keys}), folder / f"part-{number:04d}.parquet")


def measure(base: Path, mode: str, checkpoints: int) -> Found:
    """Full channels, checkpoints, a kill, and the way back."""
    stream, found = Stream(base, mode), Found()
    stream.deploy()
    launched = stream.control().start(STREAM)
    try:
        stream.wait(launched, lambda beat: beat.progress.extra.get(CHANNEL, 0) >= FULL)
        began, before = time.monotonic(), _records(stream, launched)
        while len(found.durations_ms) < checkpoints or time.monotonic() < began + WINDOW_S:
            at = time.monotonic()
            stream.control().checkpoint(STREAM)
            found.durations_ms.append(1000 * (time.monotonic() - at))
            found.in_flight.append(_bytes_in_flight(stream.newest()))
        after = _records(stream, launched)
        found.records_per_s = (after - before) / (time.monotonic() - began)
        if after >= stream.records:
            raise RuntimeError(f"{mode}: the input came to its end while checkpoints were made: nothing was measured")
    finally:
        os.killpg(launched.process.pid, signal.SIGKILL)
    _go_on(stream)
    for sink in ("out-pairs", "out"):
        ids = stream.seen(sink)
        found.lost += stream.records - len(np.unique(ids))
        found.doubled += len(ids) - len(np.unique(ids))
    return found


def _records(stream: Stream, launched: Launched) -> int:
    return stream.wait(launched, lambda beat: True).progress.records


def _bytes_in_flight(metadata: SnapshotMetadata) -> int:
    inputs = (each for task in metadata.tasks.values() for each in task.inputs.values())
    return sum(file.length for each in inputs for element in each.in_flight for file in element.files)


def _go_on(stream: Stream) -> None:
    """From the newest checkpoint to the end of the input, and stop: that lets the channels run dry."""
    stream.slow = {}
    launched = stream.control().start(STREAM, kill_old=True)
    try:
        stream.wait(launched, lambda beat: beat.progress.records >= stream.records)
        stream.control().stop(STREAM)
    except BaseException:
        os.killpg(launched.process.pid, signal.SIGKILL)
        raise


def tell(found: Mapping[str, Found]) -> int:
    for mode, each in found.items():
        print(
            f"{mode:>13}: a checkpoint takes {each.duration_ms:8.0f} ms ({_all(each.durations_ms)}), "
            f"{statistics.median(each.in_flight):,.0f} bytes in flight; {each.records_per_s:,.0f} records/s meanwhile; "
            f"after the restore {each.lost} lost, {each.doubled} doubled"
        )
    aligned, unaligned = found["aligned"], found["unaligned"]
    share = unaligned.duration_ms / aligned.duration_ms
    exact = all(not found[mode].lost and not found[mode].doubled for mode in ("aligned", "unaligned"))
    targets = {
        f"an unaligned checkpoint takes <= 1/3 of an aligned one: {share:.2f}": share <= THIRD,
        f"it holds bytes in flight: {min(unaligned.in_flight):,} at least": min(unaligned.in_flight) > 0,
        "contents after a restore from each": exact and not found["at least once"].lost,
    }
    for target, met in targets.items():
        print(f"    target: {target}, {'met' if met else 'NOT MET'}")
    return sum(targets.values())


def _all(values: list[float]) -> str:
    return f"{len(values)} of them, {min(values):.0f} to {max(values):.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=3, help="in each mode, at least")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
        for mode in MODES:
            print(f"{mode} ...", flush=True)
            base = Path(folder) / mode.replace(" ", "-")
            base.mkdir()
            found[mode] = measure(base, mode, arguments.checkpoints)
    met = tell(found)
    print(f"bench: {met} of 3 targets met")
    return 0 if met == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
