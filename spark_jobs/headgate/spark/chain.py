"""A task as DataFrame code: the part before its step, and the one Spark job of each of its elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headgate.job.graph import EventTime, TransformVertex
from headgate.job.tasks import Port, Task, TaskInput
from headgate.spark.failures import failure_of, first_line
from headgate.spark.stateful import refuse_stateful
from headgate.step import channel_files
from headgate.step.operators import HASH
from headgate.step.task import TIME, StepAck, StepTask, without_rows
from headgate_contract.errors import HeadgateError, JobInvalid
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings

SUBTASK = "__headgate_subtask"
Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def before_step(task: Task, way: TaskInput, frame: DataFrame, settings: Settings) -> tuple[DataFrame, pa.Schema]:
    """What comes by `way` as the task's step takes it, and its schema, checked."""
    frame, port = apply_transforms(way.transforms, frame), task.port(way)
    try:
        schema = check_schema(port, frame)
        if way.time is not None:
            frame = add_time(way.time, frame)
    except JobInvalid as error:
        if len(task.inputs) == 1:
            raise
        raise JobInvalid(f"{error.what}, in what {way.producer!r} gives", hint=error.hint) from error
    return add_key(port, frame, settings["parallelism.default"], settings["pipeline.max-parallelism"]), schema


class AlikeColumns:
    """What comes to a task by several ways has to be alike: of a union all columns, of two that are connected the keys.

    The hash of a key depends on its type: of other types one key would have two subtasks.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[VertexUid, int], tuple[TaskInput, dict[str, str]]] = {}
        self._keys: dict[VertexUid, tuple[TaskInput, str]] = {}

    def check(self, task: Task, way: TaskInput, schema: pa.Schema) -> None:
        """Raises JobInvalid, naming the first column that not all ways so far have, or have of this type."""
        columns = {field.name: field.dataType.simpleString() for field in from_arrow_schema(schema)}
        first, known = self._first.setdefault((task.uid, way.port), (way, columns))
        for name in dict.fromkeys([*known, *columns]):
            if known.get(name) != columns.get(name):
                has, had = (f"of type {each[name]}" if name in each else "missing" for each in (columns, known))
                raise JobInvalid(
                    f"union before {task.uid!r}: the column {name!r} is {had} in what {first.producer!r} gives, and "
                    f"{has} in what {way.producer!r} does",
                    hint="give all of them the same columns, of the same types, in a transform before the union",
                )
        port = task.port(way)
        if port is not None and not port.broadcast:
            types = ", ".join(columns[key] for key in port.keys)
            first, had = self._keys.setdefault(task.uid, (way, types))
            if types != had:
                raise JobInvalid(
                    f"connect before {task.uid!r}: the key is of type {had} in what {first.producer!r} gives, and of "
                    f"type {types} in what {way.producer!r} does",
                    hint="cast one of them in a transform before key_by",
                )


def apply_transforms(transforms: tuple[TransformVertex, ...], frame: DataFrame) -> DataFrame:
    """The DataFrame code of a chain. Raises JobInvalid with the transform's uid if it fails or keeps state."""
    for vertex in transforms:
        try:
            frame = vertex.function(frame)
        except HeadgateError:
            raise
        except Exception as error:
            raise JobInvalid(f"transform {vertex.uid!r} failed: {first_line(error)}") from error
        if not isinstance(frame, DataFrame):
            raise JobInvalid(f"transform {vertex.uid!r} returned {type(frame).__name__}, not a DataFrame")
        refuse_stateful(frame, f"transform {vertex.uid!r}")
    return frame


def check_schema(port: Port | None, frame: DataFrame) -> pa.Schema:
    """The schema that reaches the step, or what there is instead, checked against what the step needs."""
    for name in (HASH, SUBTASK, TIME):
        if name in frame.columns:
            raise JobInvalid(f"the column name {name} is Headgate's own")
    _refuse_ambiguous(port, frame)
    large = frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=large)  # as the step sees it
    if port is not None and not port.broadcast:
        port.operator.check(port.keys, schema)
        port.operator.descriptors(port.keys, schema)
    return schema


def _refuse_ambiguous(port: Port | None, frame: DataFrame) -> None:
    """A step asks for its columns by name, and Spark hears no difference between names in upper and lower case."""
    what, wanted = "the stream", frame.columns
    fold: Callable[[str], str] = str
    if port is not None:
        needed = port.operator.needed(port.keys)
        what, wanted = f"step {port.uid!r}", frame.columns if needed is None else list(needed)
        fold = str if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true" else str.lower
    for name in wanted:
        alike = [other for other in frame.columns if fold(other) == fold(name)]
        if len(alike) > 1:
            raise JobInvalid(
                f"{what} is given {len(alike)} columns that cannot be told apart: {', '.join(map(repr, alike))}",
                hint="rename or drop one of them in a transform; a join on a name, on='id', keeps it once",
            )


def column_of(name: str) -> Column:
    """The column of exactly that name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def add_time(time: EventTime, frame: DataFrame) -> DataFrame:
    """Add when each record was made. Raises JobInvalid if the column does not say."""
    kinds = dict(frame.dtypes)
    if time.column not in kinds:
        raise JobInvalid(
            f"with_watermark: there is no column {time.column!r} before the step",
            hint=f"keep it in the transforms; there are {', '.join(kinds)}",
        )
    kind, column = kinds[time.column], column_of(time.column)
    if kind != "bigint" and not kind.startswith("timestamp"):
        raise JobInvalid(
            f"with_watermark: the column {time.column!r} is of type {kind}",
            hint="make a timestamp of it in a transform, or a bigint of milliseconds since 1970",
        )
    return frame.withColumn(TIME, column if kind == "bigint" else F.unix_millis(column.cast("timestamp")))


def add_key(port: Port | None, frame: DataFrame, parallelism: int, max_parallelism: int) -> DataFrame:
    """Keep the columns that the step reads, and add the key's hash and the subtask that owns it."""
    if port is None or port.broadcast:
        return frame
    needed = port.operator.needed(port.keys)
    own = [TIME] if TIME in frame.columns else []
    columns = [column_of(name) for name in (frame.columns if needed is None else dict.fromkeys([*needed, *own]))]
    hashed = F.xxhash64(*map(column_of, port.keys))
    frame = frame.select(*columns, hashed.alias(HASH))
    return frame.withColumn(SUBTASK, subtask_of(F.col(HASH), parallelism, max_parallelism))


def subtask_of(hashed: Column, parallelism: int, max_parallelism: int) -> Column:
    """The subtask of a hash, by the formulas of headgate.state.key_groups."""
    key_group = F.shiftright((F.shiftright(hashed, 32) + F.lit(2**31).cast("bigint")) * F.lit(max_parallelism), 32)
    return F.floor(key_group * F.lit(parallelism) / F.lit(max_parallelism)).cast("int")


def run_step(frame: DataFrame, task: StepTask) -> list[StepAck]:
    """One Spark job: shuffle, step, sinks' writers; what comes back is acks."""
    if task.keyed is not None and task.keyed.broadcast:
        frame = frame.coalesce(1)  # the first subtask's
    elif task.keyed is not None:
        frame = frame.repartitionById(task.keyed.parallelism, F.col(SUBTASK)).drop(SUBTASK)
    return _acks(frame, _step(task))


def from_channel(session: SparkSession, directory: Path, names: tuple[str, ...]) -> DataFrame:
    """What these files of a channel hold, each read by a task of its own."""
    schema = from_arrow_schema(channel_files.schema_of(directory, names))

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = [names[number] for batch in numbers for number in batch.column(0).to_pylist()]
        yield from channel_files.read(directory, wanted)

    return session.range(0, len(names), 1, len(names)).mapInArrow(read, schema)


def finish_step(session: SparkSession, schema: pa.Schema | None, task: StepTask) -> list[StepAck]:
    """The same without records: a partition for each subtask, which is told only their schema, if that is known.

    Not on an empty DataFrame: Spark leaves out what it knows to be empty, and every subtask has to run.
    """
    subtasks = task.keyed.parallelism if task.keyed is not None else 1
    rows = [] if schema is None else [without_rows(schema)]
    step = _step(task)

    def without_records(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            pass
        yield from step(iter(rows))

    return _acks(session.range(0, subtasks, 1, subtasks), without_records)


def _acks(frame: DataFrame, step: Step) -> list[StepAck]:
    try:
        rows = frame.mapInArrow(step, "ack string").collect()
    except Exception as error:
        raise failure_of(error) from error
    return [StepAck.decode(row[0]) for row in rows]


def _step(task: StepTask) -> Step:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.spark import worker  # by import, not by value: a pickled module has an empty cache in each batch

        yield from worker.step(task, batches)

    return step
