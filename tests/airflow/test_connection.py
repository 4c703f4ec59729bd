"""The connection type `headgate`: Airflow knows it and its form, it is tested, and tasks and triggers go through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from airflow.sdk import Connection

from headgate_airflow.hooks.headgate import HeadgateHook, storage_of_connection
from headgate_contract.errors import BadConfiguration
from tests.airflow.runs import OWN, load_dag, run_dag
from tests.airflow.small_fleet import SmallFleet
from tests.house_rules import REPO

pytestmark = pytest.mark.airflow

ASK_AIRFLOW = """
import json
from airflow.providers_manager import ProvidersManager

manager = ProvidersManager()
hook = manager.hooks["headgate"]
fields = [name for name in manager.connection_form_widgets if name.startswith("extra__headgate__")]
print("RESULT " + json.dumps({
    "class": hook.hook_class_name,
    "name": hook.hook_name,
    "testable": hook.connection_testable,
    "fields": sorted(fields),
    "hidden": manager.field_behaviours["headgate"]["hidden_fields"],
}))
"""


def test_airflow_finds_the_connection_type_in_the_plugins_folder_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", ASK_AIRFLOW],
        cwd="/",
        env=environment | {"AIRFLOW__CORE__PLUGINS_FOLDER": str(REPO / "plugins")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert json.loads(line.removeprefix("RESULT ")) == {
        "class": "headgate_airflow.hooks.headgate.HeadgateHook",
        "name": "Headgate",
        "testable": True,
        "fields": ["extra__headgate__options", "extra__headgate__root"],
        "hidden": ["schema", "port", "host"],
    }


def connection(**about: object) -> Connection:
    return Connection(conn_id="somewhere", conn_type="headgate", **about)


def test_a_connection_names_root_options_and_keys() -> None:
    found = storage_of_connection(
        connection(
            login="me",
            password="hush",
            extra=json.dumps({"root": "s3://bucket/x", "options": {"endpoint_url": "http://localhost:9000"}}),
        )
    )
    assert found.root == "s3://bucket/x"
    assert found.options == {"endpoint_url": "http://localhost:9000", "key": "me", "secret": "hush"}
    assert "hush" not in repr(found)


def test_a_root_that_the_caller_knows_goes_before_the_connections_own() -> None:
    assert storage_of_connection(connection(host="/a"), "/b").root == "/b"
    assert storage_of_connection(connection(host="/a")).root == "/a"


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({}, "connection somewhere names no storage root; fill in its root"),
        ({"extra": '{"root": "/a", "endpoint": "x"}'}, "connection somewhere has unknown fields: endpoint"),
        ({"extra": '{"root": "/a", "options": "{"}'}, "connection somewhere: its options are not JSON"),
        ({"extra": '{"root": "/a", "options": [1]}'}, "connection somewhere: its options are a list"),
    ],
)
def test_a_connection_that_cannot_be_meant_is_refused(about: dict[str, str], said: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        storage_of_connection(connection(**about))
    assert said in str(refused.value)


def test_without_root_and_connection_the_hook_says_where_to_name_one() -> None:
    with pytest.raises(BadConfiguration) as refused:
        _ = HeadgateHook().storage
    assert str(refused.value) == (
        "no storage root is named; set `root` in streams.yaml, $HEADGATE_ROOT, or a connection's conn_id"
    )


def test_a_connection_is_tested_by_writing_to_its_root(fleet: SmallFleet) -> None:
    fleet.deploy("counts")
    well = connection(extra=json.dumps({"root": fleet.root})).test_connection()
    assert well == (True, f"{fleet.root} can be read and written; 1 streams are deployed there")
    passed, said = connection(host=f"{fleet.file}/below-a-file").test_connection()
    assert not passed
    assert "is not there" in said
    (fleet.folder / "new").mkdir()
    new = connection(host=f"{fleet.folder}/new").test_connection()
    assert new[0]
    assert "can be read and written; " in new[1]
    assert "is no storage root of Headgate" in new[1]


@pytest.mark.usefixtures("airflow_home")
def test_tasks_and_triggers_go_through_a_connection(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.deploy("counts")
    monkeypatch.setenv("HEADGATE_STREAMS_FILE", str(fleet.folder / "no-such-file.yaml"))
    monkeypatch.setenv("AIRFLOW_CONN_SOMEWHERE", json.dumps({"conn_type": "headgate", "extra": {"root": fleet.root}}))
    run = run_dag(load_dag(OWN / "waiting.py", "through_a_connection"))
    assert run.state == "success"
    assert run.returned("savepoint", 0)["stream"] == "counts"
