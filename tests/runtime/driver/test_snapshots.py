"""The asynchronous phase: which files are uploaded, from where, and that an attempt that fails leaves none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.coordinator.messages import Acknowledged, Declined, Event
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.driver.shared_state import SharedFiles
from headgate.driver.snapshots import participants
from headgate.recovery.fetch import SnapshotFiles
from headgate.source.positions import FileListBook, InlineBook
from headgate_contract.errors import SinkFailed
from headgate_contract.ids import CheckpointId, Generation, VertexUid
from headgate_contract.snapshot import SnapshotKind, SnapshotRef, StateHandle
from tests.runtime.driver.ledger_world import LINES, OUT, STREAM
from tests.runtime.driver.stage import PARTS, Stage
from tests.runtime.driver.waiting import PATIENCE_S
from tests.runtime.step.vertex import COUNTS, scratch


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture
def stage(directory: Path) -> Iterator[Stage]:
    stage = Stage(directory, InlineBook("lines", "files"))
    yield stage
    stage.taker.close()


def test_the_participants_are_each_state_each_source_and_each_sink() -> None:
    assert participants([], [LINES], [OUT, VertexUid("copy")]) == {"source lines", "sink out", "sink copy"}
    assert participants([COUNTS], [LINES], []) == {"state counts", "source lines"}


def test_a_snapshot_holds_each_subtasks_files_with_their_length_and_checksum(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd", "dan")
    snapshot = stage.complete(1)
    state = snapshot.vertices[COUNTS]
    assert (state.name, state.parallelism, state.backend, state.epoch) == ("Counts", 2, "hashmap", 1)
    assert [(part.subtask, part.first_key_group, part.last_key_group) for part in state.subtasks] == [
        (0, 0, 7),
        (1, 8, 15),
    ]
    assert [descriptor["name"] for descriptor in state.descriptors] == ["aggregates"]
    assert snapshot.paths == stage.files()
    ref = SnapshotRef(CheckpointId(1), SnapshotKind.CHECKPOINT, Generation(3), "nowhere", 1, "00")
    for handle in snapshot.handles:
        SnapshotFiles(stage.plain, ref).read(handle)  # verifies
    assert snapshot.sources[LINES].position == {"batch": 0}
    assert stage.sink.prepared == [[{"staged": "file-1"}]]


@pytest.mark.parametrize("older", [0, 1])
def test_a_subtask_that_has_run_since_an_upgrade_says_what_the_columns_of_all_mean(stage: Stage, older: int) -> None:
    """A release that did not know `meanings` wrote the state; the other subtask has had no record since."""
    stage.batch("ann", "bob", "cyd", "dan")
    assert set(stage.vertex.versions) == {0, 1}
    for descriptor in stage.vertex.versions[older]["descriptors"]:
        del descriptor["meanings"]
    (descriptor,) = stage.complete(1).vertices[COUNTS].descriptors
    assert descriptor["meanings"] == ["count_all()"]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_f73_a_later_checkpoint_uploads_only_what_is_new_and_a_savepoint_is_no_base(
    directory: Path, backend: str
) -> None:
    stage = Stage(directory, InlineBook("lines", "files"), backend)
    stage.batch(*(f"user-{number}" for number in range(3000)))
    first = stage.complete(1)
    whole = sum(handle.length for handle in first.handles)
    assert first.uploaded == whole
    stage.complete(2, "in-between")
    stage.batch("user-1")
    third = stage.complete(3)
    assert 0 < third.uploaded < whole
    assert set(third.paths) & set(first.paths), "it shares files with the first"
    assert not [path for path in third.paths if "savepoints" in path]
    stage.taker.close()


def test_f74_the_base_is_the_last_confirmed_checkpoint(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd")
    unconfirmed = stage.complete(1, confirm=False)
    second = stage.complete(2)
    assert second.uploaded == unconfirmed.uploaded
    assert not set(second.paths) & set(unconfirmed.paths)
    assert stage.complete(3).uploaded == 0, "nothing has changed since the second, which is confirmed"


def test_a_savepoint_is_self_contained_and_its_files_are_named_from_its_own_folder(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd")
    stage.complete(1)
    savepoint = stage.complete(2, "upgrade")
    assert all(path.startswith("state/") for path in savepoint.paths)
    folder = f"streams/{STREAM}/savepoints/upgrade-2-g3"
    assert stage.files(folder) == [f"{folder}/{path}" for path in savepoint.paths]


def test_f9_an_aborted_checkpoints_own_files_go_and_shared_ones_stay(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd")
    first = stage.complete(1)
    stage.batch("dan", "eve", "fay", "gus")
    stage.take(2)
    stage.answers()
    assert len(stage.files()) > len(first.paths)
    stage.taker.discard(CheckpointId(2))
    assert stage.files() == first.paths
    third = stage.complete(3)
    used = set(first.paths) & set(third.paths)
    assert used
    assert stage.shared.release(CheckpointId(1)) == sorted(set(first.paths) - used), "a later one uses the others"
    stage.shared.confirm(())
    assert stage.shared.release(CheckpointId(3)) == third.paths, "now nothing can"


def test_f71_an_attempt_that_never_completed_takes_along_all_that_it_made(stage: Stage) -> None:
    """Also what lies among the shared files: nobody else can have come to share it."""
    stage.batch("ann", "bob", "cyd")
    stage.take(1)
    acks = stage.answers()
    assert all(isinstance(ack, Acknowledged) for ack in acks.values())
    assert [path for path in stage.files() if "/shared/" in path]
    stage.taker.discard(CheckpointId(1))
    assert stage.files() == []


def test_f58_a_base_under_an_upload_outlives_its_own_retirement(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd")
    first = stage.complete(1)
    stage.take(2)
    stage.answers()
    assert stage.shared.release(CheckpointId(1)) == [], "2 stands on its files"
    stage.taker.discard(CheckpointId(2))
    assert stage.files() == first.paths, "and so does whatever comes next: they are still the base"


def test_a_base_under_an_upload_outlives_also_its_successor_as_the_base(stage: Stage) -> None:
    """Two at once: the first of them completes, without some file of the old base, and retires it."""
    stage.batch("ann", "bob", "cyd")
    first = stage.complete(1)
    stage.take(2)
    stage.answers()
    stage.taker.confirm(replace(first.metadata, vertices={}, sources={}))
    assert stage.shared.release(CheckpointId(1)) == []
    assert stage.shared.release(CheckpointId(2)) == first.paths


def test_f67_a_file_that_several_subtasks_have_parts_of_is_uploaded_once(stage: Stage) -> None:
    stage.batch("ann", "bob", "cyd")
    [version, *_] = stage.vertex.versions.values()
    for subtask in (0, 1):
        stage.vertex.versions[subtask] = version
        for other in (0, 1):
            for path in (stage.vertex.directory / str(other)).iterdir():
                place = stage.vertex.directory / str(subtask) / path.name
                if not place.exists():
                    os.link(path, place)
    snapshot = stage.complete(1)
    [state] = snapshot.vertices.values()
    first, second = (subtask.files for subtask in state.subtasks)
    assert first == second
    assert len(first) > 0
    assert snapshot.uploaded == sum(handle.length for handle in first)


def test_f166_an_ack_that_cannot_be_delivered_declines_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.batch("ann", "bob")
    post = stage.taker._post

    def broken(event: Event) -> None:
        if isinstance(event, Acknowledged) and event.participant == PARTS[0]:
            raise ValueError("it is too large")
        post(event)

    monkeypatch.setattr(stage.taker, "_post", broken)
    stage.take(1)
    declined = stage.answers()[PARTS[0]]
    assert isinstance(declined, Declined)
    assert declined.cause == "its ack could not be delivered: ValueError: it is too large"
    assert declined.reason is CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION


def test_f43_a_checkpoint_that_cannot_be_begun_is_declined_and_the_stream_lives_on(stage: Stage) -> None:
    stage.batch("ann", "bob")
    stage.taker.close()  # its threads are gone
    stage.take(1)
    for answer in stage.answers().values():
        assert isinstance(answer, Declined)
        assert answer.reason is CheckpointFailureReason.IO_EXCEPTION
        assert answer.cause.startswith("it could not be begun: ")


def hold(stage: Stage, call: str) -> tuple[threading.Event, threading.Event]:
    """From now on the store's `call` waits: (it has come, let it go on)."""
    reached, go_on = threading.Event(), threading.Event()

    def act(name: str) -> None:
        if name.startswith(call):
            reached.set()
            assert go_on.wait(PATIENCE_S)

    stage.faults.act = act
    return reached, go_on


@pytest.mark.parametrize("name", [None, "upgrade"], ids=["a checkpoint", "a savepoint"])
def test_f7_what_is_uploaded_after_its_attempt_was_given_up_does_not_stay(stage: Stage, name: str | None) -> None:
    stage.batch("ann", "bob", "cyd", "dan")
    reached, go_on = hold(stage, "upload")
    stage.take(1, name)
    assert reached.wait(PATIENCE_S)
    stage.taker.discard(CheckpointId(1))
    go_on.set()
    late = stage.answers()[PARTS[0]]
    assert isinstance(late, Declined)
    assert late.cause == "checkpoint 1 was given up meanwhile"
    assert stage.files() == []


def test_f141_a_part_whose_attempt_is_given_up_before_it_begins_never_begins(stage: Stage) -> None:
    stage.batch("ann", "bob")
    reached, go_on = hold(stage, "upload")
    stage.take(1)
    assert reached.wait(PATIENCE_S)
    reached.clear()
    stage.batch("ann", "bob")
    stage.take(2)
    assert reached.wait(PATIENCE_S), "both threads are at it"
    stage.batch("ann", "bob")
    stage.take(3)
    stage.taker.discard(CheckpointId(3))
    go_on.set()
    answers = [stage.events.get(timeout=PATIENCE_S) for _ in range(3 * len(PARTS))]
    late = [answer for answer in answers if isinstance(answer, Declined)]
    assert {(answer.checkpoint, answer.participant) for answer in late} == {(3, part) for part in PARTS}
    assert [{"staged": "file-3"}] not in stage.sink.prepared
    assert [file for file in stage.files() if "c3g" in file] == []


def test_an_upload_that_fails_after_its_attempt_was_given_up_leaves_nothing_either(stage: Stage) -> None:
    """A write that raised may have happened all the same."""
    stage.batch("ann")
    reached, go_on = hold(stage, "upload")
    stage.faults.refused = ["upload"]
    stage.take(1)
    assert reached.wait(PATIENCE_S)
    stage.taker.discard(CheckpointId(1))
    go_on.set()
    declined = stage.answers()[PARTS[0]]
    assert isinstance(declined, Declined)
    assert stage.files() == []


def delete_local_files(stage: Stage) -> None:
    for path in stage.vertex.directory.rglob("*.arrow"):
        path.unlink()


def refuse_uploads(stage: Stage) -> None:
    stage.faults.refused = ["upload"]


def refuse_to_prepare(stage: Stage) -> None:
    stage.sink.failures = [SinkFailed("a staged file is gone")]


def make_a_mistake(stage: Stage) -> None:
    stage.sink.failures = [KeyError("a mistake")]


REASONS: dict[str, tuple[Callable[[Stage], None], str, str]] = {
    "a local file is gone": (delete_local_files, PARTS[0], "No such file or directory"),
    "storage refuses": (refuse_uploads, PARTS[0], "no space left on device"),
    "a sink fails": (refuse_to_prepare, PARTS[2], "a staged file is gone"),
    "a mistake": (make_a_mistake, PARTS[2], "KeyError: 'a mistake'"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_f75_a_part_that_cannot_be_given_declines_with_the_cause_and_nothing_is_left(stage: Stage, reason: str) -> None:
    make, participant, message = REASONS[reason]
    stage.batch("ann", "bob", "cyd")
    make(stage)
    stage.take(1)
    answers = stage.answers()
    declined = [answer for answer in answers.values() if isinstance(answer, Declined)]
    assert [answer.participant for answer in declined] == [participant]
    assert message in declined[0].cause
    stage.taker.discard(CheckpointId(1))
    assert stage.files() == []


def test_files_that_cannot_be_deleted_are_no_reason_to_fail(stage: Stage) -> None:
    stage.batch("ann")
    stage.take(1)
    stage.answers()
    stage.faults.refused = ["delete"]
    stage.taker.discard(CheckpointId(1))
    assert stage.files(), "they are left behind"


def test_a_long_position_is_a_file_that_later_checkpoints_share_and_savepoints_do_not(directory: Path) -> None:
    book = FileListBook("lines", "files")
    stage = Stage(directory, book)

    def files(number: int) -> None:
        stage.position = {"batch": 0, "count": book.note([{"path": f"in/{id}"} for id in range(number)])}

    files(1000)
    first = stage.complete(1)
    (base,) = first.sources[LINES].files
    files(1)
    second = stage.complete(2)
    assert second.sources[LINES].files == (base,)
    assert second.sources[LINES].position["tail"] == [{"path": "in/0"}]
    savepoint = stage.complete(3, "upgrade")
    assert savepoint.sources[LINES].files[0].path.startswith("state/")
    assert stage.shared.release(CheckpointId(1)) == [], "the second one needs the base"
    stage.taker.close()


def test_a_position_that_cannot_be_written_declines(directory: Path) -> None:
    book = FileListBook("lines", "files")
    stage = Stage(directory, book)
    stage.position = {"batch": 0, "count": book.note([{"path": f"in/{id}"} for id in range(1000)])}
    stage.faults.refused = ["create"]
    stage.take(1)
    declined = stage.answers()[PARTS[1]]
    assert isinstance(declined, Declined)
    stage.taker.close()


# ---- which files nobody needs any more


def handles(*paths: str) -> list[StateHandle]:
    return [StateHandle(path.upper(), path, 1, "00") for path in paths]


def test_f67_a_file_goes_when_no_snapshot_names_it_any_more() -> None:
    shared = SharedFiles()
    shared.register(CheckpointId(1), handles("a", "b"))
    shared.register(CheckpointId(2), handles("b", "c"))
    shared.register(CheckpointId(3), handles("c"))
    assert shared.release(CheckpointId(1)) == ["a"]
    assert shared.release(CheckpointId(2)) == ["b"]
    assert shared.release(CheckpointId(3)) == ["c"]


def test_a_file_goes_also_when_a_completed_checkpoint_stands_on_less_than_it_had_begun_with() -> None:
    """Two at once: both began with the files of 1, and 1 is retired by the first of them."""
    shared = SharedFiles()
    shared.register(CheckpointId(1), handles("a", "b"))
    shared.confirm(handles("a", "b"))
    for later in (2, 3):
        shared.register(CheckpointId(later), handles("a", "b"))
    shared.confirm(handles("b", "c"))
    assert shared.register(CheckpointId(2), handles("b", "c")) == []
    assert shared.release(CheckpointId(1)) == []
    shared.confirm(handles("c"))
    assert shared.register(CheckpointId(3), handles("c")) == ["a"]
    assert shared.release(CheckpointId(2)) == ["b"]
    assert shared.named() == {"c"}


def test_what_nobody_registered_is_never_deleted() -> None:
    assert SharedFiles().release(CheckpointId(1)) == []


def test_the_base_of_the_next_increment_stays_and_is_replaced_as_a_whole() -> None:
    shared = SharedFiles()
    shared.register(CheckpointId(1), handles("a", "b"))
    shared.confirm(handles("a", "b"))
    assert shared.confirmed().keys() == {"A", "B"}
    assert shared.release(CheckpointId(1)) == []
    shared.register(CheckpointId(1), handles("a", "b"))
    shared.confirm(handles("b"))
    assert shared.confirmed().keys() == {"B"}
    assert shared.release(CheckpointId(1)) == ["a"]
