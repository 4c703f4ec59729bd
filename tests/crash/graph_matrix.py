"""The crash matrix of a job with channels: the same places, in each way in which barriers may pass.

Two inputs go into one step at paces of their own, and a slow step behind it fills the channel in between: the left
input waits in a full channel of its own then, while the right one, which comes more slowly, hardly has to. An unaligned
cell counts only if the snapshot that the last life began with held micro-batches of the channel between the steps.

At least once has cells of its own: nothing is lost there, and what came behind the right input's barrier before the
left one's was there comes twice, or the cell proves nothing. Nothing else does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import SnapshotMetadata
from tests.crash.checker import Verdict, check
from tests.crash.fire import StreamUnderFire
from tests.crash.matrix import PACE, SETTINGS, STEPS, Cell, CellRun
from tests.crash.truth import write_input

JOB = Path(__file__).resolve().parents[2] / "spark_jobs" / "jobs" / "paired_numbers.py"
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
MODES = {"aligned": {}, "unaligned": UNALIGNED, "timeout": UNALIGNED}
AT_LEAST_ONCE = "at-least-once"
_SETTINGS = {**MODES, AT_LEAST_ONCE: {"execution.checkpointing.mode": "AT_LEAST_ONCE"}}
_FILES = {"left": 240, "right": 200}
_RECORDS = {"left": 24_000, "right": 4_000}
_KEYS = 300


@dataclass(frozen=True)
class _Pace:
    """How slow things are on an engine: slower than its micro-batches, or no channel would fill."""

    step_s: float
    """What the slow step takes for a micro-batch."""
    right_s: float
    """A file of the right input comes so often, for longer than a life takes; those of the left one are all there.

    At least once they come only while a checkpoint is under way: so that the right one's barrier finds its channel
    empty, however slow the machine, and there is something behind it while the left one's stands behind a full channel.
    """
    alignment_ms: int
    """So long barriers stay aligned, where they may time out."""


_PACES = {"spark": _Pace(0.3, 1.5, 300), "stand-in": _Pace(0.1, 0.5, 100)}


@dataclass(frozen=True)
class GraphCell(Cell):
    """Where a driver is killed, and how its barriers pass."""

    mode: str

    def __str__(self) -> str:
        return f"{self.mode}:{self.point}"


def _cells(*modes: str) -> tuple[GraphCell, ...]:
    return tuple(
        GraphCell(("hashmap", "rocksdb")[number % 2], f"{side}-{step}", mode)
        for number, (mode, step, side) in enumerate(product(modes, STEPS, ("before", "after")))
    )


GRAPH_CELLS = _cells(*MODES)
AT_LEAST_ONCE_CELLS = _cells(AT_LEAST_ONCE)


class Trickle:
    """Lets the files of a folder come to another one by one, until the rest may come at once."""

    def __init__(self, waiting: Path, target: Path, every_s: float, *, held: bool) -> None:
        self._waiting = waiting
        self._target = target
        self._every_s = every_s
        self._over = threading.Event()
        self._may = threading.Event()
        if not held:
            self._may.set()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)
        target.mkdir(parents=True)
        self._thread.start()

    def go(self) -> None:
        self._may.set()

    def hold(self) -> None:
        self._may.clear()

    def rest(self) -> None:
        """What has not come yet comes now."""
        self._over.set()
        self._may.set()
        self._thread.join()

    def _run(self) -> None:
        for path in sorted(self._waiting.glob("*.parquet")):
            self._over.wait(self._every_s)
            self._may.wait()
            path.rename(self._target / path.name)


class GraphCellRun(CellRun):
    """One cell's stream."""

    _cell: GraphCell
    _right: Trickle | None = None

    @property
    def _slowness(self) -> _Pace:
        return _PACES[self._engine]

    @property
    def _margin(self) -> int:
        """So many that the channel behind the first step has some, and at least once the left one, too."""
        return 1_500 if self._cell.mode == AT_LEAST_ONCE else 1_000

    def _stream(self, base: Path, engine: str, environment: dict[str, str]) -> StreamUnderFire:
        mode, alignment = self._cell.mode, f"{self._slowness.alignment_ms} ms"
        timeout = {"execution.checkpointing.aligned-checkpoint-timeout": alignment} if mode == "timeout" else {}
        return StreamUnderFire(
            base,
            engine=engine,
            backend=self._cell.backend,
            environment={**environment, "PAIRED_SLOW_S": str(self._slowness.step_s)},
            settings={**SETTINGS, **_SETTINGS[mode], **timeout, "headgate.trigger-interval": PACE[engine]},
            files_per_batch=1,
            job=JOB,
        )

    def _write_input(self) -> int:
        given, waiting = self.stream.given, self.stream.base / "waiting"
        first = 0
        for side, folder in (("left", given / "left"), ("right", waiting)):
            write_input(folder, seed=self._seed, records=_RECORDS[side], files=_FILES[side], keys=_KEYS, first=first)
            first += _RECORDS[side]
        held = self._cell.mode == AT_LEAST_ONCE
        self._right = Trickle(waiting, given / "right", self._slowness.right_s, held=held)
        return first

    def _give(self, files: int = 0) -> None:
        """The left input is all there: more than a life can take in, however long its checkpoints take."""

    def _ask(self, *, wait: bool) -> None:
        assert self._right is not None
        if self._cell.mode != AT_LEAST_ONCE:
            super()._ask(wait=wait)
            return
        self._right.go()
        super()._ask(wait=wait)
        if wait:
            self._right.hold()

    def end(self) -> None:
        """Leave no process, and no thread."""
        super().end()
        if self._right is not None:
            self._right.rest()

    def _hurry(self) -> None:
        assert self._right is not None
        self._right.rest()
        self.stream.files_per_batch = max(_FILES.values())
        self.stream.environment = {**self.stream.environment, "PAIRED_SLOW_S": "0", "PAIRED_FILES_PER_BATCH": "200"}

    def _more_of(self, restored: SnapshotMetadata) -> str:
        held = restored.tasks[VertexUid("number")].inputs["pair->number"].in_flight
        batches = sum(bool(each.files) for each in held)
        if self._cell.mode == "unaligned":
            assert batches > 0, "no micro-batch was in flight: it proves nothing"
        if self._cell.mode == "aligned":
            assert batches == 0, f"{batches} micro-batches in flight in an aligned checkpoint"
        return f" with {batches} micro-batches in flight"

    def _verdict(self) -> str:
        pairs = self.stream.output.with_name(f"{self.stream.output.name}-pairs")
        verdicts = [check(self.stream.given, output) for output in (pairs, self.stream.output)]
        told = "; ".join(map(str, verdicts))
        if self._cell.mode == AT_LEAST_ONCE:
            assert not any(map(_lacks_or_invents, verdicts)), told
            firsts = [verdict.first_doubled for verdict in verdicts if verdict.first_doubled is not None]
            assert len(firsts) == len(verdicts), f"nothing came twice: it proves nothing: {told}"
            assert min(firsts) >= _RECORDS["left"], f"{min(firsts)} came twice, which is of the left input: {told}"
        else:
            assert all(verdict.ok for verdict in verdicts), told
        return told


def _lacks_or_invents(verdict: Verdict) -> bool:
    return bool(verdict.lost or verdict.foreign or verdict.wrong_keys)
