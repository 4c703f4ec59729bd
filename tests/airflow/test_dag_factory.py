"""The fleet's DAGs: what streams.yaml makes of them, and what a mistake in it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from airflow.serialization.serialized_objects import DagSerialization

from headgate_airflow.assets import STREAM_LOST
from headgate_airflow.dag_factory import fleet_dags
from tests.airflow.runs import FLEET, check_plain, import_errors

pytestmark = pytest.mark.airflow

BY_HAND = {"headgate_start", "headgate_stop", "headgate_savepoint", "headgate_restore_to"}


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.delenv("HEADGATE_ROOT", raising=False)

    def write(streams: Mapping[str, object], **fleet: object) -> Path:
        file = tmp_path / "streams.yaml"
        file.write_text(yaml.safe_dump({"root": f"file://{tmp_path}/root", "streams": dict(streams)} | fleet))
        monkeypatch.setenv("HEADGATE_STREAMS_FILE", str(file))
        return file

    return write


def stream(**about: object) -> dict[str, object]:
    return {"job": "job.py", **about}


def test_a_fleet_has_one_restore_dag_those_by_hand_and_one_for_each_cron(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"orders": stream(savepoint="0 3 * * *"), "clicks": stream()}))
    assert set(dags) == {"headgate_restore", "orders__savepoint"} | BY_HAND
    for dag in dags.values():
        check_plain(DagSerialization.serialize_dag(dag))


def test_a_fleet_without_streams_has_no_dags(declare: Callable[..., Path]) -> None:
    assert fleet_dags(declare({})) == {}


@pytest.mark.parametrize(
    ("written", "kept"),
    [("*/5 * * * *", "*/5 * * * *"), ("0 0 3 * * ?", "0 3 * * *"), ("0 30 4 ? * 2 *", "30 4 * * 1")],
    ids=["5 fields", "6 fields", "7 fields"],
)
def test_a_cron_of_five_six_or_seven_fields_becomes_the_schedule(
    declare: Callable[..., Path], written: str, kept: str
) -> None:
    dag = fleet_dags(declare({"orders": stream(savepoint=written)}))["orders__savepoint"]
    assert dag.timetable.expression == kept
    assert str(dag.timetable.timezone) == "UTC"
    assert not dag.catchup


def test_the_restore_dag_watches_every_declared_stream_of_every_root(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"a": stream(), "b": stream(), "c": stream(root="s3://elsewhere/x")}))
    dag = dags["headgate_restore"]
    asset = dag.timetable.asset_condition
    assert asset.name == STREAM_LOST
    watched = [watcher.trigger.serialize()[1] for watcher in asset.watchers]
    assert [(about["streams"], about["root"]) for about in watched] == [
        (["a", "b"], f"file://{Path(dags['headgate_start'].tasks[0].streams_file).parent}/root"),
        (["c"], "s3://elsewhere/x"),
    ]
    assert len({watcher.name for watcher in asset.watchers}) == 2


def test_a_stream_without_root_is_where_headgate_root_says(
    declare: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare({"a": stream()}, root="file:///x")
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({"streams": content["streams"]}))
    monkeypatch.setenv("HEADGATE_ROOT", "s3://fleet/here")
    asset = fleet_dags(file)["headgate_restore"].timetable.asset_condition
    assert asset.watchers[0].trigger.root == "s3://fleet/here"


def test_in_a_tasks_process_only_its_own_dag_is_built(
    declare: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare({f"s{n}": stream(savepoint="0 3 * * *") for n in range(200)})
    assert len(fleet_dags(file)) == 205
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "s7__savepoint")
    assert list(fleet_dags(file)) == ["s7__savepoint"]


def test_a_form_offers_the_declared_streams_and_refuses_others(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"orders": stream(), "clicks": stream()}))
    for dag_id in BY_HAND:
        field = dags[dag_id].params.get_param("stream")
        assert field.schema["enum"] == ["clicks", "orders"]
        with pytest.raises(ValueError, match="No value passed"):
            field.resolve()
        with pytest.raises(ValueError, match="'oders' is not one of"):
            field.resolve("oders")


def test_a_fleet_of_one_needs_no_choice(declare: Callable[..., Path]) -> None:
    assert fleet_dags(declare({"orders": stream()}))["headgate_start"].params["stream"] == "orders"


def test_every_field_of_a_form_explains_itself_and_has_a_lawful_default(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"orders": stream()}))
    for dag_id in BY_HAND:
        for name in dags[dag_id].params:
            field = dags[dag_id].params.get_param(name)
            assert field.schema["title"], (dag_id, name)
            field.resolve()


def test_every_task_is_retried_when_airflow_itself_stumbles(declare: Callable[..., Path]) -> None:
    for dag in fleet_dags(declare({"orders": stream(savepoint="0 3 * * *")})).values():
        for task in dag.tasks:
            retries = task.partial_kwargs.get("retries", 2) if task.is_mapped else task.retries
            assert retries >= 2, (dag.dag_id, task.task_id)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (
            stream(settings={"execution.checkpointing.intervall": "5 s"}),
            "did you mean 'execution.checkpointing.interval'?",
        ),
        (stream(settings={"execution.checkpointing.interval": "5 parsecs"}), "'5 parsecs' is not a duration"),
        (stream(settings={"state.backend.type": "heap"}), "allowed are hashmap, rocksdb"),
        (stream(savepoint="every night"), "headgate.savepoint.cron: 'every night' has 2 fields"),
        (stream(savepoint="30 0 3 * * ?"), "asks for seconds or years, which a schedule cannot keep"),
        (stream(savepoints="0 3 * * *"), "unknown key 'savepoints'; did you mean 'savepoint'?"),
        ({"settings": {}}, "stream orders has no job"),
    ],
    ids=["unknown setting", "no duration", "no choice", "no cron", "seconds", "unknown key", "no job"],
)
def test_a_mistake_is_an_import_error_that_names_file_stream_key_and_what_is_allowed(
    declare: Callable[..., Path], about: object, said: str
) -> None:
    file = declare({"well": stream(), "orders": about})
    shown = import_errors(FLEET).splitlines()[-1]
    assert f"{file}: stream orders" in shown
    assert said in shown
