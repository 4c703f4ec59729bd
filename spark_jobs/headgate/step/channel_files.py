"""What a written channel holds: Arrow IPC files on the driver's host, one for each subtask that made any records.

They are scratch, as local state versions are: what a checkpoint needs of them is uploaded with it. A name is that of
one attempt at one subtask, so no two attempts ever write one file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.sink.base import SinkTask, SinkWriter
from headgate_contract.errors import BatchFailed, StreamFailed

_ORIGIN = b"headgate.origin"
"""In the file's metadata, which goes wherever it goes: into a snapshot, and into another life."""

Handle = Mapping[str, Any]
"""`name` in the channels' folder, `rows` and `bytes`."""


@dataclass(frozen=True)
class ChannelFiles:
    """Where a task writes what leaves it for others."""

    directory: str
    origin: str = ""
    """Where the records that they are made of come from, for people."""

    def writer(self, task: SinkTask) -> SinkWriter:
        identity = f"g{task.generation}.r{task.restart}.e{task.epoch}.a{task.attempt}.s{task.subtask}"
        unique = f"t{task.task_attempt}.{uuid.uuid4().hex}"  # also beside what another stream's snapshot has brought
        return _Writer(Path(self.directory) / f"{identity}.{unique}.{task.sink}.arrow", self.origin)


class _Writer(SinkWriter):
    """One attempt's records; without any there is no file."""

    def __init__(self, path: Path, origin: str) -> None:
        self._path = path
        self._origin = origin
        self._file: pa.ipc.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if self._file is None:
            self._schema = rows.schema
            told = {**(rows.schema.metadata or {}), _ORIGIN: self._origin.encode()}
            self._file = pa.ipc.new_file(str(self._path), rows.schema.with_metadata(told))
        if rows.schema != self._schema:
            raise BatchFailed(
                f"what goes to {self._path.name} has changed its columns within a micro-batch: "
                f"from {_columns(self._schema)} to {_columns(rows.schema)}",
                hint="let the function before the channel return the same columns always",
            )
        self._file.write_batch(rows)
        self._rows += rows.num_rows

    def finish(self) -> tuple[dict[str, Any], ...]:
        if self._file is None:
            return ()
        self._file.close()
        return ({"name": self._path.name, "rows": self._rows, "bytes": self._path.stat().st_size},)

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # it may be what has failed
                self._file.close()
            self._path.unlink(missing_ok=True)


def read(directory: str | Path, names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The records of these files, mapped into memory."""
    for name in names:
        path = Path(directory) / name
        try:
            with pa.memory_map(str(path)) as source:
                yield from _batches(pa.ipc.open_file(source))
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(path, error) from error


def schema_of(directory: str | Path, names: Iterable[str]) -> pa.Schema:
    """The columns of these files, of which there is one at least. Raises StreamFailed if they differ."""
    found: pa.Schema | None = None
    for name in names:
        path = Path(directory) / name
        try:
            with pa.memory_map(str(path)) as source:
                schema = pa.ipc.open_file(source).schema
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(path, error) from error
        if found is not None and schema != found:
            raise StreamFailed(f"the files of one micro-batch have {_columns(found)} and {_columns(schema)}")
        found = schema
    assert found is not None
    return found


def origin_of(directory: str | Path, names: Iterable[str]) -> str:
    """Where the records of these files of one micro-batch come from; empty if nobody knows."""
    for name in names:
        try:
            with pa.memory_map(str(Path(directory) / name)) as source:
                told: bytes = (pa.ipc.open_file(source).schema.metadata or {}).get(_ORIGIN, b"")
                return told.decode()
        except (OSError, pa.ArrowInvalid):
            return ""  # whoever reads it says so
    return ""


def _batches(file: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    for number in range(file.num_record_batches):
        yield file.get_batch(number)


def _lost(path: Path, error: Exception) -> StreamFailed:
    return StreamFailed(f"the channel file {path.name} cannot be read: {error}")


def _columns(schema: pa.Schema | None) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema or ())
