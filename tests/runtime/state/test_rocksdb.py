"""The rocksdb backend: the suite, and what only RocksDB could get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from headgate.state.base import RestoredPiece, StateBackend, StateVersion
from headgate.state.errors import DamagedStateFile, StateFormatTooNew, StateWriteFailed
from headgate.state.key_groups import KeyGroupRange
from headgate.state.rocksdb import RocksDBBackend
from headgate.state.rocksdb_database import Database, open_database
from tests.runtime.state.runs import HASHES, Run, memory_directory, no_file_beyond
from tests.runtime.state.samples import COUNTS, KEYS, MAX_PARALLELISM, STATES, WHOLE, Row, batch_of, content, owned
from tests.runtime.state.suite import StateBackendSuite


class TestRocksDBBackend(StateBackendSuite):
    @pytest.fixture
    def backend(self) -> StateBackend:
        return RocksDBBackend()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Iterator[Path]:
        with memory_directory(tmp_path) as directory:
            yield directory

    def test_two_attempts_make_tables_of_one_local_name_and_different_bytes(self, run: Run) -> None:
        """The reason why a file's identity is never RocksDB's number."""
        parent = run.write(None, COUNTS, [("a",)], [(1, None)])
        versions = [run.write(parent, COUNTS, [("a",)], [(n, None)]) for n in (2, 3)]
        made = [
            {file.local_name: file.name for file in version.files if file not in parent.files} for version in versions
        ]
        assert made[0].keys() == made[1].keys()
        assert not set(made[0].values()) & set(made[1].values())
        assert any(name.endswith(".sst") for name in made[0])
        assert [run.read(version, COUNTS)[("a",)] for version in versions] == [(2, None), (3, None)]

    def test_a_sealed_or_discarded_session_keeps_no_folder_and_no_lock(self, run: Run, directory: Path) -> None:
        session = run.open(None)
        run.put(session, COUNTS, [("a",)], [(1, None)])
        scan = session.table("counts").scan()
        version = session.seal()
        assert not [path for path in directory.iterdir() if path.is_dir()]
        assert sum(batch.num_rows for batch in scan) == 1, "a scan may outlive its session"
        for _ in range(3):
            with run.open(version) as session:
                assert session.table("counts").count() == 1
        assert not [path for path in directory.iterdir() if path.is_dir()]

    def test_a_version_holds_table_files_and_what_names_them(self, run: Run) -> None:
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        kinds = sorted({file.local_name.rpartition(".")[2].partition("-")[0] for file in version.files})
        assert kinds == ["CURRENT", "MANIFEST", "sst"]

    def test_an_unchanged_restore_links_the_files(self, run: Run) -> None:
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        elsewhere = run.directory / "elsewhere"
        elsewhere.mkdir()
        piece = RestoredPiece(version, run.directory)
        restored = run.backend.restore([piece], STATES, WHOLE, MAX_PARALLELISM, elsewhere, "r")
        assert restored.files == version.files
        assert all((elsewhere / file.name).samefile(run.directory / file.name) for file in version.files)

    def test_a_share_of_a_restore_holds_no_rows_of_others(self, run: Run, tmp_path: Path) -> None:
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        share = run.restore([version], KeyGroupRange(0, 7))
        database = open_database(share.files, run.directory, tmp_path / "share", [state.name for state in STATES])
        held = len(list(database.items("counts", WHOLE)))
        database.close()
        assert held == len(owned(COUNTS, KEYS["counts"], share.key_groups, HASHES)) < 11

    def test_many_steps_are_compacted_and_lose_nothing(self, run: Run) -> None:
        version: StateVersion | None = None
        for number in range(12):
            version = run.write(version, COUNTS, [("a",), (f"k{number}",)], [(number, None), (0, None)])
        assert version is not None
        held = run.read(version, COUNTS)
        assert held[("a",)] == (11, None)
        assert len(held) == 13

    def test_a_scan_comes_in_batches(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headgate.state.rocksdb.SCAN_ROWS", 4)
        version = run.write(None, COUNTS, KEYS["counts"], [(i, None) for i in range(11)])
        with run.open(version) as session:
            assert [batch.num_rows for batch in session.table("counts").scan()] == [4, 4, 3]
            assert len(content(COUNTS, session.table("counts"))) == 11

    def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        database = Rdict(str(tmp_path / "newer"), options)
        database[b"headgate.codec"] = b"2"
        database.close()
        del database
        with pytest.raises(StateFormatTooNew, match="format 2"):
            Database(tmp_path / "newer", [])

    def test_a_table_that_is_damaged_in_the_middle_is_named_when_it_is_read(self, run: Run, directory: Path) -> None:
        rows: list[Row] = [(f"{i:05}",) for i in range(3000)]
        version = run.write(None, COUNTS, rows, [(i, f"{i * 7919 % 3001}") for i in range(3000)])
        table = max(version.files, key=lambda file: file.length)
        path = directory / table.name
        data = bytearray(path.read_bytes())
        path.unlink()
        data[: len(data) // 2] = bytes(len(data) // 2)
        path.write_bytes(data)
        with run.open(version) as session:
            for read in (
                session.table("counts").count,
                lambda: session.table("counts").get(batch_of(COUNTS, rows, HASHES)[0]),
                lambda: session.table("counts").entries(batch_of(COUNTS, rows, HASHES)[0]),
            ):
                with pytest.raises(DamagedStateFile, match="cannot read"):
                    read()

    def test_a_full_disk_is_named_and_leaves_nothing(self, run: Run, directory: Path) -> None:
        session = run.open(None)
        rows: list[Row] = [(f"{i:05}",) for i in range(5000)]
        run.put(session, COUNTS, rows, [(i, f"{i * 7919 % 5003}") for i in range(5000)])
        with no_file_beyond(60_000), pytest.raises(StateWriteFailed, match="make room"):
            session.seal()
        assert list(directory.iterdir()) == []

    def test_a_damaged_table_is_named(self, run: Run, directory: Path) -> None:
        version = run.write(None, COUNTS, [("a",)], [(1, None)])
        for table in version.files:
            if table.local_name.endswith(".sst"):
                path = directory / table.name
                path.unlink()
                path.write_bytes(b"\0" * table.length)
        with pytest.raises(DamagedStateFile, match="older checkpoint"), run.open(version) as session:
            session.table("counts").count()
