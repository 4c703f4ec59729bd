"""Turns Headgate's errors into Airflow's: what no retry can mend fails at once, the rest is tried again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from headgate_contract.errors import (
    BadInput,
    HeadgateError,
    LaunchFailed,
    NotFound,
    RestoreRefused,
    StreamNotRunning,
    StreamRunning,
)

LOG = logging.getLogger(__name__)

FINAL: tuple[type[HeadgateError], ...] = (
    BadInput,
    NotFound,
    StreamRunning,
    StreamNotRunning,
    RestoreRefused,
    LaunchFailed,
)
"""A person has to do something first. A driver that does not come up is among them: its cause is told at once."""


@contextmanager
def told_to_airflow() -> Iterator[None]:
    """Let a FINAL error inside the block fail the task without retries, with the error's own words.

    The sentence is the first line that the task's log has of it; where in Headgate it was raised is of no use to who
    reads that.
    """
    try:
        yield
    except FINAL as error:
        LOG.error("%s", error)
        LOG.debug("it was raised here", exc_info=error)
        raise AirflowFailException(str(error)) from None
