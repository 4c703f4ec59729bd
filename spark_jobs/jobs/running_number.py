"""Numbers the records of each key: 1, 2, 3, ... Files of (id, key) in, (id, key, number) out.

The numbers show whether state, source and sink agree after any crash: each id once, and 1..N for each key.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headgate


def number(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    """Give each record the next number of its key, and store how far each key has come."""
    before = pc.fill_null(keyed.get("count").column("n"), 0).to_numpy()
    numbers = before[keyed.row_key] + keyed.positions() + 1
    counts = before + np.bincount(keyed.row_key, minlength=len(before))
    keyed.put("count", pa.table({"n": counts}))
    return rows.select(["id", "key"]).append_column("number", pa.array(numbers))


job = headgate.Job("running-number")
records = job.source(
    "records",
    headgate.sources.files(
        os.environ.get("NUMBERS_IN", "in"),
        format="parquet",
        schema="id BIGINT, key BIGINT",
        max_files_per_trigger=int(os.environ.get("NUMBERS_FILES_PER_BATCH", "4")),
    ),
)
numbered = records.key_by("key").process(
    "number",
    number,
    output=pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()}),
    state={"count": pa.schema({"n": pa.int64()})},
)
numbered.sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
