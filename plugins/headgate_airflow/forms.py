"""The forms of the DAGs that people start by hand: for each, its operator, what it is about, and its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param

from headgate_airflow.operators.base import StreamOperator
from headgate_airflow.operators.restore import RestoreStream
from headgate_airflow.operators.savepoint import Savepoint
from headgate_airflow.operators.start import StartStream
from headgate_airflow.operators.stop import HowToStop, StopStream

_NAME = r"^(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


@dataclass(frozen=True, slots=True)
class Form:
    """One DAG by hand: each field is the operator's argument of that name."""

    operator: type[StreamOperator]
    about: str
    fields: Mapping[str, Param]
    needs_declared: bool = False
    """Only a stream of streams.yaml will do; else any that is on the fleet's roots, whether it is declared or not."""


def stream_field(names: Iterable[str], *, only_these: bool) -> Param:
    """The choice of a stream; a fleet of one needs none."""
    known = sorted(str(name) for name in names)
    about: dict[str, Any] = {"type": "string", "title": "Stream"}
    if only_these and known:
        about |= {"enum": known, "description": "A stream of streams.yaml."}
    else:
        about |= {
            "examples": known,
            "minLength": 1,
            "description": "A stream of streams.yaml, or any other that is on its roots.",
        }
    return Param(known[0], **about) if len(known) == 1 else Param(**about)


def _yes_or_no(title: str, about: str, default: bool) -> Param:
    return Param(default, type="boolean", title=title, description=about)


def _savepoint_name() -> Param:
    return Param(
        None,
        type=["null", "string"],
        pattern=_NAME,
        title="Name of the savepoint",
        description="Letters, digits, '_', '-' and '.', not digits alone; left empty, it is named by the moment.",
    )


def _target_directory() -> Param:
    return Param(
        None,
        type=["null", "string"],
        title="Directory for the savepoint",
        description="A URL, as the driver sees it, in a place that headgate.snapshot.allowed-dirs allows; left empty, "
        "what the stream's settings say, else below the root.",
    )


def _fall_back() -> Param:
    return Param(
        None,
        type=["null", "string"],
        enum=[None, "true", "false"],
        values_display={"None": "as headgate.fall-back says", "true": "take an older one", "false": "refuse"},
        title="When the newest snapshot is damaged",
        description="An older one is taken loudly; what cannot be restored is never skipped silently.",
    )


def _accept_duplicates() -> Param:
    return _yes_or_no(
        "Accept duplicates",
        "Go back behind what is published although a sink cannot take it back. `headgate explain` tells beforehand.",
        False,
    )


def _allow_non_restored_state() -> Param:
    return _yes_or_no(
        "Allow non-restored state",
        "Drop what the snapshot has of vertices that the job has no more. `headgate explain` tells beforehand.",
        False,
    )


FORMS: Mapping[str, Form] = {
    "headgate_start": Form(
        StartStream,
        "Starts a stream by the rules of restore, and waits until it runs.",
        {
            "deploy": _yes_or_no("Deploy first", "Deploy job and settings as streams.yaml has them now.", True),
            "fresh": _yes_or_no("Without state", "Start at the sources' beginnings, as if it had never run.", False),
            "fall_back": _fall_back(),
            "accept_duplicates": _accept_duplicates(),
            "allow_non_restored_state": _allow_non_restored_state(),
        },
        needs_declared=True,
    ),
    "headgate_stop": Form(
        StopStream,
        "Stops a stream; nobody restarts it until it is started again.",
        {
            "how": Param(
                HowToStop.SAVEPOINT.value,
                type="string",
                enum=[way.value for way in HowToStop],
                values_display={
                    "savepoint": "with a last savepoint",
                    "drain": "for good: the operators finish, then a last savepoint",
                    "checkpoint": "at the next barrier",
                    "cancel": "at once, without a last snapshot",
                },
                title="How",
            ),
            "name": _savepoint_name(),
            "target_directory": _target_directory(),
        },
    ),
    "headgate_savepoint": Form(
        Savepoint,
        "Takes a savepoint of a running stream; it never expires.",
        {"name": _savepoint_name(), "target_directory": _target_directory()},
    ),
    "headgate_restore_to": Form(
        RestoreStream,
        "Restores a stream to a snapshot that you choose; a stream that runs is stopped first.",
        {
            "snapshot": Param(
                None,
                type=["null", "string"],
                title="Snapshot",
                description="An id, a name (`headgate snapshots STREAM`) or the URL of a folder that is below "
                "the root or where headgate.snapshot.allowed-dirs allows it; empty: the newest.",
            ),
            "claim_mode": Param(
                "no-claim",
                type="string",
                enum=["no-claim", "claim"],
                values_display={
                    "no-claim": "it is left alone",
                    "claim": "it becomes the stream's: deleted once newer checkpoints subsume it",
                },
                title="A savepoint that is restored",
            ),
            "savepoint_first": _yes_or_no("Savepoint first", "Stop a running stream with a savepoint.", True),
            "parallelism": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                title="Parallelism",
                description="How many subtasks it goes on with; left empty, as it is deployed.",
            ),
            "fall_back": _fall_back(),
            "accept_duplicates": _accept_duplicates(),
            "allow_non_restored_state": _allow_non_restored_state(),
        },
    ),
}
