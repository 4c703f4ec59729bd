"""Restores streams: one that runs is stopped first, but only if the restore itself will not be refused."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_contract.ids import StreamName
from headgate_contract.restore import Named
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import check_unchanged
from headgate_control.explain import explain
from headgate_control.outcomes import Launched
from headgate_control.starting import Order, Starter, check_restorable
from headgate_control.status import Observer
from headgate_control.stopping import StopOrder, Stopper


@dataclass(frozen=True, kw_only=True)
class Restorer:
    """Restores the streams of one root."""

    store: ObjectStore
    catalogues: Catalogues
    observer: Observer
    starter: Starter
    stopper: Stopper

    def restore(self, stream: StreamName, order: Order, *, savepoint_first: bool) -> Launched:
        """Raises what start() raises, and what stop() raises for a stream that runs."""
        self.store.check_writable()
        status, catalogue = self.observer.look(stream, confirm=True)
        if status.live:
            number, deployed = self.catalogues.deployed(catalogue)
            check_unchanged(stream, deployed)
            found = explain(self.store, catalogue, number, deployed, order.question, live=True)
            check_restorable(found, order.question)
            keep = found.restores if isinstance(order.question.wanted, Named) else None
            self.stopper.stop(stream, StopOrder(by=order.by, savepoint=savepoint_first, keep=keep))
        return self.starter.start(stream, order, what="restore")
