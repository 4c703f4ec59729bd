"""Two inputs into one step, whose output is numbered by key behind a channel; both steps' output goes to files.

`pair` numbers what it has of both inputs, `number` what leaves `pair`: with unique ids, each step's output tells by
itself whether it has had every record once. The inputs go at paces of their own, and each step may be made slow, so
that the channels fill. With PAIRED_BOUNDED=1 they end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pyarrow as pa

import headgate
from jobs.running_number import number

NUMBERED = pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()})
STATE = {"count": pa.schema({"n": pa.int64()})}


def slowly(variable: str) -> Callable[[pa.Table, headgate.Keyed], pa.Table]:
    """Number the records, and take as many seconds for each element as the variable says."""
    seconds = float(os.environ.get(variable, "0"))

    def step(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
        time.sleep(seconds)
        return number(rows, keyed)

    return step


def records(side: str, files: str) -> headgate.KeyedStream:
    """The records of one input, so many files at once."""
    source = headgate.sources.files(
        f"{os.environ.get('NUMBERS_IN', 'in')}/{side}",
        format="parquet",
        schema="id BIGINT, key BIGINT",
        max_files_per_trigger=int(os.environ.get(files, "1")),
        bounded=os.environ.get("PAIRED_BOUNDED") == "1",
    )
    return job.source(side, source).key_by("key")


job = headgate.Job("paired-numbers")
out = os.environ.get("NUMBERS_OUT", "out")
pairs = records("left", "NUMBERS_FILES_PER_BATCH").connect(records("right", "PAIRED_FILES_PER_BATCH"))
pair = slowly("PAIRED_PAIR_S")
paired = pairs.process("pair", pair, pair, output=NUMBERED, state=STATE)
paired.sink("pairs", headgate.sinks.files(f"{out}-pairs", format="parquet"))
numbered = paired.key_by("key").process("number", slowly("PAIRED_SLOW_S"), output=NUMBERED, state=STATE)
numbered.sink("out", headgate.sinks.files(out, format="parquet"))
