"""The command line: the table of errors in docs/operations.md line by line, and what each verb prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation
from headgate_contract.paths import METADATA, StreamPaths
from headgate_control.cli import app
from headgate_control.cli.session import Session
from headgate_control.deploy import Programs
from headgate_control.processes import wait_gone
from tests.control.world import STANDIN, STREAM, World, until
from tests.house_rules import REPO

SLOT_1 = "streams/orders/slots/00000001.json"


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Everything that was said, in one line, with the arrow of a hint as the table writes it."""
        return " ".join((self.err + self.out).replace("\n  -> ", " → ").split())

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture
def cli(world: World, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command line in this process, with the world's root as $HEADGATE_ROOT."""
    monkeypatch.chdir(world.folder)
    monkeypatch.setenv("HEADGATE_ROOT", str(world.root))

    def run(*arguments: str, programs: Programs | None = STANDIN) -> Result:
        result = CliRunner().invoke(app, list(arguments), obj=Session(programs=programs))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    return run


# -- the table of errors


@dataclass(frozen=True)
class Row:
    when: str
    typed: str
    read: str
    code: int


def rows() -> list[Row]:
    """The last table of docs/operations.md's section on errors."""
    text = (REPO / "docs" / "operations.md").read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    table = text.partition("| When |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table if line.startswith("|")]
    return [Row(when, typed.strip("`"), read, int(code)) for when, typed, read, code in cells]


def nothing(world: World) -> None:
    """The root is empty."""


def deployed(world: World) -> None:
    world.deployed()


def running(world: World) -> None:
    world.deployed()
    world.started()
    world.beat()


def failed(world: World) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="SinkFailed: disk full", age_s=5)


def named_savepoint(world: World) -> None:
    running(world)
    world.snapshot("nightly")


def one_snapshot(world: World) -> None:
    world.deployed()
    world.started()
    world.snapshot()
    world.stopped()


def two_snapshots(world: World) -> None:
    world.deployed()
    world.started()
    for _ in range(2):
        world.snapshot()
    world.stopped()


def damaged(world: World) -> None:
    two_snapshots(world)
    world.damage_metadata(world.catalogue().snapshots[0])


def state_file_gone(world: World) -> None:
    two_snapshots(world)
    world.state_file(world.catalogue().snapshots[0]).unlink()


def foreign_metadata(world: World) -> None:
    two_snapshots(world)
    newest, older = world.catalogue().snapshots
    (world.root / newest.folder / METADATA).write_bytes((world.root / older.folder / METADATA).read_bytes())


def duplicating_sink(world: World) -> None:
    world.sinks = {"console": "duplicates"}
    two_snapshots(world)


def unwritable_root(world: World) -> None:
    world.root.parent.mkdir(exist_ok=True)
    world.root.write_text("a file where the root should be")


def settings_twice(world: World) -> None:
    (world.folder / "twice.yaml").write_text("heartbeat.interval: 1 s\nheartbeat.interval: 2 s\n")


def broken_job(world: World) -> None:
    (world.folder / "broken.py").write_text("import nosuchmodule\n")


SOURCE = "lines = job.source('lines', headgate.sources.files('in/', format='text'))\n"
SINK = ".sink('out', headgate.sinks.files('out/', format='parquet'))\n"
INVALID = {
    "nosource.py": "",
    "nosink.py": SOURCE,
    "twice.py": SOURCE + "lines.transform(lambda df: df, uid='lines')" + SINK,
    "nokey.py": SOURCE + "lines.key_by('word').aggregate('counts', n=headgate.count())" + SINK,
}


def invalid_jobs(world: World) -> None:
    for name, text in INVALID.items():
        (world.folder / name).write_text(f"import headgate\njob = headgate.Job('orders')\n{text}")


def wrong_fleet(world: World) -> None:
    (world.folder / "wrong.yaml").write_text("streams: {orders: {job: job.py, setting: {}}}\n")


def fleet(world: World) -> None:
    (world.folder / "streams.yaml").write_text(
        "streams: {orders: {job: job.py, settings: {heartbeat.interval: 1 s}}}\n"
    )
    world.deployed()


def edited_job(world: World) -> None:
    world.deployed()
    world.write_job("# edited\n")


def corrupt_slot(world: World) -> None:
    running(world)
    (world.root / SLOT_1).write_text("???")


def newer_slot(world: World) -> None:
    running(world)
    path = world.root / SLOT_1
    path.write_text(path.read_text().replace('"version":1', '"version":99'))


def corrupt_answer(world: World) -> None:
    running(world)
    path = world.root / StreamPaths(STREAM).answers / "now.json"
    path.parent.mkdir()
    path.write_text("{}")


def corrupt_heartbeat(world: World) -> None:
    running(world)
    (world.root / StreamPaths(STREAM).heartbeat(Generation(1))).write_text("\0")


def corrupt_event(world: World) -> None:
    world.deployed()
    path = world.root / StreamPaths(STREAM).history / "000000000000001-x.json"
    path.parent.mkdir()
    path.write_text("[]")


def dying_driver(world: World) -> None:
    world.write_job("MODE = 'exits'")
    world.deployed()


def failing_savepoints(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    world.control().start(STREAM)


def log_elsewhere(world: World) -> None:
    world.deployed()
    world.started(host="far-away")


WHEN: dict[str, Callable[[World], None]] = {
    "the root cannot be written": unwritable_root,
    "the settings file has a setting twice": settings_twice,
    "the job file does not import": broken_job,
    "a job has no source": invalid_jobs,
    "a job has no sink": invalid_jobs,
    "two vertices have one uid": invalid_jobs,
    "a key column is missing": invalid_jobs,
    "streams.yaml has a wrong key": wrong_fleet,
    "streams.yaml does not know the stream": fleet,
    "streams.yaml and what is deployed have drifted apart": fleet,
    "the stream was never deployed": deployed,
    "the job file was edited since it was deployed": edited_job,
    "the stream runs already": running,
    "the stream does not run": failed,
    "the stream was never started": deployed,
    "a savepoint's name is taken": named_savepoint,
    "a name for no savepoint": running,
    "a snapshot is not there": one_snapshot,
    "a snapshot's name cannot be one": one_snapshot,
    "the newest snapshot is damaged": damaged,
    "a state file of the newest snapshot is missing": state_file_gone,
    "a snapshot's metadata is another stream's": foreign_metadata,
    "a sink cannot take back what it published": duplicating_sink,
    "a slot cannot be read": corrupt_slot,
    "a slot cannot be read, but one only looks": corrupt_slot,
    "a slot was written by a newer Headgate": newer_slot,
    "an answer cannot be read": corrupt_answer,
    "a heartbeat cannot be read": corrupt_heartbeat,
    "an event of the history cannot be read": corrupt_event,
    "the driver dies while it starts": dying_driver,
    "the driver cannot do what was asked": failing_savepoints,
    "a log is on another host": log_elsewhere,
}
LAUNCHES = {"drifted apart", "dies while", "cannot do what"}
REALLY_CHECKED = {when for when, world_of in WHEN.items() if world_of is invalid_jobs}
"""Rows for which the runtime's own check of jobs is run; it starts Spark where it looks at columns."""


def marks(row: Row) -> list[pytest.MarkDecorator]:
    if "key column" in row.when:
        return [pytest.mark.spark]
    return [pytest.mark.e2e] if row.when in REALLY_CHECKED or any(part in row.when for part in LAUNCHES) else []


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.when, marks=marks(row)) for row in rows()],
)
def test_the_table_of_errors_holds(row: Row, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    WHEN.get(row.when, nothing)(world)
    if row.when == "no root is named":
        monkeypatch.delenv("HEADGATE_ROOT")
    result = cli(*shlex.split(row.typed)[1:], programs=None if row.when in REALLY_CHECKED else STANDIN)
    expected = ".*".join(re.escape(part) for part in row.read.split("…"))
    assert re.search(expected, result.all), f"\nread:     {result.all}\nexpected: {row.read}"
    assert result.code == row.code
    if row.code:
        assert result.out == "", "an error leaves standard output alone"
        assert result.err.startswith("headgate: ")


def test_every_situation_of_the_tests_stands_in_the_table() -> None:
    assert set(WHEN) <= {row.when for row in rows()}


def test_errors_are_json_too_if_asked_for(cli: Cli) -> None:
    for arguments in (["--json", "start", "orders"], ["start", "orders", "--json"]):
        result = cli(*arguments)
        said = json.loads(result.err)
        assert (said["error"], said["exit_code"], result.code, result.out) == ("StreamUnknown", 3, 3, "")


def test_what_typer_refuses_is_bad_input_too(cli: Cli) -> None:
    assert cli("start").code == 2
    assert cli("start", "orders", "--fresj").code == 2
    assert cli("stop", "orders", "--drain").code == 2
    assert cli("nosuchverb").code == 2


def test_a_root_may_come_before_or_after_the_verb(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    other.deployed()
    assert "orders" in cli("--root", str(other.root), "status").out
    assert "orders" in cli("status", "--root", str(other.root)).out
    assert "no stream is deployed" in cli("status").out


# -- what the verbs print


def test_deploy_takes_settings_from_a_file_and_from_the_line(world: World, cli: Cli) -> None:
    (world.folder / "settings.yaml").write_text("heartbeat: {interval: 1 s}\nparallelism.default: 3\n")
    result = cli(
        "deploy", "orders", "job.py", "--settings", "settings.yaml", "--set", "parallelism.default=4", "--json"
    )
    assert result.code == 0, result.all
    assert result.json["number"] == 1
    assert result.json["deployed"]["settings"] == {"heartbeat.interval": "1 s", "parallelism.default": "4"}
    assert result.json["deployed"]["directory"] == str(world.folder)


def test_deploy_takes_everything_from_the_fleet_file(world: World, cli: Cli) -> None:
    fleet(world)
    result = cli("deploy", "orders", "--fleet", "streams.yaml", "--json")
    assert result.json["deployed"]["settings"] == {"heartbeat.interval": "1 s"}
    assert cli("deploy", "orders").code == 2


def test_status_of_all_and_of_one(world: World, cli: Cli) -> None:
    running(world)
    world.snapshot()
    table = cli("status").out
    assert re.search(r"orders +running +1 .*checkpoint 1", table)
    assert [one["condition"] for one in cli("status", "--json").json] == ["running"]
    detail = cli("status", "orders").out
    assert "condition:   running: generation 1 is running" in detail
    assert cli("status", "orders", "--json").json["newest_snapshot"]["id"] == 1


def test_status_of_a_lost_stream_says_when_it_is_restarted(world: World, cli: Cli) -> None:
    failed(world)
    assert "restart:     attempt 1, due in 0.0 s" in cli("status", "orders").out
    assert cli("status", "orders", "--json").json["lost"]["restart"] == {
        "type": "restart-after",
        "attempt": 1,
        "delay_s": 0.0,
    }


def test_snapshots_are_listed(world: World, cli: Cli) -> None:
    assert cli("snapshots", "orders").code == 3
    named_savepoint(world)
    assert "nightly" in cli("snapshots", "orders").out
    assert [ref["name"] for ref in cli("snapshots", "orders", "--json").json] == ["nightly"]


def test_explain_for_people_and_for_programs(world: World, cli: Cli) -> None:
    damaged(world)
    text = cli("explain", "orders").out
    assert "would refuse to start" in text
    assert "checkpoint 1: good" in text
    plain = cli("explain", "orders", "--json").json
    assert plain["decision"]["type"] == "refuse"
    assert plain["decision"]["rejected"][0]["snapshot"]["id"] == 2
    assert cli("explain", "orders", "--fall-back", "--json").json["decision"]["snapshot"]["id"] == 1
    assert cli("explain", "orders", "--from", "1", "--json").json["decision"]["snapshot"]["id"] == 1
    assert cli("explain", "orders", "--fresh", "--json").json["decision"]["type"] == "start-fresh"
    assert cli("explain", "orders", "--fresh", "--from", "1").code == 2


def test_logs_are_shown(world: World, cli: Cli) -> None:
    world.deployed()
    log = Path(world.started().log)
    log.parent.mkdir()
    log.write_text("one [bracket]\ntwo\n")
    assert cli("logs", "orders").out == "one [bracket]\ntwo\n"
    assert cli("logs", "orders", "-n", "1", "--json").json["lines"] == ["two"]


@pytest.mark.e2e
def test_a_whole_life(world: World, cli: Cli) -> None:
    settings = [part for key, value in world.deployed().settings.items() for part in ("--set", f"{key}={value}")]
    assert cli("deploy", "orders", "job.py", *settings).code == 0
    started = cli("start", "orders", "--by", "anna")
    assert started.code == 0, started.all
    assert "generation 1 is running" in started.out
    assert "checkpoint 1 is complete" in cli("checkpoint", "orders").out
    assert "savepoint nightly 2 is complete" in cli("savepoint", "orders", "--name", "nightly").out
    assert "generation 2 is running" in cli("restore", "orders", "--from", "nightly").out
    stopped = cli("stop", "orders", "--savepoint", "--name", "final", "--json")
    assert stopped.json["answer"]["result"]["name"] == "final"
    assert "nothing to do" in cli("stop", "orders").out
    history = cli("history", "orders").out
    assert "start EXECUTED g1 by anna" in history
    assert "stop EXECUTED g2" in history
    assert cli("start", "orders", "--json").json["decision"]["snapshot"]["name"] == "final"
    assert "has stopped" in cli("cancel", "orders").out


SUPERVISOR = """
from headgate_control.cli import app
from headgate_control.cli.session import Session
from tests.control.world import STANDIN
app(obj=Session(programs=STANDIN))
"""


@pytest.mark.e2e
def test_supervise_recovers_what_is_lost_until_it_is_stopped(world: World) -> None:
    world.deployed()
    launched = world.control().start(STREAM)
    command = [
        sys.executable,
        "-c",
        SUPERVISOR,
        "--root",
        str(world.root),
        "supervise",
        "--interval",
        "100 ms",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'plugins'}:{REPO}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        said: list[dict[str, Any]] = []
        reader = threading.Thread(target=lambda out: said.extend(map(json.loads, out)), args=(supervisor.stdout,))
        reader.start()
        os.killpg(launched.process.pid, signal.SIGKILL)
        wait_gone(launched.process, 10)
        until(lambda: world.control().status(STREAM).generation == 2)
        until(lambda: world.control().status(STREAM).condition.value in ("running", "failed"))
        supervisor.send_signal(signal.SIGTERM)
        reader.join(20)
        assert supervisor.wait(20) == 0
    assert [one["what"] for one in said][:2] == ["lost", "recovered"]
