"""A job with channels on real Spark of whose two queries one fails, more than once: both begin anew, from one cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_contract.records import Restarted
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.graph_matrix import JOB
from tests.crash.truth import write_input

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

LEFT, RIGHT = 2_400, 500


@pytest.fixture
def stream(tmp_path: Path) -> StreamUnderFire:
    found = StreamUnderFire(
        tmp_path,
        job=JOB,
        files_per_batch=1,
        environment={"PAIRED_SLOW_S": "0.1"},
        settings={
            "execution.checkpointing.unaligned.enabled": "true",
            "headgate.trigger-interval": "200 ms",
            "restart-strategy.fixed-delay.delay": "200 ms",
            "restart-strategy.max-failures-per-position": "1000",  # it may fail as often as the test is slow
        },
    )
    write_input(found.given / "left", seed=5, records=LEFT, files=24, keys=100, first=0)
    write_input(found.given / "right", seed=6, records=RIGHT, files=5, keys=100, first=LEFT)
    found.deploy()
    return found


def restarts(stream: StreamUnderFire) -> list[Restarted]:
    return [slot.record for slot in stream.catalogue().slots if isinstance(slot.record, Restarted)]


def test_one_input_that_cannot_be_read_takes_the_other_back_with_it_and_no_record_is_lost(
    stream: StreamUnderFire,
) -> None:
    launched = stream.start()
    try:
        stream.wait(launched.generation, lambda beat: beat.progress.checkpoints > 1)
        torn = stream.given / "right" / "torn.parquet"
        torn.write_bytes(b"no Parquet at all")
        stream.wait(launched.generation, lambda beat: beat.progress.restarts > 1, timeout_s=120)
        torn.unlink()
        reads_all = LEFT + RIGHT
        stream.wait(launched.generation, lambda beat: beat.progress.records >= reads_all, timeout_s=120)
        stream.control().stop(stream.name)
        wait_gone(launched.process.pid)
    finally:
        if Path(f"/proc/{launched.process.pid}").exists():
            kill_group(launched)
    assert all("torn.parquet" in restart.cause for restart in restarts(stream))
    assert all(restart.snapshot is not None for restart in restarts(stream)), "both go back to what is complete"
    for output in (stream.output, stream.output.with_name(f"{stream.output.name}-pairs")):
        verdict = check(stream.given, output)
        assert verdict.ok, str(verdict)
