"""The console sink: prints the first rows of each checkpoint to the driver's output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

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
from headgate.sink.json_lines import values
from headgate_contract.errors import BadConfiguration
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.restore import Rollback

MOST_ROWS = 1000
WIDEST = 60
"""Characters of a value that are shown, and that an ack carries."""


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """See `console`."""

    rows: int = 20

    kind: ClassVar[str] = "console"

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or not 1 <= self.rows <= MOST_ROWS:
            raise BadConfiguration(
                f"a console sink cannot show {self.rows!r} rows of each checkpoint", hint=f"ask for 1 to {MOST_ROWS}"
            )

    @property
    def rollback(self) -> Rollback:
        """OVERWRITE: a restore behind what was printed is not refused.

        What was printed cannot be taken back, so the honest word would be duplicates. But a console is for eyes: no
        later step reads it, the repeated groups carry their checkpoint's number, and to demand `--accept-duplicates`
        for it would teach people to pass that always, also where a sink's duplicates do harm. Hence the guarantee
        says at-least-once, and the rollback does not ask.
        """
        return Rollback.OVERWRITE

    @property
    def guarantee(self) -> Guarantee:
        return "at-least-once"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "rows": self.rows}

    def check(self) -> None:
        """The driver's output is always there."""

    def writer(self, task: SinkTask) -> SinkWriter:
        return ConsoleWriter(task, self.rows)

    def committer(self, stream: StreamName, sink: VertexUid, generation: Generation, history: str) -> SinkCommitter:
        return ConsoleCommitter(sink, self.rows)


class ConsoleWriter(SinkWriter):
    """Keeps the first rows, shortened: an ack never carries the whole output."""

    def __init__(self, task: SinkTask, most: int) -> None:
        self._task = task
        self._most = most
        self._columns: list[str] = []
        self._preview: list[list[str]] = []
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        self._columns = rows.schema.names
        first = rows.slice(0, self._most - len(self._preview))
        columns = [values(column, lambda kind: pa.string()) for column in first.columns]
        self._preview += [[_shown(value) for value in row] for row in zip(*columns, strict=True)]

    def finish(self) -> tuple[Handle, ...]:
        if not self._rows:
            return ()
        task = self._task
        return (
            {
                "epoch": task.epoch,
                "subtask": task.subtask,
                "rows": self._rows,
                "columns": self._columns,
                "preview": self._preview,
            },
        )

    def abort(self) -> None:
        self._preview, self._rows = [], 0


class ConsoleCommitter(SinkCommitter):
    """Prints a group when its checkpoint has completed."""

    def __init__(self, sink: VertexUid, most: int, out: TextIO | None = None) -> None:
        self._sink = sink
        self._most = most
        self._out = out

    def begin(
        self,
        lineage: Set[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        again = [(id, handles) for id, handles in carried if handles and id in lineage]
        for id, handles in again:
            self._print(id, handles, " (perhaps again, after a restart)")
        return BeginReport(committed=tuple(id for id, _ in again))

    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        """The preview is in the handles."""
        return handles

    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        if handles:
            self._print(group, handles, "")

    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Nothing was staged."""

    def _print(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]], remark: str) -> None:
        if any("preview" not in handle for handle in handles):
            raise not_made_by(self._sink)
        total = sum(handle["rows"] for handle in handles)
        rows = [row for handle in handles for row in handle["preview"]][: self._most]
        epochs = [handle["epoch"] for handle in handles]
        span = f"epoch {min(epochs)}" if min(epochs) == max(epochs) else f"epochs {min(epochs)} to {max(epochs)}"
        shown = f", the first {len(rows)} of them" if total > len(rows) else ""
        noun = "row" if total == 1 else "rows"
        lines = [f"-- {self._sink}: checkpoint {group}, {span}: {total:,} {noun}{shown}{remark}"]
        lines += _table([handles[0]["columns"], *rows])
        out = self._out or sys.stdout
        out.write("\n".join(lines) + "\n")
        out.flush()


def console(rows: int = 20) -> ConsoleSink:
    """Print up to `rows` rows of each checkpoint, and how many it had, to the driver's output. At-least-once."""
    return ConsoleSink(rows)


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    text = value.hex() if isinstance(value, bytes) else str(value)
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _table(rows: list[list[str]]) -> list[str]:
    """Rows as aligned lines, the header first."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [f"   {line}" for line in lines]
