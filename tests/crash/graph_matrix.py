"""The crash matrix of a job with channels: the same places, in each way in which barriers may pass.

Two inputs go into one step at paces of their own, and a slow step behind it fills the channel in between. An unaligned
cell counts only if the snapshot that the last life began with held micro-batches of that channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import SnapshotMetadata
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire
from tests.crash.matrix import PACE, SETTINGS, STEPS, Cell, CellRun
from tests.crash.truth import write_input

JOB = Path(__file__).resolve().parents[2] / "spark_jobs" / "jobs" / "paired_numbers.py"
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
MODES = {
    "aligned": {},
    "unaligned": UNALIGNED,
    "timeout": {**UNALIGNED, "execution.checkpointing.aligned-checkpoint-timeout": "300 ms"},
}
_FILES = {"left": 80, "right": 40}
_RECORDS_PER_FILE, _KEYS = 100, 300
_SLOW_S = "0.3"


@dataclass(frozen=True)
class GraphCell(Cell):
    """Where a driver is killed, and how its barriers pass."""

    mode: str

    def __str__(self) -> str:
        return f"{self.mode}:{self.point}"


GRAPH_CELLS = tuple(
    GraphCell(("hashmap", "rocksdb")[number % 2], f"{side}-{step}", mode)
    for number, (mode, step, side) in enumerate(product(MODES, STEPS, ("before", "after")))
)


class GraphCellRun(CellRun):
    """One cell's stream."""

    _cell: GraphCell
    _margin = 10 * _RECORDS_PER_FILE  # so many that the channel behind the first step has some

    def _stream(self, base: Path, engine: str, environment: dict[str, str]) -> StreamUnderFire:
        return StreamUnderFire(
            base,
            engine=engine,
            backend=self._cell.backend,
            environment={**environment, "PAIRED_SLOW_S": _SLOW_S},
            settings={**SETTINGS, **MODES[self._cell.mode], "headgate.trigger-interval": PACE[engine]},
            files_per_batch=1,
            job=JOB,
        )

    def _write_input(self) -> int:
        first = 0
        for side, files in _FILES.items():
            records = files * _RECORDS_PER_FILE
            write_input(
                self.stream.given / side, seed=self._seed, records=records, files=files, keys=_KEYS, first=first
            )
            first += records
        return first

    def _hurry(self) -> None:
        self.stream.files_per_batch = max(_FILES.values())
        self.stream.environment = {**self.stream.environment, "PAIRED_SLOW_S": "0", "PAIRED_FILES_PER_BATCH": "100"}

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
        assert all(verdict.ok for verdict in verdicts), "; ".join(map(str, verdicts))
        return "; ".join(map(str, verdicts))
