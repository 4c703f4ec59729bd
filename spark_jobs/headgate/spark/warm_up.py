"""What the first micro-batches of a stream do, small: files of each format, a shuffle, a pass of Arrow functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "key BIGINT, word STRING"


def first_batches(session: SparkSession, folder: Path) -> None:
    """Run one stream for each format below `folder`, to the end of its only file."""
    rows = [{"key": number, "word": f"word {number}"} for number in range(100)]
    for name in ("parquet", "json", "text"):
        (folder / name).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "parquet" / "a.parquet")
    (folder / "json" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "text" / "a.txt").write_text("".join(f"{row['word']}\n" for row in rows))
    for name in ("parquet", "json", "text"):
        reader = session.readStream.format(name)
        frame = (reader if name == "text" else reader.schema(SCHEMA)).load(f"file://{folder / name}")
        key = F.col("value") if name == "text" else F.col("key")
        _run(frame.select(F.xxhash64(key).alias("key")), folder / "queries" / name)


def _run(frame: DataFrame, location: Path) -> None:
    def on_batch(batch: DataFrame, number: int) -> None:
        owner = F.pmod(F.col("key"), F.lit(2)).cast("int")
        shuffled = batch.withColumn("owner", owner).repartitionById(2, F.col("owner"))
        shuffled.mapInArrow(_through, "key BIGINT").collect()

    writer = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", f"file://{location}")
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()  # raises what it fails with
    query.stop()


def _through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["key"])
