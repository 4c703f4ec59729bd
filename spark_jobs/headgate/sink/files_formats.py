"""Writes Arrow batches to one local file as Parquet, JSON lines or CSV."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from headgate.sink.json_lines import JsonLines
from headgate_contract.errors import RecordFailed, SinkFailed

ROW_GROUP = 1 << 18
ROW_GROUP_BYTES = 64 << 20
"""Rows, and bytes in memory, that are gathered before a Parquet row group is written."""


class DataFile(ABC):
    """One file that is being written. OSErrors are the caller's to explain."""

    format: ClassVar[str]

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.schema = schema
        self.compression = compression

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End the file; it is whole then. May be called twice."""


class ParquetFile(DataFile):
    """Parquet; small batches are gathered into row groups."""

    format = "parquet"

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        super().__init__(path, schema, compression)
        import pyarrow.parquet as pq

        self._file: Any = pq.ParquetWriter(path, schema, compression=compression)
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROW_GROUP or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        if self._pending:
            self._flush()
        self._file.close()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._rows = self._bytes = 0
        self._file.write_table(pa.Table.from_batches(pending, self.schema))


class JsonFile(DataFile):
    """One JSON object per line, as Spark writes them, but with nulls spelled out."""

    format = "json"

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        super().__init__(path, schema, compression)
        self._lines = JsonLines(schema)
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_other_text(rows, "JSON")
        self._file.writelines(self._lines.encode(rows))

    def close(self) -> None:
        self._file.close()


class CsvFile(DataFile):
    """CSV with a header line in each file."""

    format = "csv"

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        super().__init__(path, schema, compression)
        for field in schema:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise SinkFailed(
                    f"column {field.name!r} is a {field.type}, which CSV cannot hold",
                    hint="leave it out, turn it into a string, or write parquet or json",
                )
        import pyarrow.csv as pc

        self._file: Any = pc.CSVWriter(path, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_other_text(rows, "CSV")
        self._file.write_batch(rows)

    def close(self) -> None:
        self._file.close()


def refuse_other_text(rows: pa.RecordBatch, format: str) -> None:
    """Spark takes any bytes for text. Raises RecordFailed, naming the column, for what no reader could decode."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_primitive(field.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise RecordFailed(
                f"column {field.name!r} has text that is no UTF-8, of which {format} files are made ({error})",
                hint="mend it with F.make_valid_utf8, or filter by F.is_valid_utf8, in a transform",
            ) from error


FORMATS: dict[str, type[DataFile]] = {kind.format: kind for kind in (ParquetFile, JsonFile, CsvFile)}
