"""The fleet's DAGs: what streams.yaml makes of them, and what a mistake in it shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from airflow.serialization.serialized_objects import DagSerialization

from headgate_airflow.assets import STREAM_LOST
from headgate_airflow.dag_factory import fleet_dags
from headgate_airflow.fleet import declared_fleet
from tests.airflow.runs import FLEET, check_plain, import_errors

pytestmark = pytest.mark.airflow

MISTAKES = FLEET.with_name("headgate_streams_file.py")
BY_HAND = {"headgate_start", "headgate_stop", "headgate_savepoint", "headgate_restore_to"}
ALWAYS = {"headgate_restore", "headgate_undeclared"} | BY_HAND


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
    assert set(dags) == {"orders__savepoint"} | ALWAYS
    for dag in dags.values():
        check_plain(DagSerialization.serialize_dag(dag))


def test_a_fleet_without_streams_still_watches_its_root(declare: Callable[..., Path], tmp_path: Path) -> None:
    dags = fleet_dags(declare({}))
    assert set(dags) == ALWAYS
    assert watched(dags) == {f"file://{tmp_path}/root": []}


def watched(dags: Mapping[str, DAG]) -> dict[str, list[str]]:
    """What the triggers of the restore DAG watch, by root."""
    watchers = dags["headgate_restore"].timetable.asset_condition.watchers
    kwargs = [watcher.trigger.serialize()[1] for watcher in watchers]
    return {about["root"]: about["streams"] for about in kwargs}


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
    assert len(fleet_dags(file)) == 206
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "s7__savepoint")
    assert list(fleet_dags(file)) == ["s7__savepoint"]


def test_the_form_of_a_start_offers_the_declared_streams_the_others_take_any(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"orders": stream(), "clicks": stream()}))
    for dag_id in BY_HAND:
        field = dags[dag_id].params.get_param("stream")
        start = dag_id == "headgate_start"
        assert field.schema["enum" if start else "examples"] == ["clicks", "orders"]
        with pytest.raises(ValueError, match="No value passed"):
            field.resolve()
        if start:
            with pytest.raises(ValueError, match="'oders' is not one of"):
                field.resolve("oders")
        else:
            assert field.resolve("undeclared") == "undeclared"


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
    file = declare({"well": stream(savepoint="0 3 * * *"), "orders": about})
    shown = import_errors(MISTAKES)
    assert re.search(rf"{file}:\d+: stream orders", shown)
    assert said in shown
    assert import_errors(FLEET) == ""
    assert set(fleet_dags(file)) == {"well__savepoint"} | ALWAYS


def test_a_file_without_mistakes_shows_none(declare: Callable[..., Path]) -> None:
    declare({"well": stream()})
    assert import_errors(MISTAKES) == ""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text(file.read_text() + "\n\tnot: yaml"),
        lambda file: file.write_text(file.read_text().replace("job: job.py", "job: [job.py", 1)),
        lambda file: file.write_text(file.read_text().replace("streams:", "strems:")),
        lambda file: file.write_text(""),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_text("streams: &x {a: *x, b: *x}"),
        lambda file: file.write_text("[" * 5000),
        lambda file: file.unlink(),
    ],
    ids=["tab", "bracket", "streams", "empty", "binary", "loop", "deep", "gone"],
)
def test_of_a_file_that_cannot_be_read_the_last_good_version_stays_watched(
    declare: Callable[..., Path], tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    file = declare({"a": stream(savepoint="0 3 * * *"), "b": stream(root="s3://elsewhere/x")})
    before = watched(fleet_dags(file))
    assert before == {f"file://{tmp_path}/root": ["a"], "s3://elsewhere/x": ["b"]}
    spoil(file)
    dags = fleet_dags(file)
    assert watched(dags) == before
    assert set(dags) == ALWAYS
    assert import_errors(FLEET) == ""
    assert str(file) in import_errors(MISTAKES)
    assert "what it said before is watched" in str(dags["headgate_restore"].doc_md)
    assert dags["headgate_stop"].params.get_param("stream").schema["examples"] == ["a", "b"]


def test_a_machine_that_never_saw_a_good_version_watches_the_roots_that_the_file_names(
    declare: Callable[..., Path],
) -> None:
    file = declare({})
    file.write_text("root: /srv/x\nstreams:\n  a: {job: [a.py}\n  b: {job: b.py}\n")
    assert watched(fleet_dags(file)) == {"file:///srv/x": []}


def test_a_stream_that_cannot_be_read_any_more_is_watched_where_it_was(declare: Callable[..., Path]) -> None:
    fleet_dags(declare({"a": stream(root="s3://elsewhere/x"), "b": stream()}, root="/srv/x"))
    file = declare({"a": stream(root="elsewhere/x"), "b": stream()}, root="/srv/x")
    assert watched(fleet_dags(file)) == {"s3://elsewhere/x": ["a"], "file:///srv/x": ["b"]}


def test_a_root_that_left_the_file_is_watched_for_what_may_be_at_work_there(
    declare: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet_dags(declare({"a": stream(root="s3://elsewhere/x"), "b": stream()}, root="/srv/x"))
    file = declare({"b": stream()}, root="/srv/y")
    expected = {"file:///srv/y": ["b"], "s3://elsewhere/x": [], "file:///srv/x": []}
    assert watched(fleet_dags(file)) == expected
    assert watched(fleet_dags(file)) == expected


def test_a_root_in_the_environment_that_cannot_be_meant_is_a_mistake_of_those_that_need_it(
    declare: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare({})
    file.write_text("streams: {a: {job: a.py}, b: {job: b.py, root: /srv/b}}")
    monkeypatch.setenv("HEADGATE_ROOT", "data/root")
    assert watched(fleet_dags(file)) == {"file:///srv/b": ["b"]}
    assert "stream a: the root 'data/root' ($HEADGATE_ROOT) is not absolute" in import_errors(MISTAKES)


def test_two_spellings_of_a_root_are_one(declare: Callable[..., Path]) -> None:
    dags = fleet_dags(declare({"a": stream(root="/srv/x"), "b": stream(root="file:///srv/x/")}, root="/srv/y"))
    assert watched(dags) == {"file:///srv/x": ["a", "b"], "file:///srv/y": []}


def test_two_hundred_streams_are_read_within_a_second(declare: Callable[..., Path]) -> None:
    file = declare({f"s{n}": stream(settings={"heartbeat.interval": "1 s"}) for n in range(200)})
    begun = time.process_time()
    assert len(declared_fleet(file).file.streams) == 200
    assert time.process_time() - begun < 1.0
