"""What the tables of every state backend must do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.base import (
    KeyBatch,
    StateDescriptor,
    StateKind,
)
from headgate.state.errors import (
    ForeignKeyGroup,
)
from headgate.state.key_groups import KeyGroupRange
from tests.runtime.state.runs import HASHES, Run
from tests.runtime.state.samples import (
    CLICKS,
    COUNTS,
    KEYS,
    RECENT,
    STATES,
    TOTALS,
    VALUES,
    VISITS,
    Model,
    Row,
    batch_of,
    content,
    freeze,
    keys_of,
    owned,
    put_in_model,
    rows_of,
    values_of,
)


class TableSentences:
    """Reading, writing, entries and scans."""

    @pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
    def test_what_was_put_is_found_under_its_key_and_namespace_and_nothing_else(
        self, run: Run, state: StateDescriptor
    ) -> None:
        """F89: values of one key and one namespace are kept apart from all others, and survive the seal."""
        rows = KEYS[state.name]
        stored = rows[::2]
        values = [VALUES[state.name][1 + i % (len(VALUES[state.name]) - 1)] for i in range(len(stored))]
        version = run.write(None, state, stored, values)
        model: Model = {}
        put_in_model(state, model, stored, values)
        with run.open(version) as session:
            batch, ordered = batch_of(state, rows, HASHES)
            table, found = session.table(state.name).get(batch)
            assert found.tolist() == [freeze(row) in model for row in ordered]
            nothing = tuple(None for _ in state.value)
            assert rows_of(table) == [model.get(freeze(row), nothing) for row in ordered]
            assert table.schema == state.value
            assert content(state, session.table(state.name)) == model

    def test_a_session_sees_its_own_writes_before_they_are_sealed(self, run: Run) -> None:
        with run.open(None) as session:
            run.put(session, COUNTS, [("a",), ("b",)], [(1, None), (2, None)])
            run.put(session, COUNTS, [("b",), ("c",)], [(20, None), (30, None)])
            run.delete(session, COUNTS, [("a",)])
            assert content(COUNTS, session.table("counts")) == {("b",): (20, None), ("c",): (30, None)}
            assert session.table("counts").count() == 2

    def test_many_small_writes_in_one_session_leave_the_last_of_each_key(self, run: Run) -> None:
        with run.open(None) as session:
            for number in range(40):
                run.put(session, COUNTS, [KEYS["counts"][number % 11]], [(number, None)])
            held = content(COUNTS, session.table("counts"))
            version = session.seal()
        assert {value for value, _ in held.values()} == set(range(29, 40))
        assert run.read(version, COUNTS) == held

    def test_a_deleted_key_is_not_found_and_can_come_back(self, run: Run) -> None:
        first = run.write(None, COUNTS, [("a",), ("b",)], [(1, "x"), (2, "y")])
        with run.open(first) as session:
            run.delete(session, COUNTS, [("a",), ("d",)])
            second = session.seal()
        with run.open(second) as session:
            table, found = session.table("counts").get(batch_of(COUNTS, [("a",)], HASHES)[0])
            assert (found.tolist(), rows_of(table)) == ([False], [(None, None)])
            run.put(session, COUNTS, [("a",)], [(7, None)])
            third = session.seal()
        assert run.read(second, COUNTS) == {("b",): (2, "y")}
        assert run.read(third, COUNTS) == {("a",): (7, None), ("b",): (2, "y")}

    def test_null_clears_a_value_but_is_a_value_of_a_map(self, run: Run) -> None:
        """F90: an update with null is a clear. A map keeps a null under its map key."""
        with run.open(None) as session:
            run.put(session, COUNTS, [("a",), ("b",)], [(1, None), (2, None)])
            run.put(session, COUNTS, [("a",), ("b",), ("c",)], [(None, None), (None, "half"), (None, None)])
            run.put(session, VISITS, [("a", 1, b"q")], [(None,)])
            version = session.seal()
        assert run.read(version, COUNTS) == {("b",): (None, "half")}
        assert run.read(version, VISITS) == {("a", 1, b"q"): (None,)}

    def test_a_null_key_is_a_key(self, run: Run) -> None:
        version = run.write(None, COUNTS, [(None,), ("",)], [(1, None), (2, None)])
        assert run.read(version, COUNTS) == {(None,): (1, None), ("",): (2, None)}

    def test_all_nan_keys_are_one_key_and_both_zeros_too(self, run: Run) -> None:
        state = StateDescriptor("f", StateKind.VALUE, pa.schema([("x", pa.float64())]), pa.schema([("n", pa.int64())]))
        other_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
        with run.open(None, [state]) as session:
            table = session.table("f")
            hashes = np.array([1, 2], dtype=np.int64)
            put, _ = KeyBatch.of(hashes, pa.table({"x": pa.array([float("nan"), 0.0])}))
            get, _ = KeyBatch.of(hashes, pa.table({"x": pa.array(np.array([other_nan, -0.0]))}))
            table.put(put, pa.table({"n": [1, 2]}))
            values, found = table.get(get)
        assert (found.tolist(), values["n"].to_pylist()) == ([True, True], [1, 2])

    def test_keys_that_share_a_hash_are_told_apart(self, run: Run) -> None:
        rows: list[Row] = [(f"key {i}",) for i in range(50)]
        with run.open(None) as session:
            for part in (rows[:20], rows[10:40], rows[::3]):
                batch, ordered = batch_of(COUNTS, part, 1)
                session.table("counts").put(batch, values_of(COUNTS, [(int(row[0][4:]), None) for row in ordered]))
            version = session.seal()
        with run.open(version) as session:
            batch, ordered = batch_of(COUNTS, rows, 1)
            table, found = session.table("counts").get(batch)
            stored = {*rows[:40], *rows[::3]}
            assert found.tolist() == [row in stored for row in ordered]
            assert table["n"].to_pylist() == [int(row[0][4:]) if row in stored else None for row in ordered]

    def test_an_empty_batch_is_no_error(self, run: Run) -> None:
        with run.open(None) as session:
            table = session.table("totals")
            batch, _ = batch_of(TOTALS, [], HASHES)
            values, found = table.get(batch)
            table.put(batch, values_of(TOTALS, []))
            table.delete(batch)
            owners, entries = table.entries(keys_of(TOTALS, [], HASHES)[0])
            assert (values.num_rows, len(found), len(owners), entries.num_rows, table.count()) == (0, 0, 0, 0, 0)
            assert values.schema == TOTALS.value
            assert entries.schema == TOTALS.entry
            assert list(table.scan()) == []

    def test_entries_are_all_of_a_key_over_its_map_keys(self, run: Run) -> None:
        """F93: a map can be read whole, also with null among its values."""
        version = run.write(None, VISITS, KEYS["visits"], [(float(i),) for i in range(len(KEYS["visits"]))])
        with run.open(version) as session:
            run.delete(session, VISITS, [("a", 0, b"")])
            run.put(session, VISITS, [("a", 0, None), ("a", 99, None)], [(None,), (1.0,)])
            model = content(VISITS, session.table("visits"))
            batch, keys = keys_of(VISITS, [("a",), ("absent",), (None,)], HASHES)
            owners, entries = session.table("visits").entries(batch)
        assert entries.schema == VISITS.entry
        assert owners.tolist() == sorted(owners.tolist())
        assert [keys[owner][0] for owner in owners] == entries["word"].to_pylist()
        assert {row[1:4]: row[4:] for row in rows_of(entries)} == {
            row: value for row, value in model.items() if row[0] in ("a", None)
        }
        assert entries.num_rows == 40

    def test_entries_of_a_map_in_one_namespace_are_all_of_its_map_keys(self, run: Run) -> None:
        version = run.write(None, CLICKS, KEYS["clicks"], [(i, None) for i in range(64)])
        with run.open(version) as session:
            batch, ordered = keys_of(CLICKS, [(2,), (None,)], HASHES)
            namespaces = pa.array(["a" if key == (2,) else None for key in ordered])
            owners, entries = session.table("clicks").entries(KeyBatch(batch.hashes, batch.keys, namespaces))
        assert sorted(map(repr, (row[1:4] for row in rows_of(entries)))) == sorted(
            repr((user, page, window)) for user, window in ((2, "a"), (None, None)) for page in (None, "", "a", "ab")
        )
        assert [ordered[owner][0] for owner in owners] == entries["user"].to_pylist()

    def test_entries_of_keys_that_share_a_hash_stand_once_under_their_own_key(self, run: Run) -> None:
        with run.open(None) as session:
            batch, _ = batch_of(VISITS, KEYS["visits"], 1)
            session.table("visits").put(batch, values_of(VISITS, [(1.0,)] * len(batch)))
            wanted, ordered = keys_of(VISITS, [(word,) for word in ("", "a", None, "absent")], 1)
            owners, entries = session.table("visits").entries(wanted)
        assert entries.num_rows == 60
        assert [ordered[owner][0] for owner in owners] == entries["word"].to_pylist()

    def test_a_map_without_values_is_a_set(self, run: Run) -> None:
        state = StateDescriptor("set", StateKind.MAP, COUNTS.key, pa.schema([]), map_key=pa.schema([("m", pa.int8())]))
        rows: list[Row] = [("a", 1), ("a", 2), ("b", 1)]
        with run.open(None, [state]) as session:
            batch, _ = batch_of(state, rows[:2], HASHES)
            session.table("set").put(batch, values_of(state, []))
            version = session.seal()
        with run.open(version, [state]) as session:
            batch, ordered = batch_of(state, rows, HASHES)
            _, found = session.table("set").get(batch)
            assert found.tolist() == [row in rows[:2] for row in ordered]
            assert content(state, session.table("set")) == dict.fromkeys(rows[:2], ())

    def test_entries_of_one_namespace_leave_the_others_out(self, run: Run) -> None:
        rows: list[Row] = [(True, -3), (True, 0), (False, 0), (None, 0)]
        version = run.write(None, RECENT, rows, [([],)] * 4)
        with run.open(version) as session:
            keys, _ = keys_of(RECENT, [(True,)], HASHES)
            everywhere = session.table("recent").entries(keys)
            here = session.table("recent").entries(KeyBatch(keys.hashes, keys.keys, pa.array([0], pa.int16())))
        assert sorted(everywhere[1]["__namespace"].to_pylist()) == [-3, 0]
        assert [row[1:] for row in rows_of(here[1])] == [(True, 0, ())]

    def test_merging_namespaces_moves_all_values_and_empties_the_sources(self, run: Run) -> None:
        """F92: what session windows do when they grow together."""
        items = [{"at": None, "what": "x"}]
        version = run.write(None, RECENT, [(True, 1), (True, 2), (False, 1)], [(items,), (items * 2,), (items,)])
        with run.open(version) as session:
            table = session.table("recent")
            _, entries = table.entries(keys_of(RECENT, [(True,)], HASHES)[0])
            run.delete(session, RECENT, [(True, 1), (True, 2)])
            together = [item for list_ in entries["items"].to_pylist() for item in list_]
            run.put(session, RECENT, [(True, 9)], [(together,)])
            version = session.seal()
        held = run.read(version, RECENT)
        assert {key: len(value[0]) for key, value in held.items()} == {(True, 9): 3, (False, 1): 1}

    def test_a_scan_shows_the_moment_of_its_call(self, run: Run) -> None:
        """F102: whoever applies something to all keys may clear and add while doing so."""
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        with run.open(version) as session:
            seen = 0
            for batch in session.table("counts").scan():
                seen += batch.num_rows
                run.delete(session, COUNTS, [tuple(row[1:2]) for row in rows_of(batch)])
                run.put(session, COUNTS, [(f"new {seen}",)], [(seen, None)])
            assert seen == 11
            assert all(str(word).startswith("new") for (word,) in content(COUNTS, session.table("counts")))

    def test_a_scan_of_some_key_groups_shows_these(self, run: Run) -> None:
        """F103: the entries can be counted and their keys listed."""
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        with run.open(version) as session:
            table = session.table("counts")
            halves = [KeyGroupRange(0, 6), KeyGroupRange(7, 15)]
            parts = [content(COUNTS, table, half) for half in halves]
            assert [set(part) for part in parts] == [
                {freeze(row) for row in owned(COUNTS, KEYS["counts"], half, HASHES)} for half in halves
            ]
            assert all(parts)
            assert table.count() == 11
            with pytest.raises(ForeignKeyGroup, match=r"3\.\.16"):
                table.scan(KeyGroupRange(3, 16))
