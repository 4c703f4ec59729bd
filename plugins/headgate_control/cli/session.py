"""What every command shares: its root, its control plane, JSON or text, and how errors are shown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from typer.core import TyperGroup

from headgate_contract.codec import to_plain
from headgate_contract.errors import BadInput, HeadgateError
from headgate_contract.ids import RequestId
from headgate_contract.roots import checked_root
from headgate_control.control import Control
from headgate_control.deploy import Programs
from headgate_control.fleet_file import DeclaredStream, FleetFile
from headgate_control.fleet_reading import read_fleet

ROOT = "HEADGATE_ROOT"
FLEET = "HEADGATE_FLEET"

Stream = Annotated[str, typer.Argument(help="The stream's name.", show_default=False)]
Root = Annotated[
    str | None,
    typer.Option("--root", help=f"The storage root: a folder, file:// or s3:// [default: ${ROOT}].", metavar="URL"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; errors too, on stderr.")]
Fleet = Annotated[
    Path | None,
    typer.Option(
        "--fleet", help=f"streams.yaml, to compare with what is deployed [default: ${FLEET}].", metavar="FILE"
    ),
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="The request's id: repeating it finds the first answer.", metavar="ID"),
]
By = Annotated[str | None, typer.Option("--by", help="Who asks, in logs and history.", metavar="WHO")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once.")]


@dataclass
class Session:
    """One call of the command line."""

    programs: Programs | None = None
    """Other programs than the Spark environment's, for tests."""
    root: str | None = None
    json: bool = False

    def use(self, root: str | None, as_json: bool) -> Session:
        """Take a command's own options, which outweigh those before the command."""
        self.root = root or self.root
        self.json = as_json or self.json
        return self

    def control(
        self, stream: str | None = None, declared: DeclaredStream | None = None, *, by: str | None = None
    ) -> Control:
        """The control plane of the root that was named, for every verb alike. Raises BadInput if none was.

        --root, or what streams.yaml says of `stream` (None: of all of them, if it is one root), or $HEADGATE_ROOT.
        """
        root = checked_root(self.root, "--root") if self.root else None
        root = root or (declared.root if declared is not None else declared_root(stream))
        if root is None and os.environ.get(ROOT):
            root = checked_root(os.environ[ROOT], f"${ROOT}")
        if root is None:
            raise BadInput("no storage root is named", hint=f"give --root URL, or set ${ROOT}")
        return Control.open(root, by=by, programs=self.programs)

    def show(self, value: object, text: Callable[[], RenderableType]) -> None:
        """Print `value` as JSON, or `text()` for people."""
        if self.json:
            typer.echo(json.dumps(to_plain(value), sort_keys=True, ensure_ascii=False))
        else:
            console().print(text(), soft_wrap=True, highlight=False, markup=False)

    def warn(self, warnings: tuple[str, ...]) -> None:
        """Say loudly what a person should know, beside the result."""
        for warning in warnings:
            if not self.json:
                typer.secho(f"warning: {warning}", err=True, fg="yellow", bold=True)


def session(ctx: typer.Context, root: str | None, as_json: bool) -> Session:
    return session_of(ctx).use(root, as_json)


def session_of(ctx: typer.Context) -> Session:
    found = ctx.find_object(Session)
    if found is None:
        found = ctx.find_root().obj = Session()
    return found


def console() -> Console:
    """Standard output; as wide as it takes where nobody looks. What stands between colons is no emoji's name."""
    return Console(emoji=False, width=None if sys.stdout.isatty() else 240)


def declared(fleet: Path | None, stream: str) -> DeclaredStream | None:
    """What streams.yaml says of the stream, if one was named. Raises BadConfiguration or NotFound."""
    found = fleet_file(fleet)
    return found.stream(stream) if found is not None else None


def fleet_file(named: Path | None = None) -> FleetFile | None:
    """The streams.yaml that was named, or that $HEADGATE_FLEET names, with its mistakes."""
    path = named or (Path(os.environ[FLEET]) if os.environ.get(FLEET) else None)
    return read_fleet(path) if path is not None else None


def declared_root(stream: str | None) -> str | None:
    """The root that $HEADGATE_FLEET gives `stream`, or all of its streams, if it names one.

    Another mistake in the stream's entry does not matter. Raises BadConfiguration if its root cannot be told.
    """
    fleet = fleet_file()
    if fleet is None:
        return None
    if stream is not None and stream in fleet.located:
        return fleet.located[stream]
    if stream is not None and stream in fleet.left_out:
        raise fleet.left_out[stream].at(fleet.path)
    roots = set(fleet.located.values()) or set(fleet.roots)
    return roots.pop() if len(roots) == 1 else fleet.root


def request_id(text: str | None) -> RequestId | None:
    return RequestId(text) if text is not None else None


class ErrorsAsText(TyperGroup):
    """Shows every HeadgateError on stderr, without a traceback, and exits with its code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            show_error(error, as_json=session_of(ctx).json)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(130)


def show_error(error: HeadgateError, *, as_json: bool) -> None:
    """What, which, and what to do."""
    if as_json:
        plain = {"error": type(error).__name__, "what": error.what, "hint": error.hint, "exit_code": error.exit_code}
        typer.echo(json.dumps(plain, sort_keys=True, ensure_ascii=False), err=True)
        return
    typer.echo(f"headgate: {error.what}", err=True)
    if error.hint:
        typer.echo(f"  -> {error.hint}", err=True)
