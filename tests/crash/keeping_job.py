"""Numbers the records of each key, as jobs/running_number.py does, and keeps three operator states beside.

`hundreds` (list): the ids that are multiples of a hundred. `records` (union): numbers that add up to how many records
there were. `counts` (broadcast): how many records each of a few keys has had; whoever counts a key finds there what
its keyed state says, or the two are not of one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

import headgate
from headgate_contract.operator_state import OperatorState
from jobs.running_number import number

WATCHED = 5
OPERATOR_STATE = {"hundreds": "list", "records": "union", "counts": "broadcast"}
OUTPUT = pa.schema({"id": pa.int64(), "key": pa.int64(), "number": pa.int64()})
STATE = {"count": pa.schema({"n": pa.int64()})}


def keep(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    """Number the records; keep what the module says."""
    before = pc.fill_null(keyed.get("count").column("n"), 0).to_pylist()
    numbered = number(rows, keyed)
    after = keyed.get("count").column("n").to_pylist()
    counts = keyed.operator_state("counts")
    for key, had, has in zip(keyed.keys.keys.column("key").to_pylist(), before, after, strict=True):
        if key < WATCHED:
            if (counts.get(str(key)) or 0) != had:
                raise AssertionError(
                    f"key {key}: {had} in the keyed state, {counts.get(str(key))} in the broadcast one"
                )
            counts.put(str(key), has)
    records = keyed.operator_state("records")
    records.update([sum(records.get()) + rows.num_rows])
    hundreds = keyed.operator_state("hundreds")
    for id in rows.column("id").to_pylist():
        if id % 100 == 0:
            hundreds.add(id)
    return numbered


def finish(keyed: headgate.Keyed) -> pa.Table:
    """The last words of a drained stream: each key once more, with the number that a further record would have had."""
    keys = keyed.keys.keys.column("key")
    keyed.operator_state("hundreds").update([])
    return pa.table({"id": pc.subtract(-1, keys), "key": keys, "number": pc.add(keyed.get("count").column("n"), 1)})


def wrong(states: dict[str, OperatorState], ids: Iterable[int], keys: Iterable[int]) -> list[str]:
    """What in a snapshot's operator states is not as these records make it."""
    ids, keys = list(ids), list(keys)
    hundreds = sorted(id for part in states["hundreds"].parts for id in part)
    counts = {str(key): keys.count(key) for key in sorted(set(keys)) if key < WATCHED}
    found = {
        "hundreds": hundreds == sorted(id for id in ids if id % 100 == 0),
        "records": sum(number for part in states["records"].parts for number in part) == len(ids),
        "counts": dict(sorted(states["counts"].parts[0].items())) == counts,
    }
    return [name for name, right in found.items() if not right]


job = headgate.Job("keeping")
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
    "number", keep, output=OUTPUT, state=STATE, operator_state=OPERATOR_STATE, finish=finish
)
numbered.sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
