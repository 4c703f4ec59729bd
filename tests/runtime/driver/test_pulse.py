"""Heart and ear: signs of life that never go back on an end, and requests, each taken up once or refused."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headgate.coordinator.messages import Cancel, Event, Trigger
from headgate.driver.pulse import Ear, Heart
from headgate.testing.coordinator_books import savepoint_ref
from headgate_contract.heartbeats import CurrentCheckpoint, Heartbeat, Progress, StreamState, read_heartbeat
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.paths import StreamPaths
from headgate_contract.places import Places
from headgate_contract.snapshot import SavepointOrigin, SnapshotKind
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.driver.ledger_world import STREAM, Faults
from tests.runtime.driver.waiting import PATIENCE_S, until
from tests.runtime.sink.stepping_store import SteppingStore

THIRD = Generation(3)


class QuickHeart(Heart):
    SOONEST_S = 0.01


@pytest.fixture
def plain() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store(plain: ObjectStore, faults: Faults) -> ObjectStore:
    return SteppingStore(plain, faults.before)


# ---- heart


@pytest.fixture
def heart(store: ObjectStore) -> Iterator[Heart]:
    heart = QuickHeart(store, STREAM, THIRD)
    yield heart
    heart.close()


def beat(store: ObjectStore) -> Heartbeat | None:
    seen = read_heartbeat(store, STREAM, THIRD)
    return None if seen is None else seen.heartbeat


def state(store: ObjectStore) -> StreamState | None:
    found = beat(store)
    return None if found is None else found.state


def counter(store: ObjectStore) -> int:
    found = beat(store)
    return 0 if found is None else found.counter


def test_a_change_of_state_is_told_at_once(heart: Heart, plain: ObjectStore) -> None:
    for wanted in (StreamState.RESTORING, StreamState.RUNNING, StreamState.STOPPING, StreamState.STOPPED):
        heart.become(wanted)
        assert state(plain) is wanted


def test_an_error_that_nobody_expects_costs_one_beat(heart: Heart, plain: ObjectStore, faults: Faults) -> None:
    failed = threading.Event()

    def fail_once(_: str) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("what no storage should raise")

    faults.act = fail_once
    heart.know(10, "")
    heart.start()
    until(lambda: counter(plain) > 1, "it beats on")
    assert failed.is_set()


@pytest.mark.parametrize("end", [StreamState.STOPPED, StreamState.FAILED, StreamState.FENCED])
def test_nothing_follows_an_end(heart: Heart, plain: ObjectStore, end: StreamState) -> None:
    heart.become(StreamState.RESTORING)
    heart.become(StreamState.STOPPING)
    heart.become(end, "the first cause")
    for later in StreamState:
        heart.become(later, "another cause")
    last = beat(plain)
    assert last is not None
    assert (last.state, last.cause) == (end, "the first cause")


def test_a_failed_stop_goes_back_to_running(heart: Heart, plain: ObjectStore) -> None:
    for wanted in (StreamState.RESTORING, StreamState.RUNNING, StreamState.STOPPING, StreamState.RUNNING):
        heart.become(wanted)
    assert state(plain) is StreamState.RUNNING


def test_it_says_which_process_it_is_of_and_where_its_log_is(heart: Heart, plain: ObjectStore) -> None:
    heart.know(100_000, "/var/log/driver.out")
    heart.start()
    until(lambda: counter(plain), "the first heartbeat")
    found = beat(plain)
    assert found is not None
    assert found.process is not None
    assert (found.log, found.interval_ms) == ("/var/log/driver.out", 100_000)


def test_it_says_which_checkpoint_is_current_and_how_long_before_the_beat_that_was(
    heart: Heart, plain: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady, wall = [50_000], [1_000_000]
    monkeypatch.setattr("headgate.driver.clock.steady_ms", lambda: steady[0])
    monkeypatch.setattr("headgate.driver.clock.wall_ms", lambda: wall[0])
    heart.become(StreamState.RESTORING)
    assert beat(plain).progress.current is None  # type: ignore[union-attr]
    heart.current(CheckpointId(12), 300)
    steady[0] += 1_500
    wall[0] -= 3_600_000  # somebody sets the clock
    heart.become(StreamState.RUNNING)
    current = beat(plain).progress.current  # type: ignore[union-attr]
    assert current == CurrentCheckpoint(checkpoint=CheckpointId(12), as_of_ms=999_700, age_ms=1_800)
    heart.current(CheckpointId(13), 5_000)
    newer = replace(current, checkpoint=CheckpointId(13))
    assert heart.progress.current == newer, "nobody goes back: it has what the one before had"
    heart.current(CheckpointId(14), None)
    assert heart.progress.current == replace(newer, checkpoint=CheckpointId(14))


def test_what_was_current_is_not_any_more_when_the_stream_goes_on_from_elsewhere(heart: Heart) -> None:
    heart.current(CheckpointId(12), None)
    assert heart.progress.current is None, "of no moment"
    heart.current(CheckpointId(12), 300)
    heart.restored(CheckpointId(12))
    assert heart.progress.current is not None
    heart.restored(CheckpointId(11))
    assert heart.progress.current is None
    heart.current(CheckpointId(13), None)
    assert heart.progress.current is None


def test_it_beats_at_its_interval(heart: Heart, plain: ObjectStore) -> None:
    heart.know(20, "")
    heart.start()
    until(lambda: counter(plain) >= 5, "five heartbeats")


def test_what_others_wait_for_is_told_soon_and_the_rest_at_the_next_interval(heart: Heart, plain: ObjectStore) -> None:
    heart.know(3_600_000, "")
    heart.start()
    until(lambda: counter(plain), "the first heartbeat")
    heart.note(lambda progress: replace(progress, records=7))
    threading.Event().wait(0.1)
    assert counter(plain) == 1
    heart.note(lambda progress: replace(progress, last_snapshot=CheckpointId(2)), soon=True)
    until(lambda: _records(plain) == 7, "the progress is told")
    assert heart.progress == Progress(records=7, last_snapshot=CheckpointId(2))


def _records(store: ObjectStore) -> int:
    found = beat(store)
    return 0 if found is None else found.progress.records


def test_a_storage_that_refuses_does_not_stop_the_heart(heart: Heart, plain: ObjectStore, faults: Faults) -> None:
    faults.refused = ["replace"]
    heart.become(StreamState.RESTORING)
    heart.know(10, "")
    heart.start()
    until(lambda: faults.times < 1_000_000 - 3, "some writes were refused")
    assert beat(plain) is None
    faults.refused = []
    until(lambda: state(plain) is StreamState.RESTORING, "it goes on")


def test_a_slow_storage_holds_nobody_who_notes_progress(heart: Heart, faults: Faults) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(call: str) -> None:
        reached.set()
        go_on.wait(3 * PATIENCE_S)

    faults.act = hold
    heart.know(10, "")
    heart.start()
    assert reached.wait(PATIENCE_S)
    noting = threading.Thread(target=heart.note, args=(lambda progress: replace(progress, batches=1),))
    noting.start()
    noting.join(timeout=PATIENCE_S / 4)
    was_held = noting.is_alive()
    go_on.set()
    noting.join()
    assert not was_held


# ---- ear


class Listener:
    """An ear of generation 3, and what it hears."""

    def __init__(self, store: ObjectStore, plain: ObjectStore) -> None:
        self.plain = plain
        self.events: list[Event] = []
        self.said: list[str] = []
        self.looks = 0
        self.ear = Ear(
            store,
            STREAM,
            THIRD,
            post=self.events.append,
            look_at_log=self.look,
            say=lambda what, outcome, text: self.said.append(text),
            interval_ms=10,
            places=Places(store.url, named=("file:///mnt/savepoints",)),
        )

    def look(self) -> None:
        self.looks += 1

    def ask(self, id: str, kind: RequestKind, args: Mapping[str, Any] | None = None, *, generation: int = 3) -> None:
        request = Request(
            id=RequestId(id), kind=kind, generation=generation, args=args or {}, deadline_ms=1000, by="ann", at_ms=0
        )
        Mailbox(self.plain, STREAM).ask(request)

    def hear(self) -> None:
        """Return when the ear has been at the mailbox after this call."""
        begun = self.looks
        until(lambda: self.looks >= begun + 3, "the ear polls")

    def answer(self, id: str) -> Answer | None:
        return Mailbox(self.plain, STREAM).answer(RequestId(id))


@pytest.fixture
def listener(store: ObjectStore, plain: ObjectStore) -> Iterator[Listener]:
    listener = Listener(store, plain)
    listener.ear.start()
    yield listener
    listener.ear.close()


EVENTS: dict[str, tuple[RequestKind, dict[str, Any], Event]] = {
    "checkpoint": (
        RequestKind.CHECKPOINT,
        {},
        Trigger(request=RequestId("one"), reason="checkpoint was asked for by ann"),
    ),
    "savepoint": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "origin": "schedule"},
        Trigger(
            kind=SnapshotKind.SAVEPOINT,
            name=SavepointName("upgrade"),
            origin=SavepointOrigin.SCHEDULE,
            request=RequestId("one"),
            reason="savepoint was asked for by ann",
        ),
    ),
    "savepoint elsewhere": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "target_directory": "/mnt/savepoints/"},
        Trigger(
            kind=SnapshotKind.SAVEPOINT,
            name=SavepointName("upgrade"),
            origin=SavepointOrigin.PERSON,
            request=RequestId("one"),
            target="file:///mnt/savepoints",
            reason="savepoint was asked for by ann",
        ),
    ),
    "stop": (
        RequestKind.STOP,
        {"savepoint": None, "drain": False},
        Trigger(request=RequestId("one"), stop=True, reason="stop was asked for by ann"),
    ),
    "stop with a savepoint": (
        RequestKind.STOP,
        {"savepoint": "last"},
        Trigger(
            kind=SnapshotKind.SAVEPOINT,
            name=SavepointName("last"),
            origin=SavepointOrigin.PERSON,
            request=RequestId("one"),
            stop=True,
            reason="stop was asked for by ann",
        ),
    ),
    "drain": (
        RequestKind.STOP,
        {"savepoint": "last", "drain": True},
        Trigger(
            kind=SnapshotKind.SAVEPOINT,
            name=SavepointName("last"),
            origin=SavepointOrigin.PERSON,
            request=RequestId("one"),
            stop=True,
            drain=True,
            reason="drain was asked for by ann",
        ),
    ),
    "stop to restore another": (
        RequestKind.STOP,
        {"savepoint": None, "keep": 3},
        Trigger(request=RequestId("one"), stop=True, keep=CheckpointId(3), reason="stop was asked for by ann"),
    ),
    "cancel": (RequestKind.CANCEL, {}, Cancel(request=RequestId("one"), reason="cancel was asked for by ann")),
}


@pytest.mark.parametrize("what", EVENTS)
def test_a_request_becomes_an_event_once(listener: Listener, what: str) -> None:
    kind, args, event = EVENTS[what]
    listener.ask("one", kind, args)
    listener.hear()
    assert listener.events == [event]
    listener.hear()
    assert listener.events == [event], "it is taken up once, although nobody has answered yet"
    assert listener.answer("one") is None


REFUSED: dict[str, tuple[RequestKind, dict[str, Any], str]] = {
    "a name that no path can carry": (
        RequestKind.SAVEPOINT,
        {"name": "../etc"},
        "'../etc' is not a valid savepoint name",
    ),
    "a name that is no text": (RequestKind.SAVEPOINT, {"name": 5}, "5 is not a valid savepoint name"),
    "a directory that is none": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "target_directory": "savepoints"},
        "'savepoints' is no directory's URL; write it like s3://bucket/folder or /mnt/folder",
    ),
    "a directory in this process's memory": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "target_directory": "memory://backup"},
        "'memory://backup' is in one process's memory, and gone with it; use file:// or s3://",
    ),
    "a directory that no setting allows": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "target_directory": "/mnt/savepoints-evil"},
        "may not be written to file:///mnt/savepoints-evil; the stream's setting headgate.snapshot.allowed-dirs allows",
    ),
    "a directory of a stop that no setting allows": (
        RequestKind.STOP,
        {"savepoint": "upgrade", "target_directory": "file:///mnt/savepoints/../elsewhere"},
        "a savepoint may not be written to file:///mnt/savepoints/../elsewhere",
    ),
    "a directory that is no text": (
        RequestKind.SAVEPOINT,
        {"name": "upgrade", "target_directory": 5},
        "the target directory of a savepoint is a URL, not 5",
    ),
    "no name": (RequestKind.SAVEPOINT, {}, "a savepoint needs a name"),
    "a stop with a wrong name": (RequestKind.STOP, {"savepoint": "a b"}, "'a b' is not a valid savepoint name"),
    "an unknown origin": (
        RequestKind.SAVEPOINT,
        {"name": "a", "origin": "a whim"},
        "the origin of a savepoint is person or schedule, not 'a whim'",
    ),
    "keeping what is no id": (
        RequestKind.STOP,
        {"keep": "last"},
        "what a stop is to keep is a checkpoint's id, not 'last'",
    ),
    "a drain without a savepoint": (RequestKind.STOP, {"drain": True}, "a drain ends with a savepoint; name it"),
    "a drain that is no choice": (
        RequestKind.STOP,
        {"savepoint": "last", "drain": "no"},
        "whether a stop drains is true or false, not 'no'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_cannot_be_meant_is_refused_with_the_reason(listener: Listener, what: str) -> None:
    kind, args, message = REFUSED[what]
    listener.ask("one", kind, args)
    listener.hear()
    answer = listener.answer("one")
    assert answer is not None
    assert answer.outcome is Outcome.FAILED
    assert message in answer.why
    assert listener.events == []


def test_f147_a_stop_of_an_earlier_generation_is_told_where_its_savepoint_is(listener: Listener) -> None:
    listener.ask("last", RequestKind.STOP, {"savepoint": "last"}, generation=2)
    listener.ear._done = {RequestId("last"): savepoint_ref(7, "last")}
    listener.hear()
    answer = listener.answer("last")
    assert answer is not None
    why = "it was meant for generation 2, which is over; savepoint last (7) is complete, at savepoints/last"
    assert answer.why == why


def test_a_request_to_an_earlier_generation_is_refused_and_one_to_a_later_left_alone(listener: Listener) -> None:
    listener.ask("old", RequestKind.CHECKPOINT, generation=2)
    listener.ask("future", RequestKind.CHECKPOINT, generation=4)
    listener.hear()
    answer = listener.answer("old")
    assert answer is not None
    assert answer.why == "it was meant for generation 2, which is over"
    assert listener.answer("future") is None
    assert listener.events == []


def test_a_corrupt_request_is_said_once_left_alone_and_blocks_nobody(listener: Listener, plain: ObjectStore) -> None:
    path = StreamPaths(STREAM).request(RequestId("torn"))
    plain.create(path, b'{"headgate": "request", "vers')
    listener.ask("good", RequestKind.CHECKPOINT)
    listener.hear()
    listener.hear()
    assert len(listener.said) == 1
    assert listener.said[0].startswith("request torn cannot be read and is left alone: ")
    assert [event.request for event in listener.events if isinstance(event, Trigger)] == ["good"]
    assert plain.stat(path) is not None
    assert listener.answer("torn") is None


def test_a_mailbox_that_cannot_be_read_is_tried_again(listener: Listener, faults: Faults) -> None:
    faults.refused = ["list"]
    listener.ask("one", RequestKind.CHECKPOINT)
    listener.hear()
    assert listener.events == []
    faults.refused = []
    listener.hear()
    assert len(listener.events) == 1


def test_a_refusal_that_storage_did_not_take_is_tried_again(listener: Listener, faults: Faults) -> None:
    faults.refused, faults.times = ["create"], 2
    listener.ask("one", RequestKind.SAVEPOINT)
    until(lambda: listener.answer("one"), "the refusal is written in the end")


def test_the_ear_outlives_a_surprise(listener: Listener) -> None:
    def surprise() -> None:
        listener.looks += 1
        raise KeyError("a mistake")

    was = listener.look
    listener.ear._look_at_log = surprise
    listener.hear()
    listener.ear._look_at_log = was
    listener.ask("one", RequestKind.CHECKPOINT)
    listener.hear()
    assert len(listener.events) == 1
