"""How a snapshot is named on the command line: by its number, or by its savepoint's name."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate_contract.ids import CheckpointId, SavepointName
from headgate_contract.restore import Located
from headgate_control.locating import snapshot_named

FROM = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="The snapshot's id, the savepoint's name, or the URL of its folder; a path is below the "
        "root, with ./ or / in front a local one [default: the newest].",
        metavar="ID|NAME|URL",
    ),
]


def snapshot_name(text: str | None) -> CheckpointId | SavepointName | Located | None:
    """What a person has typed. Raises InvalidName."""
    return snapshot_named(text) if text is not None else None
