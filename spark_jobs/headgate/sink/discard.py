"""The discard sink: counts rows and drops them. For benchmarks, and for a stream of which only the state is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headgate.sink.base import (
    BeginReport,
    Group,
    Guarantee,
    Handle,
    Sink,
    SinkCommitter,
    SinkTask,
    SinkWriter,
    not_made_by,
)
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.restore import Rollback


@dataclass(frozen=True)
class DiscardSink(Sink):
    """See `discard`."""

    kind: ClassVar[str] = "discard"

    @property
    def rollback(self) -> Rollback:
        return Rollback.OVERWRITE

    @property
    def guarantee(self) -> Guarantee:
        return "exactly-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def check(self) -> None:
        """There is nothing to write to."""

    def writer(self, task: SinkTask) -> SinkWriter:
        return DiscardWriter()

    def committer(self, stream: StreamName, sink: VertexUid, generation: Generation, history: str) -> DiscardCommitter:
        return DiscardCommitter(sink)


class DiscardWriter(SinkWriter):
    """Counts."""

    def __init__(self) -> None:
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows

    def finish(self) -> tuple[Handle, ...]:
        return ({"rows": self._rows},) if self._rows else ()

    def abort(self) -> None:
        self._rows = 0


class DiscardCommitter(SinkCommitter):
    """Knows how many rows each group had that was committed in this life."""

    def __init__(self, sink: VertexUid) -> None:
        self._sink = sink
        self.rows: dict[CheckpointId, int] = {}

    def begin(
        self,
        lineage: Set[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        committed = sorted(id for id, handles in carried if handles and id in lineage)
        for id, handles in carried:
            if id in committed:
                self.commit(id, handles)
        return BeginReport(committed=tuple(committed))

    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        """Nothing was staged."""
        return handles

    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        if any(set(handle) != {"rows"} for handle in handles):
            raise not_made_by(self._sink)
        self.rows[group] = sum(handle["rows"] for handle in handles)

    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Nothing was staged."""


def discard() -> DiscardSink:
    """Drop all rows; their number is all that is kept of them. Exactly-once, trivially."""
    return DiscardSink()
