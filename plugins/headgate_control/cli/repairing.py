"""The verb for a damaged log: repair."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate_contract.errors import LogDamaged, NotARoot
from headgate_control.cli.session import By, Json, Root, session
from headgate_control.outcomes import Found, RepairReport, RootReport


def repair(
    ctx: typer.Context,
    stream: Annotated[
        str | None, typer.Argument(help="The stream [default: the root itself].", show_default=False)
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Carry the plan out; the stream must not run.", show_default=False)
    ] = False,
    by: By = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """What would make a damaged log whole. Without a stream: the file that says which root this is.

    Exit code 6 if it is damaged. Changes nothing without --execute.
    """
    here = session(ctx, root, json)
    if stream is None:
        found = here.control(by=by).repair_root(execute=execute, by=by)
        here.show(found, lambda: root_as_text(found))
        if found.needed and not found.executed:
            raise typer.Exit(NotARoot.exit_code)
        return
    report = here.control(stream, by=by).repair(stream, execute=execute, by=by)
    here.show(report, lambda: as_text(report))
    if report.needed and not report.executed:
        raise typer.Exit(LogDamaged.exit_code)


def as_text(report: RepairReport) -> str:
    """The plan, or what was done, for people."""
    if not report.needed:
        whole = f"stream {report.stream}: nothing to repair, its log is whole"
        return "\n".join([whole, *_heartbeats(report), *report.sinks])
    lines = [f"stream {report.stream}: {report.reason}"]
    for noun, entries in (("slot", report.slots), ("decision", report.decisions)):
        lines += [_entry(noun, entry) for entry in entries]
    lines += [f"  {path} is no entry\n    -> moved aside" for path in report.strangers]
    lines += [f"{snapshot} is given up: it contradicts what was there before it" for snapshot in report.given_up]
    lines.append("kept, and can be restored:" if report.kept else "no snapshot is left: the next start begins anew")
    lines += [f"  {kept.snapshot} of generation {kept.snapshot.generation}: {kept.checked}" for kept in report.kept]
    lines += _heartbeats(report)
    lines += report.sinks
    if report.deployed is None:
        lines.append(f"no deployment is left: `headgate deploy {report.stream} JOB` before it is started")
    lines.append(
        f"the next start is generation {report.next_generation}, its ids begin at {report.next_checkpoint}; "
        f"whoever knew the log as it {'was' if report.executed else 'is'} is fenced"
    )
    if report.executed:
        lines.append(f"repaired; what lay there is kept in {report.aside}; `headgate explain {report.stream}` goes on")
    else:
        lines.append(f"nothing was changed: `headgate repair {report.stream} --execute` carries it out")
    return "\n".join(lines)


def _heartbeats(report: RepairReport) -> list[str]:
    return [f"no sign of life, nothing is concluded from it: {fault}" for fault in report.heartbeats]


def root_as_text(report: RootReport) -> str:
    """The plan for the root, or what was done, for people."""
    if not report.needed:
        return f"{report.root}: nothing to repair, {report.reason}; `headgate repair STREAM` looks at a stream's log"
    done = (
        "repaired; what lay there is kept beside it, and `headgate status` goes on"
        if report.executed
        else "nothing was changed: `headgate repair --execute` carries it out"
    )
    return "\n".join([report.reason, f"  -> {report.becomes}", done])


def _entry(noun: str, entry: Found) -> str:
    return f"  {noun} {entry.number} ({entry.was}): {entry.why}\n    -> {entry.becomes}"
