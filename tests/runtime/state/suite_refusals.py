"""What every state backend must refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.base import (
    KeyBatch,
    RestoredPiece,
    StateBackend,
    StateDescriptor,
    StateKind,
    StateVersion,
)
from headgate.state.errors import (
    DamagedStateFile,
    DuplicateKey,
    ForeignKeyGroup,
    MissingStateFile,
    StateError,
    StateFormatTooNew,
    StateMigrationError,
    StateSchemaMismatch,
    UnknownState,
)
from headgate.state.key_groups import KeyGroupRange
from tests.runtime.state.runs import HASHES, Run
from tests.runtime.state.samples import (
    COUNTS,
    KEYS,
    MAX_PARALLELISM,
    RECENT,
    STATES,
    TOTALS,
    VALUES,
    VISITS,
    WHOLE,
    batch_of,
    keys_of,
    values_of,
)


class RefusalSentences:
    """Damaged files, changed schemas, foreign rows."""

    @pytest.mark.parametrize("damage", ["missing", "short", "long"])
    def test_a_parent_with_a_damaged_file_is_refused_by_name(self, run: Run, directory: Path, damage: str) -> None:
        version = run.write(None, COUNTS, [("a",)], [(1, None)])
        for file in version.files:
            path = directory / file.name
            whole = path.read_bytes()
            path.unlink()
            if damage != "missing":
                path.write_bytes(whole[:-1] if damage == "short" else whole + b"\0")
            with pytest.raises(MissingStateFile, match=file.name):
                run.open(version)
            with pytest.raises(MissingStateFile, match=file.name):
                run.restore([version], WHOLE)
            path.unlink(missing_ok=True)
            path.write_bytes(whole)
        assert run.read(version, COUNTS) == {("a",): (1, None)}

    def test_files_that_are_no_state_are_refused(self, run: Run, directory: Path) -> None:
        version = run.write(None, COUNTS, [("a",)], [(1, None)])
        for file in version.files:
            path = directory / file.name
            path.unlink()
            path.write_bytes(b"x" * file.length)
        with pytest.raises(DamagedStateFile, match="older checkpoint"), run.open(version) as session:
            session.table("counts").count()

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"key": pa.schema([("shop", pa.int32()), TOTALS.key.field(1)])}, "int64 .* int32"),
            ({"value": pa.schema([("total", pa.float64())])}, r"total.*decimal128\(20, 2\).*double"),
            ({"namespace": None}, "namespace .* void"),
            ({"kind": StateKind.VALUE}, "reducing .* value"),
        ],
        ids=["key", "value", "namespace", "kind"],
    )
    def test_a_changed_schema_is_refused_and_never_read_as_garbage(
        self, run: Run, changes: dict[str, Any], told: str
    ) -> None:
        """F96: a changed type raises StateMigrationError, at open and at restore."""
        changed = replace(TOTALS, **changes)
        version = run.write(None, TOTALS, KEYS["totals"][:3], [VALUES["totals"][1]] * 3)
        with pytest.raises(StateMigrationError, match=told):
            run.open(version, [changed])
        with pytest.raises(StateMigrationError, match="totals"):
            run.restore([version], WHOLE, [changed])

    def test_a_batch_of_other_columns_is_refused(self, run: Run) -> None:
        with run.open(None) as session:
            table = session.table("counts")
            batch, _ = batch_of(COUNTS, [("a",)], HASHES)
            with pytest.raises(StateSchemaMismatch, match="word: string"):
                table.get(KeyBatch(batch.hashes, pa.RecordBatch.from_pydict({"word": [1]})))
            with pytest.raises(StateSchemaMismatch, match="namespace"):
                table.get(KeyBatch(batch.hashes, batch.keys, pa.array([1])))
            with pytest.raises(StateSchemaMismatch, match="namespace"):
                session.table("recent").get(keys_of(RECENT, [(True,)], HASHES)[0])
            with pytest.raises(StateSchemaMismatch, match="note: string"):
                table.put(batch, pa.table({"n": [1], "note": [2]}))
            with pytest.raises(StateSchemaMismatch, match="2 values for 1 keys"):
                table.put(batch, values_of(COUNTS, [(1, None), (2, None)]))
            with pytest.raises(StateSchemaMismatch, match="not sorted"):
                table.get(KeyBatch(np.array([2, 1]), pa.RecordBatch.from_pydict({"word": ["a", "b"]})))
            with pytest.raises(UnknownState, match="did you mean 'counts'"):
                session.table("count")

    @pytest.mark.parametrize("state", [COUNTS, RECENT, VISITS], ids=lambda state: state.name)
    def test_one_batch_cannot_write_a_key_twice(self, run: Run, state: StateDescriptor) -> None:
        rows = [*KEYS[state.name][1:7], KEYS[state.name][3]]
        with run.open(None) as session:
            batch, _ = batch_of(state, rows, 2)
            with pytest.raises(DuplicateKey, match=state.name):
                session.table(state.name).put(batch, values_of(state, [VALUES[state.name][1]] * len(rows)))
            with pytest.raises(DuplicateKey, match="1 of 7"):
                session.table(state.name).delete(batch)
            assert session.table(state.name).count() == 0

    def test_a_row_of_another_subtask_is_refused(self, run: Run, backend: StateBackend, directory: Path) -> None:
        half = KeyGroupRange(0, 7)
        batch, _ = batch_of(COUNTS, KEYS["counts"], HASHES)
        with backend.open(None, STATES, half, MAX_PARALLELISM, directory, "s") as session:
            for use in (
                lambda: session.table("counts").get(batch),
                lambda: session.table("counts").delete(batch),
                lambda: session.table("counts").entries(batch),
            ):
                with pytest.raises(ForeignKeyGroup, match=r"0\.\.7"):
                    use()

    def test_a_parent_of_another_subtask_backend_or_max_parallelism_is_refused(
        self, run: Run, backend: StateBackend, directory: Path
    ) -> None:
        version = run.write(None, COUNTS, [("a",)], [(1, None)])
        with pytest.raises(ForeignKeyGroup, match=r"0\.\.15 of 16"):
            backend.open(version, STATES, KeyGroupRange(0, 7), MAX_PARALLELISM, directory, "s")
        with pytest.raises(ForeignKeyGroup, match="max-parallelism 16"):
            backend.restore([RestoredPiece(version, directory)], STATES, KeyGroupRange(0, 31), 32, directory, "s")
        foreign = StateVersion("other", "x", WHOLE, MAX_PARALLELISM)
        with pytest.raises(StateError, match="'other'"):
            run.open(foreign)
        with pytest.raises(StateError, match="'other'"):
            run.restore([foreign], WHOLE)

    def test_a_version_of_a_newer_format_is_refused(self, run: Run) -> None:
        data = run.write(None, COUNTS, [("a",)], [(1, None)]).to_json()
        with pytest.raises(StateFormatTooNew, match="format 2"):
            StateVersion.from_json({**data, "format": 2})
