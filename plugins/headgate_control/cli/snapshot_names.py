"""How a snapshot is named on the command line: by its number, or by its savepoint's name."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate_contract.ids import CheckpointId, SavepointName

FROM = Annotated[
    str | None,
    typer.Option("--from", help="The snapshot's id or the savepoint's name [default: the newest].", metavar="ID|NAME"),
]


def snapshot_name(text: str | None) -> CheckpointId | SavepointName | None:
    """Digits are an id; anything else is a name. Raises InvalidName."""
    if text is None:
        return None
    return CheckpointId(int(text)) if text.isdecimal() else SavepointName(text)
