"""Counts words: lines from a socket, split into words, counts to files and to the console."""

from __future__ import annotations

import os

from pyspark.sql import functions as F

import headgate

job = headgate.Job("word-count")
lines = job.source(
    "lines",
    headgate.sources.socket(
        os.environ.get("WORDS_HOST", "127.0.0.1"), int(os.environ.get("WORDS_PORT", "9999")), resume=True
    ),
)
words = lines.transform(lambda df: df.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''"))
counts = words.key_by("word").aggregate("counts", n=headgate.count())
counts.sink("out", headgate.sinks.files(os.environ.get("WORDS_OUT", "out"), format="parquet"))
counts.sink("console", headgate.sinks.console())
