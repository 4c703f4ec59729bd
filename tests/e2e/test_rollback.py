"""Savepoints and restores by hand, also to a snapshot older than what is published, and forward again."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headgate_contract.errors import RestoreRefused
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import SavepointName
from headgate_contract.restore import Refuse, RestoreFrom
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.crash.truth import write_input

pytestmark = pytest.mark.e2e

SETTINGS = {"execution.checkpointing.interval": "300 ms", "heartbeat.interval": "200 ms"}


@pytest.fixture
def stream(tmp_path: Path):
    under_fire = StreamUnderFire(tmp_path, engine="stand-in", settings=SETTINGS, files_per_batch=2)
    under_fire.given.mkdir()
    under_fire.deploy()
    yield under_fire
    status = under_fire.control().status(under_fire.name)
    if status.process is not None and Path(f"/proc/{status.process.pid}").exists():
        with suppress(ProcessLookupError):
            os.killpg(status.process.pid, signal.SIGKILL)
        wait_gone(status.process.pid)


def _records_visible(stream: StreamUnderFire) -> int:
    files = [str(path) for path in stream.output.glob("*.parquet")]
    return ds.dataset(files, format="parquet").count_rows() if files else 0


def _give(stream: StreamUnderFire, part: int) -> None:
    """3,000 more records, whose ids and file names follow those of the parts before."""
    write_input(stream.base / f"part{part}", seed=part, records=3000, files=6, keys=50)
    for file in sorted((stream.base / f"part{part}").glob("*.parquet")):
        table = ds.dataset(file, format="parquet").to_table()
        moved = table.set_column(0, "id", [[value + 3000 * part for value in table["id"].to_pylist()]])
        target = stream.given / f"{part}-{file.name}"
        pq.write_table(moved, target.with_suffix(".tmp"))
        target.with_suffix(".tmp").rename(target)


def test_a_stream_goes_back_to_a_savepoint_and_forward_again_and_the_output_goes_with_it(stream: StreamUnderFire):
    control = stream.control()
    _give(stream, 0)
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    control.savepoint(stream.name, name="early")
    _give(stream, 1)
    stream.wait(first.generation, lambda beat: beat.progress.records == 6000)
    control.stop(stream.name, savepoint="late")
    wait_gone(first.process.pid)
    assert _records_visible(stream) == 6000

    explained = control.explain(stream.name, snapshot=SavepointName("early")).decision
    assert isinstance(explained, RestoreFrom)
    assert [rollback.action.value for rollback in explained.rollbacks] == ["retract"]
    for file in stream.given.glob("1-*"):
        file.rename(stream.base / file.name)
    back = control.restore(stream.name, snapshot=SavepointName("early"))
    assert back.decision == explained
    stream.wait(back.generation, lambda beat: beat.progress.records == 3000)
    assert _records_visible(stream) == 3000, "what was published after the savepoint is taken back"
    control.stop(stream.name)
    wait_gone(back.process.pid)

    forward = control.restore(stream.name, snapshot=SavepointName("late"))
    stream.wait(forward.generation, lambda beat: beat.progress.records == 6000)
    assert _records_visible(stream) == 6000, "what was taken back belongs to this history again"
    for file in stream.base.glob("1-*"):
        file.rename(stream.given / file.name)
    control.stop(stream.name)
    wait_gone(forward.process.pid)
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)


def test_f53_a_damaged_newest_checkpoint_is_refused_by_name_and_passed_over_only_when_asked(stream: StreamUnderFire):
    control = stream.control()
    _give(stream, 0)
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    for _ in range(2):
        control.checkpoint(stream.name)
    kill_group(first)
    newest, older = stream.catalogue().snapshots[:2]
    metadata = Path(stream.root) / newest.folder / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-2] + b" \n")
    refused = control.explain(stream.name).decision
    assert isinstance(refused, Refuse)
    assert str(newest) in refused.reason
    with pytest.raises(RestoreRefused, match="another checksum"):
        control.start(stream.name)
    second = control.start(stream.name, fall_back=True)
    assert isinstance(second.decision, RestoreFrom)
    assert second.decision.snapshot == older
    stream.wait(second.generation, lambda beat: beat.progress.records == 3000)
    control.stop(stream.name)
    wait_gone(second.process.pid)
    assert check(stream.given, stream.output).ok


def test_a_checkpoint_that_the_stop_would_retire_can_be_restored(
    stream: StreamUnderFire,
):
    stream.settings = {
        **SETTINGS,
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.num-retained": "1",
    }
    stream.deploy()
    control = stream.control()
    _give(stream, 0)
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    control.checkpoint(stream.name)
    [oldest] = [ref.id for ref in control.snapshots(stream.name)]
    restored = control.restore(stream.name, snapshot=oldest, savepoint_first=False)
    assert isinstance(restored.decision, RestoreFrom)
    assert restored.decision.snapshot.id == oldest
    _give(stream, 1)
    stream.wait(restored.generation, lambda beat: beat.progress.records == 6000)
    control.stop(stream.name)
    assert check(stream.given, stream.output).ok


def test_start_fresh_takes_back_what_was_published_and_counts_anew(stream: StreamUnderFire):
    control = stream.control()
    _give(stream, 0)
    first = control.start(stream.name)
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    control.stop(stream.name)
    wait_gone(first.process.pid)
    second = control.start(stream.name, fresh=True)
    stream.wait(second.generation, lambda beat: beat.progress.records == 3000)
    control.stop(stream.name)
    wait_gone(second.process.pid)
    assert check(stream.given, stream.output).ok


def test_sigterm_ends_a_driver_cleanly_at_the_next_barrier(stream: StreamUnderFire):
    _give(stream, 0)
    first = stream.start()
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    os.kill(first.process.pid, signal.SIGTERM)
    wait_gone(first.process.pid)
    beat = stream.beat(first.generation)
    assert beat is not None
    assert beat.state is StreamState.STOPPED
    assert stream.catalogue().stopped is not None
    assert check(stream.given, stream.output).ok


def test_a_savepoint_restores_at_another_parallelism_and_on_another_backend(stream: StreamUnderFire):
    _give(stream, 0)
    first = stream.start()
    stream.wait(first.generation, lambda beat: beat.progress.records == 3000)
    generation = first
    for part, (backend, parallelism) in enumerate([("rocksdb", "3"), ("hashmap", "1"), ("rocksdb", "4")], start=1):
        stream.control().stop(stream.name, savepoint=f"before-{part}")
        wait_gone(generation.process.pid)
        stream.backend = backend
        stream.settings = {**SETTINGS, "parallelism.default": parallelism}
        stream.deploy()
        generation = stream.start()
        assert isinstance(generation.decision, RestoreFrom)
        assert generation.decision.snapshot.name == f"before-{part}"
        _give(stream, part)
        records = 3000 * (part + 1)
        stream.wait(generation.generation, lambda beat, records=records: beat.progress.records == records)
    stream.control().stop(stream.name)
    wait_gone(generation.process.pid)
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)
