"""Runs the command line in this process, as a user would type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from headgate_control.cli import app
from headgate_control.cli.session import Session
from headgate_control.deploy import Programs
from tests.control.world import STANDIN


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Everything that was said, in one line, with the arrow of a hint as the table writes it."""
        return " ".join((self.err + self.out).replace("\n  -> ", " → ").split())

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


def headgate(*arguments: str, programs: Programs | None = STANDIN) -> Result:
    """`headgate ARGUMENTS`, with drivers that speak the contract only unless told otherwise."""
    result = CliRunner().invoke(app, list(arguments), obj=Session(programs=programs))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)
