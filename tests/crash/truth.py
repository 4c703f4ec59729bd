"""The input of a crash test: files of records with unique ids and random keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_input(folder: Path, *, seed: int, records: int, files: int, keys: int, first: int = 0) -> None:
    """Write `records` records (id from `first` on, key) into `files` files of unequal lengths, each appearing whole."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    ids = first + random.permutation(records).astype(np.int64)
    owners = np.minimum(random.zipf(1.2, records), keys).astype(np.int64)
    cuts = np.sort(random.choice(np.arange(1, records), files - 1, replace=False))
    for number, part in enumerate(np.split(np.arange(records), cuts)):
        partial = folder / f".part-{number:06d}"
        pq.write_table(pa.table({"id": ids[part], "key": owners[part]}), partial)
        partial.rename(folder / f"part-{number:06d}.parquet")
