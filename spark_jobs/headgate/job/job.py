"""What a job's author writes with: Job, Stream, KeyedStream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from headgate.job.graph import (
    ArrowFunction,
    ArrowVertex,
    ConnectedVertex,
    EventTime,
    KeyedVertex,
    SinkVertex,
    SourceVertex,
    TransformVertex,
    UnionVertex,
    Vertex,
    WatermarkVertex,
)
from headgate_contract.durations import parse_duration
from headgate_contract.errors import BadConfiguration, JobInvalid
from headgate_contract.ids import VertexUid

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.sink.base import Sink
    from headgate.source.base import Source
    from headgate.step.aggregates import Aggregate
    from headgate.step.operators import FinishFunction, ProcessFunction


class Job:
    """A graph of vertices under a name. A job file holds exactly one."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise JobInvalid(f"a job's name is a text, not {name!r}")
        self.name = name
        self.vertices: dict[VertexUid, Vertex] = {}
        self._derived_from: dict[VertexUid, str] = {}

    def source(self, uid: str, source: Source, *, name: str | None = None, former_uids: Sequence[str] = ()) -> Stream:
        """Add a source. `uid` is what its position is found again by after a restart; `name` is only shown.

        `former_uids` are the uids that the source had before, oldest first: what snapshots have under one of them is
        taken under `uid`. Leave them there as long as the source is called `uid`. So also of steps and sinks.
        """
        from headgate.source.base import Source as SourceBase

        if not isinstance(source, SourceBase):
            raise JobInvalid(f"source {uid!r} of job {self.name!r} is not one of headgate.sources: {source!r}")
        vertex = SourceVertex(VertexUid(uid), name or uid, source, former_uids=_former(uid, former_uids))
        return Stream(self, self._add(vertex))

    def _add(self, vertex: Vertex) -> VertexUid:
        if vertex.uid in self.vertices:
            raise JobInvalid(
                f"two vertices of job {self.name!r} have the uid {vertex.uid!r}",
                hint="state is found again by uid: give each its own",
            )
        self.vertices[vertex.uid] = vertex
        self._check_former_uids()
        return vertex.uid

    def _check_former_uids(self) -> None:
        """Each uid, of now and of before, is one vertex's: else two would take the same state."""
        owners: dict[VertexUid, VertexUid] = {uid: uid for uid in self.vertices}
        for vertex in self.vertices.values():
            for former in getattr(vertex, "former_uids", ()):
                if former in owners:
                    raise JobInvalid(
                        f"vertex {vertex.uid!r} of job {self.name!r} was called {former!r}, "
                        f"and so is or was vertex {owners[former]!r}",
                        hint="what a snapshot has under a uid can be taken by one vertex only",
                    )
                owners[former] = vertex.uid

    def _derived_uid(self, parent: VertexUid, what: str) -> VertexUid:
        """A uid for a vertex that keeps no state and was given none; as short behind ten others as behind one."""
        base = self._derived_from.get(parent, parent[:80].rstrip("."))
        numbered = (VertexUid(f"{base}.{what}{number}") for number in count(1))
        uid = next(uid for uid in numbered if uid not in self.vertices)
        self._derived_from[uid] = base
        return uid


class Stream:
    """The records that leave a vertex."""

    def __init__(self, job: Job, vertex: VertexUid, *, new_chain: bool = False) -> None:
        self._job = job
        self._vertex = vertex
        self._new_chain = new_chain

    def start_new_chain(self) -> Stream:
        """What follows goes at a pace of its own, behind a channel: what stands before does not wait for it."""
        return Stream(self._job, self._vertex, new_chain=True)

    def union(self, *others: Stream, uid: str | None = None, name: str | None = None) -> Stream:
        """These records and those of `others`, which have the same columns; in no order between the streams."""
        inputs = (self, *others)
        for other in others:
            _check_joins(self._job, f"union with {self._vertex!r}", other, (Stream,), "a Stream")
        if len({each._vertex for each in inputs}) < max(len(inputs), 2):
            raise JobInvalid(f"union with {self._vertex!r} needs other streams, and each once")
        own = VertexUid(uid) if uid else self._job._derived_uid(self._vertex, "union")
        return Stream(self._job, self._job._add(UnionVertex(own, name or own, tuple(each._vertex for each in inputs))))

    def broadcast(self) -> BroadcastStream:
        """For `connect`: each record is told to all subtasks of the step."""
        return BroadcastStream(self._job, self._vertex)

    def transform(self, function: Callable[[Any], Any], *, uid: str | None = None, name: str | None = None) -> Stream:
        """Apply any DataFrame -> DataFrame function that keeps no state in Spark: select, filter, explode, a join.

        Refused when the stream is deployed or starts: dropDuplicates, groupBy and whatever else keeps state between
        micro-batches, since that state is in no snapshot; use key_by. A deploy runs it on a frame without records.
        """
        if not callable(function):
            raise JobInvalid(f"transform behind {self._vertex!r} needs a function of a DataFrame, not {function!r}")
        own = VertexUid(uid) if uid else self._job._derived_uid(self._vertex, "transform")
        vertex = TransformVertex(own, name or own, function, (self._vertex,), self._new_chain)
        return Stream(self._job, self._job._add(vertex))

    def with_watermark(
        self, column: str, delay: str | int, *, idle_after: str | int | None = None, uid: str | None = None
    ) -> Stream:
        """Tell the steps behind it how far event time has come: `column` says when a record was made.

        A step's `keyed.watermark_ms` is then the time up to which no more records are expected: the latest that its
        sources had in the micro-batches before, less `delay` ("10 s", or milliseconds) and one millisecond; of several
        inputs the least. A source that hands over nothing for `idle_after` holds up nobody. The column is a timestamp,
        or a number of milliseconds since 1970, and has to reach the step under that name. Nothing is dropped: what to
        do with a record that comes later still is the step's.
        """
        if not isinstance(column, str) or not column:
            raise JobInvalid(f"with_watermark behind {self._vertex!r} needs the name of a column, not {column!r}")
        what = f"with_watermark behind {self._vertex!r}"
        try:
            late = int(parse_duration(delay, f"{what}: delay"))
            idle = None if idle_after is None else int(parse_duration(idle_after, f"{what}: idle_after"))
        except BadConfiguration as error:
            raise JobInvalid(error.what, hint=error.hint) from error
        time = EventTime(column, late, idle)
        own = VertexUid(uid) if uid else self._job._derived_uid(self._vertex, "watermark")
        vertex = WatermarkVertex(own, own, time, (self._vertex,), self._new_chain)
        return Stream(self._job, self._job._add(vertex))

    def map_arrow(self, function: ArrowFunction, *, uid: str | None = None, name: str | None = None) -> Stream:
        """Apply a function of one Arrow record batch in the step's own task; it must keep nothing between calls."""
        if not callable(function):
            raise JobInvalid(f"map_arrow behind {self._vertex!r} needs a function of a record batch, not {function!r}")
        own = VertexUid(uid) if uid else self._job._derived_uid(self._vertex, "map")
        vertex = ArrowVertex(own, name or own, function, (self._vertex,), self._new_chain)
        return Stream(self._job, self._job._add(vertex))

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition by these columns: all records of a key meet the same state."""
        if not columns or not all(isinstance(column, str) and column for column in columns):
            raise JobInvalid(f"key_by behind {self._vertex!r} needs names of columns, not {columns!r}")
        if len(set(columns)) != len(columns):
            raise JobInvalid(f"key_by behind {self._vertex!r} names a column twice: {', '.join(columns)}")
        return KeyedStream(self._job, self._vertex, columns, new_chain=self._new_chain)

    def sink(self, uid: str, sink: Sink, *, name: str | None = None, former_uids: Sequence[str] = ()) -> None:
        """Send the records to `sink`."""
        from headgate.sink.base import Sink as SinkBase

        if not isinstance(sink, SinkBase):
            raise JobInvalid(f"sink {uid!r} of job {self._job.name!r} is not one of headgate.sinks: {sink!r}")
        former = _former(uid, former_uids)
        self._job._add(SinkVertex(VertexUid(uid), name or uid, sink, (self._vertex,), former, self._new_chain))


class KeyedStream:
    """A stream partitioned by key: where state is."""

    def __init__(self, job: Job, vertex: VertexUid, columns: tuple[str, ...], *, new_chain: bool = False) -> None:
        self._job = job
        self._vertex = vertex
        self._columns = columns
        self._new_chain = new_chain

    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStreams:
        """Two inputs of one step: by keys that mean the same, or the other one told to all subtasks."""
        needed = "a KeyedStream, by key_by, or a BroadcastStream, by broadcast()"
        _check_joins(self._job, f"connect with {self._vertex!r}", other, (KeyedStream, BroadcastStream), needed)
        if isinstance(other, KeyedStream) and len(other._columns) != len(self._columns):
            raise JobInvalid(
                f"connect: {self._vertex!r} has the keys {', '.join(self._columns)} "
                f"and {other._vertex!r} {', '.join(other._columns)}",
                hint="both sides share the state of a key: give them the same number of key columns",
            )
        return ConnectedStreams(self._job, self, other)

    def aggregate(
        self, uid: str, *, name: str | None = None, former_uids: Sequence[str] = (), **aggregates: Aggregate
    ) -> Stream:
        """Keep ready aggregates for each key; of each micro-batch's keys the new values leave, a row for a key."""
        from headgate.step.operators import AggregateOperator

        return self._keyed(uid, name, AggregateOperator.of(uid, self._columns, aggregates), former_uids)

    def process(
        self,
        uid: str,
        function: ProcessFunction,
        *,
        output: pa.Schema,
        state: Mapping[str, pa.Schema],
        operator_state: Mapping[str, str] | None = None,
        finish: FinishFunction | None = None,
        name: str | None = None,
        former_uids: Sequence[str] = (),
    ) -> Stream:
        """Run a vectorised function over each micro-batch of a subtask.

        `function(rows, keyed)` gets the batch as a pyarrow Table and a `Keyed`, through which it reads and writes
        `state` (a schema of value columns for each name) for all keys of the batch at once; it returns a Table of
        schema `output`. It runs again from the same state when a batch is tried again: clocks and chance come from
        `keyed`. `operator_state` names what belongs to no key (`keyed.operator_state(name)`), each with its kind:
        list, union, broadcast or single.

        `finish(keyed)` runs once in each subtask when the stream is drained (`headgate stop --drain`) or all inputs of
        the step have ended, after its last record: the keys of its `Keyed` are all that have state, in memory at once.
        What it returns, a Table of schema `output` or None, is the step's last output; what it leaves of the state is
        in the next snapshot.
        """
        from headgate.step.operators import ProcessOperator

        operator = ProcessOperator.of(uid, function, output, state, operator_state, finish)
        return self._keyed(uid, name, operator, former_uids)

    def _keyed(self, uid: str, name: str | None, operator: Any, former_uids: Sequence[str]) -> Stream:
        former = _former(uid, former_uids)
        vertex = KeyedVertex(
            VertexUid(uid), name or uid, self._columns, operator, (self._vertex,), former, self._new_chain
        )
        return Stream(self._job, self._job._add(vertex))


class BroadcastStream:
    """A stream of which every subtask is to know all: rules, prices, a model."""

    def __init__(self, job: Job, vertex: VertexUid) -> None:
        self._job = job
        self._vertex = vertex


class ConnectedStreams:
    """Two streams before one step."""

    def __init__(self, job: Job, first: KeyedStream, second: KeyedStream | BroadcastStream) -> None:
        self._job = job
        self._first = first
        self._second = second

    def process(
        self,
        uid: str,
        first: ProcessFunction,
        second: ProcessFunction,
        *,
        output: pa.Schema,
        state: Mapping[str, pa.Schema],
        operator_state: Mapping[str, str] | None = None,
        finish: FinishFunction | None = None,
        name: str | None = None,
        former_uids: Sequence[str] = (),
    ) -> Stream:
        """Run `first` over each micro-batch of the first input and `second` over each of the second, on one state.

        Both are functions of (rows, keyed), as that of `process` is, and return Tables of the same schema. Which input
        comes when is left to chance. Of an input that is broadcast `keyed` has no keys: its function writes operator
        state of kind broadcast, which the first one reads from the next micro-batch on.
        """
        from headgate.step.connected import ConnectedOperator

        second_keys = self._second._columns if isinstance(self._second, KeyedStream) else None
        operator = ConnectedOperator.of(
            uid, (first, second), output, state, operator_state, finish, broadcast=second_keys is None
        )
        former = _former(uid, former_uids)
        keys = (self._first._columns, second_keys)
        inputs = (self._first._vertex, self._second._vertex)
        vertex = ConnectedVertex(VertexUid(uid), name or uid, keys, operator, inputs, former)
        return Stream(self._job, self._job._add(vertex))


def _check_joins(job: Job, what: str, other: Any, kinds: tuple[type[Any], ...], needed: str) -> None:
    if not isinstance(other, kinds):
        raise JobInvalid(f"{what}: a {type(other).__name__} cannot stand there", hint=f"give it {needed}")
    if other._job is not job:
        raise JobInvalid(f"{what}: the other stream belongs to job {other._job.name!r}", hint="take one of this job")


def _former(uid: str, former_uids: Sequence[str]) -> tuple[VertexUid, ...]:
    if isinstance(former_uids, str) or not isinstance(former_uids, Sequence):
        raise JobInvalid(f"former_uids of {uid!r} is a list of uids, not {former_uids!r}")
    former = tuple(VertexUid(old) for old in former_uids)
    if len({uid, *former}) != len(former) + 1:
        raise JobInvalid(f"former_uids of {uid!r} names a uid twice: {', '.join([*former, uid])}")
    return former
