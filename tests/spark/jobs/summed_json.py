"""Sums JSON lines by key, three files at a time: what does not parse and what has no key fails it."""

from __future__ import annotations

import os

import headgate

job = headgate.Job("summed-json")
given = headgate.sources.files(
    os.environ.get("NUMBERS_IN", "in"), format="json", schema="id BIGINT, key BIGINT", max_files_per_trigger=3
)
totals = job.source("records", given).key_by("key").aggregate("totals", total=headgate.sum("id"))
totals.sink("out", headgate.sinks.files(os.environ.get("NUMBERS_OUT", "out"), format="parquet"))
