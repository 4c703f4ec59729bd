"""One open RocksDB in a folder of its own, which is thrown away when it has been read or sealed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from headgate.state.codec import CODEC_FORMAT, range_start
from headgate.state.errors import DamagedStateFile, StateFormatTooNew, StateWriteFailed
from headgate.state.key_groups import KeyGroupRange
from headgate.state.versions import StateFile, link_or_copy

TABLE_SUFFIX = ".sst"
_DEFAULT_FAMILY = "default"
_FAMILY_PREFIX = "state:"
_CODEC_KEY = b"headgate.codec"
_WRITE_BUFFER = 64 * 2**20
_RESTORE_OLDER = "restore the stream from an older checkpoint"


class Database:
    """One open RocksDB in a folder of its own."""

    def __init__(self, folder: Path, states: Sequence[str]) -> None:
        families = [_DEFAULT_FAMILY, *(_FAMILY_PREFIX + state for state in states)]
        try:
            self._root = Rdict(str(folder), _options(), column_families={name: _options() for name in families})
        except Exception as error:  # rocksdict has no error class of its own
            raise DamagedStateFile(
                f"RocksDB cannot open the state in {folder}: {error}", hint=_RESTORE_OLDER
            ) from error
        self.folder = folder
        self.written = False
        self._families = {state: self._root.get_column_family(_FAMILY_PREFIX + state) for state in states}
        unlogged: Any = WriteOptions()  # its type stub calls the property a method
        unlogged.disable_wal = True
        self._unlogged: WriteOptions = unlogged
        self._check_codec()

    def _check_codec(self) -> None:
        stored = self._root.get(_CODEC_KEY)
        if stored is None:
            self._root.put(_CODEC_KEY, str(CODEC_FORMAT).encode(), self._unlogged)
        elif int(stored) > CODEC_FORMAT:
            raise StateFormatTooNew(
                f"the RocksDB state in {self.folder} has format {int(stored)}, this release reads up to {CODEC_FORMAT}",
                hint="restore with the release that wrote it, or a newer one",
            )

    def get(self, state: str, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, None where there is none."""
        family: Any = self._families[state]
        with self._reading():
            values: list[bytes | None] = family.get(keys) if keys else []
        return values

    def starting_with(self, state: str, prefixes: Sequence[bytes]) -> Iterator[tuple[int, bytes, bytes]]:
        """Each entry whose key begins with one of the prefixes: the number of the prefix, key and value."""
        iterator: Any = self._families[state].iter()
        for number, prefix in enumerate(prefixes):
            iterator.seek(prefix)
            while iterator.valid() and (key := iterator.key()).startswith(prefix):
                yield number, key, iterator.value()
                iterator.next()
            with self._reading():
                iterator.status()

    def batch(self, state: str) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._root.get_column_family_handle(_FAMILY_PREFIX + state))
        return batch

    def write(self, batch: WriteBatch) -> None:
        try:
            self.written = True
            self._root.write(batch, self._unlogged)
        except Exception as error:
            raise self._write_failed(error) from error

    def items(self, state: str, key_groups: KeyGroupRange) -> Iterator[tuple[bytes, bytes]]:
        """The entries of some key groups, as they are now."""
        options = ReadOptions()
        options.set_iterate_upper_bound(range_start(key_groups.end + 1))
        iterator: Any = self._families[state].iter(options)
        iterator.seek(range_start(key_groups.start))
        return self._items(iterator, options)

    def _items(self, iterator: Any, options: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
        """What an iterator shows. Its bound lives in its options, which only this frame keeps alive."""
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        with self._reading():
            iterator.status()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise DamagedStateFile(
                f"RocksDB cannot read the state in {self.folder}: {error}", hint=_RESTORE_OLDER
            ) from error

    def finish(self) -> list[str]:
        """Make all writes files, stop, and return the names of the files that the database consists of."""
        try:
            for family in (*self._families.values(), self._root):
                family.flush()
            self._root.cancel_all_background(True)
            tables = sorted({str(file["name"]).lstrip("/") for file in self._root.live_files()})
        except Exception as error:
            raise self._write_failed(error) from error
        self.close()
        manifest = (self.folder / "CURRENT").read_text().strip()
        return [*tables, manifest, "CURRENT"]

    def close(self) -> None:
        """Let go of the database: it closes, and gives up its lock, when nothing refers to it any more."""
        self._families.clear()
        self.__dict__.pop("_root", None)

    def _write_failed(self, error: Exception) -> StateWriteFailed:
        return StateWriteFailed(
            f"RocksDB cannot write the state in {self.folder}: {error}",
            hint="make room on the disk of the working directory",
        )


def _options() -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_skip_stats_update_on_db_open(True)
    return options


def open_database(files: Iterable[StateFile], directory: Path, folder: Path, states: Sequence[str]) -> Database:
    """Make `folder` a database of the files that lie in `directory`, under the names that RocksDB wants, and open it.

    Table files are linked, because they never change; the others are copied, because RocksDB writes on in them.
    """
    folder.mkdir()
    for file in files:
        source, target = directory / file.name, folder / file.local_name
        if file.local_name.endswith(TABLE_SUFFIX):
            link_or_copy(source, target)
        else:
            shutil.copyfile(source, target)
    return Database(folder, states)
