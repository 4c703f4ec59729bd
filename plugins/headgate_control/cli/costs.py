"""The verbs that show what was measured: checkpoints, recoveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.table import Table

from headgate_control.cli.session import Json, Root, Stream, session
from headgate_control.measured import MeasuredCheckpoint, MeasuredRecovery, Spread, Summary
from headgate_control.telling import moment, size, took

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of the newest.")]


def checkpoints(ctx: typer.Context, stream: Stream, limit: Limit = 50, root: Root = None, json: Json = False) -> None:
    """What each checkpoint and savepoint cost, newest first. Failed ones have their cause."""
    here = session(ctx, root, json)
    found = here.control(stream).checkpoints(stream, limit=limit)
    columns = {
        "duration_ms": took,
        "barrier_ms": took,
        "snapshot_ms": took,
        "persist_ms": took,
        "coordination_ms": took,
        "uploaded_bytes": size,
        "full_bytes": size,
    }
    titles = ("duration", "barrier", "snapshot", "persist", "coordination", "uploaded", "full size")
    here.show(
        found,
        lambda: (
            _table(
                (("id", "kind", "status", "due"), titles, ("files", "gen", "cause")),
                (_checkpoint(row) for row in found.checkpoints),
                columns,
                found.summary,
            )
            if found.checkpoints
            else f"no checkpoint of {stream} was measured yet"
        ),
    )


def recoveries(ctx: typer.Context, stream: Stream, limit: Limit = 50, root: Root = None, json: Json = False) -> None:
    """How long each start and recovery took, newest first."""
    here = session(ctx, root, json)
    found = here.control(stream).recoveries(stream, limit=limit)
    terms = ("duration_ms", "detect_ms", "redeploy_ms", "load_state_ms", "reset_source_ms", "reset_sink_ms")
    titles = ("duration", "detect", "redeploy", "load state", "reset source", "reset sink")
    here.show(
        found,
        lambda: (
            _table(
                (("ran at", "kind", "gen", "from"), titles, ("loaded",)),
                (_recovery(row) for row in found.recoveries),
                dict.fromkeys(terms, took),
                found.summary,
            )
            if found.recoveries
            else f"no recovery of {stream} was measured yet"
        ),
    )


def _checkpoint(row: MeasuredCheckpoint) -> list[str]:
    cost = row.cost
    return [
        str(cost.checkpoint),
        f"{cost.kind.value} {cost.name}" if cost.name else cost.kind.value,
        row.status,
        moment(cost.due_ms),
        took(row.duration_ms),
        took(cost.barrier_ms),
        took(cost.snapshot_ms),
        took(cost.persist_ms),
        took(cost.coordination_ms),
        size(cost.uploaded_bytes),
        size(cost.full_bytes),
        str(cost.uploaded_files),
        str(row.generation or "-"),
        row.cause or "",
    ]


def _recovery(row: MeasuredRecovery) -> list[str]:
    time = row.time
    return [
        moment(row.at_ms),
        time.kind.value,
        str(time.generation),
        str(time.snapshot or "-"),
        took(row.duration_ms),
        took(time.detect_ms),
        took(time.redeploy_ms),
        took(time.load_state_ms),
        took(time.reset_source_ms),
        took(time.reset_sink_ms),
        size(time.loaded_bytes),
    ]


def _table(
    titles: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    rows: Iterable[list[str]],
    columns: dict[str, Callable[[float | None], str]],
    summary: Summary,
) -> Table:
    """The rows, and below them the spread of the columns in the middle."""
    before, measured, after = titles
    table = Table(box=None, pad_edge=False)
    for title in before:
        table.add_column(title, no_wrap=True)
    for title in measured:
        table.add_column(title, justify="right", no_wrap=True)
    for title in after:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    choices: dict[str, Callable[[Spread], float]] = {
        "median": lambda spread: spread.median,
        "p95": lambda spread: spread.p95,
        "max": lambda spread: spread.max,
    }
    for name, choose in choices.items() if summary else ():
        told = [tell(choose(summary[key]) if key in summary else None) for key, tell in columns.items()]
        table.add_row(name, *[""] * (len(before) - 1), *told, *[""] * len(after))
    return table
