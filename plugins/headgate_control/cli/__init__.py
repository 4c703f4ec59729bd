"""The `headgate` command: the verbs of the control plane. Each exit code is its error's (docs/operations.md)."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_control.cli.app import app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit."""
    app(args=list(arguments) if arguments is not None else None, prog_name="headgate")
