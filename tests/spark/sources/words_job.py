"""Counts words as jobs/word_count.py does, in small micro-batches, so that a test can kill it in a certain one."""

from __future__ import annotations

import os

from pyspark.sql import functions as F

import headgate

job = headgate.Job("words")
lines = job.source(
    "lines",
    headgate.sources.socket("127.0.0.1", int(os.environ["WORDS_PORT"]), resume=True, max_bytes_per_trigger=10_000),
)
words = lines.transform(lambda df: df.select(F.explode(F.split("value", " ")).alias("word")))
words.key_by("word").aggregate("counts", n=headgate.count()).sink(
    "out", headgate.sinks.files(os.environ["WORDS_OUT"], format="parquet")
)
