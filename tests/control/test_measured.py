"""Costs from the history: tables, their spread, and what the next restore will take."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headgate_contract.heartbeats import Progress, read_heartbeat, write_heartbeat
from headgate_contract.history import Event, record_event
from headgate_contract.ids import CheckpointId, Generation, SavepointName, VertexUid
from headgate_contract.measures import CheckpointCost, Measures, RecoveryKind, RecoveryTime
from headgate_contract.paths import StreamPaths
from headgate_contract.records import Restarted
from headgate_contract.snapshot import SnapshotKind, StateHandle, SubtaskState, VertexState
from headgate_contract.wire import sha256
from headgate_control.explained import as_text
from headgate_control.measured import Spread, recoveries_of
from headgate_control.telling import size, took
from tests.control.command_line import Cli
from tests.control.world import STREAM, World


def tell(world: World, at_ms: int, what: str, measures: Measures | None, outcome: str = "EXECUTED") -> None:
    text = "checkpoint 9 was given up: it expired" if outcome == "FAILED" else "done"
    event = Event(at_ms=at_ms, what=what, outcome=outcome, by="driver", generation=1, text=text, measures=measures)
    record_event(world.store, STREAM, event)


def cost(number: int, persist_ms: float, **more: object) -> CheckpointCost:
    given = {"kind": SnapshotKind.CHECKPOINT, "uploaded_bytes": 2048, "full_bytes": 1 << 20, **more}
    return CheckpointCost(
        checkpoint=CheckpointId(number),
        due_ms=1_700_000_000_000,
        barrier_ms=40.0,
        snapshot_ms=0.5,
        persist_ms=persist_ms,
        coordination_ms=9.5,
        **given,  # type: ignore[arg-type]
    )


def way(kind: RecoveryKind, redeploy_ms: float, load_ms: float, loaded: int) -> RecoveryTime:
    return RecoveryTime(
        kind=kind,
        generation=Generation(1),
        snapshot=CheckpointId(3) if loaded else None,
        detect_ms=20_000.0 if kind is RecoveryKind.RECOVERY else None,
        redeploy_ms=redeploy_ms,
        load_state_ms=load_ms,
        reset_source_ms=100.0,
        reset_sink_ms=50.0,
        loaded_bytes=loaded,
    )


def with_state(world: World, content: bytes) -> None:
    """A snapshot of which two subtasks share a file."""
    path = StreamPaths(STREAM).shared_file("state")
    world.store.create(path, content)
    handle = StateHandle("state", path, len(content), sha256(content))
    subtasks = tuple(SubtaskState(number, number, number, {}, (handle,)) for number in range(2))
    world.snapshot(vertices={VertexUid("counts"): VertexState("counts", 2, "hashmap", (), subtasks)})


@pytest.fixture
def measured(world: World) -> World:
    """A savepoint, two checkpoints and one that failed."""
    world.deployed()
    world.started()
    tell(world, 1, "savepoint", cost(1, 200.0, kind=SnapshotKind.SAVEPOINT, name=SavepointName("weekly")))
    tell(world, 2, "checkpoint", cost(2, 20.0))
    tell(world, 3, "checkpoint", None)
    tell(world, 4, "checkpoint", cost(9, 600.0, full_bytes=None), "FAILED")
    tell(world, 5, "checkpoint", cost(10, 30.0))
    return world


def test_checkpoints_are_listed_newest_first_and_the_spread_is_of_those_that_completed(measured: World) -> None:
    found = measured.control().checkpoints(STREAM)
    assert [row.cost.checkpoint for row in found.checkpoints] == [10, 9, 2, 1]
    assert [row.status for row in found.checkpoints] == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
    assert found.checkpoints[1].cause == "checkpoint 9 was given up: it expired"
    assert found.checkpoints[0].duration_ms == 80.0
    assert found.summary["persist_ms"] == Spread(median=30.0, p95=200.0, max=200.0)
    newest = measured.control().checkpoints(STREAM, limit=1)
    assert [row.cost.checkpoint for row in newest.checkpoints] == [10]
    assert newest.summary["persist_ms"].max == 30.0


def test_the_table_of_checkpoints_has_the_terms_the_causes_and_the_spread(measured: World, cli: Cli) -> None:
    lines = cli("checkpoints", "orders").out.splitlines()
    assert re.split(r"  +", lines[0].strip()) == [
        *("id", "kind", "status", "due", "duration", "barrier", "snapshot", "persist", "coordination", "uploaded"),
        *("full size", "files", "gen", "cause"),
    ]
    assert re.match(r"10 +checkpoint +COMPLETED +2023-.* UTC +80 ms +40 ms +0.5 ms +30 ms +9.5 ms +2.0 kb", lines[1])
    assert re.search(r"FAILED .* - +0 +1 +checkpoint 9 was given up: it expired", lines[2])
    assert "savepoint weekly" in lines[4]
    assert [line.split()[0] for line in lines[5:]] == ["median", "p95", "max"]
    plain = cli("checkpoints", "orders", "--json", "-n", "2").json
    assert [row["cost"]["persist_ms"] for row in plain["checkpoints"]] == [30.0, 600.0]
    assert plain["summary"]["persist_ms"] == {"median": 30.0, "p95": 30.0, "max": 30.0}


def test_recoveries_are_listed_with_their_terms_and_the_spread(world: World, cli: Cli) -> None:
    world.deployed()
    assert "no recovery of orders was measured yet" in cli("recoveries", "orders").out
    assert "no checkpoint of orders was measured yet" in cli("checkpoints", "orders").out
    tell(world, 1, "start", way(RecoveryKind.START, 8000.0, 0.0, 0))
    tell(world, 2, "start", None)
    tell(world, 3, "start", way(RecoveryKind.RECOVERY, 9000.0, 700.0, 1 << 20))
    lines = cli("recoveries", "orders").out.splitlines()
    assert re.search(r"recovery +1 +3 +29.9 s +20.0 s +9.0 s +700 ms +100 ms +50 ms +1.0 mb", lines[1])
    assert re.search(r"start +1 +- +8.2 s +- +8.0 s", lines[2])
    assert re.match(r"median +19.0 s +20.0 s +8.5 s +350 ms", lines[3])
    assert [row["time"]["kind"] for row in cli("recoveries", "orders", "--json").json["recoveries"]] == [
        "recovery",
        "start",
    ]


def test_what_the_table_needs_is_found_by_name_and_nothing_else_is_read(measured: World) -> None:
    tell(measured, 6, "start", way(RecoveryKind.START, 1.0, 0.0, 0))
    for info in list(measured.store.list(StreamPaths(STREAM).history)):
        if "-start" not in info.path:
            (measured.root / info.path).write_bytes(b"torn")
    assert len(recoveries_of(measured.store, STREAM, 5).recoveries) == 1
    assert measured.control().checkpoints(STREAM).checkpoints == ()


def test_explain_predicts_from_what_was_measured_and_says_so_when_nothing_was(world: World) -> None:
    world.deployed()
    world.started()
    with_state(world, b"0123456789")
    explanation = world.control().explain(STREAM)
    assert explanation.prediction is None
    assert "how long it would take: no start was measured yet that tells" in as_text(explanation)
    assert explanation.state_bytes == 10, "each file counts once"

    tell(world, 1, "start", way(RecoveryKind.START, 8000.0, 0.0, 0))
    assert world.control().explain(STREAM).prediction is None, "nobody knows how long state takes"
    tell(world, 2, "start", way(RecoveryKind.RECOVERY, 9000.0, 1000.0, 100))
    tell(world, 3, "start", way(RecoveryKind.RECOVERY, 9500.0, 2000.0, 200))
    tell(world, 4, "restart", way(RecoveryKind.RESTART, 1.0, 3000.0, 300))
    explanation = world.control().explain(STREAM)
    predicted = explanation.prediction
    assert predicted is not None
    assert (predicted.redeploy_ms, predicted.load_state_ms) == (9000.0, 100.0), "a restart starts no process"
    assert predicted.expected_ms == 9250.0
    assert predicted.rests_on == 4
    assert "would take about 9.2 s from its claim to running" in as_text(explanation)
    assert "which rests on 3 launches and 1 restart in a driver" in as_text(explanation)


def test_restarts_in_the_driver_hide_no_launch_before_them(world: World) -> None:
    world.deployed()
    world.started()
    for number in range(30):
        tell(world, number, "start", way(RecoveryKind.START, 8000.0 + number, 0.0, 0))
    for number in range(30, 60):
        tell(world, number, "restart", way(RecoveryKind.RESTART, 1.0, 1000.0, 100))
    predicted = world.control().explain(STREAM, fresh=True).prediction
    assert predicted is not None
    assert predicted.redeploy_ms == 8019.5, "the median of the newest 20 launches"
    assert (predicted.rests_on, predicted.launches) == (40, 20)


def test_a_start_without_state_loads_none(world: World) -> None:
    world.deployed()
    world.started()
    tell(world, 1, "start", way(RecoveryKind.START, 8000.0, 0.0, 0))
    predicted = world.control().explain(STREAM, fresh=True).prediction
    assert predicted is not None
    assert (predicted.load_state_ms, predicted.expected_ms) == (0.0, 8150.0)


def test_status_tells_of_the_last_checkpoint(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    world.beat()
    assert "the last one took" not in cli("status", "orders").out
    seen = read_heartbeat(world.store, STREAM, Generation(1))
    assert seen is not None
    assert seen.heartbeat is not None
    progress = Progress(checkpoints=3, extra={"checkpoint_ms": 51.4, "checkpoint_bytes": 4096.0})
    write_heartbeat(world.store, replace(seen.heartbeat, progress=progress))
    assert "3 checkpoints (0 failed); the last one took 51 ms and uploaded 4.0 kb" in cli("status", "orders").out


def test_status_tells_how_often_a_driver_has_gone_on_after_a_failure_and_why(world: World, cli: Cli) -> None:
    world.deployed()
    world.started()
    world.beat()
    assert "restarted:" not in cli("status", "orders").out
    for number, cause in ((1, "a worker died"), (2, "the disk is full")):
        world.slot(Restarted(generation=Generation(1), restart=number, cause=cause, snapshot=None, at_ms=number))
    assert "restarted:   2 times; the last time: the disk is full" in cli("status", "orders").out
    assert '"last_failure": "the disk is full"' in cli("status", "orders", "--json").out


def test_spreads_times_and_sizes_are_told_as_people_read_them() -> None:
    assert Spread.of([]) is None
    assert Spread.of(range(1, 101)) == Spread(median=50.5, p95=95, max=100)
    assert [took(ms) for ms in (None, 0.25, 51.4, 1500.0, 180_000.0)] == ["-", "0.2 ms", "51 ms", "1.5 s", "3.0 min"]
    told = [size(length) for length in (None, 12, 2048, 3 << 20, 5 << 40)]
    assert told == ["-", "12 b", "2.0 kb", "3.0 mb", "5.0 tb"]
