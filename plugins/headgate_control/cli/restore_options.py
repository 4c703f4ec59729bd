"""What start, restore and explain ask alike: which snapshot, and what may be done with it."""

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
FallBack = Annotated[
    bool | None,
    typer.Option(
        "--fall-back/--no-fall-back", help="Take an older snapshot if the newest is damaged.", show_default=False
    ),
]
AcceptDuplicates = Annotated[
    bool, typer.Option("--accept-duplicates", help="Go on although a sink will repeat what it published.")
]
AllowNonRestoredState = Annotated[
    bool,
    typer.Option("--allow-non-restored-state", help="Drop what the snapshot has of vertices that the job has no more."),
]
AllowPlace = Annotated[
    bool,
    typer.Option(
        "--allow-place",
        help="Let the URL of --from lie where headgate.snapshot.allowed-dirs does not say, for this once.",
    ),
]
ClaimModeName = Annotated[
    str,
    typer.Option(
        "--claim-mode",
        help="Whose a restored savepoint is from then on: no-claim (it is left alone), "
        "or claim (the stream's: deleted once newer checkpoints subsume it).",
        metavar="no-claim|claim",
    ),
]


def snapshot_name(text: str | None) -> CheckpointId | SavepointName | Located | None:
    """What a person has typed. Raises InvalidName."""
    return snapshot_named(text) if text is not None else None
