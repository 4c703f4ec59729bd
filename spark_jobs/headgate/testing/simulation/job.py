"""The job that the simulation runs: it numbers the records of each key."""

from __future__ import annotations

from headgate_contract.ids import StreamName, VertexUid

STREAM = StreamName("simulated")
NUMBERS, RECORDS, OUT = VertexUid("numbers"), VertexUid("records"), VertexUid("out")
MAX_PARALLELISM = 4
STATE, SOURCE, SINK = f"state {NUMBERS}", f"source {RECORDS}", f"sink {OUT}"

Counts = dict[int, int]
"""Of how many records of each key the state knows."""
