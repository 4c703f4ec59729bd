"""Restores streams: one that runs is stopped first, but only if the restore itself will not be refused.

With another parallelism the same job is deployed once more: checked while the stream still runs, recorded when it has
stopped. So a restore that is refused, or a stop that fails, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate_contract.ids import StreamName
from headgate_contract.restore import Located, Named
from headgate_contract.store import ObjectStore
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Deployer, check_unchanged
from headgate_control.explain import explain
from headgate_control.journal import Journal
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
    deployer: Deployer
    journal: Journal

    def restore(
        self, stream: StreamName, order: Order, *, savepoint_first: bool, parallelism: int | None = None
    ) -> Launched:
        """Raises what start() raises, and what stop() raises for a stream that runs."""
        self.store.check_writable()
        status, catalogue = self.observer.look(stream, confirm=True)
        rescaled = None if parallelism is None else self.deployer.rescaled(catalogue, parallelism, order.by)
        if status.live or rescaled is not None:
            number, deployed = self.catalogues.deployed(catalogue)
            check_unchanged(stream, deployed)
            found = explain(self.store, catalogue, number, rescaled or deployed, order.question, live=status.live)
            check_restorable(found, order.question)
            if status.live:
                keep = found.keeps if isinstance(order.question.wanted, (Named, Located)) else None
                self.stopper.stop(stream, StopOrder(by=order.by, savepoint=savepoint_first, keep=keep))
        if rescaled is not None:
            with self.journal.action(stream, "deploy", order.by, {"parallelism": parallelism}, rescaled.job) as note:
                note.details["decision"], _ = self.deployer.record(stream, rescaled)
        return self.starter.start(stream, order, what="restore")
