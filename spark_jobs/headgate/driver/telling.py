"""Tells the stream's history what happens to a generation."""

from __future__ import annotations

import logging

from headgate.driver import clock
from headgate_contract.errors import StorageError
from headgate_contract.history import Event, record_event
from headgate_contract.ids import Generation, StreamName
from headgate_contract.measures import Measures
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


def tell(
    store: ObjectStore,
    stream: StreamName,
    generation: Generation,
    what: str,
    outcome: str,
    text: str,
    measures: Measures | None = None,
    *,
    slot: int,
) -> None:
    """Put an event into the stream's history, behind what `slot` has written; if that fails, into the log only."""
    log.info("%s %s: %s", what, outcome, text)
    event = Event(
        at_ms=clock.wall_ms(),
        what=what,
        outcome=outcome,
        by="driver",
        generation=generation,
        text=text,
        measures=measures,
        slot=slot,
    )
    try:
        record_event(store, stream, event)
    except StorageError as error:
        log.warning("history could not be written: %s", error)
