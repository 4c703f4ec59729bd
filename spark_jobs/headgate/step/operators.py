"""Keyed operators: what a stateful step does with one micro-batch of one subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.state.base import KeyBatch, StateSession
from headgate.state.descriptors import HASH as STORED_HASH
from headgate.state.descriptors import StateDescriptor, StateKind
from headgate.step.aggregates import Accumulator, Aggregate, merge, prepare
from headgate.step.blame import author_failed
from headgate.step.operator_state import SubtaskStates, declared_kinds
from headgate_contract.errors import HeadgateError, JobInvalid, RecordFailed
from headgate_contract.operator_state import OperatorStateKind

HASH = "__headgate_hash"
"""The column that carries the hash of the key from the JVM into the step."""


@dataclass(frozen=True, slots=True)
class StepClock:
    """What a step may know of time and chance: given by the driver, equal in every attempt of a batch."""

    now_ms: int
    seed: int
    watermark_ms: int | None = None


class KeyedOperator(ABC):
    """A frozen, picklable description of a keyed step."""

    @property
    @abstractmethod
    def state_names(self) -> list[str]:
        """The names of its states."""

    @property
    def operator_states(self) -> Mapping[str, OperatorStateKind]:
        """Its states that belong to no key."""
        return {}

    @abstractmethod
    def needed(self, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        """The input columns that the step reads, or None for all."""

    @abstractmethod
    def check(self, keys: tuple[str, ...], rows: pa.Schema) -> None:
        """Raise JobInvalid, naming the column, if the input has not what the step needs."""

    @abstractmethod
    def descriptors(self, keys: tuple[str, ...], rows: pa.Schema) -> tuple[StateDescriptor, ...]:
        """The states, for an input of schema `rows`."""

    @abstractmethod
    def apply(
        self, keys: tuple[str, ...], rows: pa.Table, session: StateSession, clock: StepClock, states: SubtaskStates
    ) -> pa.Table | None:
        """Fold `rows` (with the column HASH) into the state and return what leaves the step."""

    @property
    def finishes(self) -> bool:
        """Whether it has something to do when its stream is drained."""
        return False

    def finish(
        self, keys: tuple[str, ...], rows: pa.Schema, session: StateSession, clock: StepClock, states: SubtaskStates
    ) -> pa.Table | None:
        """Do it, for records of schema `rows` of which there are no more, and return what leaves the step."""
        return None


def check_keys(uid: str, keys: tuple[str, ...], rows: pa.Schema) -> None:
    """Raise JobInvalid unless the columns are there and of types that can be told apart."""
    check_columns(f"key_by of {uid!r}", keys, rows)
    for key in keys:
        kind = rows.field(key).type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise JobInvalid(
                f"key_by of {uid!r}: the column {key!r} is of type {kind}",
                hint="make a plain column of it before key_by",
            )


def check_columns(what: str, wanted: tuple[str, ...], rows: pa.Schema) -> None:
    missing = [column for column in wanted if column not in rows.names]
    if missing:
        raise JobInvalid(f"{what}: there is no column {missing[0]!r}", hint=f"the stream has {', '.join(rows.names)}")


def _key_schema(keys: tuple[str, ...], rows: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(key, rows.field(key).type) for key in keys])


@dataclass(frozen=True)
class AggregateOperator(KeyedOperator):
    """Ready aggregates: fold the batch by key, add to what is stored, emit the new values."""

    uid: str
    aggregates: tuple[tuple[str, Aggregate], ...]

    @classmethod
    def of(cls, uid: str, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]) -> AggregateOperator:
        if not aggregates:
            raise JobInvalid(f"aggregate {uid!r} keeps nothing", hint="like .aggregate('counts', n=headgate.count())")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise JobInvalid(
                    f"aggregate {uid!r}: {name}={aggregate!r} is not one of headgate.count, sum, min, max, avg"
                )
            if name in keys:
                raise JobInvalid(f"aggregate {uid!r}: {name!r} is a key's name as well")
        stored = [f"{name}{part.suffix}" for name, aggregate in aggregates.items() for part in aggregate.accumulators]
        for name in stored:
            if [*keys, *stored].count(name) > 1:
                raise JobInvalid(
                    f"aggregate {uid!r} would keep two columns called {name!r}",
                    hint="an avg called x keeps x_sum and x_count: rename one",
                )
        return cls(uid, tuple(aggregates.items()))

    @property
    def state_names(self) -> list[str]:
        return ["aggregates"]

    def needed(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        columns = [aggregate.column for _, aggregate in self.aggregates if aggregate.column is not None]
        return tuple(dict.fromkeys([*keys, *columns]))

    def check(self, keys: tuple[str, ...], rows: pa.Schema) -> None:
        check_keys(self.uid, keys, rows)
        for name, aggregate in self.aggregates:
            if aggregate.column is not None:
                check_columns(f"{self.uid!r}: {name}={aggregate.kind}({aggregate.column!r})", (aggregate.column,), rows)
            for accumulator in aggregate.accumulators:
                try:
                    accumulator.type_of(_type_of(aggregate.column, rows))
                except JobInvalid as error:
                    what = f"{self.uid!r}: {name}={aggregate.kind}({aggregate.column!r})"
                    raise JobInvalid(f"{what}: {error.what}", hint=error.hint) from error

    def descriptors(self, keys: tuple[str, ...], rows: pa.Schema) -> tuple[StateDescriptor, ...]:
        fields = [
            pa.field(f"{name}{accumulator.suffix}", accumulator.type_of(_type_of(aggregate.column, rows)))
            for name, aggregate in self.aggregates
            for accumulator in aggregate.accumulators
        ]
        meanings = [part.meaning for _, aggregate in self.aggregates for part in aggregate.accumulators]
        kind = StateKind.AGGREGATING
        key, value = _key_schema(keys, rows), pa.schema(fields)
        return (StateDescriptor("aggregates", kind, key, value, meanings=tuple(meanings)),)

    def apply(
        self, keys: tuple[str, ...], rows: pa.Table, session: StateSession, clock: StepClock, states: SubtaskStates
    ) -> pa.Table | None:
        if not rows.num_rows:
            return None
        parts = [
            (name, aggregate, accumulator)
            for name, aggregate in self.aggregates
            for accumulator in aggregate.accumulators
        ]
        hashes, key_columns, values = _fold(keys, rows, [accumulator for _, _, accumulator in parts])
        batch, order = KeyBatch.of(hashes, pa.table(key_columns, names=list(keys)))
        table = session.table("aggregates")
        stored, _ = table.get(batch)
        indices = pa.array(order)
        merged = {}
        for position, (name, aggregate, accumulator) in enumerate(parts):
            field = table.descriptor.value.field(f"{name}{accumulator.suffix}")
            try:
                folded = pc.cast(values[position].take(indices), field.type)
                merged[field.name] = merge(accumulator.merge, stored.column(field.name), folded, field.type)
            except pa.ArrowInvalid as error:
                raise RecordFailed(
                    f"step {self.uid!r}: {name}={aggregate.kind}({aggregate.column!r}) overflows {field.type}: {error}"
                ) from error
        table.put(batch, pa.table(merged))
        outputs = {key: pa.chunked_array([batch.keys.column(key)]) for key in keys}
        for name, aggregate in self.aggregates:
            outputs[name] = aggregate.result([merged[f"{name}{part.suffix}"] for part in aggregate.accumulators])
        return pa.table(outputs)


def _fold(
    keys: tuple[str, ...], rows: pa.Table, accumulators: list[Accumulator]
) -> tuple[npt.NDArray[np.int64], list[Any], list[Any]]:
    """A row for each key of the batch: its hash, its key columns, and each accumulator's column folded."""
    columns = [*(rows.column(key) for key in keys), rows.column(HASH)]
    names = [*(f"key {number}" for number in range(len(keys))), "hash"]  # by place: an author's names may be any
    folds: list[tuple[Any, str]] = [("hash", "min")]
    for number, accumulator in enumerate(accumulators):
        if accumulator.column is None:
            folds.append(([], accumulator.fold))
            continue
        columns.append(prepare(accumulator, rows.column(accumulator.column)))
        names.append(f"value {number}")
        folds.append((names[-1], accumulator.fold))
    grouped = pa.table(columns, names=names).group_by(names[: len(keys)], use_threads=False).aggregate(folds)
    return grouped.column("hash_min").to_numpy(), grouped.columns[: len(keys)], grouped.columns[len(keys) + 1 :]


def _type_of(column: str | None, rows: pa.Schema) -> pa.DataType | None:
    return None if column is None else rows.field(column).type


class Keyed:
    """What a process function sees of its state: the batch's keys, and the tables to read and write for them."""

    def __init__(
        self,
        keys: KeyBatch,
        row_key: npt.NDArray[np.int64],
        session: StateSession,
        clock: StepClock,
        states: SubtaskStates,
    ) -> None:
        self.keys = keys
        """Every key of the batch, once; when the stream is drained every key of the subtask that has state."""
        self.row_key = row_key
        """For each row of the batch, which of `keys` is its own."""
        self.now_ms = clock.now_ms
        """The driver's time at the batch's start: equal in every attempt."""
        self.watermark_ms = clock.watermark_ms
        """Event time up to which nothing more is expected, by the micro-batches before; None as long as unknown."""
        self._seed = clock.seed
        self._session = session
        self._states = states

    @cached_property
    def random(self) -> np.random.Generator:
        """Chance that is equal in every attempt, and another in each subtask."""
        return np.random.default_rng([self._seed, self._session.key_groups.start])

    def get(self, state: str) -> pa.Table:
        """The stored values of `state`, a row for each of `keys`; null where a key has none."""
        return self._session.table(state).get(self.keys)[0]

    def put(self, state: str, values: pa.Table) -> None:
        """Store a row of values for each of `keys`."""
        self._session.table(state).put(self.keys, values)

    def delete(self, state: str) -> None:
        """Forget what is stored for `keys`."""
        self._session.table(state).delete(self.keys)

    def operator_state(self, name: str) -> Any:
        """The operator state of that name: a ListState, UnionListState, BroadcastState or SingleState, as declared."""
        return self._states.named(name)

    def positions(self) -> npt.NDArray[np.int64]:
        """For each row its place among the rows of its key in this batch: 0, 1, 2, ..."""
        order = np.argsort(self.row_key, kind="stable")
        sorted_keys = self.row_key[order]
        starts = np.flatnonzero(np.r_[True, sorted_keys[1:] != sorted_keys[:-1]])
        lengths = np.diff(np.r_[starts, len(sorted_keys)])
        places = np.empty(len(sorted_keys), dtype=np.int64)
        places[order] = np.arange(len(sorted_keys)) - np.repeat(starts, lengths)
        return places


class Untied:
    """What a process function sees of its state where its records belong to no key: operator state alone."""

    def __init__(self, clock: StepClock, states: SubtaskStates) -> None:
        self.now_ms = clock.now_ms
        self.watermark_ms = clock.watermark_ms
        self.random = np.random.default_rng([clock.seed])
        self._states = states

    def operator_state(self, name: str) -> Any:
        """As of `Keyed`. What is put into one of kind broadcast is there for all keys from the next micro-batch on."""
        return self._states.named(name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: an input that is broadcast belongs to no key, and has operator state only")


ProcessFunction = Callable[[pa.Table, Any], "pa.Table | None"]
FinishFunction = Callable[[Keyed], "pa.Table | None"]


@dataclass(frozen=True)
class ProcessOperator(KeyedOperator):
    """An author's vectorised function over the batch and the state of its keys."""

    uid: str
    function: ProcessFunction
    output: pa.Schema
    states: tuple[tuple[str, pa.Schema], ...]
    declared: tuple[tuple[str, OperatorStateKind], ...] = ()
    last: FinishFunction | None = None
    stored: tuple[str, ...] | None = None
    """What the key's columns are called in the state, if not as they come: two inputs share one state."""

    @classmethod
    def of(
        cls,
        uid: str,
        function: ProcessFunction,
        output: pa.Schema,
        state: Mapping[str, pa.Schema],
        operator_state: Mapping[str, str] | None = None,
        finish: FinishFunction | None = None,
    ) -> ProcessOperator:
        if not callable(function):
            raise JobInvalid(f"process {uid!r} needs a function of (rows, keyed), not {function!r}")
        if finish is not None and not callable(finish):
            raise JobInvalid(f"process {uid!r}: finish is a function of (keyed), not {finish!r}")
        if not isinstance(state, Mapping):
            raise JobInvalid(f"process {uid!r}: state is a schema for each name, not {state!r}")
        for what, schema in [("output", output), *((f"state {name!r}", schema) for name, schema in state.items())]:
            if not isinstance(schema, pa.Schema):
                raise JobInvalid(f"process {uid!r}: {what} is a pyarrow schema, not {schema!r}")
        return cls(
            uid, function, output, tuple(state.items()), declared_kinds(uid, operator_state or {}, state), finish
        )

    @property
    def state_names(self) -> list[str]:
        return [name for name, _ in self.states]

    @property
    def operator_states(self) -> Mapping[str, OperatorStateKind]:
        return dict(self.declared)

    def needed(self, keys: tuple[str, ...]) -> None:
        return None

    def check(self, keys: tuple[str, ...], rows: pa.Schema) -> None:
        check_keys(self.uid, keys, rows)

    def descriptors(self, keys: tuple[str, ...], rows: pa.Schema) -> tuple[StateDescriptor, ...]:
        key = self._stored(keys, rows)
        return tuple(StateDescriptor(name, StateKind.VALUE, key, schema) for name, schema in self.states)

    def _stored(self, keys: tuple[str, ...], rows: pa.Schema) -> pa.Schema:
        own = _key_schema(keys, rows)
        return pa.schema([own.field(at).with_name(name) for at, name in enumerate(self.stored or keys)])

    def apply(
        self, keys: tuple[str, ...], rows: pa.Table, session: StateSession, clock: StepClock, states: SubtaskStates
    ) -> pa.Table | None:
        if not rows.num_rows:
            return None
        batch, row_key = distinct_keys(keys, rows, self.stored)
        keyed = Keyed(batch, row_key, session, clock, states)
        return self._call(f"process {self.uid!r}", self.function, rows.drop_columns([HASH]), keyed)

    @property
    def finishes(self) -> bool:
        return self.last is not None

    def finish(
        self, keys: tuple[str, ...], rows: pa.Schema, session: StateSession, clock: StepClock, states: SubtaskStates
    ) -> pa.Table | None:
        if self.last is None:
            return None
        batch, no_rows = stored_keys(self._stored(keys, rows), session, self.state_names), np.empty(0, dtype=np.int64)
        keyed = Keyed(batch, no_rows, session, clock, states)
        return self._call(f"finish of process {self.uid!r}", self.last, keyed)

    def tell(self, rows: pa.Table, clock: StepClock, states: SubtaskStates) -> pa.Table | None:
        """Give the author's function records that belong to no key."""
        return self._call(f"process {self.uid!r}", self.function, rows, Untied(clock, states))

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> pa.Table | None:
        """What the author's function returns, as it was declared."""
        try:
            result = function(*args)
        except HeadgateError:
            raise
        except Exception as error:
            raise author_failed(what, error) from error
        if result is None:
            return None
        if not isinstance(result, pa.Table):
            raise RecordFailed(f"{what} returned {type(result).__name__}, not a pyarrow Table")
        if result.schema.names != self.output.names:
            raise RecordFailed(
                f"{what} returned the columns {', '.join(result.schema.names)}",
                hint=f"its output was declared as {', '.join(self.output.names)}",
            )
        return result.cast(self.output)


def distinct_keys(
    keys: tuple[str, ...], rows: pa.Table, names: tuple[str, ...] | None = None
) -> tuple[KeyBatch, npt.NDArray[np.int64]]:
    """The distinct keys of `rows`, sorted by hash, and for each row the index of its key; `names` renames them."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for key in keys:
        encoded = rows.column(key).combine_chunks().dictionary_encode()
        own = encoded.indices.to_numpy().astype(np.int64)
        _, codes = np.unique(codes * max(len(encoded.dictionary), 1) + own, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    hashes = rows.column(HASH).to_numpy()[first]
    distinct = rows.select(list(keys)).take(pa.array(first)).rename_columns(list(names or keys))
    batch, order = KeyBatch.of(hashes, distinct)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return batch, place[inverse]


def stored_keys(keys: pa.Schema, session: StateSession, states: Sequence[str]) -> KeyBatch:
    """Every key of these columns that has an entry in one of the states, once, sorted by hash."""
    found = [batch.select([STORED_HASH, *keys.names]) for state in states for batch in session.table(state).scan()]
    rows = pa.Table.from_batches(found, pa.schema([pa.field(STORED_HASH, pa.int64()), *keys]))
    return distinct_keys(tuple(keys.names), rows.rename_columns([HASH, *keys.names]))[0]
