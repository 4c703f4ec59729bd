"""A driver on real Spark is given files of every name there is: each is read exactly once, or told of by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate_contract.history import read_history
from headgate_contract.ids import StreamName
from headgate_contract.store import open_store
from headgate_control.outcomes import Launched
from tests.crash.fire import StreamUnderFire, kill_group, wait_gone
from tests.spark.sources.odd_names import ELSEWHERE, HIDDEN, NOT_UTF8, PATTERNS, READ, put

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

JOB = Path(__file__).parent / "jobs" / "copied_lines.py"


class Odd(StreamUnderFire):
    @property
    def output(self) -> Path:
        return self.base / "out [1] {a,b} ?* %20#ü\n\"'"


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[tuple[Odd, list[Launched]]]:
    launched: list[Launched] = []
    yield Odd(tmp_path, job=JOB, files_per_batch=20, environment={"LC_ALL": "C"}), launched
    for one in launched:
        if Path(f"/proc/{one.process.pid}").exists():
            kill_group(one)


def write(stream: Odd, names: Iterable[bytes], wave: str) -> Counter[str]:
    """A file of three lines for each name; what is to come out."""
    lines: Counter[str] = Counter()
    for number, name in enumerate(names):
        made = [f"{wave} {number} {name.hex()} {line}" for line in range(3)]
        put(stream.given, name, "\n".join(made) + "\n")
        lines.update(made)
    return lines


def published(stream: Odd) -> Counter[str]:
    return Counter(
        line for path in stream.output.glob("*.parquet") for line in pq.read_table(path)["value"].to_pylist()
    )


def test_a_file_of_any_name_is_read_once_also_when_its_micro_batch_is_replayed(stream: tuple[Odd, list[Launched]]):
    under_fire, launched = stream
    expected = write(under_fire, READ + PATTERNS, "first")
    write(under_fire, [*HIDDEN, *NOT_UTF8, *ELSEWHERE], "never")
    under_fire.deploy()
    first = under_fire.start()
    launched.append(first)
    under_fire.wait(first.generation, lambda beat: beat.progress.records >= len(expected))
    under_fire.wait(first.generation, lambda beat: beat.progress.checkpoints > 0)
    again = [b"again " + name for name in PATTERNS]
    expected += write(under_fire, again, "second")
    under_fire.wait(first.generation, lambda beat: beat.progress.records > len(expected) - 3 * len(again))
    kill_group(first)  # what was read since the last checkpoint is read again

    second = under_fire.start()
    launched.append(second)
    under_fire.wait(second.generation, lambda beat: beat.progress.records >= len(expected))
    under_fire.control().stop(under_fire.name)
    wait_gone(second.process.pid)
    found = published(under_fire)
    assert {line: count for line, count in found.items() if count != 1} == {}
    assert sorted(expected - found) == []
    assert sorted(found - expected) == []

    told = [event.text for event in read_history(open_store(under_fire.root), StreamName(under_fire.name))]
    assert sum("9 files in the source folder" in text and "never read" in text for text in told) == 2, told
