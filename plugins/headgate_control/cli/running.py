"""The verbs that change what runs: deploy, start, stop, cancel, restore, rescale, supervise."""

from __future__ import annotations

import json as json_module
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from headgate_contract.codec import to_plain
from headgate_contract.durations import parse_duration
from headgate_contract.errors import BadConfiguration, BadInput, NotARoot, StorageError, StreamUnknown
from headgate_control.cli.asking import WHERE_TO
from headgate_control.cli.restore_options import (
    FROM,
    AcceptDuplicates,
    AllowNonRestoredState,
    AllowPlace,
    ClaimModeName,
    FallBack,
    snapshot_name,
)
from headgate_control.cli.session import (
    By,
    Fleet,
    Id,
    Json,
    NoWait,
    Root,
    Session,
    Stream,
    declared,
    request_id,
    session,
)
from headgate_control.control import Control
from headgate_control.deploy import warnings_of
from headgate_control.fleet_file import DeclaredStream, drift
from headgate_control.fleet_reading import load_settings
from headgate_control.locating import claim_mode_named
from headgate_control.outcomes import Asked, Launched
from headgate_control.supervise import Sighting, Supervisor


def deploy(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    job: Annotated[
        Path | None, typer.Argument(help="The job's Python file [default: what --fleet says].", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting; outweighs --settings.", metavar="KEY=VALUE")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="A YAML file of settings.", metavar="FILE")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="The driver's working directory [default: this one].")
    ] = None,
    adopt_root: Annotated[
        bool,
        typer.Option("--adopt-root", help="Take a root whose file that says which root it is was lost or damaged."),
    ] = False,
    fleet: Fleet = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Check a job, and record it for the next start. What runs goes on as it is."""
    here = session(ctx, root, json)
    if job is not None and fleet is not None:
        raise BadInput(f"both {job} and {fleet} say what stream {stream} runs", hint="leave one of the two out")
    entry = declared(fleet, stream) if job is None else None
    if job is None and entry is None:
        raise BadInput(f"no job file is named for stream {stream}", hint=f"headgate deploy {stream} JOB.py")
    given = dict(entry.settings) if entry is not None else {}
    merged = {**given, **given_settings(settings, set_)}
    control = here.control(stream, entry)
    new = not adopt_root and not control.has_root()
    deployed = control.deploy(
        stream,
        job or (entry.job if entry else Path()),
        merged,
        directory=directory or (entry.directory if entry else None),
        adopt_root=adopt_root,
        by=by,
    )
    made = (f"{control.root} was no storage root: it is one now, with nothing on it but this",) if new else ()
    here.warn((*made, *warnings_of(deployed)))
    number = control.status(stream).deployed
    plain = {"stream": stream, "number": number, "deployed": deployed}
    here.show(plain, lambda: f"stream {stream}: {deployed.job} is deployed (decision {number})")


def start(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start without state.")] = False,
    fall_back: FallBack = None,
    accept_duplicates: AcceptDuplicates = False,
    allow_non_restored_state: AllowNonRestoredState = False,
    no_wait: NoWait = False,
    fleet: Fleet = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Start a stream from its newest snapshot. One that never ran begins anew; `restore` takes another snapshot."""
    here = session(ctx, root, json)
    entry = declared(fleet, stream)
    control = here.control(stream, entry)
    drifted = _drift(control, entry)
    here.warn(drifted)
    launched = control.start(
        stream,
        fresh=fresh,
        fall_back=fall_back,
        accept_duplicates=accept_duplicates,
        allow_non_restored_state=allow_non_restored_state,
        wait=not no_wait,
        by=by,
    )
    _show_launched(here, launched, drifted)


def restore(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    from_: FROM = None,
    fall_back: FallBack = None,
    accept_duplicates: AcceptDuplicates = False,
    allow_non_restored_state: AllowNonRestoredState = False,
    claim_mode: ClaimModeName = "no-claim",
    allow_place: AllowPlace = False,
    no_savepoint: Annotated[
        bool, typer.Option("--no-savepoint", help="Stop a running stream without a savepoint.")
    ] = False,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", help="Go on with so many subtasks [default: as deployed].")
    ] = None,
    no_wait: NoWait = False,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Start a stream from any retained snapshot. One that runs is stopped first, with a savepoint."""
    here = session(ctx, root, json)
    launched = here.control(stream).restore(
        stream,
        snapshot=snapshot_name(from_),
        savepoint_first=not no_savepoint,
        parallelism=parallelism,
        fall_back=fall_back,
        accept_duplicates=accept_duplicates,
        allow_non_restored_state=allow_non_restored_state,
        claim_mode=claim_mode_named(claim_mode),
        allow_place=allow_place,
        wait=not no_wait,
        by=by,
    )
    _show_launched(here, launched, ())


def rescale(
    ctx: typer.Context,
    stream: Stream,
    parallelism: Annotated[int, typer.Argument(help="How many subtasks from now on.")],
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Stop it with a savepoint, not a checkpoint.")] = False,
    no_wait: NoWait = False,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Go on with another parallelism. Stops at a barrier, deploys the job with it, and starts from there.

    A stream that is stopped is started, too.
    """
    here = session(ctx, root, json)
    launched = here.control(stream).restore(
        stream, savepoint_first=savepoint, parallelism=parallelism, wait=not no_wait, by=by
    )
    _show_launched(here, launched, ())


def stop(  # noqa: PLR0913, PLR0917  (one for each option)
    ctx: typer.Context,
    stream: Stream,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Take a savepoint at the end.")] = False,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Let the operators finish before a last savepoint: nothing should go on from it."),
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="The savepoint's name.", metavar="NAME")] = None,
    savepoint_path: Annotated[str | None, typer.Option("--savepoint-path", "-p", help=WHERE_TO, metavar="URL")] = None,
    no_wait: NoWait = False,
    id: Id = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Stop a stream at its next barrier; nobody restarts it."""
    here = session(ctx, root, json)
    savepoint = savepoint or drain
    if name is not None and not savepoint:
        raise BadInput("--name names a savepoint", hint="add --savepoint, or leave it out")
    if savepoint_path is not None and not savepoint:
        raise BadInput("--savepoint-path is where a savepoint goes", hint="add --savepoint, or leave it out")
    asked = here.control(stream).stop(
        stream,
        savepoint=name or savepoint,
        drain=drain,
        target_directory=savepoint_path,
        id=request_id(id),
        wait=not no_wait,
        by=by,
    )
    here.show(asked, lambda: _stopped(asked))


def cancel(
    ctx: typer.Context,
    stream: Stream,
    no_wait: NoWait = False,
    id: Id = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """End a stream now, without a snapshot; nobody restarts it."""
    here = session(ctx, root, json)
    asked = here.control(stream).cancel(stream, id=request_id(id), wait=not no_wait, by=by)
    here.show(asked, lambda: _stopped(asked))


def supervise(
    ctx: typer.Context,
    streams: Annotated[
        list[str] | None, typer.Argument(help="Only these streams [default: all].", show_default=False)
    ] = None,
    interval: Annotated[str, typer.Option("--interval", help="How often to look.", metavar="DURATION")] = "2 s",
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Recover lost streams, until Ctrl-C. For where no Airflow does."""
    here = session(ctx, root, json)
    every = parse_duration(interval, "--interval")
    if every <= 0:
        raise BadConfiguration("--interval: a duration of 0 is not allowed")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    names = streams or []
    control = here.control(by=by)
    for name in names:
        try:
            control.status(name)
        except (NotARoot, StreamUnknown):
            raise
        except StorageError as error:  # that it does not answer just now is no reason to watch nothing
            typer.echo(f"warning: whether there is a stream {name} cannot be told yet: {error}", err=True)

    def tell(sighting: Sighting) -> None:
        if here.json:
            typer.echo(json_module.dumps(to_plain(sighting), sort_keys=True, ensure_ascii=False))
        else:
            typer.echo(f"{sighting.stream or 'storage'}: {sighting.what}: {sighting.text}")

    if not here.json:
        whose = ", ".join(names) or "all streams"
        typer.echo(f"watching {whose} on {control.root}, every {every}; Ctrl-C ends it", err=True)
    Supervisor(control, tell, names).run(every.seconds, ended)


def given_settings(file: Path | None, pairs: list[str] | None) -> dict[str, object]:
    """What --settings and --set say together."""
    return {**(load_settings(file) if file is not None else {}), **_pairs(pairs or [])}


def _pairs(texts: list[str]) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise BadConfiguration(f"--set {text!r} is not KEY=VALUE", hint="write it like --set heartbeat.interval=2s")
        if key.strip() in pairs:
            raise BadConfiguration(f"--set names {key.strip()} twice")
        pairs[key.strip()] = value.strip()
    return pairs


def _drift(control: Control, entry: DeclaredStream | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    return tuple(
        f"streams.yaml and what is deployed have drifted apart: {one}"
        for one in drift(entry, control.deployed(entry.name))
    )


def _show_launched(here: Session, launched: Launched, drifted: tuple[str, ...]) -> None:
    here.warn(launched.warnings)
    taken = launched.stopped_with
    behind = f"\nit was stopped before with snapshot {taken}" if taken is not None else ""
    plain = {**to_plain(launched), "warnings": [*launched.warnings, *drifted]}
    here.show(
        plain,
        lambda: (
            f"stream {launched.stream}: generation {launched.generation} is {launched.state.value}"
            f" (pid {launched.process.pid} on {launched.process.host}; {launched.decision.reason})\n"
            f"log: {launched.log}{behind}"
        ),
    )


def _stopped(asked: Asked) -> str:
    if asked.note:
        return asked.note if asked.request is None else f"stream {asked.stream}: {asked.note}"
    if asked.answer is None:
        return f"stream {asked.stream}: request {asked.request.id if asked.request else ''} is left for the driver"
    taken = f" with snapshot {asked.snapshot}" if asked.snapshot is not None else ""
    return f"stream {asked.stream} has stopped{taken}"
