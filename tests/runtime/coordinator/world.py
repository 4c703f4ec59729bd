"""The names under which tests of the coordinator know `headgate.testing`."""

from headgate.testing.coordinator_books import (
    COUNTS,
    LINES,
    OUT,
    PARTICIPANTS,
    SINK,
    SOURCE,
    STATE,
    ack_of,
    checkpoint_ref,
    savepoint_ref,
)
from headgate.testing.coordinators import CoordinatorHarness as World

__all__ = [
    "COUNTS",
    "LINES",
    "OUT",
    "PARTICIPANTS",
    "SINK",
    "SOURCE",
    "STATE",
    "World",
    "ack_of",
    "checkpoint_ref",
    "savepoint_ref",
]
