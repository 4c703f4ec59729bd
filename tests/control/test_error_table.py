"""The table of errors in docs/operations.md, line by line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import Generation, StreamName
from headgate_contract.paths import METADATA, ROOT, StreamPaths
from tests.contract.stored_values import fixture, resealed
from tests.control.command_line import Cli
from tests.control.world import STANDIN, STREAM, World
from tests.house_rules import REPO

SLOT_1 = "streams/orders/slots/00000001.json"


@dataclass(frozen=True)
class Row:
    when: str
    typed: str
    read: str
    code: int


def rows() -> list[Row]:
    """The last table of docs/operations.md's section on errors."""
    text = (REPO / "docs" / "operations.md").read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    table = text.partition("| When |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table if line.startswith("|")]
    return [Row(when, typed.strip("`"), read, int(code)) for when, typed, read, code in cells]


def nothing(world: World) -> None:
    """The root is empty."""


def deployed(world: World) -> None:
    world.deployed()


def running(world: World) -> None:
    """It runs, however long the test takes to look."""
    world.deployed(heartbeat__timeout="1 min")
    world.started()
    world.beat()


def failed(world: World) -> None:
    world.deployed()
    world.started()
    world.beat(StreamState.FAILED, cause="SinkFailed: disk full", age_s=5)


def named_savepoint(world: World) -> None:
    running(world)
    world.snapshot("nightly")


def one_snapshot(world: World) -> None:
    world.deployed()
    world.started()
    world.snapshot()
    world.stopped()


def two_snapshots(world: World) -> None:
    world.deployed()
    world.started()
    for _ in range(2):
        world.snapshot()
    world.stopped()


def damaged(world: World) -> None:
    two_snapshots(world)
    world.damage_metadata(world.catalogue().snapshots[0])


def state_file_gone(world: World) -> None:
    two_snapshots(world)
    world.state_file(world.catalogue().snapshots[0]).unlink()


def foreign_metadata(world: World) -> None:
    two_snapshots(world)
    newest, older = world.catalogue().snapshots
    (world.root / newest.folder / METADATA).write_bytes((world.root / older.folder / METADATA).read_bytes())


def foreign_checkpoint(world: World) -> None:
    other = StreamName("others")
    world.deployed(other)
    world.started(stream=other)
    world.snapshot(stream=other)
    one_snapshot(world)


def duplicating_sink(world: World) -> None:
    world.sinks = {"console": "duplicates"}
    two_snapshots(world)


def unwritable_root(world: World) -> None:
    shutil.rmtree(world.root)
    world.root.write_text("a file where the root should be")


def no_root(world: World) -> None:
    shutil.rmtree(world.root)


def root_with_a_torn_identity(world: World) -> None:
    world.deployed()
    (world.root / ROOT).write_bytes(b"")


def root_without_identity(world: World) -> None:
    world.deployed()
    (world.root / ROOT).unlink()


def settings_twice(world: World) -> None:
    (world.folder / "twice.yaml").write_text("heartbeat.interval: 1 s\nheartbeat.interval: 2 s\n")


def broken_job(world: World) -> None:
    (world.folder / "broken.py").write_text("import nosuchmodule\n")


SOURCE = "lines = job.source('lines', headgate.sources.files('in/', format='text'))\n"
SINK = ".sink('out', headgate.sinks.files('out/', format='parquet'))\n"
INVALID = {
    "nosource.py": "",
    "nosink.py": SOURCE,
    "twice.py": SOURCE + "lines.transform(lambda df: df, uid='lines')" + SINK,
    "secret.py": "lines = job.source('lines', headgate.sources.files('s3://KEY:SECRET@bucket/in'))\n",
    "nokey.py": SOURCE + "lines.key_by('word').aggregate('counts', n=headgate.count())" + SINK,
}


def invalid_jobs(world: World) -> None:
    for name, text in INVALID.items():
        (world.folder / name).write_text(f"import headgate\njob = headgate.Job('orders')\n{text}")


def shadowed(world: World) -> None:
    (world.folder / "shadowed.py").write_text("import socket\n")
    (world.folder / "socket.py").write_text("it = 1\n")


def wrong_fleet(world: World) -> None:
    (world.folder / "wrong.yaml").write_text("streams: {orders: {job: job.py, setting: {}}}\n")


def fleet(world: World) -> None:
    (world.folder / "streams.yaml").write_text(
        "streams: {orders: {job: job.py, settings: {heartbeat.interval: 1 s}}}\n"
    )
    world.deployed()


def edited_job(world: World) -> None:
    world.deployed()
    world.write_job("# edited\n")


def corrupt_slot(world: World) -> None:
    running(world)
    (world.root / SLOT_1).write_text("???")


def missing_slot(world: World) -> None:
    world.deployed()
    world.started()
    world.snapshot()
    world.snapshot()
    (world.root / SLOT_1.replace("1.json", "2.json")).unlink()


def flipped_slot(world: World) -> None:
    world.deployed()
    world.started()
    path = world.root / SLOT_1
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


def laid_out_slot(world: World) -> None:
    world.deployed()
    world.started()
    path = world.root / SLOT_1
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))


def misplaced_slot(world: World) -> None:
    for stream in (STREAM, StreamName("other")):
        world.deployed(stream)
        world.started(stream=stream)
    (world.root / SLOT_1).write_bytes((world.root / SLOT_1.replace(STREAM, "other")).read_bytes())


def newer_slot(world: World) -> None:
    running(world)
    path = world.root / SLOT_1
    path.write_bytes(resealed(path.read_bytes(), b'"version":', b'"version":9'))


def older_slot(world: World) -> None:
    running(world)
    (world.root / SLOT_1).write_bytes((fixture("slot-stopped").parent.parent / "v2/slot-stopped.json").read_bytes())


def corrupt_answer(world: World) -> None:
    running(world)
    path = world.root / StreamPaths(STREAM).answers / "now.json"
    path.parent.mkdir()
    path.write_text("{}")


def corrupt_heartbeat(world: World) -> None:
    running(world)
    (world.root / StreamPaths(STREAM).heartbeat(Generation(1))).write_text("\0")


def corrupt_event(world: World) -> None:
    world.deployed()
    path = world.root / StreamPaths(STREAM).history / "000000000000001-x.json"
    path.parent.mkdir()
    path.write_text("[]")


def dying_driver(world: World) -> None:
    world.write_job("MODE = 'exits'")
    world.deployed()


def failing_savepoints(world: World) -> None:
    world.write_job("MODE = 'no-savepoints'")
    world.deployed()
    world.control().start(STREAM)


def launched(world: World) -> None:
    world.deployed()
    world.control().start(STREAM)


def log_elsewhere(world: World) -> None:
    world.deployed()
    world.started(host="far-away")


WHEN: dict[str, Callable[[World], None]] = {
    "the root cannot be written": unwritable_root,
    "the root is mistyped, or not mounted": no_root,
    "the root has lost the file that says which root it is": root_without_identity,
    "the root's file that says which root it is is damaged": root_with_a_torn_identity,
    "the settings file has a setting twice": settings_twice,
    "the job file does not import": broken_job,
    "a job has no source": invalid_jobs,
    "a job has no sink": invalid_jobs,
    "two vertices have one uid": invalid_jobs,
    "a key column is missing": invalid_jobs,
    "a source's URL carries credentials": invalid_jobs,
    "a module beside the job has the name of one of Python's own": shadowed,
    "a savepoint would be gone with its driver": running,
    "a savepoint is to go where no setting says": running,
    "a snapshot is restored from where no setting says": one_snapshot,
    "streams.yaml has a wrong key": wrong_fleet,
    "streams.yaml does not know the stream": fleet,
    "streams.yaml and what is deployed have drifted apart": fleet,
    "the stream was never deployed": deployed,
    "the job file was edited since it was deployed": edited_job,
    "the stream runs already": running,
    "the stream does not run": failed,
    "the stream was never started": deployed,
    "a savepoint's name is taken": named_savepoint,
    "a name for no savepoint": running,
    "a snapshot is not there": one_snapshot,
    "a snapshot's name cannot be one": one_snapshot,
    "a snapshot that newer ones have subsumed, of a stream that runs": running,
    "streams.yaml has mistakes": wrong_fleet,
    "a place for no savepoint": running,
    "a place that is none": running,
    "there is no snapshot at a place": one_snapshot,
    "a claim mode is none": one_snapshot,
    "what is to be claimed is not named": one_snapshot,
    "another stream's checkpoint is to be claimed": foreign_checkpoint,
    "a rescale of what cannot be restored": damaged,
    "more subtasks than there can ever be": two_snapshots,
    "the newest snapshot is damaged": damaged,
    "a state file of the newest snapshot is missing": state_file_gone,
    "a snapshot's metadata is another stream's": foreign_metadata,
    "a sink cannot take back what it published": duplicating_sink,
    "a slot cannot be read": corrupt_slot,
    "a slot cannot be read, but one only looks": corrupt_slot,
    "a slot is missing": missing_slot,
    "a slot has a flipped bit": flipped_slot,
    "a slot was laid out anew by an editor": laid_out_slot,
    "a slot of another stream was copied here": misplaced_slot,
    "a slot is missing, and the log is repaired": missing_slot,
    "a slot was written by a newer Headgate": newer_slot,
    "a slot was written by an older Headgate": older_slot,
    "an answer cannot be read": corrupt_answer,
    "a heartbeat cannot be read": corrupt_heartbeat,
    "an event of the history cannot be read": corrupt_event,
    "the driver dies while it starts": dying_driver,
    "the driver cannot do what was asked": failing_savepoints,
    "a savepoint's directory cannot be written": launched,
    "a directory's name cannot stand in a file's URL": running,
    "a place's name cannot stand in a file's URL": running,
    "a log is on another host": log_elsewhere,
}
LAUNCHES = {"drifted apart", "dies while", "cannot do what", "directory cannot be", "rescale", "more subtasks"}
REALLY_CHECKED = {when for when, world_of in WHEN.items() if world_of in (invalid_jobs, shadowed)}
"""Rows for which the runtime's own check of jobs is run; it starts Spark where it looks at columns."""


def marks(row: Row) -> list[pytest.MarkDecorator]:
    if "key column" in row.when:
        return [pytest.mark.spark]
    return [pytest.mark.e2e] if row.when in REALLY_CHECKED or any(part in row.when for part in LAUNCHES) else []


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.when, marks=marks(row)) for row in rows()],
)
def test_the_table_of_errors_holds(row: Row, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    WHEN.get(row.when, nothing)(world)
    if row.when == "no root is named":
        monkeypatch.delenv("HEADGATE_ROOT")
    result = cli(*shlex.split(row.typed)[1:], programs=None if row.when in REALLY_CHECKED else STANDIN)
    expected = ".*".join(re.escape(part) for part in row.read.split("…"))
    assert re.search(expected, result.all), f"\nread:     {result.all}\nexpected: {row.read}"
    assert result.code == row.code
    if row.code:
        assert result.out == "", "an error leaves standard output alone"
        assert result.err.startswith("headgate: ")


def test_every_situation_of_the_tests_stands_in_the_table() -> None:
    assert set(WHEN) <= {row.when for row in rows()}
