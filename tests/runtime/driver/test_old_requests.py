"""What callers and drivers said to one another long ago goes: what a look reads does not grow with a stream's age."""

from __future__ import annotations

import itertools
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from headgate.driver.cleaner import Cleaner
from headgate.driver.pulse import Ear
from headgate.driver.shared_state import SharedFiles
from headgate_contract import forgetting, wire
from headgate_contract.catalogue import read_catalogue
from headgate_contract.forgetting import ANSWERED_KEPT, ANSWERED_KEPT_S, forget_events, forget_requests
from headgate_contract.history import Event, read_history
from headgate_contract.ids import Generation, RequestId
from headgate_contract.mailbox import Answer, Mailbox, Outcome, Request, RequestKind
from headgate_contract.paths import StreamPaths
from headgate_contract.places import Places
from headgate_contract.records import SnapshotCompleted, StopWanted, slot_log
from headgate_contract.settings import Settings
from headgate_control.catalogues import Catalogues
from headgate_control.status import Observer
from headgate_control.watch import Watch
from tests.contract.far_store import Far
from tests.contract.lives import STREAM, Lives, snapshot, started

LONG_AGO, NOW = 1_000.0, 1_000.0 + 2 * ANSWERED_KEPT_S
PATHS = StreamPaths(STREAM)


@pytest.fixture
def store() -> Far:
    found = Far({}, {})
    found.clock_s = LONG_AGO
    return found


def asked(id: str) -> Request:
    return Request(
        id=RequestId(id), kind=RequestKind.CHECKPOINT, generation=1, deadline_ms=1, by="ann", at_ms=1, nonce="n"
    )


def ask(store: Far, id: str, outcome: Outcome | None = Outcome.DONE) -> None:
    """A request, and its answer if there is one."""
    path = PATHS.request(RequestId(id))
    store.replace(path, wire.encode("request", asked(id), path))
    if outcome is not None:
        answer(store, id, outcome)


def answer(store: Far, id: str, outcome: Outcome = Outcome.DONE) -> None:
    path = PATHS.answer(RequestId(id))
    store.replace(
        path, wire.encode("answer", Answer(id=RequestId(id), outcome=outcome, generation=Generation(1), at_ms=1), path)
    )


def many(store: Far, count: int = ANSWERED_KEPT + 10, name: str = "old") -> None:
    for number in range(count):
        ask(store, f"{name}-{number:05d}")


def names(store: Far, folder: str) -> set[str]:
    return {info.path.removeprefix(f"{folder}/").removesuffix(".json") for info in store.near().list(folder)}


class AtOnce(Executor):
    def submit(self, act: Any, /, *args: Any, **more: Any) -> Future[Any]:
        act(*args, **more)
        return Future()


def listened(store: Far) -> int:
    """The requests to storage of a driver's ear, each time that it listens to the mailbox."""
    ear = Ear(
        store,
        STREAM,
        Generation(1),
        post=lambda event: None,
        look_at_log=lambda: None,
        say=lambda what, outcome, text: None,
        interval_ms=1000,
        places=Places.of("file:///root", Settings({})),
    )
    store.start()
    ear.listen()
    return store.requests


def test_what_an_ear_reads_does_not_grow_with_the_stream_s_age(store: Far) -> None:
    many(store, 5_000)
    slot_log(store, STREAM).append(None, started(1))
    store.clock_s = NOW
    assert listened(store) == 12, "5,000 names of either, a thousand in a page"
    Cleaner(store, SharedFiles(), {}, AtOnce()).forget_old(read_catalogue(store, STREAM))
    assert listened(store) == 2
    assert len(names(store, PATHS.requests)) == len(names(store, PATHS.answers)) == ANSWERED_KEPT
    store.start()
    assert forget_requests(store, STREAM, ()) == 0
    assert store.requests <= 3, "nor does the look of who deletes"


def test_the_last_answered_stay_and_each_for_a_day(store: Far) -> None:
    many(store, 3)
    store.clock_s = LONG_AGO + 1
    many(store, ANSWERED_KEPT, "kept")
    store.clock_s = LONG_AGO + ANSWERED_KEPT_S
    assert forget_requests(store, STREAM, ()) == 0
    store.clock_s += 0.5
    assert forget_requests(store, STREAM, ()) == 6
    assert names(store, PATHS.requests) == {f"kept-{number:05d}" for number in range(ANSWERED_KEPT)}


def test_what_nobody_has_answered_stays_whatever_its_age(store: Far) -> None:
    for id in ("waits", "tried~2"):
        ask(store, id, None)
    ask(store, "tried", Outcome.FAILED)
    many(store)
    store.clock_s = NOW
    forget_requests(store, STREAM, ())
    assert {"waits", "tried", "tried~2"} <= names(store, PATHS.requests)
    assert "tried" in names(store, PATHS.answers), "or it would be tried a second time"


def test_no_ordinal_is_used_twice(store: Far) -> None:
    """A repeated request finds its last ordinal, or the very first one anew; never one in between."""
    ask(store, "again", Outcome.FAILED)
    many(store)
    store.clock_s = NOW
    ask(store, "again~2")
    forget_requests(store, STREAM, ())
    mailbox = Mailbox(store.near(), STREAM)
    assert mailbox.ask(asked("again")).id == "again~2"
    store.clock_s = NOW + 2 * ANSWERED_KEPT_S
    many(store, ANSWERED_KEPT, "newer")
    forget_requests(store, STREAM, ())
    assert not {"again", "again~2"} & (names(store, PATHS.requests) | names(store, PATHS.answers))


def test_what_the_log_tells_of_stays(store: Far) -> None:
    """Its driver would take a new request of that id for carried out."""
    lives = Lives()
    lives.start()
    lives.append(SnapshotCompleted(generation=Generation(1), snapshot=snapshot(1), request=RequestId("logged~2")))
    ask(store, "logged", Outcome.FAILED)
    ask(store, "logged~2")
    store.clock_s = LONG_AGO + 1
    many(store)
    store.clock_s = NOW
    Cleaner(store, SharedFiles(), {}, AtOnce()).forget_old(lives.catalogue)
    assert {"logged", "logged~2"} <= names(store, PATHS.requests) & names(store, PATHS.answers)
    assert len(names(store, PATHS.requests)) == ANSWERED_KEPT + 2


def test_a_stop_that_failed_does_not_stand_again(store: Far) -> None:
    """The wish stays in the log while its generation runs, and only the answer says that it came to nothing."""
    lives = Lives()
    lives.deploy()
    lives.start()
    wish = StopWanted(generation=Generation(1), by="ann", reason="stop", at_ms=1, request=RequestId("a-stop"))
    lives.decide(wish)
    ask(store, "a-stop", Outcome.FAILED)
    store.clock_s = LONG_AGO + 1
    many(store)
    store.clock_s = NOW
    Cleaner(store, SharedFiles(), {}, AtOnce()).forget_old(lives.catalogue)
    observer = Observer(store, Catalogues(store), Watch())
    assert observer.stop_wanted(lives.catalogue, Generation(1)) is None


@pytest.mark.parametrize("deleted", range(8))
def test_a_deletion_that_is_broken_off_leaves_nothing_that_looks_unanswered(store: Far, deleted: int) -> None:
    class BrokenOff(Far):
        def delete(self, path: str) -> bool:
            if not next(left):
                raise OSError("killed")
            return super().delete(path)

        def delete_many(self, paths: Any) -> None:
            for path in paths:
                self.delete(path)

    left = itertools.chain([True] * deleted, itertools.repeat(False))
    many(store, ANSWERED_KEPT + 4)
    broken = BrokenOff(store._objects, store._data)
    broken.clock_s = store.clock_s = NOW
    with pytest.raises(OSError, match="killed"):
        forget_requests(broken, STREAM, ())
    assert Mailbox(store.near(), STREAM).open_requests() == []
    forget_requests(store, STREAM, ())
    assert len(names(store, PATHS.requests) | names(store, PATHS.answers)) == ANSWERED_KEPT


def happened(store: Far, what: str, number: int) -> None:
    event = Event(at_ms=number, what=what, outcome="EXECUTED", by="driver", slot=number)
    path = PATHS.event(number, number, f"{number:016x}", what)
    store.replace(path, wire.encode("event", event, path))


def test_of_checkpoints_and_of_all_else_the_newest_events_stay(store: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "EVENTS_KEPT", 50)
    for number in range(1, 4):
        happened(store, "launch", number)
    for number in range(4, 59):
        happened(store, "checkpoint", number)
    assert forget_events(store, STREAM) == 5
    kept = read_history(store.near(), STREAM)
    assert [event.slot for event in kept[:4]] == [1, 2, 3, 9]
    assert len(kept) == 53
    assert forget_events(store, STREAM) == 0
