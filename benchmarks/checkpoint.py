"""What checkpoints cost a running stream, in one run: `make bench-checkpoint`.

A keyed count over a million keys into a sink that discards, with checkpoints off, every 5 s and every 1 s, by turns, in
one Spark session. Each turn is a whole life of a driver; it is measured 5 s after every key has its state and, where
there are checkpoints, when the first one, which holds everything, is behind it.

Machines drift: the same turn is a fifth faster ten minutes later. So the 60 s of each round and arm are three turns of
20 s, and rounds and arms take turns in a Latin square: each round, and each arm in it, is spread over the whole run.
With 3 rounds of 60 s: 19 minutes.

Three targets:
- throughput with checkpoints every 5 s is at most 5 % below that without; the turns without are compared with each
  other too, and if these differ by more than 5 %, the machine is too noisy for an answer and the target is not met;
- the time in which no batch may run because of a checkpoint is at most 5 ms at the 99th percentile, by the driver's own
  measure and by the time that the next batch waited for leave, seen from outside;
- the bytes uploaded are at most 4 times the bytes of the keys that changed between the checkpoints, key and count
  counted raw, 8 bytes each.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.one_life import SharedSession, counting_job, live
from headgate.coordinator.messages import StoreSnapshot
from headgate.driver.engine import EngineSetup, Json, MicroBatch
from headgate.driver.ledger import Ledger
from headgate.spark.session import start_session
from headgate.step.task import StepAck, StepTask
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.measures import CheckpointCost, Measures
from headgate_contract.settings import Settings
from headgate_contract.store_local import LocalStore

OFF, EVERY_5_S, EVERY_1_S = "off", "5 s", "1 s"
ARMS = (OFF, EVERY_5_S, EVERY_1_S)
RAW = 8 + 8
"""The bytes of a changed key: itself and its count."""
WARM_UP_S = 300
"""How long the turn is that comes first and does not count: so long does the JVM go on to become faster. With half of
it the first turns that count were still 12 % slower than the sixth."""
SETTLE_S = 5
"""How long a turn runs on when every key has its state, before it is measured: all arms alike."""
PASSES = 3
"""How many turns each arm takes in a round."""
LOSS, BLOCKED_MS, AMPLIFICATION = 0.05, 5.0, 4.0


@dataclass
class Batch:
    """A micro-batch, seen from outside, by the clock that the coordinator uses too (ms)."""

    handed_over: float
    leave: float = 0.0
    end: float = 0.0


@dataclass
class Turn:
    """What one life was like."""

    rows: int
    batches: list[Batch] = field(default_factory=list)
    costs: list[tuple[float, CheckpointCost]] = field(default_factory=list)
    """Of each completed checkpoint, with the moment of its end."""
    records: dict[CheckpointId, int] = field(default_factory=dict)
    """How many records each checkpoint holds."""
    uploads: list[tuple[float, int]] = field(default_factory=list)
    """What the store was given of state, seen from outside."""
    opened: float = math.inf
    """When measuring began."""
    closed: float = math.inf

    @property
    def measured(self) -> list[CheckpointCost]:
        """The checkpoints that ended while it was measured."""
        return [cost for end, cost in self.costs if self.opened <= end <= self.closed]

    @property
    def progress(self) -> tuple[int, float]:
        """Records, and the seconds that they took."""
        ends = [batch.end for batch in self.batches if self.opened <= batch.end <= self.closed]
        return self.rows * (len(ends) - 1), (ends[-1] - ends[0]) / 1000

    def waits(self) -> list[float]:
        """For how long the batch behind each barrier waited for leave: the first to end after it.

        When it passed is known to less than a batch's time, and always too late.
        """
        found = []
        for end, cost in self.costs:
            passed = end - cost.persist_ms - cost.coordination_ms
            following = [batch for batch in self.batches if batch.end >= passed]
            if following and self.opened <= end <= self.closed:
                found.append(following[0].leave - following[0].handed_over)
        return found

    def changed(self, keys: int) -> int:
        """How many keys changed between the measured checkpoints and the one before each, summed up."""
        ids = sorted(self.records)
        before = dict(zip(ids[1:], ids, strict=False))
        spans = [
            self.records[cost.checkpoint] - self.records[before[cost.checkpoint]]
            for cost in self.measured
            if cost.checkpoint in before
        ]
        return sum(min(keys, span) for span in spans)


def rate(turns: Iterable[Turn]) -> float:
    """Records a second, over all of these turns."""
    records, seconds = zip(*(turn.progress for turn in turns), strict=True)
    return float(sum(records) / sum(seconds))


def now() -> float:
    return time.monotonic_ns() / 1_000_000


class WatchedEngine(SharedSession):
    """Notes when each batch is handed over, gets leave and ends; opens and closes the time that is measured."""

    def __init__(
        self,
        setup: EngineSetup,
        turn: Turn,
        keys: int,
        seconds: int,
        checkpoints: bool,
        enough: Callable[[], None],
    ) -> None:
        super().__init__(setup)
        self._turn = turn
        self._keys = keys
        self._ms = 1000 * seconds
        self._checkpoints = checkpoints
        self._enough = enough
        self._filled = math.inf

    def begin(self, positions: Mapping[VertexUid, Json], handler: Callable[[MicroBatch], None]) -> None:
        turn = self._turn

        def watched(batch: MicroBatch) -> None:
            turn.batches.append(Batch(now()))
            handler(batch)
            turn.batches[-1].end = now()
            self._open_or_close(turn.batches[-1].end)

        super().begin(positions, watched)

    def run(self, batch: MicroBatch, task: StepTask) -> list[StepAck]:
        self._turn.batches[-1].leave = now()
        return super().run(batch, task)

    def _open_or_close(self, end: float) -> None:
        turn = self._turn
        if turn.opened == math.inf:
            if len(turn.batches) * turn.rows >= self._keys:
                self._filled = min(self._filled, end)
            whole = any(turn.records[cost.checkpoint] >= self._keys for _, cost in turn.costs)
            if end >= self._filled + 1000 * SETTLE_S and (whole or not self._checkpoints):
                turn.opened = end
        elif turn.closed == math.inf and end >= turn.opened + self._ms:
            turn.closed = end
            self._enough()


def ledger_of(turn: Turn) -> type[Ledger]:
    """A ledger that tells the turn what it does."""

    class WatchedLedger(Ledger):
        def _store_snapshot(self, action: StoreSnapshot) -> None:
            turn.records[action.checkpoint] = action.cut.records
            super()._store_snapshot(action)

        def say(self, what: str, outcome: str, text: str, measures: Measures | None = None) -> None:
            if isinstance(measures, CheckpointCost):
                assert outcome == "EXECUTED", text
                turn.costs.append((now(), measures))
            super().say(what, outcome, text, measures)

    return WatchedLedger


class WatchedStore(LocalStore):
    """Counts the bytes of state that it is given."""

    def __init__(self, root: Path, turn: Turn) -> None:
        super().__init__(root)
        self._turn = turn

    def upload(self, local: Path, path: str) -> int:
        length = super().upload(local, path)
        self._turn.uploads.append((now(), length))
        return length


def take_turn(arm: str, arguments: argparse.Namespace, seconds: int) -> Turn:
    given = {"state.backend.type": arguments.backend}
    if arm != OFF:
        given["execution.checkpointing.interval"] = arm
    turn = Turn(arguments.rows)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "root").mkdir()
        live(
            Path(folder),
            Settings(given),
            counting_job(arguments.rows, arguments.keys),
            lambda setup, enough: WatchedEngine(setup, turn, arguments.keys, seconds, arm != OFF, enough),
            store=WatchedStore(Path(folder) / "root", turn),
            ledger_class=ledger_of(turn),
        )
    return turn


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.inf


def throughput(rates: dict[str, list[float]], *, missing: int = 0) -> bool:
    """`rates` are those of each arm, round by round; `missing` checkpoints ought to have been taken and were not."""
    base = statistics.median(rates[OFF])
    spread = (max(rates[OFF]) - min(rates[OFF])) / base
    for arm in ARMS:
        middle = statistics.median(rates[arm])
        each = ", ".join(f"{found:,.0f}" for found in rates[arm])
        print(f"throughput {arm:>3}: {middle:11,.0f} rows/s, {1 - middle / base:6.1%} below off ({each})")
    loss = 1 - statistics.median(rates[EVERY_5_S]) / base
    noisy = spread > LOSS or len(rates[OFF]) == 1
    why = "" if not noisy else ": too noisy" if spread > LOSS else ": one round is nothing to compare with"
    print(f"off against off: {spread:.1%} apart{why}")
    if missing:
        print(f"{missing} checkpoints are missing: turns without them are too fast")
    met = loss <= LOSS and not noisy and not missing
    return verdict(f"loss of throughput at 5 s <= {LOSS:.0%}", f"{loss:.1%}", met)


def blocking(turns: dict[str, list[Turn]]) -> bool:
    worst = 0.0
    waits_off = [batch.leave - batch.handed_over for turn in turns[OFF] for batch in turn.batches]
    print(f"wait for leave without checkpoints: {told(waits_off)}")
    for arm in (EVERY_5_S, EVERY_1_S):
        blocked = [cost.snapshot_ms for turn in turns[arm] for cost in turn.measured]
        waits = [wait for turn in turns[arm] for wait in turn.waits()]
        print(f"no batch may run, every {arm}: {told(blocked)}; the next batch waited for leave: {told(waits)}")
        worst = max(worst, percentile(blocked, 0.99), percentile(waits, 0.99))
    return verdict(f"no batch may run, 99th percentile <= {BLOCKED_MS:g} ms", f"{worst:.2f} ms", worst <= BLOCKED_MS)


def told(values: list[float]) -> str:
    if not values:
        return "none"
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return f"median {p50:.2f} ms, p99 {p99:.2f} ms, most {max(values):.2f} ms of {len(values)}"


def amplification(turns: dict[str, list[Turn]], keys: int) -> bool:
    print(f"a changed key is {RAW} bytes: 8 of the key and 8 of its count, as they are; a key counts once a checkpoint")
    worst = 0.0
    for arm in (EVERY_5_S, EVERY_1_S):
        costs = [cost for turn in turns[arm] for cost in turn.measured]
        changed = sum(turn.changed(keys) for turn in turns[arm])
        uploaded = sum(cost.uploaded_bytes for cost in costs)
        outside = sum(n for turn in turns[arm] for at, n in turn.uploads if turn.opened <= at <= turn.closed)
        factor = uploaded / (RAW * changed) if changed else math.inf
        worst = max(worst, factor)
        count = max(1, len(costs))
        print(
            f"every {arm}: {len(costs)} checkpoints, {changed / count:,.0f} keys changed and "
            f"{uploaded / count:,.0f} bytes in {sum(cost.uploaded_files for cost in costs) / count:.1f} files uploaded "
            f"for each, {factor:.2f} times (the store saw {outside / count:,.0f} bytes for each); "
            f"{told([cost.total_ms for cost in costs])} from due to complete"
        )
        for term in ("barrier_ms", "persist_ms", "coordination_ms"):
            print(f"    {term.removesuffix('_ms')}: {told([getattr(cost, term) for cost in costs])}")
    return verdict(f"uploaded <= {AMPLIFICATION:g} x changed", f"{worst:.2f} x", worst <= AMPLIFICATION)


def verdict(target: str, found: str, met: bool) -> bool:
    print(f"    target: {target}: {found}, {'met' if met else 'NOT MET'}", flush=True)
    return met


def measure(arguments: argparse.Namespace) -> int:
    print(
        f"{arguments.backend}: {arguments.keys:,} keys, {arguments.rows:,} rows a batch, "
        f"{arguments.rounds} rounds of {arguments.seconds} s for each of {', '.join(ARMS)}",
        flush=True,
    )
    take_turn(EVERY_1_S, arguments, min(WARM_UP_S, 5 * arguments.seconds))
    rounds: list[dict[str, list[Turn]]] = [{arm: [] for arm in ARMS} for _ in range(arguments.rounds)]
    for number, arm in order(arguments.rounds):
        turn = take_turn(arm, arguments, math.ceil(arguments.seconds / PASSES))
        rounds[number][arm].append(turn)
        print(f"round {number + 1}, {arm:>3}: {rate([turn]):,.0f} rows/s, {len(turn.measured)} checkpoints", flush=True)
    turns = {arm: [turn for each in rounds for turn in each[arm]] for arm in ARMS}
    rates = {arm: [rate(each[arm]) for each in rounds] for arm in ARMS}
    each = math.ceil(arguments.seconds / PASSES) // 5
    missing = sum(max(0, each - len(turn.measured)) for turn in turns[EVERY_5_S])
    return sum([throughput(rates, missing=missing), blocking(turns), amplification(turns, arguments.keys)])


def order(rounds: int) -> Iterator[tuple[int, str]]:
    """Whose turn it is, by round and arm: in each pass every round has a turn of each arm, and none is always first."""
    for step in range(PASSES):
        for number in (*range(step % rounds, rounds), *range(step % rounds)):
            first = (step + number) % len(ARMS)
            yield from ((number, arm) for arm in (*ARMS[first:], *ARMS[:first]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="hashmap", choices=("hashmap", "rocksdb"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=100_000, help="of a micro-batch")
    parser.add_argument("--seconds", type=int, default=60, help="that are measured of each arm in a round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as scratch:
        session = start_session("bench", Settings({}), Path(scratch))
        session.sparkContext.setLogLevel("OFF")
        met = measure(arguments)
        session.stop()
    print(f"bench: {met} of 3 targets met")
    return 0 if met == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
