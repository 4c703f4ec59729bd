"""Sources that end, on real Spark: a driver is killed on the way there, and one comes back behind the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.coordinator.coordinator import INPUT_ENDED
from headgate_contract.heartbeats import StreamState
from headgate_contract.records import Stopped
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.graph_matrix import JOB
from tests.crash.truth import write_input

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

LEFT, RIGHT = 1_200, 300


@pytest.fixture
def under_fire(tmp_path: Path):
    stream = StreamUnderFire(
        tmp_path,
        job=JOB,
        files_per_batch=1,
        environment={"PAIRED_BOUNDED": "1", "PAIRED_SLOW_S": "1"},
        settings={"execution.checkpointing.unaligned.enabled": "true", "headgate.trigger-interval": "100 ms"},
    )
    write_input(stream.given / "left", seed=5, records=LEFT, files=24, keys=100, first=0)
    write_input(stream.given / "right", seed=6, records=RIGHT, files=6, keys=100, first=LEFT)
    stream.deploy()
    yield stream
    for one in launched:
        if Path(f"/proc/{one.process.pid}").exists():
            kill_group(one)
    launched.clear()


launched: list[Launched] = []


def start(stream: StreamUnderFire) -> Launched:
    launched.append(stream.start())
    return launched[-1]


def check_ended(stream: StreamUnderFire, generation: int) -> None:
    beat = stream.beat(generation)
    assert beat is not None
    assert beat.state is StreamState.STOPPED, beat.cause
    record = stream.catalogue().slots[-1].record
    assert isinstance(record, Stopped)
    assert (record.generation, record.reason) == (generation, INPUT_ENDED)
    assert sorted(stream.newest_snapshot().finished) == ["number", "pair"]
    for output in (stream.output, stream.output.with_name(f"{stream.output.name}-pairs")):
        verdict = check(stream.given, output)
        assert verdict.ok, str(verdict)


def test_a_stream_whose_sources_end_stops_by_itself_also_behind_a_kill_and_a_start_behind_that_ends_at_once(
    under_fire: StreamUnderFire,
) -> None:
    first = start(under_fire)
    under_fire.wait(first.generation, lambda beat: beat.progress.checkpoints > 1 and beat.progress.records > RIGHT)
    kill_group(first)
    assert under_fire.newest_snapshot_records() < LEFT + RIGHT, "it was killed on the way"

    under_fire.environment = {"PAIRED_BOUNDED": "1"}
    second = start(under_fire)
    wait_gone(second.process.pid, timeout_s=120)
    check_ended(under_fire, second.generation)

    write_input(under_fire.given.with_name("late"), seed=7, records=50, files=1, keys=100, first=LEFT + RIGHT)
    (late,) = under_fire.given.with_name("late").glob("*.parquet")
    late.rename(under_fire.given / "left" / "zz-late.parquet")
    third = start(under_fire)
    wait_gone(third.process.pid, timeout_s=60)
    (under_fire.given / "left" / "zz-late.parquet").unlink()  # it was not of the input
    check_ended(under_fire, third.generation)
