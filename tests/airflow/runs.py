"""Runs DAGs by dag.test: every task, trigger and resumption in this process, on a migrated SQLite database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.utils.session import create_session
from msgspec import msgpack
from sqlalchemy import select

from tests.house_rules import REPO

FLEET = REPO / "dags" / "headgate_fleet.py"
OWN = Path(__file__).parent / "dags"


@dataclass(frozen=True)
class Run:
    """How a run ended."""

    dag_id: str
    run_id: str
    state: str
    tasks: dict[tuple[str, int], str]
    errors: dict[str, str]
    """What each failed task said, by its id and, if it was mapped, its stream."""

    def state_of(self, task_id: str, map_index: int = -1) -> str:
        return self.tasks[task_id, map_index]

    def returned(self, task_id: str, map_index: int = -1) -> Any:
        """What a task returned, as the next one would read it."""
        with create_session() as session:
            row = (
                session.execute(
                    XComModel.get_many(
                        run_id=self.run_id,
                        key="return_value",
                        task_ids=task_id,
                        dag_ids=self.dag_id,
                        map_indexes=map_index,
                    )
                )
                .scalars()
                .first()
            )
            assert row is not None, f"{task_id} of {self.run_id} returned nothing"
            return XComModel.deserialize_value(row)


def load_dag(file: Path, dag_id: str) -> DAG:
    """The DAG as Airflow reads it from `file`. Its import errors fail the test."""
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    dag: DAG = bag.dags[dag_id]
    return dag


def import_errors(file: Path) -> str:
    """What Airflow shows for a file that does not load."""
    return "\n".join(DagBag(dag_folder=str(file)).import_errors.values())


def run_dag(dag: DAG, conf: dict[str, Any] | None = None, *, at: datetime | None = None) -> Run:
    """One run; without a logical date, as the API and assets start them, unless it is `at` a moment.

    A second run at the same moment is the same run, with its tasks cleared.
    """
    errors: dict[str, str] = {}

    def note(context: Any) -> None:
        mapped = f"[{context['task'].stream}]" if context["ti"].map_index >= 0 else ""
        errors[context["ti"].task_id + mapped] = str(context["exception"])

    for task in dag.tasks:
        target = task.partial_kwargs if task.is_mapped else task.__dict__
        target["on_failure_callback"] = target["on_retry_callback"] = [note]
        target["post_execute" if task.is_mapped else "_post_execute_hook"] = lambda context, result: check_plain(result)
    ended: DagRun = dag.test(run_after=at, logical_date=at, run_conf=conf)
    with create_session() as session:
        ended = session.merge(ended)
        tasks = {(ti.task_id, ti.map_index): str(ti.state) for ti in ended.get_task_instances(session=session)}
        return Run(ended.dag_id, ended.run_id, str(ended.state), tasks, errors)


def asset_events(name: str) -> list[dict[str, Any]]:
    """The extras of all events of an asset, oldest first."""
    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id).where(AssetModel.name == name)
        return [dict(event.extra) for event in session.scalars(query.order_by(AssetEvent.id))]


def check_plain(value: object) -> None:
    """What goes to another of Airflow's processes is packed by msgpack, which takes no subclass of str or int."""
    msgpack.encode(value, enc_hook=_refuse)


def _refuse(value: object) -> None:
    raise AssertionError(f"{value!r} is a {type(value).__name__}: no Airflow process could send it")
