"""The verbs that only look: status, snapshots, explain, history, logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from headgate_contract.errors import BadInput
from headgate_contract.heartbeats import Progress
from headgate_contract.history import Event
from headgate_contract.ids import Generation
from headgate_contract.restart import RestartAfter
from headgate_contract.snapshot import SnapshotRef
from headgate_control.cli.restore_options import (
    FROM,
    AcceptDuplicates,
    AllowNonRestoredState,
    ClaimModeName,
    FallBack,
    snapshot_name,
)
from headgate_control.cli.session import Json, Root, Stream, console, session
from headgate_control.control import Control
from headgate_control.explain import as_text
from headgate_control.locating import claim_mode_named
from headgate_control.logs import follow as follow_log
from headgate_control.outcomes import GAVE_UP, StreamStatus
from headgate_control.telling import moment, size, took

_FOLLOW_S = 0.3


def status(
    ctx: typer.Context,
    stream: Annotated[str | None, typer.Argument(help="One stream [default: all].", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    root: Root = None,
    json: Json = False,
) -> None:
    """How the streams are."""
    here = session(ctx, root, json)
    control = here.control(stream)
    if watch and here.json:
        raise BadInput("--watch is for people, --json for programs", hint="leave one of the two out")
    if watch:
        with Live(console=console(), screen=False, auto_refresh=False) as live:
            while True:
                live.update(_picture(control, stream), refresh=True)
                time.sleep(2)
    if stream is not None:
        found = control.status(stream)
        here.show(found, lambda: _detail(found))
        return
    fleet = control.fleet()
    here.show(fleet, lambda: _table(fleet) if fleet else f"no stream is deployed on {control.root}")


def snapshots(ctx: typer.Context, stream: Stream, root: Root = None, json: Json = False) -> None:
    """The retained snapshots, newest first."""
    here = session(ctx, root, json)
    refs = here.control(stream).snapshots(stream)
    here.show(refs, lambda: _snapshot_table(refs) if refs else f"stream {stream} has no snapshot")


def explain(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    from_: FROM = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask about a start without state.")] = False,
    fall_back: FallBack = None,
    accept_duplicates: AcceptDuplicates = False,
    allow_non_restored_state: AllowNonRestoredState = False,
    claim_mode: ClaimModeName = "no-claim",
    root: Root = None,
    json: Json = False,
) -> None:
    """What the next start would restore, and why."""
    here = session(ctx, root, json)
    found = here.control(stream).explain(
        stream,
        snapshot=snapshot_name(from_),
        fresh=fresh,
        fall_back=fall_back,
        accept_duplicates=accept_duplicates,
        allow_non_restored_state=allow_non_restored_state,
        claim_mode=claim_mode_named(claim_mode),
    )
    here.show(found, lambda: as_text(found))


def history(
    ctx: typer.Context,
    stream: Stream,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of the newest.")] = 50,
    root: Root = None,
    json: Json = False,
) -> None:
    """What happened to a stream, oldest first."""
    here = session(ctx, root, json)
    events = here.control(stream).history(stream, limit=limit)
    here.show(events, lambda: "\n".join(_event(event) for event in events) or f"nothing happened to {stream} yet")


def logs(
    ctx: typer.Context,
    stream: Stream,
    generation: Annotated[
        int | None, typer.Option("--generation", "-g", help="Which life [default: the newest].", show_default=False)
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines from the end.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")] = False,
    root: Root = None,
    json: Json = False,
) -> None:
    """The end of a driver's log."""
    here = session(ctx, root, json)
    if follow and here.json:
        raise BadInput("--follow is for people, --json for programs", hint="leave one of the two out")
    tail = here.control(stream).logs(stream, Generation(generation) if generation is not None else None, lines=lines)
    here.show(tail, lambda: "\n".join(tail.lines))
    if follow:
        for added in follow_log(Path(tail.path)):
            for line in added:
                typer.echo(line)
            time.sleep(_FOLLOW_S)


def _picture(control: Control, stream: str | None) -> Table:
    return _table([control.status(stream)] if stream is not None else control.fleet())


def _table(fleet: list[StreamStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in (
        "stream",
        "condition",
        "gen",
        "host",
        "heartbeat",
        "snapshots",
        "newest",
        "records",
        "what it rests on",
    ):
        table.add_column(title, overflow="fold")
    for one in fleet:
        table.add_row(
            one.stream,
            one.condition.value,
            str(one.generation or "-"),
            one.host or "-",
            f"{one.heartbeat_age_s:.0f} s ago" if one.heartbeat_age_s is not None else "-",
            str(one.snapshots),
            str(one.newest_snapshot or "-"),
            str(one.progress.records) if one.progress is not None else "-",
            one.text,
        )
    return table


def _detail(one: StreamStatus) -> str:
    pairs = [
        ("stream", one.stream),
        ("condition", f"{one.condition.value}: {one.text}"),
        (
            "generation",
            f"{one.generation}, started by {one.by} at {moment(one.started_ms)}" if one.generation else None,
        ),
        ("from", one.decision.reason if one.decision is not None else None),
        ("process", f"{one.process.pid} on {one.process.host} ({one.process_sign.value})" if one.process else None),
        ("heartbeat", f"{one.heartbeat_age_s:.1f} s ago" if one.heartbeat_age_s is not None else None),
        ("progress", _progress(one)),
        (
            "restarted",
            f"{one.restarts} time{'s'[: one.restarts > 1]}; the last time: {one.last_failure}"
            if one.restarts
            else None,
        ),
        ("restart", _restart(one)),
        ("stop wanted", _wish(one)),
        ("snapshots", f"{one.snapshots}, newest {one.newest_snapshot}" if one.snapshots else "none"),
        ("deployed", f"decision {one.deployed}{_newer(one)}" if one.deployed else None),
        ("log", f"{one.log} on {one.host}" if one.log else None),
    ]
    return "\n".join(f"{name + ':':<13}{value}" for name, value in pairs if value is not None)


def _progress(one: StreamStatus) -> str | None:
    if one.progress is None:
        return None
    done = one.progress
    return (
        f"{done.batches} batches, {done.records} records ({done.replayed} replayed), {done.checkpoints} checkpoints"
        f" ({done.failed_checkpoints} failed){_last_checkpoint(done)}"
    )


def _last_checkpoint(done: Progress) -> str:
    if "checkpoint_ms" not in done.extra:
        return ""
    told = f"{took(done.extra['checkpoint_ms'])} and uploaded {size(done.extra.get('checkpoint_bytes'))}"
    return f"; the last one took {told}"


def _restart(one: StreamStatus) -> str | None:
    if one.lost is None:
        return None
    if isinstance(one.lost.restart, RestartAfter):
        return f"attempt {one.lost.restart.attempt}, due in {one.lost.due_in_s:.1f} s (`headgate supervise` or Airflow)"
    return f"given up: {one.lost.restart.reason}"


def _wish(one: StreamStatus) -> str | None:
    if one.stop_wanted is None or one.stop_wanted.reason.startswith(GAVE_UP):
        return None
    return f"by {one.stop_wanted.by}: {one.stop_wanted.reason}"


def _newer(one: StreamStatus) -> str:
    if one.running_deployed is None or one.running_deployed == one.deployed:
        return ""
    return f", but it runs decision {one.running_deployed}: the next start takes the newer one"


def _snapshot_table(refs: list[SnapshotRef]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("id", "kind", "name", "generation", "folder"):
        table.add_column(title, overflow="fold")
    for ref in refs:
        table.add_row(str(ref.id), ref.kind.value, ref.name or "-", str(ref.generation), ref.where)
    return table


def _event(event: Event) -> str:
    life = f" g{event.generation}" if event.generation else ""
    said = f": {event.text}" if event.text else ""
    return f"{moment(event.at_ms)}  {event.what} {event.outcome}{life} by {event.by}{said}"
