"""The verb that checks streams.yaml, for people and for CI: validate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate_contract.codec import to_plain
from headgate_contract.errors import BadConfiguration, BadInput, HeadgateError
from headgate_contract.ids import StreamName
from headgate_control.cli.session import FLEET, Json, fleet_file, session, show_error
from headgate_control.control import Control
from headgate_control.fleet_file import Drift, FleetFile, drift
from headgate_control.outcomes import Condition, StreamStatus
from headgate_control.undeclared import is_at_rest


def validate(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help=f"The streams.yaml [default: ${FLEET}].", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Check a streams.yaml. Tells every mistake with its line; exit code 2 if there is one. Looks at no storage."""
    here = session(ctx, None, json)
    found = fleet_file(file)
    if found is None:
        raise BadInput("no streams.yaml is named", hint="headgate validate streams.yaml")
    plain = {"streams": sorted(found.streams), "mistakes": found.mistakes, "warnings": _warnings(found)}
    if here.json or not found.mistakes:
        here.show(
            plain, lambda: f"{found.path}: {len(found.streams)} stream{'s'[: len(found.streams) != 1]}, no mistake"
        )
    else:
        for mistake in found.mistakes:
            show_error(mistake.at(found.path), as_json=False)
    here.warn(_warnings(found))
    if found.mistakes:
        raise typer.Exit(BadConfiguration.exit_code)


def _warnings(found: FleetFile) -> tuple[str, ...]:
    """What may be right where the streams run, and is not here."""
    missing = [each for each in found.streams.values() if not each.job.is_file()]
    return tuple(f"stream {each.name}: the job file {each.job} is not here" for each in missing)


@dataclass(frozen=True, slots=True)
class Differences:
    """How a stream that is declared differs from what its file says."""

    found: tuple[Drift, ...]
    runs: bool
    """Between the file and what runs; False: between the file and what the next start would run."""
    deployed: bool
    """What is deployed is what the file says: a restart is all that is missing."""

    def told(self, stream: str, path: Path) -> str:
        where = "running" if self.runs else "deployed"
        differ = "; ".join(one.told(where) for one in self.found)
        restart = f"`headgate stop {stream} --savepoint`, `headgate start {stream}`"
        deploy = f"`headgate deploy {stream} --fleet {path}`"
        mend = restart if self.deployed else f"{deploy}, then {restart}" if self.runs else deploy
        return f"stream {stream} {'runs' if self.runs else 'is deployed'} otherwise than {path} says: {differ}: {mend}"


def differences(control: Control, file: FleetFile, seen: Iterable[StreamStatus]) -> dict[StreamName, Differences]:
    """Of each stream that is declared, where it differs."""
    found = {}
    for status in seen:
        declared = file.streams.get(status.stream)
        if declared is None or status.condition is Condition.UNREADABLE:
            continue
        try:
            deployed, running = control.deployed(status.stream), control.runs(status.stream)
        except HeadgateError:  # what is wrong with it, its status tells
            continue
        runs = running is not None and not is_at_rest(status)
        differ = drift(declared, running if runs else deployed)
        if differ:
            found[status.stream] = Differences(differ, runs, runs and not drift(declared, deployed))
    return found


def remarks(
    file: FleetFile, seen: Iterable[StreamStatus], differ: Mapping[StreamName, Differences], stream: str | None = None
) -> tuple[str, ...]:
    """What of the fleet, or of one `stream`, is not as its file says, or ought to."""
    mistakes = [str(each.at(file.path)) for each in file.mistakes if stream is None or each.stream in (None, stream)]
    if not file.is_read:
        return tuple(mistakes)
    undeclared = [
        f"stream {status.stream} is not declared in {file.path}, and is {status.condition.value}: Airflow watches it "
        f"until it is stopped (`headgate stop {status.stream}`), declared, or below `ignore:` in that file"
        for status in seen
        if not is_at_rest(status) and not _names(file, status)
    ]
    return (*mistakes, *undeclared, *(each.told(name, file.path) for name, each in differ.items()))


def compared(file: FleetFile, status: StreamStatus, differ: Mapping[StreamName, Differences]) -> dict[str, Any]:
    """A status for programs, with what its file says of it."""
    found = differ.get(status.stream)
    drifted = to_plain(found.found) if found is not None else []
    return {**to_plain(status), "declared": status.stream in file.streams, "drift": drifted}


def _names(file: FleetFile, status: StreamStatus) -> bool:
    return status.stream in {*file.streams, *file.left_out, *file.ignored}
