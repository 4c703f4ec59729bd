"""docker-compose.yaml agrees with the lock, with our folders and with Airflow's own settings, and holds no secret."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate_control.fleet_reading import load_fleet
from tests.house_rules import REPO

COMPOSE: dict[str, Any] = yaml.safe_load((REPO / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AIRFLOW_SERVICES = ["airflow-init", "api-server", "scheduler", "dag-processor", "triggerer"]
CODE = ["plugins", "dags", "spark_jobs"]


def locked(name: str) -> str:
    match = re.search(rf"^{name}==(\S+)", (REPO / "requirements.txt").read_text(), re.MULTILINE)
    assert match, f"{name} is not locked"
    return match[1]


def environment(service: str) -> dict[str, str]:
    found: dict[str, str] = SERVICES[service]["environment"]
    return found


def mounts(service: str) -> dict[str, str]:
    """Where each volume or folder of this repository appears in the container."""
    return dict(volume.split(":")[:2] for volume in SERVICES[service]["volumes"])


def test_airflow_has_its_four_components_a_database_and_a_one_off_init() -> None:
    assert set(SERVICES) == {"postgres", *AIRFLOW_SERVICES}
    commands = {name: SERVICES[name]["command"] for name in AIRFLOW_SERVICES if name != "airflow-init"}
    assert commands == {name: name for name in commands}
    assert "airflow db migrate" in SERVICES["airflow-init"]["command"][0]
    assert SERVICES["airflow-init"]["restart"] == "no"


def test_versions_are_those_of_the_lock() -> None:
    airflow = locked("apache-airflow")
    dockerfile = (REPO / "docker" / "Dockerfile").read_text()
    assert f"FROM apache/airflow:{airflow}-python3.11" in dockerfile
    assert "COPY requirements.txt" in dockerfile
    assert "--require-hashes" in dockerfile
    for service in AIRFLOW_SERVICES:
        assert SERVICES[service]["image"] == f"headgate-airflow:{airflow}"
        assert SERVICES[service]["build"] == {"context": ".", "dockerfile": "docker/Dockerfile"}
    assert re.fullmatch(r"postgres:\d+\.\d+", SERVICES["postgres"]["image"])


@pytest.mark.parametrize("service", AIRFLOW_SERVICES)
def test_our_folders_are_mounted_where_airflow_and_python_look(service: str) -> None:
    inside = mounts(service)
    for folder in CODE:
        assert (REPO / folder).is_dir()
        assert inside[f"./{folder}"] == f"/opt/headgate/{folder}"
        assert f"./{folder}:/opt/headgate/{folder}:ro" in SERVICES[service]["volumes"]
    settings = environment(service)
    assert settings["AIRFLOW__CORE__PLUGINS_FOLDER"] == inside["./plugins"]
    assert settings["AIRFLOW__CORE__DAGS_FOLDER"] == inside["./dags"]
    assert settings["PYTHONPATH"].split(":") == [inside["./plugins"], inside["./spark_jobs"]]


@pytest.mark.parametrize("service", AIRFLOW_SERVICES)
def test_the_root_working_state_and_output_are_on_a_volume_that_our_user_may_write(service: str) -> None:
    state = mounts(service)["headgate-state"]
    assert f"headgate-state:{state}" in SERVICES[service]["volumes"], "not read-only"
    for name in ("HEADGATE_ROOT", "HEADGATE_WORK", "WORDS_OUT"):
        assert Path(environment(service)[name]).parent == Path(state)
    assert re.search(rf"chown \S+ .*{state}\b", SERVICES["airflow-init"]["command"][0])


def test_the_shipped_fleet_has_its_job_and_its_working_directory_in_the_container() -> None:
    inside = mounts("scheduler")
    container = {REPO / source: Path(target) for source, target in inside.items() if source.startswith("./")}
    for declared in load_fleet(REPO / "dags" / "streams.yaml").streams.values():
        [folder] = [folder for folder in container if declared.job.is_relative_to(folder)]
        assert declared.job.is_file()
        from_dags = Path(os.path.relpath(declared.directory, REPO / "dags"))
        working = Path(os.path.normpath(container[REPO / "dags"] / from_dags))
        assert working in {target.parent for target in container.values()}, "a folder that the mounts make"
        from_dags = Path(os.path.relpath(declared.job, REPO / "dags"))
        assert Path(os.path.normpath(container[REPO / "dags"] / from_dags)).is_relative_to(container[folder])


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_named_volumes_are_declared(service: str) -> None:
    named = {source for source in mounts(service) if not source.startswith(".")}
    assert named
    assert named <= set(COMPOSE["volumes"])


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_secrets_come_from_the_environment_and_their_absence_is_said(service: str) -> None:
    secret = re.compile(r"PASSWORD$|SECRET|FERNET|CONN$")
    values = {name: value for name, value in environment(service).items() if secret.search(name)}
    assert values
    for name, value in values.items():
        assert re.search(r"\$\{[A-Z_]+:\?[^}]+\}", value), f"{name} of {service} stands in clear: {value}"


def run_env_script(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, REPO / "scripts" / "compose_env.py", file], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("begun", [False, True])
def test_the_env_script_writes_every_variable_that_is_asked_for_to_where_only_its_owner_reads(
    tmp_path: Path, begun: bool
) -> None:
    file = tmp_path / ".env"
    before = os.umask(0)
    try:
        if begun:
            file.touch()  # as the shell does for `> .env`
        ran = run_env_script(file)
    finally:
        os.umask(before)
    assert (ran.returncode, ran.stdout) == (0, "")
    written = dict(line.split("=", 1) for line in file.read_text().splitlines())
    asked_for = set(re.findall(r"\$\{([A-Z_]+):\?", (REPO / "docker-compose.yaml").read_text()))
    assert asked_for <= set(written)
    assert all(written.values())
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    kept = file.read_text()
    assert run_env_script(file).returncode == 1, "what the database was made with stays"
    assert file.read_text() == kept


def test_the_passwords_of_airflows_users_are_where_no_driver_is() -> None:
    """Drivers are processes of the scheduler's container and of its user."""
    file = Path(environment("api-server")["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    with_it = {name for name in AIRFLOW_SERVICES if str(file.parent) in mounts(name).values()}
    assert with_it == {"api-server", "airflow-init"}, "the one reads and writes it, the other gives its folder away"
    [volume] = [source for source, inside in mounts("api-server").items() if inside == str(file.parent)]
    assert volume in COMPOSE["volumes"]
    others = set(AIRFLOW_SERVICES) - with_it
    assert not [name for name in others for inside in mounts(name).values() if file.is_relative_to(inside)]
    init = SERVICES["airflow-init"]["command"][0]
    assert re.search(rf"chmod 0700 .*{file.parent}\b", init)
    assert re.search(rf"chown \S+ .*{file.parent}\b", init)


@pytest.mark.parametrize("service", ["airflow-init", "api-server"])
def test_what_has_volumes_of_its_own_has_those_of_all_too(service: str) -> None:
    assert set(mounts("scheduler").items()) < set(mounts(service).items())


def test_every_airflow_setting_is_one_that_this_airflow_has() -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    text = (Path(spec.origin).parent / "config_templates" / "config.yml").read_text()
    known = {
        f"AIRFLOW__{section.upper()}__{option.upper()}"
        for section, content in yaml.load(text, Loader=yaml.CSafeLoader).items()
        for option in content["options"]
    }
    used = {name for service in AIRFLOW_SERVICES for name in environment(service) if name.startswith("AIRFLOW__")}
    assert len(used) > 5
    assert used <= known
