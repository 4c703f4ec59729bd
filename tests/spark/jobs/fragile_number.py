"""Numbers the records of each key, and fails where a test has asked for it by a file, which it takes away first."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headgate

WISHES = Path(os.environ.get("FRAGILE_WISHES", "wishes"))


def wished(what: str) -> bool:
    """Whether a test has asked for this; of the tasks that look, one finds it."""
    try:
        (WISHES / what).unlink()
    except FileNotFoundError:
        return False
    return True


def number(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    if wished("fail-task"):
        raise ValueError("the task was told to fail")
    if wished("kill-worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    if wished("be-slow"):
        time.sleep(12)
    before = pc.fill_null(keyed.get("count").column("n"), 0).to_numpy()
    numbers = before[keyed.row_key] + keyed.positions() + 1
    keyed.put("count", pa.table({"n": before + np.bincount(keyed.row_key, minlength=len(before))}))
    return rows.select(["id", "key"]).append_column("number", pa.array(numbers))


job = headgate.Job("fragile-number")
records = job.source(
    "records",
    headgate.sources.files(
        os.environ.get("NUMBERS_IN", "in"), format="parquet", schema="id BIGINT, key BIGINT", max_files_per_trigger=2
    ),
)
numbered = records.key_by("key").process(
    "number",
    number,
    output=pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()}),
    state={"count": pa.schema({"n": pa.int64()})},
)
numbered.sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
