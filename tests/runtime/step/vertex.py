"""A keyed step at work without an engine: it hashes, shuffles, runs each subtask and takes its acks over the wire."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, ClassVar

import pyarrow as pa

from headgate.sink.base import Guarantee, Handle, Sink, SinkCommitter, SinkTask, SinkWriter
from headgate.sink.discard import DiscardCommitter
from headgate.state.key_groups import key_group, subtask_of
from headgate.step.operator_state import States, no_state, states_after
from headgate.step.operators import HASH, KeyedOperator, StepClock
from headgate.step.task import BatchIdentity, KeyedStage, SinkStage, StepAck, StepTask, run
from headgate_contract.ids import Generation, StreamName, VertexUid
from headgate_contract.restore import Rollback
from tests.runtime.state.runs import memory_directory

MAX_PARALLELISM = 16
STREAM = StreamName("orders")
COUNTS = VertexUid("counts")
OUT = VertexUid("out")
CLOCK = StepClock(now_ms=1_000, seed=7)


def few_hashes(key: tuple[Any, ...]) -> int:
    """One of five hashes, spread over all key groups: different keys share one."""
    return -(2**63) + (2**64 // 5) * (zlib.crc32(repr(key).encode()) % 5)


def hashed(rows: pa.Table, keys: Sequence[str], hash_of: Callable[[tuple[Any, ...]], int] = few_hashes) -> pa.Table:
    """The rows with the column that carries the hash of their key."""
    tuples = zip(*(rows.column(key).to_pylist() for key in keys), strict=True)
    return rows.append_column(HASH, pa.array([hash_of(key) for key in tuples], pa.int64()))


_WRITTEN: dict[str, list[pa.RecordBatch]] = {}


@dataclass(frozen=True)
class RowsSink(Sink):
    """Keeps what was written to it, by the handle of each writer that finished."""

    kind: ClassVar[str] = "rows"
    fails_at: str = ""
    """write, finish, abort, or never."""

    @property
    def rollback(self) -> Rollback:
        return Rollback.OVERWRITE

    @property
    def guarantee(self) -> Guarantee:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def check(self) -> None:
        """It is always there."""

    def writer(self, task: SinkTask) -> RowsWriter:
        return RowsWriter(self.fails_at)

    def committer(self, stream: StreamName, sink: VertexUid, generation: Generation, history: str) -> SinkCommitter:
        return DiscardCommitter(sink)


class RowsWriter(SinkWriter):
    """Stages in memory; what is aborted is gone."""

    def __init__(self, fails_at: str) -> None:
        self._name = uuid.uuid4().hex
        self._fails_at = fails_at
        _WRITTEN[self._name] = []

    def write(self, rows: pa.RecordBatch) -> None:
        _WRITTEN[self._name].append(rows)
        self._fail_at("write")

    def finish(self) -> tuple[Handle, ...]:
        self._fail_at("finish")
        return ({"staged": self._name},) if _WRITTEN[self._name] else ()

    def abort(self) -> None:
        _WRITTEN.pop(self._name, None)
        self._fail_at("abort")

    def _fail_at(self, point: str) -> None:
        if self._fails_at == point:
            raise OSError(f"the sink fails at {point}")


def written(handles: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows behind handles."""
    return [row for handle in handles for batch in _WRITTEN[handle["staged"]] for row in batch.to_pylist()]


def staged() -> int:
    """How many writers have something staged that was not aborted."""
    return sum(1 for batches in _WRITTEN.values() if batches)


@dataclass
class Vertex:
    """A keyed vertex over some micro-batches."""

    operator: KeyedOperator
    keys: tuple[str, ...]
    backend: str
    directory: Path
    parallelism: int = 2
    sinks: tuple[SinkStage, ...] = (SinkStage(uid=OUT, sink=RowsSink()),)
    hash_of: Callable[[tuple[Any, ...]], int] = few_hashes
    epoch: int = 0
    attempts: int = 0
    versions: dict[int, dict[str, Any]] = field(default_factory=dict)
    states: States = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = self.operator.operator_states
        self.states = {name: no_state(kind, self.parallelism) for name, kind in declared.items()}
        for subtask in range(self.parallelism):
            (self.directory / str(subtask)).mkdir(exist_ok=True)

    def task(self) -> StepTask:
        self.attempts += 1
        identity = BatchIdentity(stream=STREAM, generation=1, restart=0, epoch=self.epoch + 1, attempt=self.attempts)
        keyed = KeyedStage(
            uid=COUNTS,
            operator=self.operator,
            keys=self.keys,
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
            backend=self.backend,
            directory=str(self.directory),
            parents=tuple(self.versions.get(subtask) for subtask in range(self.parallelism)),
            operator_states=self.states,
        )
        return StepTask(identity=identity, keyed=keyed, sinks=self.sinks, clock=CLOCK)

    def run(self, rows: pa.Table, chunks: int = 1) -> list[StepAck]:
        """One attempt at a micro-batch; its new versions count only if `batch` takes them."""
        task = self.task()
        rows = hashed(rows, self.keys, self.hash_of)
        owners = subtask_of(key_group(rows.column(HASH).to_numpy(), MAX_PARALLELISM), self.parallelism, MAX_PARALLELISM)
        acks = []
        for subtask in range(self.parallelism):
            own = rows.filter(pa.array(owners == subtask))
            size = max(1, -(-own.num_rows // chunks))
            ack = run(task, subtask, 0, iter(own.combine_chunks().to_batches(max_chunksize=size)))
            acks.append(StepAck.decode(ack.encode()))
        return acks

    def batch(self, rows: pa.Table, chunks: int = 1) -> list[dict[str, Any]]:
        """One micro-batch: what leaves the step."""
        acks = self.run(rows, chunks)
        self.epoch += 1
        self.versions.update({ack.subtask: ack.version for ack in acks if ack.version is not None})
        self.states = states_after(COUNTS, self.states, {ack.subtask: ack.operator_states for ack in acks})
        assert sum(ack.rows_in for ack in acks) == rows.num_rows
        out = [row for ack in acks for row in written(ack.sinks[OUT])]
        assert sum(ack.rows_out for ack in acks) == len(out)
        return out

    def finish(self) -> list[StepAck]:
        """The last step of all subtasks, of which nobody knows what records are like."""
        task = replace(self.task(), finishing=True)
        return [StepAck.decode(run(task, each, 0, iter(())).encode()) for each in range(self.parallelism)]

    def files(self) -> list[str]:
        """The state files on the disk."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file())


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for state files."""
    with memory_directory(Path(gettempdir())) as directory:
        yield directory


def positions_of(row_key: Sequence[int]) -> list[int]:
    """For each row how many rows of its key stand before it, counted one by one."""
    seen: dict[int, int] = {}
    places = []
    for key in row_key:
        places.append(seen.get(key, 0))
        seen[key] = places[-1] + 1
    return places
