"""Copies the lines of files to Parquet files, without a step in between: what was read is what is written."""

from __future__ import annotations

import os

import headgate

job = headgate.Job("copied-lines")
given = headgate.sources.files(
    os.environ.get("NUMBERS_IN", "in"), max_files_per_trigger=int(os.environ.get("NUMBERS_FILES_PER_BATCH", "20"))
)
job.source("records", given).sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
