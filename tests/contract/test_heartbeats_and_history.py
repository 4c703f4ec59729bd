"""Signs of life, their age by the storage's clock, and what happened: for people, and torn files hide nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_contract import wire
from headgate_contract.heartbeats import (
    LEGAL,
    TERMINAL,
    Heartbeat,
    Progress,
    StreamState,
    delete_old_heartbeats,
    read_heartbeat,
    write_heartbeat,
)
from headgate_contract.history import Event, read_history, record_event
from headgate_contract.ids import Generation, StreamName
from headgate_contract.paths import HEARTBEATS, StreamPaths, heartbeat_of
from headgate_contract.process import identify, started
from headgate_contract.store import ObjectStore, open_store
from headgate_contract.store_local import LocalStore
from headgate_contract.store_memory import MemoryStore
from tests.contract.lives import STREAM
from tests.contract.store_suite import unique
from tests.contract.stored_values import resealed

PATH = StreamPaths(STREAM).heartbeat(Generation(1))


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{unique()}")


def beat(stream: str = STREAM, generation: int = 1, counter: int = 1) -> Heartbeat:
    return Heartbeat(
        stream=StreamName(stream),
        generation=Generation(generation),
        counter=counter,
        state=StreamState.RUNNING,
        at_ms=1,
        interval_ms=2000,
        process=identify(),
        progress=Progress(batches=3, extra={"lag": 0.5}),
    )


class TestHeartbeats:
    def test_the_newest_beat_of_a_generation_is_read_with_one_request(self, store: ObjectStore) -> None:
        write_heartbeat(store, beat(counter=1))
        write_heartbeat(store, beat(counter=2))
        write_heartbeat(store, beat(generation=2))
        seen = read_heartbeat(store, STREAM, Generation(1))
        assert seen is not None
        assert seen.heartbeat == beat(counter=2)
        assert read_heartbeat(store, STREAM, Generation(2)) is not None
        assert read_heartbeat(store, STREAM, Generation(3)) is None

    def test_those_of_generations_long_past_are_deleted_and_of_no_other_stream(self, store: ObjectStore) -> None:
        for generation in range(1, 26):
            write_heartbeat(store, beat(generation=generation))
        for other in ("order", "orders-2", "orders.g7", "a", "z"):
            write_heartbeat(store, beat(other))
        store.create(f"{HEARTBEATS}/orders.g0.json", b"a stray file")
        assert delete_old_heartbeats(store, STREAM, Generation(25)) == 5
        left = {heartbeat_of(info.path) for info in store.list(HEARTBEATS)} - {None}
        assert left == {
            *((STREAM, generation) for generation in range(6, 26)),
            *((other, 1) for other in ("order", "orders-2", "orders.g7", "a", "z")),
        }
        assert delete_old_heartbeats(store, STREAM, Generation(25)) == 0

    def test_age_is_told_by_the_storages_clock_whatever_the_driver_thinks(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        write_heartbeat(store, beat())
        path = tmp_path / StreamPaths(STREAM).heartbeat(Generation(1))
        os.utime(path, (store.now() - 100, store.now() - 100))
        seen = read_heartbeat(store, STREAM, Generation(1))
        assert seen is not None
        assert 99 < seen.age_s < 110
        os.utime(path, (store.now() + 1000, store.now() + 1000))
        seen = read_heartbeat(store, STREAM, Generation(1))
        assert seen is not None
        assert seen.age_s == 0

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"torn", "is not a heartbeat file"),
            (wire.encode("heartbeat", beat(generation=2), PATH), "holds the heartbeat of orders, generation 2"),
            (
                resealed(wire.encode("heartbeat", beat(), PATH), b"running", b"dreaming"),
                "'dreaming', allowed are launched",
            ),
            (resealed(wire.encode("heartbeat", beat(), PATH), b'"version":', b'"version":9'), "of version 9"),
            (wire.encode("heartbeat", beat(), PATH).replace(b"running", b"failed"), "checksum is that of other bytes"),
            (wire.encode("heartbeat", beat(), f"{HEARTBEATS}/other.g1.json"), "is misplaced"),
        ],
    )
    def test_a_corrupt_heartbeat_is_seen_with_its_fault(self, store: ObjectStore, data: bytes, says: str) -> None:
        store.create(StreamPaths(STREAM).heartbeat(Generation(1)), data)
        seen = read_heartbeat(store, STREAM, Generation(1))
        assert seen is not None
        assert seen.heartbeat is None
        assert seen.fault is not None
        assert says in seen.fault

    @pytest.mark.parametrize("name", ["readme", "..g1.json", "x.g0.json", "x.g01.json", "-x.g1.json", "sub/x.g1.json"])
    def test_strange_files_among_the_heartbeats_are_none(self, name: str) -> None:
        assert heartbeat_of(f"{HEARTBEATS}/{name}") is None

    def test_a_heartbeat_that_vanishes_while_it_is_read_is_none(self) -> None:
        class Vanishing(MemoryStore):
            def read(self, path: str) -> bytes:
                self.delete(path)
                return super().read(path)

        store = Vanishing(f"memory://{unique()}")
        write_heartbeat(store, beat())
        assert read_heartbeat(store, STREAM, Generation(1)) is None

    def test_every_state_has_its_successors_and_an_ended_one_has_none(self) -> None:
        assert set(LEGAL) == set(StreamState)
        assert {StreamState.STOPPED, StreamState.FAILED, StreamState.FENCED} == TERMINAL
        reachable = {StreamState.LAUNCHED}
        for _ in StreamState:
            reachable |= {after for state in reachable for after in LEGAL[state]}
        assert reachable == set(StreamState)


class TestHistory:
    def event(self, at_ms: int, what: str = "checkpoint") -> Event:
        return Event(at_ms=at_ms, what=what, outcome="EXECUTED", by="driver", generation=1, details={"bytes": 12})

    def test_it_is_in_the_order_of_the_log_whatever_the_clocks_say(self, store: ObjectStore) -> None:
        behind, ahead = replace(self.event(5), slot=3), replace(self.event(1_700_000_000_000), slot=2)
        for event in (ahead, behind):
            record_event(store, STREAM, event)
        assert read_history(store, STREAM) == [ahead, behind]
        assert read_history(store, STREAM, limit=1) == [behind]

    def test_events_are_told_in_the_order_of_their_moments(self, store: ObjectStore) -> None:
        for at_ms in (5, 1_700_000_000_000, 70):
            record_event(store, STREAM, self.event(at_ms))
        assert read_history(store, STREAM) == [self.event(5), self.event(70), self.event(1_700_000_000_000)]

    def test_two_events_of_one_moment_are_two(self, store: ObjectStore) -> None:
        record_event(store, STREAM, self.event(5))
        record_event(store, STREAM, self.event(5))
        assert len(read_history(store, STREAM)) == 2

    def test_of_a_long_one_only_what_is_wanted_is_read(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for at_ms in range(5):
            record_event(store, STREAM, self.event(at_ms))
        read: list[str] = []
        whole = store.read
        monkeypatch.setattr(store, "read", lambda path: read.append(path) or whole(path))
        assert [event.at_ms for event in read_history(store, STREAM, 2)] == [3, 4]
        assert len(read) == 2

    def test_an_unreadable_event_is_told_at_its_moment(self, store: ObjectStore) -> None:
        record_event(store, STREAM, self.event(5))
        store.create(StreamPaths(STREAM).event(0, 6, "torn"), b"torn")
        record_event(store, STREAM, self.event(7))
        store.create(f"{StreamPaths(STREAM).history}/zz", b"torn")
        told = read_history(store, STREAM)
        assert [event.at_ms for event in told[:3]] == [5, 6, 7]
        assert [event.what for event in told] == ["checkpoint", "unreadable", "checkpoint", "unreadable"]
        assert "torn.json is not an event file" in told[1].text
        assert told[3].at_ms > 7

    def test_an_event_that_vanishes_while_it_is_read_is_left_out(self) -> None:
        class Vanishing(MemoryStore):
            def read(self, path: str) -> bytes:
                self.delete(path)
                return super().read(path)

        store = Vanishing(f"memory://{unique()}")
        record_event(store, STREAM, self.event(5))
        assert read_history(store, STREAM) == []


class TestProcessIdentity:
    def test_this_process_is_known_again(self) -> None:
        found = identify()
        assert found is not None
        assert found.pid == os.getpid()
        assert found == identify(os.getpid())
        assert found.started == started(os.getpid())

    def test_a_process_that_is_gone_has_no_identity(self) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert identify(child) is None, "a zombie is no process"
        os.waitpid(child, 0)
        assert identify(child) is None
