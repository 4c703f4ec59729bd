"""What comes by a channel may change its types with each micro-batch; if it cannot be used, that one has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_contract.heartbeats import Progress, StreamState
from headgate_contract.records import Restarted
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.truth import write_input

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

RECORDS = 600


def has_all_again(progress: Progress) -> bool:
    """Behind the restart: the life that failed had been handed all records as well."""
    return progress.restarts == 1 and progress.records >= RECORDS + 100


def test_types_may_change_and_a_missing_key_fails_the_micro_batch_and_not_the_stream(tmp_path: Path) -> None:
    wish = tmp_path / "wish"
    stream = StreamUnderFire(
        tmp_path,
        job=Path(__file__).parent / "jobs" / "inferred_types.py",
        environment={"INFERRED_WISH": str(wish)},
        settings={"headgate.trigger-interval": "100 ms", "restart-strategy.fixed-delay.delay": "100 ms"},
    )
    write_input(stream.given, seed=3, records=RECORDS, files=20, keys=50)
    stream.deploy()
    launched = stream.start()
    try:
        stream.wait(launched.generation, lambda beat: beat.progress.records >= RECORDS)
        assert stream.beat(launched.generation).progress.restarts == 0  # type: ignore[union-attr]
        wish.touch()
        write_input(tmp_path / "more", seed=4, records=100, files=2, keys=50, first=RECORDS)
        for path in sorted((tmp_path / "more").glob("*.parquet")):
            path.rename(stream.given / f"zz-{path.name}")
        stream.wait(
            launched.generation,
            lambda beat: beat.state is StreamState.RUNNING and has_all_again(beat.progress),
            timeout_s=120,
        )
        stream.control().stop(stream.name)
        wait_gone(launched.process.pid)
    finally:
        if Path(f"/proc/{launched.process.pid}").exists():
            kill_group(launched)
    (restarted,) = (slot.record for slot in stream.catalogue().slots if isinstance(slot.record, Restarted))
    assert "key_by of 'number': there is no column 'key'; the stream has id" in restarted.cause
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)
