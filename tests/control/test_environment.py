"""What a driver's environment holds and what it does not."""

from __future__ import annotations

import os
import sys

import pytest

from headgate_contract.errors import BadConfiguration
from headgate_control.environment import (
    OPTIONS,
    environment_of_drivers,
    is_withheld,
    options_of,
    python_path,
    without_secrets,
)


@pytest.mark.parametrize(
    "name",
    [
        "AIRFLOW__CORE__FERNET_KEY",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW_CONN_WAREHOUSE",
        "AIRFLOW_VAR_LIMIT",
        "_AIRFLOW_WWW_USER_PASSWORD",
        "POSTGRES_PASSWORD",
        "MYSQL_PWD",
        "client_secret",
        "GITHUB_TOKEN",
        "SOME_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_CONNECTION_STRING",
        "S3_ACCESS_KEY",
        "MINIO_ACCESS_KEY_ID",
        "ENCRYPTION_KEY",
        "SENTRY_DSN",
    ],
)
def test_airflows_settings_and_secrets_are_withheld(name: str) -> None:
    assert is_withheld(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "PWD", "JAVA_HOME", "SPARK_HOME", "LANG", "HEADGATE_ROOT_OPTIONS", "HEADGATE_CI_RUN", "KEYBOARD"],
)
def test_what_is_no_secret_is_kept(name: str) -> None:
    assert not is_withheld(name)


@pytest.mark.parametrize(
    ("value", "withheld"),
    [
        ("postgresql+psycopg2://airflow:s3cret@db/airflow", True),
        ("redis://:s3cret@broker:6379/0", True),
        ("see amqp://user:pw@broker// for more", True),
        ("postgresql://db:5432/airflow", False),
        ("http://user@proxy:3128", False),
        ("http://host:80/a@b", False),
    ],
)
def test_a_url_with_a_password_is_withheld_whatever_it_is_called(value: str, withheld: bool) -> None:
    assert ("DATABASE_URL" not in without_secrets({"DATABASE_URL": value})) == withheld
    passed = {"DATABASE_URL": value, "HEADGATE_PASS_ENV": "DATABASE_URL"}
    assert without_secrets(passed) == passed


def test_the_keys_to_an_s3_root_are_kept() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    assert without_secrets(environ) == environ


def test_a_secret_that_is_let_through_by_name_is_kept() -> None:
    environ = {"KAFKA_PASSWORD": "a", "OTHER_PASSWORD": "b", "HEADGATE_PASS_ENV": "KAFKA_PASSWORD, X"}
    assert set(without_secrets(environ)) == {"KAFKA_PASSWORD", "HEADGATE_PASS_ENV"}


def test_headgates_packages_come_first_on_the_path_and_each_folder_once() -> None:
    assert python_path(["/p", "/s"], "/x:/p::/y") == "/p:/s:/x:/y"
    assert python_path(["/p"], "lib:.") == f"/p:{os.getcwd()}/lib:{os.getcwd()}", "the driver works elsewhere"


def test_a_driver_runs_sparks_workers_on_the_same_python_and_finds_the_contract() -> None:
    environment = environment_of_drivers({"PATH": "/bin", "DB_PASSWORD": "x"}, {"HEADGATE_ROOT_OPTIONS": "{}"})
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"].split(":")[0].endswith("/plugins")
    assert environment["PYTHONPATH"].split(":")[1].endswith("/spark_jobs")
    assert environment["HEADGATE_ROOT_OPTIONS"] == "{}"
    assert "DB_PASSWORD" not in environment


def test_the_roots_options_are_a_json_object() -> None:
    assert options_of({}) == {}
    assert options_of({OPTIONS: '{"key": "a"}'}) == {"key": "a"}
    for wrong in ("{", "[1]"):
        with pytest.raises(BadConfiguration, match="JSON"):
            options_of({OPTIONS: wrong})
