"""A driver on real Spark is given records that it cannot take: it says which and where, and gives up until they go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate_contract.heartbeats import StreamState
from headgate_control.outcomes import Launched
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

JOB = Path(__file__).parent / "jobs" / "summed_json.py"


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[tuple[StreamUnderFire, list[Launched]]]:
    launched: list[Launched] = []
    yield StreamUnderFire(tmp_path / "a [b] c", job=JOB), launched
    for one in launched:
        if Path(f"/proc/{one.process.pid}").exists():
            kill_group(one)


def write(stream: StreamUnderFire, name: str, *lines: str) -> None:
    stream.given.mkdir(parents=True, exist_ok=True)
    partial = stream.base / "half-written"
    partial.write_text("".join(f"{line}\n" for line in lines))
    partial.rename(stream.given / name)


def row(id: int, key: int | None) -> str:
    return json.dumps({"id": id, "key": key})


def start(stream: StreamUnderFire, launched: list[Launched]) -> Launched:
    launched.append(stream.start(wait=False))
    return launched[-1]


def given_up(stream: StreamUnderFire, one: Launched) -> str:
    deadline = time.monotonic() + 90
    while (beat := stream.beat(one.generation)) is None or beat.state is not StreamState.FAILED:
        assert time.monotonic() < deadline, beat
        time.sleep(0.1)
    assert beat.given_up
    assert beat.progress.restarts == 2
    wait_gone(one.process.pid)
    return beat.cause or ""


def test_a_line_that_never_parses_and_a_record_without_a_key_are_named_and_the_stream_goes_on_without_them(stream):
    under_fire, launched = stream
    write(under_fire, "a.json", row(1, 1), row(2, 2))
    write(under_fire, "b [1].json", row(4, 1), '{"id": 8, "ke', row(16, 2))
    under_fire.deploy()
    told = given_up(under_fire, start(under_fire, launched))
    assert f"the first that does not parse is line 2 in {under_fire.given}/b [1].json" in told, told
    assert "source 'records'" in told
    assert "its files 1 to 2" in told
    assert "restart-strategy.max-failures-per-position" in told
    assert not list(under_fire.output.glob("*.parquet"))

    write(under_fire, "b [1].json", row(4, 1), row(8, 1), row(16, 2))
    second = start(under_fire, launched)
    under_fire.wait(second.generation, lambda beat: beat.progress.records == 5)
    under_fire.wait(second.generation, lambda beat: under_fire.newest_snapshot_records() == 5)  # so c.json is alone
    write(under_fire, "c.json", row(32, 2), row(64, None))
    told = given_up(under_fire, second)
    assert "step 'totals': 1 records have no value in the key column 'key'" in told
    assert f"the first without a key in {under_fire.given}/c.json" in told, told
    assert "its file 3" in told

    write(under_fire, "c.json", row(32, 2))
    third = start(under_fire, launched)
    under_fire.wait(third.generation, lambda beat: beat.progress.records == 6)
    under_fire.control().stop(under_fire.name)
    totals: dict[int, int] = {}
    for path in sorted(under_fire.output.glob("*.parquet")):
        for each in pq.read_table(path).to_pylist():
            totals[each["key"]] = max(totals.get(each["key"], 0), each["total"])
    assert totals == {1: 13, 2: 50}
