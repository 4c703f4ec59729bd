"""What each verb of the command line prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate_contract.heartbeats import Progress, StreamState
from headgate_contract.history import Event, record_event
from headgate_contract.root_store import make_root, open_root
from headgate_control.processes import wait_gone
from tests.control.command_line import Cli
from tests.control.test_error_table import damaged, failed, fleet, named_savepoint, running
from tests.control.world import STREAM, World, until
from tests.house_rules import REPO


def test_errors_are_json_too_if_asked_for(cli: Cli) -> None:
    for arguments in (["--json", "start", "orders"], ["start", "orders", "--json"]):
        result = cli(*arguments)
        said = json.loads(result.err)
        assert (said["error"], said["exit_code"], result.code, result.out) == ("StreamUnknown", 3, 3, "")


def test_what_typer_refuses_is_bad_input_too(cli: Cli) -> None:
    assert cli("start").code == 2
    assert cli("start", "orders", "--fresj").code == 2
    assert cli("stop", "orders", "--drained").code == 2
    assert cli("nosuchverb").code == 2


def test_a_root_may_come_before_or_after_the_verb(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    other.deployed()
    assert "orders" in cli("--root", str(other.root), "status").out
    assert "orders" in cli("status", "--root", str(other.root)).out
    assert "no stream is deployed" in cli("status").out


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


def test_what_stands_between_colons_is_printed_as_it_is(world: World, cli: Cli) -> None:
    failed(world)
    world.beat(StreamState.FAILED, cause="a:b:c and :smile: at 10:cat:30")
    assert "a:b:c and :smile: at 10:cat:30" in cli("status", "orders").out


def test_a_job_and_a_fleet_file_are_not_both_taken(world: World, cli: Cli) -> None:
    fleet(world)
    result = cli("deploy", "orders", "job.py", "--fleet", "streams.yaml")
    assert (result.code, "leave one of the two out" in result.all) == (2, True)
    assert len(world.catalogue().decisions) == 1


def test_every_verb_finds_the_root_that_the_fleet_file_names(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world)
    make_root(open_root(str(world.folder / "elsewhere")), by="anna", at_ms=1)
    streams = {"orders": {"job": "job.py", "root": str(world.root)}, "other": {"job": "job.py"}}
    (world.folder / "streams.yaml").write_text(json.dumps({"streams": streams}))
    monkeypatch.setenv("HEADGATE_FLEET", str(world.folder / "streams.yaml"))
    monkeypatch.setenv("HEADGATE_ROOT", str(world.folder / "elsewhere"))
    for verb in ("status", "history", "explain", "snapshots"):
        assert cli(verb, "orders").code == 0, verb
    assert cli("status", "other").code == 3
    assert cli("status", "--json").json == [], "the file names more than one root"
    del streams["other"]
    (world.folder / "streams.yaml").write_text(json.dumps({"streams": streams}))
    assert [one["stream"] for one in cli("status", "--json").json] == ["orders"]


def test_the_first_deploy_says_that_it_makes_the_root(world: World, cli: Cli) -> None:
    """In an empty folder that a dropped mount has left, that is what one has to see."""
    shutil.rmtree(world.root)
    assert cli("status").code == 6
    first = cli("deploy", "orders", "job.py")
    assert f"warning: {world.store.url} was no storage root: it is one now" in first.err
    assert "root" not in cli("deploy", "orders", "job.py").err


def test_status_of_all_and_of_one(world: World, cli: Cli) -> None:
    running(world)
    world.snapshot()
    table = cli("status").out
    assert re.search(r"orders +running +1 .*checkpoint 1", table)
    assert [one["condition"] for one in cli("status", "--json").json] == ["running"]
    detail = cli("status", "orders").out
    assert "condition:   running: generation 1 is running" in detail
    assert "subtasks:    2\n" in detail
    assert cli("status", "orders", "--json").json["parallelism"] == 2
    assert cli("status", "orders", "--json").json["newest_snapshot"]["id"] == 1


def test_a_cause_of_many_lines_takes_one_in_the_table(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="[UNRESOLVED_COLUMN] no column `price`. SQLSTATE: 42703;\n'Project\n+- Scan")
    table = cli("status").out.splitlines()
    assert len(table) == 2, table
    assert table[1].rstrip().endswith("SQLSTATE: 42703; ...")
    assert "'Project" not in cli("status", "orders").out
    assert "+- Scan" in cli("status", "orders", "--json").json["cause"]


def test_one_of_something_is_not_told_in_the_plural(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.RUNNING, progress=Progress(batches=1, records=2, checkpoints=1))
    told = cli("status", "orders").out
    assert "progress:    1 batch, 2 records (0 replayed), 1 checkpoint (0 failed)\n" in told


def test_the_list_of_verbs_tells_each_whole(cli: Cli) -> None:
    told = cli("--help").out
    assert "..." not in told.partition("Commands:")[2], told


def test_what_has_no_log_or_nothing_to_stop_says_what_there_is(world: World, cli: Cli) -> None:
    world.deployed()
    assert cli("stop", "orders").all.endswith("deployed and was never started → there is nothing to stop")
    assert cli("logs", "orders").all == "headgate: stream orders has no log: it was never started"
    world.started()
    assert cli("logs", "orders", "-g", "9").all == "headgate: stream orders has no generation 9 → its newest is 1"


def test_a_path_that_can_be_no_snapshot_is_named(world: World, cli: Cli) -> None:
    running(world)
    assert "/etc' is no snapshot's folder" in cli("explain", "orders", "--from", "/etc").all


def test_a_savepoint_is_called_as_elsewhere(world: World, cli: Cli) -> None:
    world.deployed()
    world.control().start(STREAM)
    assert cli("savepoint", "orders", "--name", "before").out == "stream orders: savepoint before (1) is complete\n"


def test_status_tells_how_full_channels_are(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    filled = {"channel left->join": 3.0, "channel right->join": 0.0, "checkpoint_ms": 5.0}
    world.beat(StreamState.RUNNING, progress=Progress(extra=filled))
    assert "channels:    3 in left->join, 0 in right->join (micro-batches)\n" in cli("status", "orders").out


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
    asked = cli("explain", "orders")
    assert asked.code == 5, "its exit code tells a refusal, as that of a start would"
    assert cli("explain", "orders", "--json").code == 5
    assert cli("explain", "orders", "--fall-back").code == 0
    text = asked.out
    assert "would refuse to start" in text
    assert "checkpoint 1: good" in text
    plain = cli("explain", "orders", "--json").json
    assert plain["decision"]["type"] == "refuse"
    assert plain["decision"]["rejected"][0]["snapshot"]["id"] == 2
    assert cli("explain", "orders", "--fall-back", "--json").json["decision"]["snapshot"]["id"] == 1
    assert cli("explain", "orders", "--from", "1", "--json").json["decision"]["snapshot"]["id"] == 1
    assert cli("explain", "orders", "--fresh", "--json").json["decision"]["type"] == "start-fresh"
    assert cli("explain", "orders", "--fresh", "--from", "1").code == 2


def test_checkpoints_that_follow_one_another_are_one_line_of_history(world: World, cli: Cli) -> None:
    world.deployed()
    whats = ["start", "checkpoint", "checkpoint", "checkpoint", "savepoint", "checkpoint", "checkpoint"]
    for number, what in enumerate(whats):
        generation = 1 if number < 6 else 2
        event = Event(
            at_ms=number * 1000,
            what=what,
            outcome="EXECUTED",
            by="driver",
            generation=generation,
            text=f"{what} {number}",
        )
        record_event(world.store, STREAM, event)
    lines = cli("history", "orders").out.splitlines()
    assert len(lines) == 5, lines
    assert lines[1].endswith("3 checkpoints until 1970-01-01 00:00:03 UTC, the last one: checkpoint 3")
    assert len(cli("history", "orders", "--all").out.splitlines()) == 7
    assert len(cli("history", "orders", "--json").json) == 7


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
    assert "savepoint nightly (2) is complete" in cli("savepoint", "orders", "--name", "nightly").out
    assert "generation 2 is running" in cli("restore", "orders", "--from", "nightly").out
    stopped = cli("stop", "orders", "--drain", "--name", "final", "--json")
    assert stopped.json["request"]["args"] == {"savepoint": "final", "drain": True}
    assert stopped.json["answer"]["result"]["name"] == "final"
    assert "nothing to do" in cli("stop", "orders").out
    history = cli("history", "orders").out
    assert "start EXECUTED g1 by anna" in history
    assert "stop EXECUTED g2" in history
    assert "warning: savepoint final (4) is of a drained stream" in cli("explain", "orders").out
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
        wait_gone(launched.process, 60)
        until(lambda: world.control().status(STREAM).generation == 2)
        until(lambda: world.control().status(STREAM).condition.value in ("running", "failed"))
        supervisor.send_signal(signal.SIGTERM)
        reader.join(60)
        assert supervisor.wait(60) == 0
    assert [one["what"] for one in said][:2] == ["lost", "recovered"]
