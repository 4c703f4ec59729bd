"""Every kind of stored file, at random: what hypothesis writes and reads back."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from headgate_contract.heartbeats import Heartbeat, ProcessIdentity, Progress, StreamState
from headgate_contract.history import Event
from headgate_contract.id_ranges import Span
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, SlotNumber, StreamName, VertexUid
from headgate_contract.mailbox import Answer, Outcome, Request, RequestKind
from headgate_contract.operator_state import OperatorState, OperatorStateKind
from headgate_contract.records import (
    DecisionRecord,
    Deployed,
    GenerationStarted,
    Hole,
    Repaired,
    Restarted,
    Retired,
    SlotRecord,
    SnapshotCompleted,
    Stopped,
    StopWanted,
    StopWithdrawn,
    StreamCopy,
)
from headgate_contract.restore import Rejected, RestoreFrom, Rollback, SinkRollback, StartFresh
from headgate_contract.snapshot import (
    CommittableGroup,
    SavepointOrigin,
    SnapshotKind,
    SnapshotMetadata,
    SnapshotRef,
    SourceState,
    StateHandle,
    SubtaskState,
    VertexState,
)

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}(\.[A-Za-z0-9_-]{1,5})?", fullmatch=True)
numbers = st.integers(1, 2**62)
counts = st.integers(0, 2**62)
moments = st.integers(-(2**40), 2**62)
texts = st.text(max_size=12)
any_texts = st.text(st.characters(), max_size=6) | st.text(st.characters(categories=["Cs"]), max_size=1)
"""Texts that no UTF-8 can hold are among them: half a surrogate pair, as in a strange file name."""
checkpoints = numbers.map(CheckpointId)
generations = numbers.map(Generation)
uids = names.map(VertexUid)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json, max_size=3)


def few(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=3).map(tuple)


def maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


snapshot_refs = st.builds(
    SnapshotRef,
    checkpoints,
    st.sampled_from(SnapshotKind),
    generations,
    texts,
    counts,
    texts,
    maybe(names.map(SavepointName)),
    maybe(st.sampled_from(SavepointOrigin)),
)
rejected = few(st.builds(Rejected, snapshot_refs, any_texts))
rollbacks = few(st.builds(SinkRollback, uids, st.sampled_from(Rollback), few(st.builds(Span, numbers, numbers))))
decisions = st.builds(RestoreFrom, snapshot_refs, any_texts, rejected, rollbacks) | st.builds(
    StartFresh, any_texts, rejected, rollbacks
)

holes = st.builds(Hole, repair=texts, why=any_texts)
slot_records: st.SearchStrategy[SlotRecord] = st.one_of(
    holes,
    st.builds(
        Repaired,
        repair=texts,
        next_generation=generations,
        next_checkpoint=checkpoints,
        retires=few(checkpoints),
        by=texts,
        reason=any_texts,
        at_ms=moments,
    ),
    st.builds(
        GenerationStarted,
        generation=generations,
        decision=decisions,
        first_checkpoint=checkpoints,
        deployed=counts,
        by=any_texts,
        host=texts,
        at_ms=moments,
        launch=texts,
        log=any_texts,
        accept_duplicates=st.booleans(),
        replaces=maybe(generations),
    ),
    st.builds(
        SnapshotCompleted,
        generation=generations,
        snapshot=snapshot_refs,
        committed=few(checkpoints),
        retires=few(checkpoints),
        request=maybe(names.map(RequestId)),
    ),
    st.builds(
        Restarted,
        generation=generations,
        restart=counts,
        cause=any_texts,
        snapshot=maybe(checkpoints),
        at_ms=moments,
    ),
    st.builds(
        Stopped,
        generation=generations,
        reason=any_texts,
        committed=few(checkpoints),
        snapshot=maybe(checkpoints),
        request=maybe(names.map(RequestId)),
    ),
)

deployments = st.builds(
    Deployed,
    job=any_texts,
    job_sha256=texts,
    directory=any_texts,
    settings=st.dictionaries(texts, any_texts, max_size=3),
    plan=objects,
    by=texts,
    at_ms=moments,
)
stream_copies = st.builds(
    StreamCopy, stream=names.map(StreamName), number=numbers.map(SlotNumber), root=texts, deployed=deployments
)
decision_records: st.SearchStrategy[DecisionRecord] = st.one_of(
    deployments,
    st.builds(
        StopWanted,
        generation=generations,
        by=texts,
        reason=any_texts,
        at_ms=moments,
        request=maybe(names.map(RequestId)),
    ),
    st.builds(StopWithdrawn, generation=generations, by=texts, reason=any_texts, at_ms=moments),
    holes,
    st.builds(Retired, snapshots=few(checkpoints), by=texts, reason=any_texts, at_ms=moments),
)

handles = st.builds(StateHandle, texts, texts, counts, texts)
operator_states = st.builds(OperatorState, st.sampled_from(OperatorStateKind), few(objects))
metadata = st.builds(
    SnapshotMetadata,
    stream=names.map(StreamName),
    id=checkpoints,
    generation=generations,
    kind=st.sampled_from(SnapshotKind),
    max_parallelism=counts,
    created_ms=moments,
    sources=st.dictionaries(uids, st.builds(SourceState, texts, texts, objects, few(handles)), max_size=2),
    vertices=st.dictionaries(
        uids,
        st.builds(
            VertexState,
            texts,
            counts,
            texts,
            few(objects),
            few(st.builds(SubtaskState, counts, counts, counts, objects, few(handles))),
            counts,
            st.dictionaries(
                texts, st.builds(OperatorState, st.sampled_from(OperatorStateKind), few(objects)), max_size=2
            ),
        ),
        max_size=2,
    ),
    committables=few(st.builds(CommittableGroup, checkpoints, st.dictionaries(uids, few(objects), max_size=2))),
    records=counts,
    watermark_ms=maybe(moments),
    name=maybe(names.map(SavepointName)),
)

requests = st.builds(
    Request,
    id=names.map(RequestId),
    kind=st.sampled_from(RequestKind),
    generation=counts,
    args=objects,
    deadline_ms=counts,
    by=any_texts,
    at_ms=moments,
    nonce=texts,
)
answers = st.builds(
    Answer,
    id=names.map(RequestId),
    outcome=st.sampled_from(Outcome),
    result=objects,
    why=any_texts,
    generation=counts,
    late=st.booleans(),
    at_ms=moments,
)
heartbeats = st.builds(
    Heartbeat,
    stream=names.map(StreamName),
    generation=generations,
    counter=counts,
    state=st.sampled_from(StreamState),
    at_ms=moments,
    interval_ms=counts,
    process=maybe(st.builds(ProcessIdentity, texts, texts, counts, texts, texts, texts)),
    log=any_texts,
    cause=maybe(any_texts),
    progress=st.builds(
        Progress,
        batches=counts,
        records=counts,
        replayed=counts,
        checkpoints=counts,
        failed_checkpoints=counts,
        last_snapshot=maybe(checkpoints),
        last_committed=maybe(checkpoints),
        watermark_ms=maybe(moments),
        spark_ui=maybe(texts),
        restarts=counts,
        extra=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    ),
    given_up=st.booleans(),
)
events = st.builds(
    Event,
    at_ms=moments,
    what=texts,
    outcome=texts,
    by=any_texts,
    generation=maybe(counts),
    text=any_texts,
    details=objects,
)

STORED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "slot": (SlotRecord, slot_records),
    "decision": (DecisionRecord, decision_records),
    "request": (Request, requests),
    "answer": (Answer, answers),
    "heartbeat": (Heartbeat, heartbeats),
    "event": (Event, events),
    "snapshot": (SnapshotMetadata, metadata),
    "stream": (StreamCopy, stream_copies),
}
"""For each kind of stored file what its body is read as, and bodies at random."""
