"""How long a recovery took: its terms, and what the storage's clock tells of the time before the driver was there."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from headgate.driver import recovery_watch
from headgate.driver.recovery_watch import RecoveryWatch
from headgate_contract.errors import StorageError
from headgate_contract.heartbeats import Heartbeat, StreamState, write_heartbeat
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.measures import RecoveryKind
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import GenerationStarted, slot_log
from headgate_contract.restore import StartFresh
from headgate_contract.store import ObjectStore, open_store

STREAM = StreamName("orders")
LATER = Generation(2)


def started(replaces: int | None) -> GenerationStarted:
    return GenerationStarted(
        generation=LATER,
        decision=StartFresh("for a test"),
        first_checkpoint=CheckpointId(1),
        deployed=1,
        by="ann",
        host="here",
        at_ms=0,
        launch="launch",
        log="",
        replaces=Generation(replaces) if replaces is not None else None,
    )


class Past:
    """A root on which generation 1 beat for the last time, and generation 2 was claimed, so many seconds ago."""

    def __init__(self, root: Path, beat_s: float, claim_s: float) -> None:
        self.store = open_store(str(root))
        beat = Heartbeat(
            stream=STREAM, generation=Generation(1), counter=1, state=StreamState.RUNNING, at_ms=0, interval_ms=1
        )
        write_heartbeat(self.store, beat)
        self.slot = slot_log(self.store, STREAM).append(None, started(1)).number
        paths = StreamPaths(STREAM)
        now = self.store.now()
        for path, age in ((paths.heartbeat(Generation(1)), beat_s), (numbered(paths.slots, self.slot), claim_s)):
            os.utime(root / path, (now - age, now - age))

    def watch(self, replaces: int | None) -> RecoveryWatch:
        return RecoveryWatch.of_launch(self.store, STREAM, started(replaces), self.slot)


def test_detection_is_from_the_last_sign_of_life_to_the_claim_by_the_clock_of_storage(tmp_path: Path) -> None:
    time = Past(tmp_path, beat_s=30, claim_s=8).watch(replaces=1).runs()
    assert time.kind is RecoveryKind.RECOVERY
    assert time.detect_ms == pytest.approx(22_000, abs=10)
    assert 8000 <= time.redeploy_ms < 60_000, "from the claim on"
    assert time.total_ms == pytest.approx(time.redeploy_ms + 22_000, abs=10)


def test_a_start_by_a_person_has_detected_nothing(tmp_path: Path) -> None:
    time = Past(tmp_path, beat_s=30, claim_s=8).watch(replaces=None).runs()
    assert (time.kind, time.detect_ms, time.snapshot) == (RecoveryKind.START, None, None)


def test_how_long_a_driver_was_silent_that_has_woken_since_nobody_can_tell(tmp_path: Path) -> None:
    assert Past(tmp_path, beat_s=1, claim_s=8).watch(replaces=1).runs().detect_ms is None


def test_storage_that_does_not_tell_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    assert RecoveryWatch.of_launch(store, STREAM, started(1), SlotNumber(1)).runs().detect_ms is None

    def refuse(self: ObjectStore, path: str) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(type(store), "stat", refuse)
    assert RecoveryWatch.of_launch(store, STREAM, started(1), SlotNumber(1)).runs().detect_ms is None


def test_the_terms_are_what_happened_in_them_and_redeployment_is_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5000.0]
    monkeypatch.setattr(recovery_watch, "_now_ms", lambda: now[0])
    watch = RecoveryWatch(RecoveryKind.RESTART, LATER, CheckpointId(3), since_ms=100.0)
    for name, takes in (("load_state", 40), ("reset_source", 5), ("reset_sink", 7), ("reset_source", 6)):
        with watch.term(name):
            now[0] += takes
        now[0] += 1
    watch.loaded(12)
    watch.loaded(30)
    time = watch.runs()
    assert (time.load_state_ms, time.reset_source_ms, time.reset_sink_ms) == (40.0, 11.0, 7.0)
    assert time.redeploy_ms == 104.0
    assert time.total_ms == 162.0
    assert (time.snapshot, time.loaded_bytes) == (3, 42)
