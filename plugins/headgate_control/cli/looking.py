"""The verbs that only look: status, snapshots, explain, history, logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from headgate_contract.codec import to_plain
from headgate_contract.errors import BadInput, RestoreRefused, StorageError
from headgate_contract.heartbeats import Progress
from headgate_contract.history import Event
from headgate_contract.ids import CheckpointId, Generation
from headgate_contract.restart import RestartAfter
from headgate_contract.restore import Refuse
from headgate_contract.snapshot import SnapshotKind, SnapshotRef
from headgate_control.cli.checking import compared, differences, remarks
from headgate_control.cli.restore_options import (
    FROM,
    AcceptDuplicates,
    AllowNonRestoredState,
    AllowPlace,
    ClaimModeName,
    FallBack,
    snapshot_name,
)
from headgate_control.cli.session import Fleet, Json, Root, Stream, console, fleet_file, session
from headgate_control.control import Control
from headgate_control.explained import as_text
from headgate_control.locating import claim_mode_named
from headgate_control.logs import follow as follow_log
from headgate_control.outcomes import GAVE_UP, StreamStatus
from headgate_control.sharing import Sharing
from headgate_control.telling import counted, moment, one_line, size, took

_FOLLOW_S = 0.3
_CHANNEL = "channel "
"""How the heartbeat's measure of a channel begins."""


def status(
    ctx: typer.Context,
    stream: Annotated[str | None, typer.Argument(help="One stream [default: all].", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    fleet: Fleet = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """How the streams are.

    With a streams.yaml (--fleet), also its mistakes, what it does not declare, and where what runs differs from it.
    """
    here = session(ctx, root, json)
    control = here.control(stream)
    if watch and here.json:
        raise BadInput("--watch is for people, --json for programs", hint="leave one of the two out")
    if watch:
        with Live(console=console(), screen=False, auto_refresh=False) as live:
            while True:
                live.update(_picture(control, stream), refresh=True)
                time.sleep(2)
    seen = [control.status(stream)] if stream is not None else control.fleet()
    file = fleet_file(fleet)
    differ = differences(control, file, seen) if file is not None else {}
    plain = [compared(file, one, differ) if file is not None else to_plain(one) for one in seen]
    if stream is not None:
        here.show(plain[0], lambda: _detail(seen[0]))
    else:
        here.show(plain, lambda: _table(seen) if seen else f"no stream is deployed on {control.root}")
    if file is not None:
        here.warn(remarks(file, seen, differ, stream))


def snapshots(ctx: typer.Context, stream: Stream, root: Root = None, json: Json = False) -> None:
    """The retained snapshots, newest first."""
    here = session(ctx, root, json)
    control = here.control(stream)
    refs, shared = control.snapshots(stream), control.sharing(stream)
    listed = [{**to_plain(ref), "files": shared.get(ref.id)} for ref in refs]
    here.show(listed, lambda: _snapshot_table(refs, shared) if refs else f"stream {stream} has no snapshot")


def explain(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    from_: FROM = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask about a start without state.")] = False,
    fall_back: FallBack = None,
    accept_duplicates: AcceptDuplicates = False,
    allow_non_restored_state: AllowNonRestoredState = False,
    claim_mode: ClaimModeName = "no-claim",
    allow_place: AllowPlace = False,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", help="With so many subtasks [default: as deployed].")
    ] = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """What the next start would restore, and why. Exit code 5 if it would refuse, 6 if a sink lets no start go on."""
    here = session(ctx, root, json)
    found = here.control(stream).explain(
        stream,
        snapshot=snapshot_name(from_),
        fresh=fresh,
        fall_back=fall_back,
        accept_duplicates=accept_duplicates,
        allow_non_restored_state=allow_non_restored_state,
        claim_mode=claim_mode_named(claim_mode),
        allow_place=allow_place,
        parallelism=parallelism,
    )
    here.show(found, lambda: as_text(found))
    if isinstance(found.decision, Refuse):
        raise typer.Exit(RestoreRefused.exit_code)
    if found.refused_by_sinks:
        raise typer.Exit(StorageError.exit_code)


def history(
    ctx: typer.Context,
    stream: Stream,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of the newest.")] = 50,
    all_: Annotated[bool, typer.Option("--all", help="Each checkpoint on a line of its own.")] = False,
    root: Root = None,
    json: Json = False,
) -> None:
    """What happened to a stream, oldest first. Checkpoints that follow one another take one line."""
    here = session(ctx, root, json)
    events = here.control(stream).history(stream, limit=limit)
    lines = [[event] for event in events] if all_ else folded(events)
    here.show(events, lambda: "\n".join(map(_line, lines)) or f"nothing happened to {stream} yet")


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
            one_line(one.text),
        )
    return table


def _detail(one: StreamStatus) -> str:
    pairs = [
        ("stream", one.stream),
        ("condition", f"{one.condition.value}: {one_line(one.text)}"),
        (
            "generation",
            f"{one.generation}, started by {one.by} at {moment(one.started_ms)}" if one.by else one.generation or None,
        ),
        ("subtasks", one.parallelism),
        ("from", one.decision.reason if one.decision is not None else None),
        ("process", f"{one.process.pid} on {one.process.host} ({one.process_sign.value})" if one.process else None),
        ("heartbeat", f"{one.heartbeat_age_s:.1f} s ago" if one.heartbeat_age_s is not None else None),
        ("progress", _progress(one)),
        ("channels", _channels(one)),
        (
            "restarted",
            f"{counted(one.restarts, 'time')}; the last time: {one_line(one.last_failure or '')}"
            if one.restarts
            else None,
        ),
        ("restart", _restart(one)),
        ("stop wanted", _wish(one)),
        ("snapshots", f"{one.snapshots}, newest {one.newest_snapshot}" if one.snapshots else "none"),
        ("current", _current(one)),
        ("deployed", f"decision {one.deployed}{_newer(one)}" if one.deployed else None),
        ("log", f"{one.log} on {one.host}" if one.log else None),
    ]
    return "\n".join(f"{name + ':':<13}{value}" for name, value in pairs if value is not None)


def _progress(one: StreamStatus) -> str | None:
    if one.progress is None:
        return None
    done = one.progress
    return (
        f"{counted(done.batches, 'batch', 'batches')}, {counted(done.records, 'record')} ({done.replayed} replayed), "
        f"{counted(done.checkpoints, 'checkpoint')}"
        f" ({done.failed_checkpoints} failed){_last_checkpoint(done)}{_standstills(done)}"
    )


def _current(one: StreamStatus) -> str | None:
    """Until when there is nothing that the newest checkpoint lacks: while nothing comes, none is written."""
    current = one.progress.current if one.progress is not None else None
    if current is None or one.current_age_s is None:
        return None
    ago = took(1000 * one.current_age_s)
    return f"checkpoint {current.checkpoint} is current as of {moment(current.as_of_ms)} ({ago} ago)"


def _channels(one: StreamStatus) -> str | None:
    """How many micro-batches wait in each channel of a job that has some."""
    extra = one.progress.extra if one.progress is not None else {}
    filled = {name.removeprefix(_CHANNEL): waiting for name, waiting in extra.items() if name.startswith(_CHANNEL)}
    if not filled:
        return None
    return ", ".join(f"{waiting:.0f} in {channel}" for channel, waiting in sorted(filled.items())) + " (micro-batches)"


def _standstills(done: Progress) -> str:
    if not done.standstills:
        return ""
    return f"; stood still {counted(done.standstills, 'time')}"


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
    return f"given up: {one_line(one.lost.restart.reason)}"


def _wish(one: StreamStatus) -> str | None:
    if one.stop_wanted is None or one.stop_wanted.reason.startswith(GAVE_UP):
        return None
    return f"by {one.stop_wanted.by}: {one.stop_wanted.reason}"


def _newer(one: StreamStatus) -> str:
    if one.running_deployed is None or one.running_deployed == one.deployed:
        return ""
    return f", but generation {one.generation} runs decision {one.running_deployed}: the next start takes the newer one"


def _snapshot_table(refs: list[SnapshotRef], shared: Mapping[CheckpointId, Sharing]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("id", "kind", "name", "generation", "taken", "size", "files", "folder"):
        table.add_column(title, overflow="fold")
    for ref in refs:
        about = shared.get(ref.id)
        taken, bytes_ = (moment(about.created_ms), size(about.bytes)) if about is not None else ("-", "-")
        files = about.told if about is not None else "cannot be known: its metadata is damaged"
        table.add_row(
            str(ref.id), ref.kind.value, ref.name or "-", str(ref.generation), taken, bytes_, files, ref.where
        )
    return table


def folded(events: list[Event]) -> list[list[Event]]:
    """The events as lines: checkpoints of one generation that completed one after the other are one line."""
    lines: list[list[Event]] = []
    for event in events:
        if lines and _is_routine(event) and _is_routine(lines[-1][-1]) and lines[-1][-1].generation == event.generation:
            lines[-1].append(event)
        else:
            lines.append([event])
    return lines


def _is_routine(event: Event) -> bool:
    return (event.what, event.outcome) == (SnapshotKind.CHECKPOINT.value, "EXECUTED") and event.by == "driver"


def _line(events: list[Event]) -> str:
    if len(events) == 1:
        return _event(events[0])
    first, last = events[0], events[-1]
    until = f"{len(events)} checkpoints until {moment(last.at_ms)}, the last one: {last.text}"
    return _event(replace(first, text=until))


def _event(event: Event) -> str:
    life = f" g{event.generation}" if event.generation else ""
    said = f": {event.text}" if event.text else ""
    return f"{moment(event.at_ms)}  {event.what} {event.outcome}{life} by {event.by}{said}"
