"""What has to move in a driver: for how long each may stand still, and what mends it."""

from __future__ import annotations

from headgate.driver.under_way import BATCH_TIMEOUT, SOURCE_TIMEOUT, TIMEOUT, Part, Remedy
from headgate_contract.ids import VertexUid

_LONGEST_END_MS = 180_000
"""All that the end of a life waits for by itself is less."""

ENGINE = Part("Spark's JVM has not answered", TIMEOUT, Remedy.REPLACE)
COORDINATOR = Part("the coordinator has not gone round", TIMEOUT, Remedy.RESTART)
OPENING = Part("Spark has been starting", SOURCE_TIMEOUT, Remedy.REPLACE)
RESTORE = Part("the restore has been under way", BATCH_TIMEOUT, Remedy.REPLACE)
BEGIN = Part("the queries have been starting", SOURCE_TIMEOUT, Remedy.REPLACE)
CLAIM = Part("the restart has been written", SOURCE_TIMEOUT, Remedy.REPLACE)
END = Part("the life has been ending", "", Remedy.REPLACE, _LONGEST_END_MS)
THREADS = {
    "ledger": Part("an action on the log or a sink has been under way", BATCH_TIMEOUT, Remedy.RESTART),
    "disposal": Part("a deletion on storage has been under way", BATCH_TIMEOUT, Remedy.RESTART),
}
"""Of the threads that touch storage, by their names."""


def looking(source: VertexUid) -> Part:
    return Part(f"source {source} has been looking for new records", SOURCE_TIMEOUT, Remedy.RESTART)


def working(what: str) -> Part:
    """One piece of a task's work."""
    return Part(f"{what} has been under way", BATCH_TIMEOUT, Remedy.RESTART)
