"""Process functions: the keys of a batch and their places, state through them, and what they may return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate
from headgate.state.base import KeyBatch
from headgate.state.errors import StateMigrationError
from headgate.step.operator_state import SubtaskStates
from headgate.step.operators import Keyed, ProcessOperator, distinct_keys
from headgate_contract.errors import BatchFailed, JobInvalid, SinkFailed
from tests.runtime.step.vertex import CLOCK, OUT, Vertex, few_hashes, hashed, positions_of, scratch, written

CALM = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NUMBERED = pa.schema({"id": pa.int64(), "user": pa.string(), "number": pa.int64()})
COUNT = {"count": pa.schema({"n": pa.int64()})}
Function = Callable[[pa.Table, Keyed], Any]


def number(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    """Give each record the next number of its key, and store how far each key has come."""
    before = pc.fill_null(keyed.get("count").column("n"), 0).to_numpy()
    numbers = before[keyed.row_key] + keyed.positions() + 1
    keyed.put("count", pa.table({"n": before + np.bincount(keyed.row_key, minlength=len(before))}))
    return rows.select(["id", "user"]).append_column("number", pa.array(numbers))


@pytest.fixture
def directory() -> Any:
    with scratch() as folder:
        yield folder


def process(
    function: Function,
    directory: Path,
    *,
    output: pa.Schema = NUMBERED,
    state: Any = None,
    backend: str = "hashmap",
    parallelism: int = 2,
) -> Vertex:
    operator = ProcessOperator.of("numbers", function, output, COUNT if state is None else state)
    return Vertex(operator, ("user",), backend, directory, parallelism)


def table(*users: str, first: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + len(users)), pa.int64()), "user": list(users)})


# ---- the keys of a batch

cells = st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.integers(-2, 2), st.booleans())


@settings(CALM, max_examples=60)
@given(st.lists(cells, min_size=1, max_size=30), st.integers(1, 3), st.integers(1, 4))
def test_each_row_finds_its_own_key_among_the_distinct_ones(
    rows: list[tuple[str, int, bool]], width: int, chunks: int
) -> None:
    names = ("x", "y", "z")[:width]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    whole = hashed(pa.table(columns), names)
    pieces = pa.Table.from_batches(whole.to_batches(max_chunksize=-(-len(rows) // chunks)))
    batch, row_key = distinct_keys(names, pieces)
    keys = list(zip(*(column.to_pylist() for column in batch.keys.columns), strict=True))
    own = [row[:width] for row in rows]
    assert [keys[place] for place in row_key] == own
    assert len(set(keys)) == len(keys) == len(set(own)), "each key stands there once"
    assert batch.hashes.tolist() == sorted(few_hashes(key) for key in keys)
    assert [few_hashes(key) for key in keys] == batch.hashes.tolist()


@settings(CALM, max_examples=60)
@given(st.lists(st.integers(0, 6), max_size=30))
def test_positions_count_the_rows_of_a_key_in_the_order_of_the_batch(row_key: list[int]) -> None:
    states = SubtaskStates("numbers", 0, {})
    keyed = Keyed(KeyBatch(np.array([]), None), np.array(row_key, dtype=np.int64), None, CLOCK, states)  # type: ignore[arg-type]
    assert keyed.positions().tolist() == positions_of(row_key)


users = st.lists(st.sampled_from(["ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal"]), max_size=40)


class TestRunningNumbers:
    """Each key's records are numbered 1, 2, 3, ... without a gap, however the stream is cut into micro-batches."""

    @settings(CALM, max_examples=25)
    @given(users, st.lists(st.integers(0, 15), max_size=4), st.integers(1, 3))
    def test_hashmap(self, users: list[str], sizes: list[int], parallelism: int) -> None:
        self.check("hashmap", users, sizes, parallelism)

    @settings(CALM, max_examples=6)
    @given(users, st.lists(st.integers(0, 15), max_size=3))
    def test_rocksdb(self, users: list[str], sizes: list[int]) -> None:
        self.check("rocksdb", users, sizes, 2)

    def check(self, backend: str, users: list[str], sizes: list[int], parallelism: int) -> None:
        out: list[dict[str, Any]] = []
        with scratch() as directory:
            vertex = process(number, directory, backend=backend, parallelism=parallelism)
            at = 0
            for size in [*sizes, len(users)]:
                out += vertex.batch(table(*users[at : at + size], first=at))
                at += size
        places = positions_of([sorted(set(users)).index(user) for user in users])
        assert {row["id"]: row["number"] for row in out} == {id: place + 1 for id, place in enumerate(places)}
        assert len(out) == len(users)


# ---- what a function sees


def test_it_sees_the_records_without_headgates_own_columns(directory: Path) -> None:
    seen: list[list[str]] = []

    def look(rows: pa.Table, keyed: Keyed) -> None:
        seen.append(rows.schema.names)

    process(look, directory, parallelism=1).batch(table("ann"))
    assert seen == [["id", "user"]]


def test_clock_and_chance_are_equal_in_every_attempt_at_a_batch(directory: Path) -> None:
    seen: list[tuple[int, float]] = []

    def look(rows: pa.Table, keyed: Keyed) -> None:
        seen.append((keyed.now_ms, float(keyed.random.random())))

    vertex = process(look, directory, parallelism=1)
    for _ in range(3):
        vertex.run(table("ann"))
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert seen[0][0] == CLOCK.now_ms


def test_chance_is_another_in_each_subtask(directory: Path) -> None:
    seen: set[float] = set()
    vertex = process(lambda rows, keyed: seen.add(float(keyed.random.random())), directory, parallelism=4)
    acks = vertex.run(table(*"abcdefgh"))
    assert len(seen) == sum(ack.rows_in > 0 for ack in acks) > 1


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_is_deleted_is_forgotten(directory: Path, backend: str) -> None:
    def once(rows: pa.Table, keyed: Keyed) -> pa.Table:
        had = keyed.get("count").column("n")
        if had.null_count == len(had):
            keyed.put("count", pa.table({"n": [1] * len(had)}))
        else:
            keyed.delete("count")
        return pa.table({"had": had})

    vertex = process(once, directory, backend=backend, output=pa.schema({"had": pa.int64()}))
    assert [vertex.batch(table("ann"))[0]["had"] for _ in range(4)] == [None, 1, None, 1]


def test_a_function_that_returns_nothing_keeps_its_state_all_the_same(directory: Path) -> None:
    def count(rows: pa.Table, keyed: Keyed) -> pa.Table | None:
        out = number(rows, keyed)
        return out if out.column("number")[0].as_py() % 2 == 0 else None

    vertex = process(count, directory)
    assert [[row["number"] for row in vertex.batch(table("ann"))] for _ in range(4)] == [[], [2], [], [4]]


def test_the_output_is_cast_to_what_was_declared(directory: Path) -> None:
    def small(rows: pa.Table, keyed: Keyed) -> pa.Table:
        return pa.table({"n": pa.array([7], pa.int8())})

    vertex = process(small, directory, output=pa.schema({"n": pa.int64()}), parallelism=1)
    sealed = vertex.run(table("ann"))
    assert sealed[0].rows_out == 1


# ---- what it may not do

WRONG: dict[str, tuple[Function, str]] = {
    "another type": (lambda rows, keyed: [1, 2], "process 'numbers' returned list, not a pyarrow Table"),
    "other columns": (
        lambda rows, keyed: rows,
        "process 'numbers' returned the columns id, user; its output was declared as id, user, number",
    ),
    "columns in another order": (
        lambda rows, keyed: number(rows, keyed).select(["number", "id", "user"]),
        "process 'numbers' returned the columns number, id, user; its output was declared as id, user, number",
    ),
    "a column that cannot be cast": (
        lambda rows, keyed: rows.append_column("number", pa.array([["x"]] * len(rows))),
        "step 'counts': Unsupported cast from list<.*",
    ),
    "values that cannot be cast": (
        lambda rows, keyed: rows.append_column("number", pa.array(["x"] * len(rows))),
        "step 'counts': Failed to parse string: 'x' as a scalar of type int64",
    ),
    "an unknown state": (
        lambda rows, keyed: keyed.get("counts"),
        "no state 'counts' is declared; did you mean 'count'\\?",
    ),
    "values of another schema": (
        lambda rows, keyed: keyed.put("count", pa.table({"m": [1]})),
        "state 'count' has the values \\(n: int64\\), a batch came with \\(m: int64\\)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_function_does_wrong_is_named_and_leaves_nothing(what: str, directory: Path) -> None:
    function, message = WRONG[what]
    vertex = process(function, directory, parallelism=1)
    with pytest.raises(Exception, match=message):
        vertex.run(table("ann"))
    assert vertex.files() == []


def test_what_an_authors_code_raises_names_the_vertex_and_their_line(directory: Path) -> None:
    def divide(rows: pa.Table, keyed: Keyed) -> Any:
        return 1 / (rows.num_rows - 1)

    line = divide.__code__.co_firstlineno + 1
    with pytest.raises(BatchFailed) as caught:
        process(divide, directory, parallelism=1).run(table("ann"))
    assert (
        str(caught.value) == f"process 'numbers' failed with ZeroDivisionError: division by zero "
        f"(test_process.py, line {line})"
    )


def test_a_named_error_of_headgates_passes_as_it_is(directory: Path) -> None:
    def refuse(rows: pa.Table, keyed: Keyed) -> Any:
        raise SinkFailed("no more room")

    with pytest.raises(SinkFailed, match=r"^no more room$"):
        process(refuse, directory, parallelism=1).run(table("ann"))


@pytest.mark.parametrize(
    ("function", "output", "state", "message"),
    [
        (5, NUMBERED, COUNT, r"process 'numbers' needs a function of \(rows, keyed\), not 5"),
        (number, {"id": "int"}, COUNT, "process 'numbers': output is a pyarrow schema, not {'id': 'int'}"),
        (number, NUMBERED, [COUNT], "process 'numbers': state is a schema for each name, not"),
        (number, NUMBERED, {"count": pa.int64()}, "process 'numbers': state 'count' is a pyarrow schema, not DataType"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_made(function: Any, output: Any, state: Any, message: str) -> None:
    with pytest.raises(JobInvalid, match=message):
        ProcessOperator.of("numbers", function, output, state)


def test_its_keys_are_checked_before_it_runs() -> None:
    operator = ProcessOperator.of("numbers", number, NUMBERED, COUNT)
    schema = pa.schema({"id": pa.int64(), "user": pa.struct({"name": pa.string()})})
    with pytest.raises(JobInvalid, match="key_by of 'numbers': there is no column 'customer'; the stream has id, user"):
        operator.check(("customer",), schema)
    with pytest.raises(JobInvalid, match=r"key_by of 'numbers': the column 'user' is of type struct<.*>"):
        operator.check(("user",), schema)
    operator.check(("id",), schema)
    assert operator.state_names == ["count"]


def test_an_error_of_pyarrows_names_the_authors_line_too(directory: Path) -> None:
    def misspell(rows: pa.Table, keyed: Keyed) -> Any:
        return rows.column("usr")

    line = misspell.__code__.co_firstlineno + 1
    with pytest.raises(BatchFailed, match=rf"failed with KeyError: .*usr.* \(test_process.py, line {line}\)$"):
        process(misspell, directory, parallelism=1).run(table("ann"))


def test_a_key_of_another_type_is_refused_in_every_subtask(directory: Path) -> None:
    """Its hash would be another: a key would have state in two subtasks."""
    vertex = process(number, directory, state=COUNT)
    vertex.keys = ("id",)
    rows = table("ann")
    vertex.batch(rows.set_column(0, "id", rows["id"].cast(pa.int32())))
    assert len(vertex.versions) == 1, "one subtask has state"
    for user in range(20):
        with pytest.raises(StateMigrationError, match=r"state 'count': key column 'id' is int32 .* int64"):
            vertex.run(table("ann", first=user))
    assert len(vertex.versions) == 1


# ---- the last step, of a task to which no record has come in this life

LAST_WORDS = pa.schema({"user": pa.string(), "said": pa.string()})


def last_words(keyed: Keyed) -> pa.Table:
    """Each key that has state, and the elements that this subtask has held back."""
    users = keyed.keys.keys.column("user").to_pylist()
    held = keyed.operator_state("held").get()
    said = [*(f"{user} is known" for user in users), *held, "the end"]
    return pa.table({"user": pa.array([*users, *(None for _ in [*held, 1])], pa.string()), "said": said})


def hold_back(rows: pa.Table, keyed: Keyed) -> None:
    for user in rows.column("user").to_pylist():
        keyed.operator_state("held").add(user)


def hold_back_and_count(rows: pa.Table, keyed: Keyed) -> None:
    hold_back(rows, keyed)
    keyed.put("count", pa.table({"n": pa.array([1] * len(keyed.keys), pa.int64())}))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("function", "state", "said"),
    [
        (hold_back_and_count, COUNT, {"ann is known", "ann"}),
        (hold_back, {}, {"ann"}),
        (hold_back, COUNT, {"ann"}),
    ],
    ids=["one subtask has state by key", "there is none by key", "nobody has any by key"],
)
def test_every_subtask_finishes_whatever_it_has(
    function: Function, state: dict[str, pa.Schema], said: set[str], backend: str, directory: Path
) -> None:
    operator = ProcessOperator.of("numbers", function, LAST_WORDS, state, {"held": "list"}, last_words)
    vertex = Vertex(operator, ("user",), backend, directory)
    vertex.batch(table("ann"))
    vertex.attempts += 1
    acks = vertex.finish()
    assert [sorted({"the end"} & {row["said"] for row in written(ack.sinks[OUT])}) for ack in acks] == [["the end"]] * 2
    assert {row["said"] for ack in acks for row in written(ack.sinks[OUT])} == said | {"the end"}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_step_of_which_nothing_is_known_finishes_too_and_invents_no_key(backend: str, directory: Path) -> None:
    """The key is a number, as nobody could know; what is behind it goes on from there."""

    def end(keyed: Keyed) -> pa.Table:
        assert keyed.keys.keys.num_rows == 0
        return pa.table({"id": pa.array([None], pa.int64()), "user": ["the end"], "number": pa.array([0])})

    vertex = Vertex(ProcessOperator.of("numbers", number, NUMBERED, COUNT, {}, end), ("id",), backend, directory)
    acks = vertex.finish()
    assert [[row["user"] for row in written(ack.sinks[OUT])] for ack in acks] == [["the end"]] * 2
    assert [ack.version for ack in acks] == [None] * 2, "there is no key, of whatever type"
    assert vertex.files() == []
    assert [row["number"] for row in vertex.batch(table("ann", "ann"))] == [1, 1]
