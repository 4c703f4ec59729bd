"""However a checkpoint comes to nothing: its parts go, and every participant hears of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.coordinator.messages import Acknowledged, Event
from headgate.driver.loop import CoordinatorLoop
from headgate.recovery.fetch import SnapshotFiles
from headgate.sink.base import SinkCommitter
from headgate.sink.console import ConsoleCommitter
from headgate.sink.files_committer import FilesCommitter
from headgate.source.positions import FileListBook, PositionBook
from headgate_contract.errors import SinkFailed
from headgate_contract.history import read_history
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.mailbox import Outcome, RequestKind
from headgate_contract.snapshot import StateHandle, SubtaskState, VertexState
from tests.runtime.driver.life_world import STREAM, LifeWorld, Running
from tests.runtime.driver.waiting import PATIENCE_S, until

CHECKPOINTS = f"streams/{STREAM}/checkpoints"
BY_HAND = {"execution.checkpointing.interval": "1 h"}
EVERYBODY = [ConsoleCommitter, FileListBook, FilesCommitter]
"""Besides the state, whose part the snapshot taker keeps."""

Heard = list[tuple[type, CheckpointId]]


@pytest.fixture
def world(tmp_path: Path) -> LifeWorld:
    return LifeWorld(tmp_path)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Who was told of which checkpoint that it came to nothing."""
    found: Heard = []
    for kind in (SinkCommitter, PositionBook):
        monkeypatch.setattr(kind, "aborted", lambda self, checkpoint: found.append((type(self), checkpoint)))
    return found


def files_of(world: LifeWorld, checkpoint: int) -> list[str]:
    """What was made for this attempt and is there."""
    found = [
        info.path for folder in ("checkpoints", "shared") for info in world.store.list(f"streams/{STREAM}/{folder}")
    ]
    return [path for path in found if f".c{checkpoint}g" in path or f"/chk-{checkpoint}-" in path]


@contextmanager
def preparing(world: LifeWorld, act: Callable[[], object]) -> Iterator[None]:
    """The first time that output is to be made durable, once state has been uploaded, `act` comes first."""
    prepare, done = FilesCommitter.prepare, threading.Event()

    def instead(sink: FilesCommitter, handles: Any, **how: Any) -> Any:
        if handles and not done.is_set():
            done.set()
            until(world.shared_files, "the state's part is there")
            act()
        return prepare(sink, handles, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "prepare", instead)
        yield


def refuse() -> None:
    raise SinkFailed("no room")


def given_up(world: LifeWorld) -> list[str]:
    told = [event for event in read_history(world.store, STREAM) if event.what == "checkpoint"]
    return [event.text for event in told if event.outcome == "FAILED"]


def asked(life: Running) -> None:
    """A checkpoint by hand that comes to nothing."""
    life.ask("now", RequestKind.CHECKPOINT)
    assert life.answer("now").outcome is Outcome.FAILED


def decline(world: LifeWorld) -> Running:
    life = world.begin(settings=BY_HAND)
    life.read_all()
    with preparing(world, refuse):
        asked(life)
    return life


def expire(world: LifeWorld) -> Running:
    life = world.begin(settings=BY_HAND | {"execution.checkpointing.timeout": "1 s"})
    life.read_all()
    goes_on = threading.Event()
    with preparing(world, lambda: goes_on.wait(PATIENCE_S)):
        asked(life)
        goes_on.set()
    return life


def fail_to_store(world: LifeWorld) -> Running:
    life = world.begin(settings=BY_HAND)
    life.read_all()
    world.faults.refused, world.faults.times = [f"create {CHECKPOINTS}"], 1
    asked(life)
    return life


def subsume(world: LifeWorld) -> Running:
    goes_on = threading.Event()
    with preparing(world, lambda: goes_on.wait(PATIENCE_S)):
        life = world.begin(settings={"execution.checkpointing.max-concurrent-checkpoints": "2"})
        until(lambda: life.error or given_up(world), "a later one overtakes it")
        goes_on.set()
    return life


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (decline, "sink out declined: no room"),
        (expire, "it expired after 1000 ms, still waiting for .*sink out"),
        (fail_to_store, "it could not be stored: "),
        (subsume, "subsumed by "),
    ],
    ids=["declined", "expired", "not stored", "subsumed"],
)
def test_f44_f162_however_an_attempt_ends_its_parts_go_and_every_participant_hears_of_it(
    world: LifeWorld, heard: Heard, end: Callable[[LifeWorld], Running], said: str
) -> None:
    made: list[str] = []
    world.faults.act = lambda call: made.append(call) if call.startswith("upload ") else None
    world.write(2)
    life = end(world)
    text = given_up(world)[0]
    assert re.search(said, text)
    checkpoint = int(text.split()[1])
    told = [kind for kind, number in heard if number == checkpoint]
    assert sorted(kind.__name__ for kind in told) == sorted(kind.__name__ for kind in EVERYBODY), "each of them once"
    assert [call for call in made if f".c{checkpoint}g" in call], "it had collected parts"
    until(lambda: not files_of(world, checkpoint), "its parts go, and what was still being uploaded once it is there")
    world.write(1)
    life.read_all()
    assert life.stop() is None
    world.check_output()


def test_one_who_cannot_bear_to_hear_of_it_keeps_it_from_nobody(world: LifeWorld, heard: Heard) -> None:
    world.write(2)

    def choke(book: PositionBook, checkpoint: CheckpointId) -> None:
        raise ValueError("no, no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileListBook, "aborted", choke)
        life = fail_to_store(world)
    assert {kind for kind, _ in heard} == {FilesCommitter, ConsoleCommitter}
    assert life.stop() is None
    world.check_output()


@pytest.mark.parametrize("when", ["before", "after"])
def test_f3_a_participant_that_declines_before_or_after_its_own_durable_work_ends_the_attempt(
    world: LifeWorld, when: str
) -> None:
    prepare = FilesCommitter.prepare

    def declining(sink: FilesCommitter, handles: Any, **how: Any) -> None:
        if when == "after":
            prepare(sink, handles, **how)
        raise SinkFailed("no room")

    world.write(2)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesCommitter, "prepare", declining)
        asked(life)
    assert life.answer("now").why == "sink out declined: no room"
    assert world.catalogue.completed == ()
    until(lambda: not files_of(world, 1), "its parts go")
    life.ask("again", RequestKind.CHECKPOINT)
    assert life.answer("again").outcome is Outcome.DONE
    assert life.stop() is None
    world.check_output()


THEIRS = "streams/others/shared/theirs"
STRAY = f"streams/{STREAM}/shared/stray.c1g1"
STRANGERS = {"state of another job": THEIRS, "state of nobody": STRAY}


def ack_of_a_stranger(checkpoint: CheckpointId, participant: str) -> Acknowledged:
    """It brings a file that is there."""
    handle = StateHandle("file", STRANGERS[participant], 4, "00")
    state = VertexState(participant, 1, "hashmap", (), (SubtaskState(0, 0, 127, {}, (handle,)),))
    return Acknowledged(checkpoint=checkpoint, participant=participant, vertices={VertexUid("stranger"): state})


def test_f7_a_second_ack_discards_nothing_another_jobs_files_stay_and_what_nobody_brought_goes(
    world: LifeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, second = CoordinatorLoop.post, list[str]()

    def confused(loop: CoordinatorLoop, event: Event, *, within_ms: int = 0) -> None:
        post(loop, event, within_ms=within_ms)
        if isinstance(event, Acknowledged):
            second.append(event.participant)
            post(loop, event)
            for stranger in STRANGERS:
                post(loop, ack_of_a_stranger(event.checkpoint, stranger))

    for path in STRANGERS.values():
        world.store.create(path, b"file")
    monkeypatch.setattr(CoordinatorLoop, "post", confused)
    world.write(2)
    life = world.begin(settings=BY_HAND)
    life.read_all()
    world.store.create(STRAY, b"file")  # the life before it might have left it: this one has looked already
    life.ask("one", RequestKind.CHECKPOINT)
    assert life.answer("one").outcome is Outcome.DONE
    [first] = world.catalogue.completed
    metadata = SnapshotFiles(world.store, first).metadata()
    needed = {handle.path for handle in metadata.handles()}
    assert set(metadata.vertices) == {"number"}
    world.write(1)
    life.read_all()
    with preparing(world, refuse):
        asked(life)
    assert {"state number", "source records", "sink out", "sink console"} <= set(second)
    assert needed, "what was acknowledged twice"
    until(lambda: world.shared_files() == {*needed, STRAY}, "nothing else stays, and nothing of this goes")
    assert world.store.stat(THEIRS) is not None
    assert life.stop() is None
    life = world.begin(settings=BY_HAND)
    life.read_all()
    until(lambda: world.store.stat(STRAY) is None, "nobody names it: the next life deletes it")
    assert life.stop() is None
    assert world.store.stat(THEIRS) is not None
    world.check_output()
