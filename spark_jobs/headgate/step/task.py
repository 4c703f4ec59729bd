"""One subtask's share of one micro-batch: parent version and rows in; new version, staged output and one ack out."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.job.graph import ArrowFunction, EventTime
from headgate.sink.base import Sink, SinkTask, SinkWriter
from headgate.state.backends import backend_named
from headgate.state.descriptors import StateDescriptor, merge_descriptors
from headgate.state.errors import ForeignKeyGroup
from headgate.state.key_groups import KeyGroupRange, hash_bounds, key_group, subtask_range
from headgate.state.versions import StateVersion
from headgate.step.blame import arrow_failed, author_failed
from headgate.step.channel_files import ChannelFiles
from headgate.step.moments import in_utc
from headgate.step.operator_state import Changes, States, SubtaskStates
from headgate.step.operators import HASH, KeyedOperator, ProcessOperator, StepClock
from headgate_contract.errors import RecordFailed
from headgate_contract.ids import StreamName, VertexUid

log = logging.getLogger(__name__)

TIME = "__headgate_time"
"""The column that carries when a record was made, in milliseconds since 1970."""

WITHOUT_KEY = "records have no value in the key column"
"""What a step says of them: by it they are looked for."""

ACK = pa.schema([pa.field("ack", pa.string())])


@dataclass(frozen=True, kw_only=True)
class BatchIdentity:
    """Which attempt of which micro-batch this is; goes into every name that the step makes."""

    stream: StreamName
    generation: int
    restart: int
    epoch: int
    attempt: int

    def of_task(self, subtask: int, task_attempt: int) -> str:
        return f"g{self.generation}.r{self.restart}.e{self.epoch}.a{self.attempt}.s{subtask}.t{task_attempt}"


@dataclass(frozen=True, kw_only=True)
class SinkStage:
    """A sink, or a channel that is written, and the Arrow functions in front of it."""

    uid: VertexUid
    sink: Sink | ChannelFiles
    functions: tuple[ArrowFunction, ...] = ()
    storage_uid: VertexUid | None = None
    """What the sink is called on storage, if not by its uid."""


@dataclass(frozen=True, kw_only=True)
class KeyedStage:
    """The stateful part of a step, and the exact parent of each of its subtasks."""

    uid: VertexUid
    operator: KeyedOperator
    keys: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    backend: str
    directory: str
    parents: tuple[dict[str, Any] | None, ...]
    operator_states: States = field(default_factory=dict)
    broadcast: bool = False
    """The records belong to no key: the first subtask takes them all, and writes operator state only."""


@dataclass(frozen=True, kw_only=True)
class StepTask:
    """Everything that the subtasks of one micro-batch need; plain values, since it travels to the workers."""

    identity: BatchIdentity
    keyed: KeyedStage | None
    sinks: tuple[SinkStage, ...]
    clock: StepClock
    time: EventTime | None = None
    """The records tell how far event time has come: they have the column TIME."""
    finishing: bool = False
    """There are no records and none will come: each operator finishes, in every subtask."""


@dataclass(frozen=True, kw_only=True)
class StepAck:
    """What comes back from a subtask instead of its output."""

    subtask: int
    rows_in: int
    rows_out: int
    version: dict[str, Any] | None
    """None when the subtask had nothing to do: its parent version stands."""
    sinks: dict[str, list[dict[str, Any]]]
    operator_states: Changes = field(default_factory=dict)
    """What the subtask changed of them."""
    latest_ms: int | None = None
    """The latest time of its records."""

    def encode(self) -> str:
        return json.dumps(
            {
                "subtask": self.subtask,
                "rows_in": self.rows_in,
                "rows_out": self.rows_out,
                "version": self.version,
                "sinks": self.sinks,
                "operator_states": self.operator_states,
                "latest_ms": self.latest_ms,
            }
        )

    @classmethod
    def decode(cls, text: str) -> StepAck:
        return cls(**json.loads(text))


def run(task: StepTask, subtask: int, task_attempt: int, batches: Iterator[pa.RecordBatch]) -> StepAck:
    """Run the step; one that finishes is told by a batch without rows what they are like, if that is known at all.

    Whatever fails, nothing of this attempt is left that another could take for its own."""
    writers = [(stage, stage.sink.writer(_sink_task(task, stage, subtask, task_attempt))) for stage in task.sinks]
    times = _Times()
    batches = map(in_utc, map(times.read, batches))
    try:
        if task.keyed is None:
            ack = _pass_through(subtask, writers, batches)
        elif task.keyed.broadcast:
            ack = _told(task, task.keyed, subtask, writers, batches)
        else:
            ack = _keyed(task, task.keyed, subtask, task_attempt, writers, batches)
    except BaseException:
        for stage, writer in writers:
            try:
                writer.abort()
            except Exception as error:  # noqa: BLE001 - why the batch failed is what counts; what is left is swept later
                log.warning("sink %s: what a failed batch staged is left for the next life: %s", stage.uid, error)
        raise
    return replace(ack, latest_ms=times.latest_ms)


class _Times:
    """Reads when the records were made, which is no column of the author's."""

    def __init__(self) -> None:
        self.latest_ms: int | None = None

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if TIME not in batch.schema.names:
            return batch
        latest = pc.max(batch.column(TIME)).as_py()
        if latest is not None:
            self.latest_ms = latest if self.latest_ms is None else max(self.latest_ms, latest)
        return batch.drop_columns([TIME])


def without_rows(schema: pa.Schema) -> pa.RecordBatch:
    """What a step that finishes is given: no records, and what they would be like, the hash of the key included."""
    columns = [*schema, pa.field(HASH, pa.int64())]
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in columns], schema=pa.schema(columns))


def _sink_task(task: StepTask, stage: SinkStage, subtask: int, task_attempt: int) -> SinkTask:
    identity = task.identity
    return SinkTask(
        stream=identity.stream,
        sink=stage.storage_uid or stage.uid,
        generation=identity.generation,
        restart=identity.restart,
        attempt=identity.attempt,
        epoch=identity.epoch,
        subtask=subtask,
        task_attempt=task_attempt,
    )


def _pass_through(
    subtask: int, writers: list[tuple[SinkStage, SinkWriter]], batches: Iterator[pa.RecordBatch]
) -> StepAck:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        _write(writers, batch)
    return StepAck(subtask=subtask, rows_in=rows, rows_out=rows, version=None, sinks=_finish(writers))


def _told(
    task: StepTask,
    keyed: KeyedStage,
    subtask: int,
    writers: list[tuple[SinkStage, SinkWriter]],
    batches: Iterator[pa.RecordBatch],
) -> StepAck:
    """Records that belong to no key."""
    received = list(batches)
    rows = sum(batch.num_rows for batch in received)
    if not rows:
        return StepAck(subtask=subtask, rows_in=0, rows_out=0, version=None, sinks=_finish(writers))
    assert isinstance(keyed.operator, ProcessOperator)
    states = SubtaskStates(keyed.uid, subtask, keyed.operator_states)
    output = keyed.operator.tell(pa.Table.from_batches(received), task.clock, states)
    for batch in output.combine_chunks().to_batches() if output is not None else ():
        _write(writers, batch)
    return StepAck(
        subtask=subtask,
        rows_in=rows,
        rows_out=output.num_rows if output is not None else 0,
        version=None,
        sinks=_finish(writers),
        operator_states=states.changes(),
    )


def _keyed(
    task: StepTask,
    keyed: KeyedStage,
    subtask: int,
    task_attempt: int,
    writers: list[tuple[SinkStage, SinkWriter]],
    batches: Iterator[pa.RecordBatch],
) -> StepAck:
    key_groups = subtask_range(subtask, keyed.parallelism, keyed.max_parallelism)
    received = list(batches)
    parent = keyed.parents[subtask]
    keys_known = True
    finishing = task.finishing and keyed.operator.finishes
    if finishing and not received:  # nobody has told what its records are like
        stored = _stored_keys(keyed)
        keys_known = stored is not None
        received = [without_rows(stored or pa.schema([pa.field(key, pa.string()) for key in keyed.keys]))]
    if not finishing and not any(batch.num_rows for batch in received):
        return StepAck(subtask=subtask, rows_in=0, rows_out=0, version=None, sinks=_finish(writers))
    rows = pa.Table.from_batches(received)
    if rows.num_rows:
        _refuse_null_keys(keyed, rows)
        rows = _with_one_zero(keyed, rows)
        _refuse_foreign_rows(keyed, subtask, key_groups, rows)
    declared = keyed.operator.descriptors(keyed.keys, rows.schema)
    if keys_known:
        _refuse_other_state(keyed, declared)
    session = backend_named(keyed.backend).open(
        None if parent is None else StateVersion.from_json(parent),
        declared,
        key_groups,
        keyed.max_parallelism,
        Path(keyed.directory) / str(subtask),
        task.identity.of_task(subtask, task_attempt),
    )
    states = SubtaskStates(keyed.uid, subtask, keyed.operator_states)
    with session:
        try:
            if finishing:
                output = keyed.operator.finish(keyed.keys, rows.schema, session, task.clock, states)
            else:
                output = keyed.operator.apply(keyed.keys, rows, session, task.clock, states)
        except pa.ArrowException as error:
            raise arrow_failed(f"step {keyed.uid!r}", error) from error
        rows_out = 0
        if output is not None:
            rows_out = output.num_rows
            for batch in output.combine_chunks().to_batches():
                _write(writers, batch)
        changes = states.changes()
        sinks = _finish(writers)  # before the new version is there: whatever fails, none is left
        version = session.seal().to_json() if keys_known else None  # there is no key, of whatever type
    return StepAck(
        subtask=subtask,
        rows_in=rows.num_rows,
        rows_out=rows_out,
        version=version,
        sinks=sinks,
        operator_states=changes,
    )


def _stored_keys(keyed: KeyedStage) -> pa.Schema | None:
    """The key's columns, as any subtask's state has them: all that is known where no record has come in this life."""
    for parent in filter(None, keyed.parents):
        for descriptor in StateVersion.from_json(parent).descriptors:
            return pa.schema([field.with_name(name) for field, name in zip(descriptor.key, keyed.keys, strict=True)])
    return None


def _refuse_other_state(keyed: KeyedStage, declared: tuple[StateDescriptor, ...]) -> None:
    """Columns may change their types from one micro-batch to the next behind an author's function; state may not.

    Asked of all subtasks' states: a key of another type has another hash, and so perhaps another subtask.
    """
    for parent in filter(None, keyed.parents):
        merge_descriptors(map(StateDescriptor.from_json, parent["descriptors"]), declared)


def _finish(writers: list[tuple[SinkStage, SinkWriter]]) -> dict[str, list[dict[str, Any]]]:
    return {str(stage.uid): list(writer.finish()) for stage, writer in writers}


def _refuse_foreign_rows(keyed: KeyedStage, subtask: int, key_groups: KeyGroupRange, rows: pa.Table) -> None:
    """A row of another subtask's key group would make state that nobody finds again."""
    low, high = hash_bounds(key_groups, keyed.max_parallelism)
    bounds = pc.min_max(rows.column(HASH))
    for found in (bounds["min"].as_py(), bounds["max"].as_py()):
        if not low <= found <= high:
            raise ForeignKeyGroup(
                f"step {keyed.uid!r}: subtask {subtask} owns the key groups {key_groups} and was given a record of "
                f"{key_group(found, keyed.max_parallelism)}",
                hint="the shuffle and the step disagree about the subtask; nothing was changed",
            )


def _refuse_null_keys(keyed: KeyedStage, rows: pa.Table) -> None:
    for key in keyed.keys:
        if rows.column(key).null_count:
            raise RecordFailed(
                f"step {keyed.uid!r}: {rows.column(key).null_count} {WITHOUT_KEY} {key!r}",
                hint="filter or fill them in a transform before key_by",
            )


def _with_one_zero(keyed: KeyedStage, rows: pa.Table) -> pa.Table:
    """Keys are compared as SQL groups them, Arrow groups by bits: so 0.0 for -0.0 and one NaN for all."""
    for key in keyed.keys:
        place = rows.schema.get_field_index(key)
        field = rows.schema.field(place)
        if pa.types.is_floating(field.type):
            column = rows.column(place)
            nan, zero = (pa.scalar(value, field.type) for value in (math.nan, 0.0))
            column = pc.if_else(pc.equal(column, zero), zero, pc.if_else(pc.is_nan(column), nan, column))
            rows = rows.set_column(place, field, column)
    return rows


def _write(writers: list[tuple[SinkStage, SinkWriter]], batch: pa.RecordBatch) -> None:
    for stage, writer in writers:
        rows = batch
        for function in stage.functions:
            try:
                rows = function(rows)
            except Exception as error:
                raise author_failed(f"an Arrow function before sink {stage.uid!r}", error) from error
            if not isinstance(rows, pa.RecordBatch):
                raise RecordFailed(
                    f"an Arrow function before sink {stage.uid!r} returned {type(rows).__name__}, not a RecordBatch"
                )
        writer.write(rows)
