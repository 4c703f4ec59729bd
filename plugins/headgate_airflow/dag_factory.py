"""Builds the fleet's DAGs from streams.yaml: savepoints by cron for each stream, one that restores, those by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, get_parsing_context

from headgate_airflow.assets import stream_lost
from headgate_airflow.fleet import by_root, declared_fleet, streams_file
from headgate_airflow.forms import FORMS, Form, stream_field
from headgate_airflow.operators.recover import ConfirmRecovered, RecoverLost
from headgate_airflow.operators.savepoint import Savepoint
from headgate_airflow.triggers.lost import StreamLostTrigger
from headgate_contract.cron import five_fields
from headgate_contract.errors import BadConfiguration, HeadgateError
from headgate_control.fleet_file import CRON, DeclaredStream, FleetFile

RESTORE = "headgate_restore"
_RESTORES_AT_ONCE = 8
"""One restore that waits for a slow stream must not keep another lost stream waiting."""


def fleet_dags(path: Path | str, conn_id: str | None = None) -> dict[str, DAG]:
    """Every DAG of the fleet in the file at `path` ($HEADGATE_STREAMS_FILE goes before it), by id.

    In a task's process only the DAG that is asked for is built. `conn_id` is the connection that all tasks go through.
    """
    file = streams_file(path)
    fleet = declared_fleet(file)
    common = {"conn_id": conn_id, "streams_file": str(file)}
    builders: dict[str, Callable[[str], DAG]] = {}
    if fleet.streams:
        builders[RESTORE] = partial(_restore_dag, fleet=fleet, common=common)
        stream = stream_field(fleet.streams)
        for dag_id, form in FORMS.items():
            builders[dag_id] = partial(_form_dag, form=form, stream=stream, common=common)
    for declared in fleet.streams.values():
        if declared.savepoint is not None:
            schedule = _schedule(file, declared)  # here, not in the builder: a bad one is found in every process
            builders[savepoint_dag_id(declared.name)] = partial(
                _savepoint_dag, declared=declared, schedule=schedule, common=common
            )
    wanted = get_parsing_context().dag_id
    return {dag_id: build(dag_id) for dag_id, build in builders.items() if wanted in (None, dag_id)}


def savepoint_dag_id(stream: str) -> str:
    """The DAG that takes the savepoints of `stream` by its cron."""
    return f"{stream}__savepoint"


def _schedule(file: Path, declared: DeclaredStream) -> CronTriggerTimetable:
    try:
        return CronTriggerTimetable(five_fields(declared.savepoint or "", CRON), timezone="UTC")
    except HeadgateError as error:
        raise BadConfiguration(f"{file}: stream {declared.name}: {error.what}", hint=error.hint) from None


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


def _savepoint_dag(
    dag_id: str, declared: DeclaredStream, schedule: CronTriggerTimetable, common: Mapping[str, Any]
) -> DAG:
    about = f"Takes a savepoint of {declared.name} by its cron ({declared.savepoint}, UTC), unless it is stopped."
    with _dag(dag_id, about, schedule=schedule, max_active_runs=1) as dag:
        Savepoint(task_id="savepoint", stream=str(declared.name), scheduled=True, skip_at_rest=True, **common)
    return dag


def _restore_dag(dag_id: str, fleet: FleetFile, common: Mapping[str, Any]) -> DAG:
    about = "Woken while any stream of the fleet is lost: looks itself, relaunches those, confirms that they run."
    watchers = [
        StreamLostTrigger(streams=streams, root=root, conn_id=common["conn_id"], poll_s=_watch_every_s(len(streams)))
        for root, streams in by_root(fleet).items()
    ]
    with _dag(dag_id, about, schedule=stream_lost(watchers), max_active_runs=_RESTORES_AT_ONCE) as dag:
        recover = RecoverLost(task_id="recover", **common)
        confirm = ConfirmRecovered.partial(task_id="runs", map_index_template="{{ task.stream }}", **common)
        confirm.expand_kwargs(recover.output)
    return dag


def _watch_every_s(streams: int) -> float:
    """Two seconds, and more for so many streams that looking at them all takes its time."""
    return max(2.0, streams / 50)


def _form_dag(dag_id: str, form: Form, stream: Param, common: Mapping[str, Any]) -> DAG:
    params = {"stream": stream, **form.fields}
    with _dag(dag_id, form.about, schedule=None, params=params, max_active_runs=16) as dag:
        arguments: dict[str, Any] = {name: f"{{{{ params.{name} }}}}" for name in params}
        form.operator(task_id=dag_id.removeprefix("headgate_"), **arguments, **common)
    return dag
