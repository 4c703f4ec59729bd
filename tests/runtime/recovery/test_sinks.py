"""What the sinks are told at the start of a life: their history, what it carries, and what other snapshots carry."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pytest

from headgate.recovery.fetch import SnapshotFiles
from headgate.recovery.sinks import begin_sinks, sink_history
from headgate.sink.base import BeginReport, Group
from headgate_contract import wire
from headgate_contract.catalogue import Catalogue, read_catalogue
from headgate_contract.errors import SinkFailed
from headgate_contract.fitting import renamed
from headgate_contract.ids import CheckpointId, Generation, SavepointName, VertexUid
from headgate_contract.paths import METADATA
from headgate_contract.records import GenerationStarted, Repaired, SlotRecord, SnapshotCompleted, slot_log
from headgate_contract.restore import RestoreFrom, StartFresh
from headgate_contract.snapshot import CommittableGroup, SnapshotKind, SnapshotMetadata, SnapshotRef
from headgate_contract.store import ObjectStore, open_store
from tests.runtime.driver.ledger_world import COPY, OUT, STREAM, ListCommitter


@dataclass
class Told:
    lineage: frozenset[CheckpointId]
    carried: list[int]
    abandoned: list[int]
    protected: frozenset[str] | None


class RecordingCommitter(ListCommitter):
    """Keeps what it was told at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Told] = []
        self.handles: dict[int, list[Mapping[str, Any]]] = {}
        self.taken_over: list[int] | None = None

    def take_over(self, groups: Sequence[Group], shown: Set[CheckpointId] = frozenset()) -> tuple[CheckpointId, ...]:
        assert not self.told, "before it begins"
        self.taken_over = [int(id) for id, _ in groups]
        return ()

    def begin(
        self,
        lineage: frozenset[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        if self.failures:
            raise self.failures.pop(0)
        self.told.append(Told(lineage, [id for id, _ in carried], [id for id, _ in abandoned], protected))
        self.handles.update({int(id): list(handles) for id, handles in (*carried, *abandoned)})
        return BeginReport(committed=tuple(id for id, _ in carried))


class Stream:
    """A stream's log, and the metadata that its slots name."""

    def __init__(self) -> None:
        self.store: ObjectStore = open_store(f"memory://{uuid.uuid4().hex}")
        self.refs: dict[int, SnapshotRef] = {}
        self.generation = 0

    def start(self, base: int | None = None) -> None:
        self.generation += 1
        decision = StartFresh("for a test") if base is None else RestoreFrom(self.refs[base], "for a test")
        self._append(
            GenerationStarted(
                generation=Generation(self.generation),
                decision=decision,
                first_checkpoint=CheckpointId(max(self.refs, default=0) + 1),
                deployed=1,
                by="ann",
                host="here",
                at_ms=0,
                launch="launch",
                log="",
            )
        )

    def complete(
        self,
        number: int,
        carries: Sequence[int],
        retires: Sequence[int] = (),
        *,
        location: str | None = None,
        committed: Sequence[int] = (),
    ) -> None:
        """A checkpoint; with a `location` a savepoint there, which cannot be read."""
        metadata = SnapshotMetadata(
            stream=STREAM,
            id=CheckpointId(number),
            generation=Generation(self.generation),
            kind=SnapshotKind.CHECKPOINT,
            max_parallelism=16,
            created_ms=0,
            committables=tuple(
                CommittableGroup(CheckpointId(id), {OUT: ({"staged": f"out-{id}"},), COPY: ({"rows": id},)})
                for id in carries
            ),
        )
        data = metadata.encode()
        folder = f"chk-{number}"
        self.store.create(f"{folder}/{METADATA}", data)
        ref = SnapshotRef(
            CheckpointId(number),
            SnapshotKind.SAVEPOINT if location else SnapshotKind.CHECKPOINT,
            Generation(self.generation),
            folder,
            len(data),
            wire.sha256(data),
            SavepointName(f"sp-{number}") if location else None,
            location=location,
        )
        self.refs[number] = ref
        self._append(
            SnapshotCompleted(
                generation=Generation(self.generation),
                snapshot=ref,
                retires=tuple(CheckpointId(id) for id in retires),
                committed=tuple(CheckpointId(id) for id in committed),
            )
        )

    def repair(self) -> None:
        """What a repair writes last; the next generation is the one that would have come anyhow."""
        self._append(
            Repaired(
                repair="r",
                next_generation=Generation(self.generation + 1),
                next_checkpoint=CheckpointId(max(self.refs, default=0) + 1),
                by="ann",
                reason="",
                at_ms=0,
            )
        )

    def _append(self, record: SlotRecord) -> None:
        log = slot_log(self.store, STREAM)
        found = log.read()
        log.append(found[-1].number if found else None, record)

    @property
    def catalogue(self) -> Catalogue:
        return read_catalogue(self.store, STREAM)

    def begin(self, base: int | None) -> dict[VertexUid, RecordingCommitter]:
        """A life begins from checkpoint `base`."""
        ref = self.refs.get(base) if base is not None else None
        metadata = SnapshotFiles(self.store, ref).metadata() if ref is not None else None
        sinks = {OUT: RecordingCommitter(), COPY: RecordingCommitter()}
        reports = begin_sinks(sinks, sink_history(self.store, self.catalogue, ref, metadata))
        assert reports.keys() == sinks.keys()
        return sinks


@pytest.fixture
def stream() -> Stream:
    """Checkpoints 1, 2, 3 of a first life; 2 and 3 are retained, 3 carries 2 and 3."""
    stream = Stream()
    stream.start()
    stream.complete(1, [1])
    stream.complete(2, [2])
    stream.complete(3, [2, 3], retires=[1])
    return stream


def test_a_first_start_has_no_history() -> None:
    stream = Stream()
    stream.start()
    assert stream.begin(None)[OUT].told == [Told(frozenset(), [], [], frozenset())]


def test_a_restore_from_the_newest_carries_its_groups_and_abandons_none(stream: Stream) -> None:
    stream.start(3)
    assert stream.begin(3)[OUT].told == [Told(frozenset({1, 2, 3}), [2, 3], [], frozenset({"out-2", "out-3"}))]  # type: ignore[arg-type]


def test_a_restore_from_an_older_one_abandons_what_the_newer_ones_carry_and_protects_it(stream: Stream) -> None:
    stream.start(2)
    assert stream.begin(2)[OUT].told == [Told(frozenset({1, 2}), [2], [3], frozenset({"out-2", "out-3"}))]  # type: ignore[arg-type]


def test_until_something_completes_behind_a_repair_a_start_takes_over_what_others_published(stream: Stream) -> None:
    stream.start(2)
    assert stream.begin(2)[OUT].taken_over is None
    stream.repair()
    stream.start(2)
    assert stream.begin(2)[OUT].taken_over == [3, 2]
    stream.start(2)  # the one before may have been killed within
    assert stream.begin(2)[OUT].taken_over == [3, 2]
    stream.complete(4, [4])
    stream.start(4)
    assert stream.begin(4)[OUT].taken_over is None


def test_behind_a_repair_a_sink_is_told_of_all_groups_that_any_snapshot_tells_of(stream: Stream) -> None:
    stream.complete(4, [4])
    stream.repair()
    stream.start(4)
    assert stream.begin(4)[OUT].taken_over == [2, 3, 4]


def test_a_fresh_start_abandons_all_that_is_carried_anywhere(stream: Stream) -> None:
    stream.start()
    (told,) = stream.begin(None)[OUT].told
    assert (told.lineage, told.carried, told.abandoned) == (frozenset(), [], [2, 3])


def test_a_restore_of_a_restore_stands_on_both_lives(stream: Stream) -> None:
    stream.start(2)
    stream.complete(4, [4])
    stream.start(4)
    (told,) = stream.begin(4)[OUT].told
    assert (told.lineage, told.carried, told.abandoned) == (frozenset({1, 2, 4}), [4], [3])


def test_each_sink_gets_its_own_handles_and_no_others(stream: Stream) -> None:
    stream.start(3)
    sinks = stream.begin(3)
    assert sinks[OUT].handles == {2: [{"staged": "out-2"}], 3: [{"staged": "out-3"}]}
    assert sinks[COPY].handles == {2: [{"rows": 2}], 3: [{"rows": 3}]}
    assert sinks[COPY].told[0].protected == frozenset()


def test_a_sink_that_is_new_in_the_job_has_an_empty_share_of_each_group(stream: Stream) -> None:
    stream.start(3)
    ref = stream.refs[3]
    history = sink_history(stream.store, stream.catalogue, ref, SnapshotFiles(stream.store, ref).metadata())
    new = RecordingCommitter()
    begin_sinks({VertexUid("new"): new}, history)
    assert new.handles == {2: [], 3: []}


def test_what_other_snapshots_carry_of_a_sink_under_a_former_uid_is_protected_too(stream: Stream) -> None:
    stream.start(2)
    ref, new = stream.refs[2], VertexUid("published")
    restored = renamed(SnapshotFiles(stream.store, ref).metadata(), {OUT: new})
    sink = RecordingCommitter()
    begin_sinks({new: sink}, sink_history(stream.store, stream.catalogue, ref, restored, {OUT: new}))
    assert (sink.told[0].carried, sink.told[0].abandoned) == ([2], [3])
    assert sink.told[0].protected == {"out-2", "out-3"}


def test_a_damaged_snapshot_that_is_not_restored_hinders_nobody(stream: Stream) -> None:
    stream.store.replace(f"chk-3/{METADATA}", b"torn")
    stream.start(2)
    (told,) = stream.begin(2)[OUT].told
    assert (told.carried, told.abandoned) == ([2], [])


@pytest.mark.parametrize("where", ["gs://denied/x", f"memory://{uuid.uuid4().hex}"])
def test_a_savepoint_that_cannot_be_read_ends_no_start_and_nothing_that_it_may_carry_is_deleted(
    stream: Stream, where: str
) -> None:
    stream.complete(4, [4], location=where)
    stream.start(3)
    (told,) = stream.begin(3)[OUT].told
    assert (told.carried, told.abandoned, told.protected) == ([2, 3], [], None)
    stream.complete(5, [5], committed=[1, 2, 3, 4])
    stream.start(5)
    (told,) = stream.begin(5)[OUT].told
    assert told.protected == {"out-5"}, "what sp-4 carried is committed: it is not even asked for"


def test_a_sink_that_cannot_begin_stops_the_restore(stream: Stream) -> None:
    ref = stream.refs[3]
    history = sink_history(stream.store, stream.catalogue, ref, SnapshotFiles(stream.store, ref).metadata())
    broken = RecordingCommitter()
    broken.failures = [SinkFailed("a file is gone")]
    with pytest.raises(SinkFailed, match="a file is gone"):
        begin_sinks({OUT: broken}, history)
