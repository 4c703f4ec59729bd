"""The verbs that ask a driver for a snapshot: checkpoint, savepoint."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate_control.cli.session import By, Id, Json, NoWait, Root, Stream, request_id, session
from headgate_control.outcomes import Asked

WHERE_TO = (
    "Where to write it: a URL or path, as the driver sees it; a relative path is meant from the current folder here "
    "[default: execution.checkpointing.savepoint-dir, else below the root]."
)
TargetDirectory = Annotated[str | None, typer.Option("--target-directory", help=WHERE_TO, metavar="URL")]


def checkpoint(
    ctx: typer.Context,
    stream: Stream,
    no_wait: NoWait = False,
    id: Id = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Take a checkpoint now."""
    here = session(ctx, root, json)
    asked = here.control(stream).checkpoint(stream, id=request_id(id), wait=not no_wait, by=by)
    here.show(asked, lambda: _told(asked, "checkpoint"))


def savepoint(
    ctx: typer.Context,
    stream: Stream,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call it [default: made up].", metavar="NAME")
    ] = None,
    target_directory: TargetDirectory = None,
    no_wait: NoWait = False,
    id: Id = None,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Take a savepoint. It stays until somebody removes it, and can be copied elsewhere."""
    here = session(ctx, root, json)
    asked = here.control(stream).savepoint(
        stream, name, target_directory=target_directory, id=request_id(id), wait=not no_wait, by=by
    )
    here.show(asked, lambda: _told(asked, "savepoint"))


def _told(asked: Asked, what: str) -> str:
    if asked.answer is None:
        return f"stream {asked.stream}: request {asked.request.id if asked.request else ''} is left for the driver"
    name = asked.answer.result.get("name")
    snapshot = f"{what} {name} ({asked.snapshot})" if name else f"{what} {asked.snapshot}"
    return f"stream {asked.stream}: {snapshot} is complete"
