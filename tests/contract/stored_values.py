"""The values that the fixtures of today's versions were written from; a new version gets new files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate_contract import wire
from headgate_contract.codec import to_plain
from headgate_contract.heartbeats import (
    CurrentCheckpoint,
    FailedAt,
    Heartbeat,
    ProcessIdentity,
    Progress,
    Standing,
    StreamState,
)
from headgate_contract.history import Event
from headgate_contract.id_ranges import Span
from headgate_contract.ids import (
    CheckpointId,
    Generation,
    RequestId,
    SavepointName,
    SlotNumber,
    StreamName,
    VertexUid,
)
from headgate_contract.mailbox import Answer, Outcome, Request, RequestKind
from headgate_contract.measures import CheckpointCost, RecoveryKind, RecoveryTime
from headgate_contract.operator_state import OperatorState, OperatorStateKind
from headgate_contract.records import (
    Deployed,
    GenerationStarted,
    Hole,
    Repaired,
    Restarted,
    Retired,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
    StreamCopy,
)
from headgate_contract.restore import ClaimMode, Rejected, RestoreFrom, Rollback, SinkRollback, StartFresh
from headgate_contract.root_store import RootIdentity
from headgate_contract.snapshot import (
    CommittableGroup,
    ExternalizedCheckpointRetention,
    InFlight,
    InputState,
    SavepointOrigin,
    SnapshotKind,
    SnapshotMetadata,
    SnapshotRef,
    SourceState,
    StateHandle,
    SubtaskState,
    TaskState,
    VertexState,
)
from headgate_contract.summary import CompletedBy, KeptDecision, KeptSlot, Summary

CHECKPOINT = SnapshotRef(
    CheckpointId(42),
    SnapshotKind.CHECKPOINT,
    Generation(6),
    "streams/word-count/checkpoints/chk-42-g6",
    1234,
    "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
)
SAVEPOINT = SnapshotRef(
    CheckpointId(40),
    SnapshotKind.SAVEPOINT,
    Generation(6),
    "streams/word-count/savepoints/before-upgrade",
    2345,
    "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
    SavepointName("before-upgrade"),
    SavepointOrigin.PERSON,
)
DEPLOYED = Deployed(
    job="/srv/jobs/word_count.py",
    job_sha256="d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35",
    directory="/srv/jobs",
    settings={"execution.checkpointing.interval": "10 s", "spark.master": "local[2]"},
    plan={"job": "word-count", "sinks": {"out": {"kind": "files", "rollback": "retract"}}},
    by="anna",
    at_ms=1_700_000_000_000,
)
STATE_FILE = StateHandle(
    "0001.arrow",
    "streams/word-count/shared/0001.arrow",
    4096,
    "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce",
)

_VALUES_1: dict[str, tuple[str, Any]] = {
    "slot-generation-started": (
        "slot",
        GenerationStarted(
            generation=Generation(7),
            decision=RestoreFrom(
                CHECKPOINT,
                "the newest snapshot that generation 6 completed",
                (Rejected(SAVEPOINT, "older than checkpoint 42"),),
                (SinkRollback(VertexUid("out"), Rollback.RETRACT, (Span(43, 44),)),),
            ),
            first_checkpoint=CheckpointId(45),
            deployed=3,
            by="anna",
            host="host-1",
            at_ms=1_700_000_100_000,
            launch="8f14e45fceea167a5a36dedd4bea2543",
            log="/var/log/headgate/word-count/g7/driver.log",
            accept_duplicates=True,
            replaces=Generation(6),
        ),
    ),
    "slot-generation-started-fresh": (
        "slot",
        GenerationStarted(
            generation=Generation(1),
            decision=StartFresh("the stream has never run"),
            first_checkpoint=CheckpointId(1),
            deployed=1,
            by="Änne 🙂",
            host="host-1",
            at_ms=1_700_000_000_000,
            launch="c4ca4238a0b923820dcc509a6f75849b",
            log="/tmp/\udcff/driver.log",
        ),
    ),
    "slot-snapshot-completed": (
        "slot",
        SnapshotCompleted(
            generation=Generation(6),
            snapshot=SAVEPOINT,
            committed=(CheckpointId(38), CheckpointId(39)),
            retires=(CheckpointId(37),),
            request=RequestId("nightly~2"),
        ),
    ),
    "slot-stopped": (
        "slot",
        Stopped(
            generation=Generation(6),
            reason="stop was asked for",
            committed=(CheckpointId(42),),
            snapshot=CheckpointId(42),
            request=RequestId("stop-1"),
        ),
    ),
    "decision-deployed": ("decision", DEPLOYED),
    "decision-stop-wanted": (
        "decision",
        StopWanted(generation=Generation(6), by="anna", reason="upgrade", at_ms=1_700_000_000_001),
    ),
    "decision-stop-withdrawn": (
        "decision",
        StopWithdrawn(generation=Generation(6), by="anna", reason="the stop failed", at_ms=1_700_000_000_002),
    ),
    "decision-retired": (
        "decision",
        Retired(
            snapshots=(CheckpointId(40), CheckpointId(41)), by="retention", reason="too many", at_ms=1_700_000_000_003
        ),
    ),
    "request": (
        "request",
        Request(
            id=RequestId("nightly~2"),
            kind=RequestKind.SAVEPOINT,
            generation=6,
            args={"name": "before-upgrade", "origin": "person"},
            deadline_ms=60_000,
            by="anna",
            at_ms=1_700_000_000_000,
            nonce="1679091c5a880faf6fb5e6087eb1b2dc",
        ),
    ),
    "answer": (
        "answer",
        Answer(
            id=RequestId("nightly~2"),
            outcome=Outcome.DONE,
            result={"snapshot": 40, "name": "before-upgrade", "folder": "streams/word-count/savepoints/before-upgrade"},
            why="",
            generation=6,
            late=True,
            at_ms=1_700_000_005_000,
        ),
    ),
    "heartbeat": (
        "heartbeat",
        Heartbeat(
            stream=StreamName("word-count"),
            generation=Generation(7),
            counter=17,
            state=StreamState.FAILED,
            at_ms=1_700_000_000_000,
            interval_ms=2000,
            process=ProcessIdentity("host-1", "3f1c8c0e-boot", 4711, "ticks:123456"),
            log="/var/log/headgate/word-count/g7/driver.log",
            cause="micro-batch 9 failed",
            progress=Progress(
                batches=9,
                records=100_000,
                replayed=512,
                checkpoints=3,
                failed_checkpoints=1,
                last_snapshot=CheckpointId(45),
                last_committed=CheckpointId(44),
                watermark_ms=1_699_999_999_000,
                spark_ui="http://host-1:4040",
                extra={"batch_s": 0.25},
            ),
        ),
    ),
    "event": (
        "event",
        Event(
            at_ms=1_700_000_000_000,
            what="checkpoint",
            outcome="EXECUTED",
            by="driver",
            generation=7,
            text="checkpoint 45 is complete and committed",
            details={"bytes": 4096, "took_ms": 51},
            slot=812,
        ),
    ),
    "snapshot": (
        "snapshot",
        SnapshotMetadata(
            stream=StreamName("word-count"),
            id=CheckpointId(42),
            generation=Generation(6),
            kind=SnapshotKind.CHECKPOINT,
            max_parallelism=128,
            created_ms=1_700_000_000_000,
            sources={VertexUid("lines"): SourceState("the lines", "socket", {"segment": 3, "byte": 99}, (STATE_FILE,))},
            vertices={
                VertexUid("counts"): VertexState(
                    "the counts",
                    2,
                    "hashmap",
                    ({"name": "n", "type": "int64"},),
                    (
                        SubtaskState(0, 0, 63, {"segments": ["0001.arrow"]}, (STATE_FILE,)),
                        SubtaskState(1, 64, 127, {"segments": []}, ()),
                    ),
                    12,
                )
            },
            committables=(
                CommittableGroup(CheckpointId(41), {VertexUid("out"): ({"staged": "staged/a.parquet", "rows": 3},)}),
                CommittableGroup(CheckpointId(42), {VertexUid("out"): ()}),
            ),
            records=100_000,
            watermark_ms=1_699_999_999_000,
        ),
    ),
    "stream": (
        "stream",
        StreamCopy(
            stream=StreamName("word-count"), number=SlotNumber(3), root="file:///srv/headgate", deployed=DEPLOYED
        ),
    ),
    "root": ("root", RootIdentity("0b0ffb2f7a4e4d5c9d0a7b3c5e1f2a3b", "anna", 1_700_000_000_000)),
}
"""By the fixture's name: its kind, and what it says."""

HEARTBEAT = _VALUES_1["heartbeat"][1]
HEARTBEAT_2 = replace(
    HEARTBEAT, process=replace(HEARTBEAT.process, machine="a1b2c3d4e5f60718", namespace="pid:[4026531836]")
)
SNAPSHOT = _VALUES_1["snapshot"][1]
STARTED = _VALUES_1["slot-generation-started"][1]
BROUGHT = replace(SAVEPOINT, id=CheckpointId(44), folder="nightly-40-g6", location="s3://backup", foreign=True)
STARTED_2 = replace(
    STARTED,
    decision=replace(
        STARTED.decision,
        snapshot=BROUGHT,
        non_restored=(VertexUid("totals"),),
        claim_mode=ClaimMode.CLAIM,
        place_allowed=True,
    ),
)
_VALUES_2: dict[str, tuple[str, Any]] = {
    "decision-deployed": ("decision", DEPLOYED),
    "decision-stop-wanted": (
        "decision",
        StopWanted(
            generation=Generation(6),
            by="anna",
            reason="upgrade",
            at_ms=1_700_000_000_001,
            request=RequestId("stop-1"),
        ),
    ),
    "decision-stop-withdrawn": _VALUES_1["decision-stop-withdrawn"],
    "decision-retired": _VALUES_1["decision-retired"],
    "heartbeat": ("heartbeat", HEARTBEAT_2),
    "slot-generation-started": ("slot", STARTED_2),
    "slot-generation-started-fresh": _VALUES_1["slot-generation-started-fresh"],
    "slot-snapshot-completed": _VALUES_1["slot-snapshot-completed"],
    "slot-restarted": (
        "slot",
        Restarted(
            generation=Generation(6),
            restart=2,
            cause="micro-batch 9 failed: ValueError: 47 is not good",
            snapshot=CheckpointId(42),
            at_ms=1_700_000_000_000,
        ),
    ),
    "slot-stopped": ("slot", replace(_VALUES_1["slot-stopped"][1], retires=(CheckpointId(40), CheckpointId(41)))),
    "snapshot": (
        "snapshot",
        replace(
            SNAPSHOT,
            retention=ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION,
            vertices={
                VertexUid("counts"): replace(
                    SNAPSHOT.vertices[VertexUid("counts")],
                    operator_states={
                        "late": OperatorState(OperatorStateKind.LIST, ([["k1", 3], ["k2", 4]], [])),
                        "seen": OperatorState(OperatorStateKind.UNION, ([1.5], ["a", None])),
                        "rules": OperatorState(OperatorStateKind.BROADCAST, ({"limit": 10, "on": True},)),
                        "next id": OperatorState(OperatorStateKind.SINGLE, (None, 17)),
                    },
                )
            },
        ),
    ),
    "event": _VALUES_1["event"],
    "event-checkpoint": (
        "event",
        Event(
            at_ms=1_700_000_000_000,
            what="checkpoint",
            outcome="EXECUTED",
            by="driver",
            generation=7,
            text="checkpoint 45 is complete and committed",
            measures=CheckpointCost(
                checkpoint=CheckpointId(45),
                kind=SnapshotKind.CHECKPOINT,
                due_ms=1_699_999_999_900,
                barrier_ms=40.5,
                snapshot_ms=0.25,
                persist_ms=33.0,
                coordination_ms=17.5,
                uploaded_bytes=4096,
                uploaded_files=2,
                full_bytes=65_536,
            ),
        ),
    ),
    "event-start": (
        "event",
        Event(
            at_ms=1_700_000_000_000,
            what="start",
            outcome="EXECUTED",
            by="driver",
            generation=7,
            text="generation 7 runs",
            measures=RecoveryTime(
                kind=RecoveryKind.RECOVERY,
                generation=Generation(7),
                snapshot=CheckpointId(42),
                detect_ms=21_000.0,
                redeploy_ms=8000.5,
                load_state_ms=700.25,
                reset_source_ms=120.0,
                reset_sink_ms=30.0,
                loaded_bytes=65_536,
            ),
        ),
    ),
}
"""What has gained fields since, and what is new."""

_VALUES_3: dict[str, tuple[str, Any]] = {
    "heartbeat": (
        "heartbeat",
        replace(HEARTBEAT_2, progress=replace(HEARTBEAT_2.progress, restarts=3), given_up=True),
    ),
    "snapshot": (
        "snapshot",
        replace(
            _VALUES_2["snapshot"][1],
            tasks={
                VertexUid("counts"): TaskState(
                    {
                        "lines->counts": InputState(1_700_000_000_000),
                        "words->counts": InputState(
                            in_flight=(InFlight(3, (STATE_FILE,)), InFlight(watermark_ms=1_700_000_001_000), InFlight())
                        ),
                        "idlers->counts": InputState(idle=True),
                    },
                    1_700_000_000_000,
                )
            },
        ),
    ),
}

_VALUES_4: dict[str, tuple[str, Any]] = {
    "snapshot": (
        "snapshot",
        replace(_VALUES_3["snapshot"][1], finished=(VertexUid("counts"), VertexUid("lines"))),
    ),
}

_HEARTBEAT_3 = _VALUES_3["heartbeat"][1]
_VALUES_5: dict[str, tuple[str, Any]] = {
    "heartbeat": (
        "heartbeat",
        replace(
            _HEARTBEAT_3,
            progress=replace(_HEARTBEAT_3.progress, standstills=2),
            standing=(
                Standing(
                    what="Spark's JVM has not answered",
                    for_ms=42_500,
                    allowed_ms=60_000,
                    setting="headgate.progress.timeout",
                ),
            ),
        ),
    ),
}

_HEARTBEAT_5 = _VALUES_5["heartbeat"][1]
_CURRENT = CurrentCheckpoint(checkpoint=CheckpointId(45), as_of_ms=1_699_999_998_500, age_ms=1_500)
_VALUES_6: dict[str, tuple[str, Any]] = {
    "slot-hole": ("slot", Hole(repair="20260102-0304-9f", why="streams/a/slots/00000007.json is damaged")),
    "slot-repaired": (
        "slot",
        Repaired(
            repair="20260102-0304-9f",
            next_generation=Generation(9),
            next_checkpoint=CheckpointId(60),
            retires=(CheckpointId(40),),
            by="anna",
            reason="1 slots were damaged, missing or contradictory",
            at_ms=1_700_000_000_000,
        ),
    ),
    "decision-hole": ("decision", Hole(repair="20260102-0304-9f", why="it is missing")),
}
_VALUES_7: dict[str, tuple[str, Any]] = {
    "heartbeat": (
        "heartbeat",
        replace(
            _HEARTBEAT_5,
            progress=replace(_HEARTBEAT_5.progress, current=_CURRENT),
            failed_at=FailedAt(
                times=2,
                where="source 'lines'",
                parts=("file:///srv/in/7.json",),
                since={"batch": 4, "count": 6},
                behind={"lines": {"initial": True}},
                cause="ValueError: 7 is not good",
            ),
        ),
    ),
}

_SUMMARY = Summary(
    stream=StreamName("word-count"),
    slot=SlotNumber(400),
    decision=SlotNumber(9),
    slots=(
        KeptSlot(SlotNumber(1), _VALUES_1["slot-generation-started-fresh"][1]),
        KeptSlot(SlotNumber(311), _VALUES_1["slot-snapshot-completed"][1]),
        KeptSlot(SlotNumber(312), STARTED_2),
        KeptSlot(SlotNumber(400), _VALUES_2["slot-restarted"][1]),
    ),
    decisions=(KeptDecision(SlotNumber(3), DEPLOYED),),
    completed=(
        CompletedBy(Generation(1), (Span(1, 17),)),
        CompletedBy(Generation(7), (Span(45, 102), Span(104, 131))),
    ),
    retired=(Span(9, 9),),
    uncommitted=(Span(131, 131),),
    cleared=199,
    taken=(312, 400),
)

_VALUES_6["snapshot"] = (
    "snapshot",
    replace(_VALUES_4["snapshot"][1], published={VertexUid("out"): CheckpointId(39)}),
)
_VALUES_6["summary"] = ("summary", _SUMMARY)
VALUES = {**_VALUES_1, **_VALUES_2, **_VALUES_3, **_VALUES_4, **_VALUES_5, **_VALUES_6, **_VALUES_7}
"""By the fixture's name: its kind, and what it says, with every field of today."""
WRITER = "e4da3b7fbbce2345d7772b0674a318d5"
FIXTURES = Path(__file__).parent / "fixtures"


def place_of(kind: str) -> str:
    """The path for which the fixtures of `kind` are written; a snapshot's metadata may be moved."""
    return {"slot": "log/00000001.json", "decision": "log/00000001.json", "snapshot": ""}.get(kind, f"{kind}.json")


def stored(kind: str, value: Any) -> bytes:
    """The bytes of `value` as this release writes them."""
    body = {"writer": WRITER, "record": to_plain(value)} if kind in ("slot", "decision") else value
    return wire.encode(kind, body, place_of(kind))


def fixture(name: str) -> Path:
    kind, _ = VALUES[name]
    return FIXTURES / f"v{wire.VERSIONS[kind]}" / f"{name}.json"


def resealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """`data` with something else in it, and the checksum of that: what another writer might have written."""
    line = data[: data.rindex(b',"sha256"')]
    assert old in line
    changed = line.replace(old, new)
    return changed + f',"sha256":"{wire.sha256(changed)}"}}\n'.encode()


if __name__ == "__main__":  # a new version's fixtures; those that are there are never edited
    for name, (kind, value) in VALUES.items():
        if not fixture(name).exists():
            fixture(name).parent.mkdir(exist_ok=True)
            fixture(name).write_bytes(stored(kind, value))
