"""Builds the fleet's DAGs from streams.yaml: savepoints by cron for each stream, one that restores, those by hand.

A mistake in the file takes away no more than the savepoints of its stream: what runs is watched all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, get_parsing_context

from headgate_airflow.assets import stream_lost, undeclared
from headgate_airflow.fleet import Fleet, declared_fleet, streams_file
from headgate_airflow.forms import FORMS, Form, stream_field
from headgate_airflow.operators.declared import CheckDeclared
from headgate_airflow.operators.recover import ConfirmRecovered, RecoverLost
from headgate_airflow.operators.savepoint import Savepoint
from headgate_airflow.triggers.lost import StreamLostTrigger
from headgate_airflow.triggers.undeclared import UndeclaredTrigger
from headgate_contract.cron import five_fields
from headgate_contract.errors import BadConfiguration
from headgate_control.fleet_file import CRON, DeclaredStream

RESTORE = "headgate_restore"
UNDECLARED = "headgate_undeclared"
_RESTORES_AT_ONCE = 8
"""One restore that waits for a slow stream must not keep another lost stream waiting."""


def fleet_dags(path: Path | str, conn_id: str | None = None) -> dict[str, DAG]:
    """Every DAG of the fleet in the file at `path` ($HEADGATE_STREAMS_FILE goes before it), by id.

    In a task's process only the DAG that is asked for is built. `conn_id` is the connection that all tasks go through.
    """
    fleet = declared_fleet(streams_file(path))
    common = {"conn_id": conn_id, "streams_file": str(fleet.file.path)}
    builders: dict[str, Callable[[str], DAG]] = {}
    if fleet.by_root or fleet.file.mistakes:
        builders[RESTORE] = partial(_restore_dag, fleet=fleet, common=common)
        builders[UNDECLARED] = partial(_undeclared_dag, fleet=fleet, common=common)
        for dag_id, form in FORMS.items():
            builders[dag_id] = partial(_form_dag, form=form, fleet=fleet, common=common)
    for declared in fleet.file.streams.values():
        if declared.savepoint is not None:
            builders[savepoint_dag_id(declared.name)] = partial(_savepoint_dag, declared=declared, common=common)
    wanted = get_parsing_context().dag_id
    return {dag_id: build(dag_id) for dag_id, build in builders.items() if wanted in (None, dag_id)}


def refuse_mistakes(path: Path | str) -> None:
    """Raise BadConfiguration with every mistake in the fleet's file, and where it is.

    For a DAG file without DAGs: Airflow schedules none of a file that shows an import error.
    """
    file = declared_fleet(streams_file(path)).file
    if file.mistakes:
        told = [str(mistake.at(file.path)) for mistake in file.mistakes]
        many = f"{len(told)} mistakes" if len(told) > 1 else "a mistake"
        raise BadConfiguration(
            "\n".join([f"{file.path} has {many}. What it said before is watched:", *told]),
            hint=f"`headgate validate {file.path}` checks it",
        )


def savepoint_dag_id(stream: str) -> str:
    """The DAG that takes the savepoints of `stream` by its cron."""
    return f"{stream}__savepoint"


def _dag(dag_id: str, about: str, **more: Any) -> DAG:
    """Not paused when it is new, whatever Airflow's default is: who declares a stream wants it looked after."""
    return DAG(
        dag_id,
        description=about,
        doc_md=about,
        catchup=False,
        is_paused_upon_creation=False,
        tags=["headgate"],
        **more,
    )


def _savepoint_dag(dag_id: str, declared: DeclaredStream, common: Mapping[str, Any]) -> DAG:
    schedule = CronTriggerTimetable(five_fields(declared.savepoint or "", CRON), timezone="UTC")
    about = f"Takes a savepoint of {declared.name} by its cron ({declared.savepoint}, UTC), unless it is stopped."
    with _dag(dag_id, about, schedule=schedule, max_active_runs=1) as dag:
        Savepoint(task_id="savepoint", stream=str(declared.name), scheduled=True, skip_at_rest=True, **common)
    return dag


def _restore_dag(dag_id: str, fleet: Fleet, common: Mapping[str, Any]) -> DAG:
    about = "Woken while any stream of the fleet is lost: looks itself, relaunches those, confirms that they run."
    watchers = [
        StreamLostTrigger(
            streams=streams,
            root=root,
            ignored=sorted(fleet.ignored),
            conn_id=common["conn_id"],
            poll_s=_watch_every_s(len(streams)),
        )
        for root, streams in fleet.by_root.items()
    ]
    with _dag(dag_id, about, schedule=stream_lost(watchers), max_active_runs=_RESTORES_AT_ONCE) as dag:
        dag.doc_md = _told(about, fleet)
        recover = RecoverLost(task_id="recover", **common)
        confirm = ConfirmRecovered.partial(task_id="runs", map_index_template="{{ task.stream }}", **common)
        confirm.expand_kwargs(recover.output)
    return dag


def _undeclared_dag(dag_id: str, fleet: Fleet, common: Mapping[str, Any]) -> DAG:
    about = (
        "Fails while a stream is at work on a root of the fleet that streams.yaml neither declares nor ignores. Looks "
        "when that file has changed, when the triggerer has started, and when such a stream has come or gone."
    )
    watchers = [
        UndeclaredTrigger(
            streams=[*streams, *sorted(fleet.not_told)],
            root=root,
            former=root in fleet.former_roots,
            conn_id=common["conn_id"],
        )
        for root, streams in fleet.by_root.items()
    ]
    with _dag(dag_id, about, schedule=undeclared(watchers), max_active_runs=1) as dag:
        CheckDeclared(task_id="declared", **common)
    return dag


def _told(about: str, fleet: Fleet) -> str:
    """What the restore DAG's page says: what it watches, and what is wrong with the file."""
    parts = [about]
    if fleet.file.mistakes:
        parts.append("**streams.yaml has mistakes; what it said before is watched:**")
        parts.append("\n".join(f"- {mistake.at(fleet.file.path)}" for mistake in fleet.file.mistakes))
    parts.append(
        "Whatever else is at work on these roots is watched until somebody stops it or has it ignored, and told by "
        "`headgate_undeclared`:"
    )
    parts.append("\n".join(f"- {root or 'the connection'}: {', '.join(each) or '-'}" for root, each in _roots(fleet)))
    return "\n\n".join(parts)


def _roots(fleet: Fleet) -> list[tuple[str | None, list[str]]]:
    return sorted(fleet.by_root.items(), key=lambda item: item[0] or "")


def _watch_every_s(streams: int) -> float:
    """Two seconds, and more for so many streams that looking at them all takes its time."""
    return max(2.0, streams / 50)


def _form_dag(dag_id: str, form: Form, fleet: Fleet, common: Mapping[str, Any]) -> DAG:
    params = {"stream": stream_field(fleet.names, only_these=form.needs_declared), **form.fields}
    with _dag(dag_id, form.about, schedule=None, params=params, max_active_runs=16) as dag:
        arguments: dict[str, Any] = {name: f"{{{{ params.{name} }}}}" for name in params}
        form.operator(task_id=dag_id.removeprefix("headgate_"), **arguments, **common)
    return dag
