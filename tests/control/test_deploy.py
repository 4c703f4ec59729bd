"""Deploying: the job is checked in a subprocess with a limit, and recorded once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_contract import wire
from headgate_contract.durations import Duration
from headgate_contract.errors import (
    BadInput,
    Conflict,
    InvalidName,
    JobInvalid,
    NotARoot,
    StorageUnreachable,
    UnknownKey,
)
from headgate_contract.paths import ROOT
from headgate_contract.settings import Settings
from headgate_control import Control
from headgate_control.deploy import Checker, Programs, warnings_of
from headgate_control.environment import environment_of_drivers
from tests.control.world import QUICK, STANDIN, STREAM, World
from tests.house_rules import REPO


def deploy(world: World, **settings: str) -> None:
    world.control().deploy(STREAM, world.job, settings, directory=world.folder)


def test_what_was_deployed_is_recorded_with_its_plan(world: World) -> None:
    world.write_job("SINKS = {'console': 'duplicates'}")
    deployed = world.control().deploy(STREAM, world.job, QUICK, directory=world.folder)
    assert world.catalogue().deployed == deployed
    assert deployed.job_sha256 == wire.sha256(world.job.read_bytes())
    assert deployed.settings == Settings(QUICK).given
    assert deployed.plan["sinks"]["console"]["rollback"] == "duplicates"
    readable = json.loads((world.root / "streams/orders/stream.json").read_text())["body"]
    assert readable["deployed"]["job"] == str(world.job)


def test_deploying_the_same_again_records_nothing_new(world: World) -> None:
    deploy(world)
    deploy(world)
    assert len(world.catalogue().decisions) == 1
    deploy(world, **{"heartbeat.interval": "1 s"})
    world.write_job("# edited")
    deploy(world, **{"heartbeat.interval": "1 s"})
    assert [slot.number for slot in world.catalogue().decisions] == [1, 2, 3]


def test_warnings_are_kept_and_do_not_make_another_deployment(world: World) -> None:
    warn = "import pathlib\nWARNINGS = [] if pathlib.Path('in').exists() else ['the folder in/ does not exist yet']"
    world.write_job(warn)
    deployed = world.control().deploy(STREAM, world.job, {}, directory=world.folder)
    assert warnings_of(deployed) == ("the folder in/ does not exist yet",)
    (world.folder / "in").mkdir()
    deployed = world.control().deploy(STREAM, world.job, {}, directory=world.folder)
    assert warnings_of(deployed) == ()
    assert len(world.catalogue().decisions) == 1


@pytest.mark.e2e
def test_files_of_the_working_directory_are_not_taken_for_libraries(world: World) -> None:
    for library in ("argparse", "yaml", "queue", "typer"):
        (world.folder / f"{library}.py").write_text("raise RuntimeError('this is no library')")
    world.write_job("import neighbour, nosuchmodule")
    (world.folder / "neighbour.py").write_text("")
    with pytest.raises(JobInvalid, match="No module named 'nosuchmodule'"):
        Control.open(str(world.root)).deploy(STREAM, world.job, {}, directory=world.folder)
    environment = environment_of_drivers(os.environ, {})
    driver = [*Programs().driver, "--help"]
    assert subprocess.run(driver, cwd=world.folder, env=environment, capture_output=True, check=False).returncode == 0


def test_the_settings_are_on_no_command_line_which_everybody_can_read(world: World) -> None:
    world.write_job("import pathlib, sys\npathlib.Path('argv').write_text(' '.join(sys.argv))")
    deploy(world, **{"spark.hadoop.my.key": "a secret"})
    told = (world.folder / "argv").read_text()
    assert told.endswith("job.py --settings -")
    assert "secret" not in told


def test_nor_by_the_command_that_setup_writes(world: World, tmp_path: Path) -> None:
    (world.folder / "typer.py").write_text("raise RuntimeError('this is no library')")
    script = (REPO / "scripts" / "setup.sh").read_text().partition("<<'SH'\n")[2].partition("\nSH\n")[0]
    for name, text in {"headgate": script, "python": f'#!/bin/sh\nexec {sys.executable} "$@"'}.items():
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o755)
    command = [tmp_path / "headgate", "--help"]
    assert subprocess.run(command, cwd=world.folder, capture_output=True, check=False).returncode == 0


def test_a_first_deploy_that_fails_leaves_nothing_of_the_name(world: World) -> None:
    shutil.rmtree(world.root)
    world.write_job("import nosuchmodule")
    with pytest.raises(JobInvalid):
        deploy(world)
    assert world.store.list("") == []
    with pytest.raises(NotARoot):
        world.control().streams()
    world.write_job("")
    deploy(world)
    told = [(event.what, event.outcome) for event in world.control().history(STREAM)]
    assert told == [("deploy", "ISSUED"), ("deploy", "EXECUTED")]


def test_history_tells_of_it(world: World) -> None:
    deploy(world)
    world.write_job("import nosuchmodule")
    with pytest.raises(JobInvalid):
        deploy(world)
    told = [(event.what, event.outcome, event.by) for event in world.control().history(STREAM)]
    assert told == [
        ("deploy", "ISSUED", "anna"),
        ("deploy", "EXECUTED", "anna"),
        ("deploy", "ISSUED", "anna"),
        ("deploy", "FAILED", "anna"),
    ]


def test_a_job_that_does_not_import_shows_its_own_error(world: World) -> None:
    world.write_job("import nosuchmodule\n")
    with pytest.raises(JobInvalid, match=r"(?s)No module named 'nosuchmodule'.*job\.py\", line 1"):
        deploy(world)
    assert not world.catalogue().decisions


def test_a_check_that_never_ends_is_ended(world: World) -> None:
    world.write_job("CHECK = 'hangs'")
    checker = Checker(programs=STANDIN, environment=environment_of_drivers({}, {}), timeout=Duration(700))
    with pytest.raises(JobInvalid, match="was not checked within 700 ms"):
        checker.plan(world.job, Settings({}), world.folder)


def test_a_check_that_dies_says_how(world: World) -> None:
    world.write_job("import sys\nprint('OSError: no such jar', file=sys.stderr)\nCHECK = 'dies'")
    with pytest.raises(JobInvalid, match="exit code 7 and no verdict: OSError: no such jar"):
        deploy(world)


def test_a_wrong_setting_is_refused_before_the_job_is_run(world: World) -> None:
    world.write_job("raise SystemError('was run')")
    with pytest.raises(UnknownKey, match=r"did you mean 'heartbeat\.interval'"):
        deploy(world, **{"heartbeat.intervall": "1 s"})


def test_a_job_file_or_folder_that_is_not_there(world: World) -> None:
    with pytest.raises(BadInput, match=r"none\.py cannot be read"):
        world.control().deploy(STREAM, world.folder / "none.py", {})
    with pytest.raises(BadInput, match="is not a folder"):
        world.control().deploy(STREAM, world.job, {}, directory=world.folder / "none")


def test_a_name_that_paths_cannot_carry(world: World) -> None:
    with pytest.raises(InvalidName, match="or/ders"):
        world.control().deploy("or/ders", world.job, {})


def test_a_root_that_cannot_be_written_is_said_before_anything_else(world: World) -> None:
    world.write_job("raise SystemError('was run')")
    (world.folder / "file").write_text("")
    control = Control.open(str(world.folder / "file" / "root"), programs=STANDIN)
    with pytest.raises(StorageUnreachable, match="cannot be made"):
        control.deploy(STREAM, world.job, {})


def test_the_first_deploy_makes_the_root_and_nobody_else_does(world: World) -> None:
    shutil.rmtree(world.root)
    control = world.control()
    for verb in (
        control.streams,
        control.fleet,
        lambda: control.status(STREAM),
        lambda: control.start(STREAM),
        lambda: control.restore(STREAM),
        lambda: control.recover(STREAM),
        lambda: control.stop(STREAM),
        lambda: control.cancel(STREAM),
    ):
        with pytest.raises(NotARoot, match="is no storage root of Headgate"):
            verb()
    assert not world.root.exists()
    deploy(world)
    made = (world.root / ROOT).read_bytes()
    world.write_job("# another")
    deploy(world)
    assert (world.root / ROOT).read_bytes() == made
    assert control.streams() == [STREAM]


def test_streams_without_an_identity_are_deployed_on_only_if_a_person_says_so(world: World) -> None:
    deploy(world)
    (world.root / ROOT).unlink()
    with pytest.raises(NotARoot, match=r"holds streams and no headgate-root\.json.*--adopt-root"):
        deploy(world)
    world.control().deploy(STREAM, world.job, {}, directory=world.folder, adopt_root=True)
    assert world.control().status(STREAM).deployed == 1


def test_start_refuses_a_job_file_that_was_edited_since(world: World) -> None:
    deploy(world)
    world.write_job("# edited")
    with pytest.raises(Conflict, match="has changed since it was deployed; deploy it again"):
        world.control().start(STREAM)
    Path(world.job).unlink()
    with pytest.raises(BadInput, match=r"job\.py cannot be read"):
        world.control().start(STREAM)
    assert not world.catalogue().slots
