"""Whole lives in this process: files in, a running number for each key, files out, on the stand-in for Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

import headgate
from headgate.driver.engine import EngineSetup
from headgate.driver.ledger import Ledger
from headgate.driver.lives import Lives
from headgate.driver.points import KillPoints
from headgate.driver.pulse import Heart
from headgate.driver.setup import LifeSetup
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.recovery.fetch import SnapshotFiles
from headgate.sink.files_committer import FilesCommitter
from headgate.step.operators import Keyed
from headgate.testing.stand_in import StandInEngine
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import SinkFailed, SlotTaken, SnapshotDamaged
from headgate_contract.heartbeats import Heartbeat, StreamState, read_heartbeat
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, StreamName, VertexUid
from headgate_contract.mailbox import Answer, Mailbox, Request, RequestKind
from headgate_contract.places import Places
from headgate_contract.records import GenerationStarted, SlotRecord, slot_log
from headgate_contract.restore import (
    ClaimMode,
    Located,
    Named,
    Newest,
    RestoreDecision,
    RestoreFacts,
    RestoreFrom,
    Rollback,
    StartFresh,
    Wanted,
    decide_restore,
)
from headgate_contract.root_store import RootStore, make_root
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotKind, SnapshotMetadata, SnapshotRef
from headgate_contract.store import open_store
from headgate_control.locating import locate
from jobs.running_number import number
from tests.runtime.driver.ledger_world import Faults
from tests.runtime.driver.waiting import PATIENCE_S, until
from tests.runtime.sink.stepping_store import SteppingStore

STREAM = StreamName("numbers")
NUMBERED = pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()})
SETTINGS = {
    "execution.checkpointing.interval": "50 ms",
    "heartbeat.interval": "50 ms",
    "heartbeat.timeout": "10 s",
    "restart-strategy.type": "none",
}


class LifeWorld:
    """A stream whose generations are lived one after the other."""

    def __init__(self, base: Path, step: Callable[[pa.Table, Keyed], Any] = number) -> None:
        self.base = base
        self.inputs = base / "in"
        self.inputs.mkdir(parents=True)
        self.step = step
        self.faults = Faults()
        self.plain = open_store(str(base / "root"))
        identity, _ = make_root(RootStore(self.plain), by="test", at_ms=0)
        self.store = RootStore(SteppingStore(self.plain, self.faults.before), identity.id)
        self.settings: dict[str, object] = {**SETTINGS, "headgate.snapshot.allowed-dirs": str(base.parent)}
        self.source_uid = "records"
        self.step_uid = "number"
        self.sink_uid = "out"
        self.former_uids: dict[str, Sequence[str]] = {}
        self.allow_place = False
        """Whether who restores allows the place of what is named."""
        self.delay_ms: int | None = None
        """Where it is set, sources tell of event time: a record's id is when it was made."""
        self.state = pa.schema({"n": pa.int64()})
        self.operator_state: dict[str, str] = {}
        self.finish: Callable[[Keyed], Any] | None = None
        self.bounded: frozenset[str] = frozenset()
        """The sources that end."""
        self.engine_class: type[StandInEngine] = StandInEngine
        self.points = KillPoints()
        self.written = 0

    def locate(self, place: Path) -> SnapshotRef:
        """The snapshot in the folder `place`, as control finds it."""
        places = Places.of(self.store.url, Settings(self.settings))
        return locate(self.store, self.catalogue, Located(str(place)), places)

    def write(self, files: int, rows: int = 20) -> None:
        """More input: ids go on, and each file has every key."""
        for _ in range(files):
            ids = range(self.written, self.written + rows)
            self.written += rows
            table = pa.table({"id": pa.array(ids, pa.int64()), "key": pa.array([id % 7 for id in ids], pa.int64())})
            temporary = self.base / f"{ids[0]:08d}.tmp"
            pq.write_table(table, temporary)
            temporary.rename(self.inputs / f"{ids[0]:08d}.parquet")

    def plan(self) -> GraphPlan:
        job = headgate.Job("numbers")
        source = headgate.sources.files(
            str(self.inputs),
            format="parquet",
            schema="id BIGINT, key BIGINT",
            max_files_per_trigger=2,
            bounded=self.source_uid in self.bounded,
        )
        records = job.source(self.source_uid, source, former_uids=self._former(self.source_uid))
        numbered = (
            self.timed(records)
            .key_by("key")
            .process(
                self.step_uid,
                self.step,
                output=NUMBERED,
                state={"count": self.state},
                operator_state=self.operator_state,
                finish=self.finish,
                former_uids=self._former(self.step_uid),
            )
        )
        former = self._former(self.sink_uid)
        folder = former[0] if former else self.sink_uid
        numbered.sink(self.sink_uid, headgate.sinks.files(self.base / folder), former_uids=former)
        numbered.sink("console", headgate.sinks.console(1))
        return graph_plan(job)

    def timed(self, records: headgate.Stream) -> headgate.Stream:
        return records if self.delay_ms is None else records.with_watermark("id", self.delay_ms)

    def _former(self, uid: str) -> Sequence[str]:
        return self.former_uids.get(uid, ())

    @property
    def catalogue(self) -> Catalogue:
        return read_catalogue(self.store, STREAM)

    @property
    def records(self) -> list[SlotRecord]:
        return [slot.record for slot in self.catalogue.slots]

    def decide(self, wanted: Wanted) -> RestoreDecision:
        sinks = {end.vertex.uid: Rollback(end.vertex.sink.rollback) for end in self.plan().sinks}
        facts = RestoreFacts(
            catalogue=self.catalogue, wanted=wanted, damaged={}, sinks=sinks, allow_place=self.allow_place
        )
        return decide_restore(facts)

    def launch(
        self,
        snapshot: str | CheckpointId | SnapshotRef | None = None,
        leaves: Sequence[str] = (),
        claims: bool = False,
        by_itself: bool = False,
    ) -> GenerationStarted:
        """Append the next generation's start, with the decision that control would take."""
        catalogue = self.catalogue
        name = SavepointName(snapshot) if isinstance(snapshot, str) else snapshot
        decision = self.decide(Named(name) if name else Newest())
        assert isinstance(decision, (RestoreFrom, StartFresh)), decision
        if leaves or claims:
            assert isinstance(decision, RestoreFrom)
            decision = replace(decision, claim_mode=ClaimMode.CLAIM if claims else decision.claim_mode)
            decision = replace(decision, non_restored=tuple(VertexUid(uid) for uid in leaves))
        foreign = isinstance(decision, RestoreFrom) and decision.snapshot.foreign
        started = GenerationStarted(
            generation=Generation(len(catalogue.generations) + 1),
            decision=decision,
            first_checkpoint=catalogue.next_checkpoint.next() if foreign else catalogue.next_checkpoint,
            deployed=1,
            by="ann",
            host="here",
            at_ms=0,
            launch="launch",
            log="",
            replaces=catalogue.generations[-1].generation if by_itself else None,
        )
        slot_log(self.store, STREAM).append(catalogue.newest_slot, started)
        return started

    def take_over(self) -> GenerationStarted:
        """Launch a successor; the life that goes on may have written the slot just then."""
        while True:
            try:
                return self.launch()
            except SlotTaken:
                continue

    def begin(
        self,
        snapshot: str | CheckpointId | SnapshotRef | None = None,
        settings: Mapping[str, object] | None = None,
        leaves: Sequence[str] = (),
        claims: bool = False,
        by_itself: bool = False,
    ) -> Running:
        """Launch a generation and let it live in a thread; what it `leaves` of the snapshot was allowed.

        `by_itself`: no person has started it, it replaces the one before.
        """
        started = self.launch(snapshot, leaves, claims, by_itself)
        plan = self.plan()
        checked = Settings({**self.settings, **(settings or {})})
        work = self.base / f"g{started.generation}"
        engine = self.engine_class(
            EngineSetup(
                stream=STREAM,
                generation=started.generation,
                plan=plan,
                settings=checked,
                directory=work / "engine",
                root=self.store,
            )
        )
        slots = slot_log(self.store, STREAM)
        slots.read()
        setup = LifeSetup(
            store=self.store,
            stream=STREAM,
            started=started,
            catalogue=self.catalogue,
            slots=slots,
            settings=checked,
            plan=plan,
            work=work,
            engine=engine,
            points=self.points,
            ledger_class=Ledger,
        )
        return Running(self, setup)

    def output(self) -> list[dict[str, int]]:
        """What a plain reader finds."""
        return [
            row for path in sorted((self.base / "out").glob("*.parquet")) for row in pq.read_table(path).to_pylist()
        ]

    def newest_metadata(self) -> SnapshotMetadata | None:
        """Of the newest snapshot, if there is one; a life that goes on may retire it while it is read."""
        while refs := self.catalogue.snapshots:
            try:
                return SnapshotFiles(self.store, refs[0]).metadata()
            except SnapshotDamaged:
                if refs[0] in self.catalogue.snapshots:
                    raise
        return None

    def calm(self) -> None:
        """Until everything is shown, and the log says so: a life to which nothing comes writes no slot any more."""

        def noted() -> bool:
            held = self.newest_metadata()
            return held is not None and not any(any(group.sinks.values()) for group in held.committables)

        until(lambda: len(self.output()) == self.written and noted(), "everything is shown and noted")

    def check_output(self) -> None:
        """Every id once, and each key's numbers without a gap."""
        rows = self.output()
        assert sorted(row["id"] for row in rows) == list(range(self.written))
        for key, count in Counter(id % 7 for id in range(self.written)).items():
            assert sorted(row["number"] for row in rows if row["key"] == key) == list(range(1, count + 1))

    def heartbeat(self, generation: int) -> Heartbeat:
        seen = read_heartbeat(self.store, STREAM, Generation(generation))
        assert seen is not None
        assert seen.heartbeat is not None
        return seen.heartbeat

    def shared_files(self) -> set[str]:
        return {info.path for info in self.store.list(f"streams/{STREAM}/shared")}


def refuse_output(sink: FilesCommitter, group: CheckpointId, handles: Sequence[object]) -> None:
    """In the place of a commit. A checkpoint that comes before the first micro-batch has nothing to publish."""
    if handles:
        raise SinkFailed("no")


class Running:
    """A life in its thread."""

    begun: ClassVar[list[Running]] = []
    """All that a test has begun: see conftest.py."""

    def __init__(self, world: LifeWorld, setup: LifeSetup) -> None:
        self.world = world
        self.generation = setup.started.generation
        self.heart = Heart(world.store, STREAM, self.generation)
        self.life = Lives(setup, self.heart)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="life", daemon=True)
        self._thread.start()
        self.begun.append(self)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _live(self) -> None:
        try:
            self.life.run()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            self.error = error
        finally:
            self.heart.close()

    def wait(self) -> BaseException | None:
        """Until the life is over; what ended it."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the life does not end"
        return self.error

    def read_all(self) -> None:
        """Until every record that was written has been taken in and checkpointed."""
        until(
            lambda: (
                self.error
                or (self.heart.progress.records >= self.world.written and self.heart.state is not StreamState.RESTORING)
            ),
            "all records are read",
        )

    def until_restarted(self) -> None:
        """Until a life has followed one that failed: what the failed one had taken in is not taken for its own."""
        until(lambda: self.error or self.heart.progress.restarts > 0, "it restarts")

    def until_completed(self, number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        until(
            lambda: self.error or sum(ref.kind is kind for ref in self.world.catalogue.completed) >= number,
            f"{number} of kind {kind.value}",
        )

    def until_measured(self) -> None:
        """Until the heart knows what a checkpoint of this generation has cost."""
        until(lambda: self.error or "checkpoint_ms" in self.heart.progress.extra, "a checkpoint's cost")

    def stop(self) -> BaseException | None:
        self.life.ask_to_stop("SIGTERM")
        return self.wait()

    def ask(self, id: str, kind: RequestKind, **args: object) -> None:
        request = Request(
            id=RequestId(id),
            kind=kind,
            generation=self.generation,
            args=args,
            deadline_ms=60_000,
            by="ann",
            at_ms=0,
        )
        Mailbox(self.world.store, STREAM).ask(request)

    def answer(self, id: str) -> Answer:
        mailbox = Mailbox(self.world.store, STREAM)
        until(lambda: mailbox.answer(RequestId(id)), f"an answer to {id}")
        found = mailbox.answer(RequestId(id))
        assert found is not None
        return found
