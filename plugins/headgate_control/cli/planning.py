"""The verb that looks at a job before anything is deployed: plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headgate_contract.errors import BadInput
from headgate_contract.settings import Settings
from headgate_control.cli.running import given_settings
from headgate_control.cli.session import Json, session
from headgate_control.deploy import Checker, Programs, read_job
from headgate_control.environment import environment_of_drivers
from headgate_control.picture import as_dot, as_text


def plan(
    ctx: typer.Context,
    job: Annotated[Path, typer.Argument(help="The job's Python file.", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting; outweighs --settings.", metavar="KEY=VALUE")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="A YAML file of settings.", metavar="FILE")
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print a picture for Graphviz to draw.")] = False,
    json: Json = False,
) -> None:
    """What a job's graph is cut into. Chains, channels, key groups, and what a barrier does at each."""
    here = session(ctx, None, json)
    if dot and here.json:
        raise BadInput("--dot and --json are two ways to print it", hint="leave one of the two out")
    read_job(job)
    checker = Checker(programs=here.programs or Programs(), environment=environment_of_drivers(os.environ, {}))
    found = checker.graph(job.absolute(), Settings(given_settings(settings, set_)), Path.cwd())
    if dot:
        typer.echo(as_dot(found))
        return
    here.show(found, lambda: as_text(found))
