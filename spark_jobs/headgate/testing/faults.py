"""Planted faults: each breaks one rule of the protocol, to show that the checks would see it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from headgate.coordinator.messages import StoreSnapshot
from headgate.driver.ledger import Ledger
from headgate_contract.errors import BadInput
from headgate_contract.ids import VertexUid
from headgate_contract.snapshot import SourceState


class CommitBeforeCompletion(Ledger):
    """Makes a group visible before its completion slot exists, and leaves a crash some time to fall in between."""

    WINDOW_S = 2.0

    def _store_snapshot(self, action: StoreSnapshot) -> None:
        for group in action.groups:
            for uid, sink in self._sinks.items():
                sink.commit(group.id, group.sinks.get(uid, ()))
        self._points.reach("before-commit")
        time.sleep(self.WINDOW_S)
        super()._store_snapshot(action)


class StalePositions(Ledger):
    """Stores each snapshot with the positions of the one before it: a crash makes what lies between come twice."""

    _stale: Mapping[VertexUid, SourceState] | None = None

    def _store_snapshot(self, action: StoreSnapshot) -> None:
        stale, self._stale = self._stale or action.sources, action.sources
        super()._store_snapshot(replace(action, sources=stale))


FAULTS: dict[str, type[Ledger]] = {
    "commit-before-completion": CommitBeforeCompletion,
    "stale-positions": StalePositions,
}


def broken_ledger(fault: str) -> type[Ledger]:
    """The ledger with the fault of that name."""
    if fault not in FAULTS:
        raise BadInput(f"there is no fault {fault!r}", hint=f"known are {', '.join(FAULTS)}")
    return FAULTS[fault]
