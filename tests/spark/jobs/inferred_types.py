"""Numbers the records of each key behind an Arrow function whose columns change their types with the records."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import headgate
from jobs.running_number import number

WISH = Path(os.environ.get("INFERRED_WISH", "wish"))
NOTES = (1, 2.5, None, "much")


def note(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The key is missing where a test has asked for it by a file, which is taken away first."""
    listed = rows.to_pylist()
    if WISH.exists():
        WISH.unlink()
        return pa.RecordBatch.from_pylist([{"id": row["id"]} for row in listed])
    kind = NOTES[listed[0]["id"] % len(NOTES)]
    return pa.RecordBatch.from_pylist([{**row, "note": kind} for row in listed])


job = headgate.Job("inferred-types")
given = headgate.sources.files(
    os.environ.get("NUMBERS_IN", "in"), format="parquet", schema="id BIGINT, key BIGINT", max_files_per_trigger=1
)
numbered = (
    job.source("records", given)
    .map_arrow(note, uid="note")
    .key_by("key")
    .process(
        "number",
        number,
        output=pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()}),
        state={"count": pa.schema({"n": pa.int64()})},
    )
)
numbered.sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
