"""A source or a sink that is given another folder under its old uid: nothing is read or published twice unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate_contract.errors import RestoreRefused
from headgate_contract.heartbeats import Heartbeat
from headgate_control.outcomes import Launched
from tests.crash.checker import check
from tests.crash.fire import StreamUnderFire, wait_gone
from tests.crash.truth import write_input

pytestmark = pytest.mark.e2e

RECORDS = 400


@pytest.fixture
def stream(tmp_path: Path) -> StreamUnderFire:
    found = StreamUnderFire(tmp_path, engine="stand-in")
    write_input(found.given, seed=4, records=RECORDS, files=4, keys=20)
    found.deploy()
    return found


def run(stream: StreamUnderFire, records: int, launched: Launched | None = None) -> None:
    """Until it has taken in so many records, and stop it with a savepoint."""
    launched = launched or stream.start()

    def has_all(beat: Heartbeat) -> bool:
        return beat.progress.records >= records

    stream.wait(launched.generation, has_all)
    stream.control().stop(stream.name, savepoint=True)
    wait_gone(launched.process.pid)


def warnings(stream: StreamUnderFire) -> str:
    deployed = stream.catalogue().deployed
    assert deployed is not None
    return "; ".join(deployed.plan["warnings"])


def ids(folder: Path) -> list[int]:
    return sorted(int(id) for path in folder.glob("*.parquet") for id in pq.read_table(path)["id"].to_pylist())


def late(stream: StreamUnderFire) -> None:
    write_input(stream.base / "late", seed=5, records=50, files=1, keys=20, first=RECORDS)
    (file,) = (stream.base / "late").glob("*.parquet")
    file.rename(stream.given / "zz-late.parquet")


def test_a_source_folder_by_another_name_is_refused_and_by_its_old_name_read_on(stream: StreamUnderFire) -> None:
    run(stream, RECORDS)
    link = stream.base / "link"
    link.symlink_to(stream.given)
    stream.environment = {"NUMBERS_IN": str(link)}
    stream.deploy()
    assert f"source records was read from {stream.given}, and reads {link} now" in warnings(stream)
    with pytest.raises(RestoreRefused, match=f"was read from {stream.given}, the job reads {link}"):
        stream.start()
    assert len(stream.catalogue().generations) == 1, "nothing was claimed"

    stream.environment = {}
    stream.deploy()
    late(stream)
    run(stream, RECORDS + 50)
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)


def test_another_source_folder_is_read_from_its_beginning_where_that_is_allowed_and_so_after_a_crash(
    stream: StreamUnderFire,
) -> None:
    run(stream, RECORDS)
    other = stream.base / "other"
    write_input(other, seed=6, records=100, files=1, keys=20, first=10_000)
    stream.environment = {"NUMBERS_IN": str(other)}
    stream.deploy()
    point = {"HEADGATE_TEST_POINT": f"SIGKILL@before-slot:{stream.base / 'killed'}"}
    killed = stream.control(point).start(stream.name, allow_non_restored_state=True, wait=False)
    wait_gone(killed.process.pid, timeout_s=120)  # its whole start is waited for
    run(stream, RECORDS + 100, stream.start())
    for path in other.iterdir():
        os.link(path, stream.given / f"other-{path.name}")
    verdict = check(stream.given, stream.output)
    assert verdict.ok, str(verdict)


def test_a_restore_to_before_a_sink_was_given_another_folder_takes_nothing_back_there_and_says_so(
    stream: StreamUnderFire,
) -> None:
    launched = stream.start()
    stream.wait(launched.generation, lambda beat: beat.progress.records >= RECORDS)
    stream.control().savepoint(stream.name, name="a")
    late(stream)
    run(stream, RECORDS + 50, launched)
    stream.environment = {"NUMBERS_OUT": str(stream.base / "elsewhere")}
    stream.deploy()
    assert "what it published there stays there" in warnings(stream)
    told = stream.control().explain(stream.name)
    assert any(f"wrote to {stream.output}" in warning for warning in told.warnings)
    with pytest.raises(RestoreRefused, match="cannot take it back"):
        stream.control().restore(stream.name, snapshot="a")
    accepted = stream.control().restore(stream.name, snapshot="a", accept_duplicates=True)
    run(stream, RECORDS + 50, accepted)
    twice = range(RECORDS, RECORDS + 50)
    assert ids(stream.output) == list(range(RECORDS + 50))
    assert ids(stream.base / "elsewhere") == list(twice), "what was accepted"
    stream.environment = {}
    stream.deploy()
    run(stream, RECORDS + 50)
    assert ids(stream.output) == list(range(RECORDS)), "here it takes back what the restore went back behind"
