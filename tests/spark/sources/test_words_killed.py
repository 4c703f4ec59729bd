"""Words from a socket, counted by the real driver, killed inside and between micro-batches: exact all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from headgate.source.line_ranges import LineView
from headgate_contract.restore import RestoreFrom
from scripts.text_server import TextServer, make_text
from tests.crash.fire import SETTINGS, StreamUnderFire, kill_group, wait_gone
from tests.runtime.source.logs import lines_from, make_log

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "words_job.py"
TEXT = make_text(8, 40_000)
LINES = TEXT.data.decode().splitlines()
PATIENCE_S = 180


class Words(StreamUnderFire):
    """The stream, which makes a checkpoint only when it is asked to."""

    def deploy(self) -> None:
        settings = {key: value for key, value in SETTINGS.items() if key != "execution.checkpointing.interval"}
        self.control().deploy(self.name, JOB, settings, directory=self.base)

    def counts(self) -> dict[str, int]:
        """The newest count of each word that a plain reader of the output finds; no count stands there twice."""
        rows = ds.dataset(self.output, format="parquet").to_table()
        pairs = sorted(zip(rows["word"].to_pylist(), rows["n"].to_pylist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        return dict(pairs)


@pytest.fixture
def server() -> Iterator[TextServer]:
    with TextServer(TEXT) as one:
        yield one


def test_words_are_counted_once_over_kills_inside_and_between_micro_batches(tmp_path: Path, server: TextServer):
    environment = {"WORDS_PORT": str(server.port), "WORDS_OUT": str(tmp_path / "out")}
    stream = Words(tmp_path, environment=environment, name="words")
    stream.deploy()
    server.held_at = TEXT.line_ends[200]
    first = stream.start_killed_at("after-step#8")
    stream.wait(first.generation, lambda beat: beat.progress.records == TEXT.words_until[200], PATIENCE_S)
    stream.control().checkpoint(stream.name)
    (checkpoint,) = stream.catalogue().snapshots
    server.held_at = TEXT.line_ends[len(LINES) // 2] + 5
    stream.wait_killed(first, "after-step#8", PATIENCE_S)
    second = stream.start_killed_at("before-batch#5")
    server.held_at = TEXT.line_ends[len(LINES) * 3 // 4] + 5
    stream.wait_killed(second, "before-batch#5", PATIENCE_S)
    server.held_at = len(TEXT.data)
    third = stream.start(wait=False)
    try:
        beat = stream.wait(third.generation, lambda beat: beat.progress.records >= 40_000, PATIENCE_S)
        stream.control().stop(stream.name)
        wait_gone(third.process.pid, PATIENCE_S)
    finally:
        kill_group(third)
    for launched in (second, third):
        assert isinstance(launched.decision, RestoreFrom)
        assert launched.decision.snapshot == checkpoint
    assert beat.progress.replayed > 0
    assert stream.counts() == TEXT.counts(len(TEXT.data))
    assert server.resumed == [0, TEXT.line_ends[len(LINES) // 2], TEXT.line_ends[len(LINES) * 3 // 4]]
    view = LineView(make_log(tmp_path / "root"), 3)
    assert lines_from(view, view.beginning()) == LINES
