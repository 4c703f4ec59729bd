"""Planted faults: each breaks one rule of the protocol, and the simulation must find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.messages import Acknowledged, Action, BatchDone, Event, TakeSnapshot
from headgate.driver.ledger import Ledger
from headgate.driver.shared_state import SharedFiles
from headgate.state.vertex import StatefulVertex
from headgate.testing.faults import CommitBeforeCompletion
from headgate.testing.simulation.driver import Model, SimulatedLives
from headgate.testing.simulation.job import NUMBERS
from headgate.testing.simulation.taker import SimulatedTaker
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import SlotTaken
from headgate_contract.ids import CheckpointId, SlotNumber
from headgate_contract.records import Restarted, SlotLog, SlotRecord
from headgate_contract.snapshot import StateHandle


class EarlyCommit(CommitBeforeCompletion):
    WINDOW_S = 0.0


class NoFence(Ledger):
    """Takes the next free slot, whoever has written before it."""

    def check_not_fenced(self) -> None:
        """Nobody looks."""

    def _append(self, record: SlotRecord) -> SlotNumber:
        while True:
            try:
                self._newest = self._slots.append(self._newest, record).number
            except SlotTaken:
                self._newest = self._newest.next()
            else:
                return self._newest


class NoCounts(SharedFiles):
    """Deletes all that a retired checkpoint names."""

    def release(self, snapshot: CheckpointId) -> list[str]:
        return sorted(self._files.pop(snapshot, frozenset()))


class AnyAck(Coordinator):
    """Counts an ack, whoever sent it."""

    def _acknowledged(self, ack: Acknowledged) -> None:
        pending = self.pending.get(ack.checkpoint)
        if pending is not None and ack.participant not in pending.waiting and pending.waiting:
            ack = replace(ack, participant=min(pending.waiting))
        super()._acknowledged(ack)


class EarlyBarrier(Coordinator):
    """Lets a barrier pass with the positions behind a batch whose state it has not got yet."""

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        early: list[Action] = []
        if isinstance(event, BatchDone) and not self.ended and self._doom is None:
            kept, self.busy = self.cut, False
            self.cut = replace(self.cut, positions={**self.cut.positions, **event.result.positions})
            early = self._barriers(now_ms)
            self.busy, self.cut = True, kept
        return early + super().handle(event, now_ms)


class UnconfirmedBase(SimulatedTaker):
    """Builds an increment on the last checkpoint that was taken, whatever has become of it."""

    def take(self, action: TakeSnapshot) -> Callable[[], None]:
        self._last: dict[str, StateHandle] = getattr(self, "_last", {})
        return super().take(action)

    def _state(self, action: TakeSnapshot, vertex: StatefulVertex, base: Mapping[str, StateHandle]) -> Acknowledged:
        ack = super()._state(action, vertex, base if action.name is not None else {**base, **self._last})
        if action.name is None:
            self._last = {file.name: file for part in ack.vertices[NUMBERS].subtasks for file in part.files}
        return ack


class RestartWithoutSlot(SimulatedLives):
    """Goes on after a failure, and leaves to the failed life the slot that it may still have on its way."""

    def _write(self, slots: SlotLog, catalogue: Catalogue, restart: Restarted) -> Catalogue:
        return catalogue


BREAKS: dict[str, Callable[[Model], Model]] = {
    "commit-before-completion": lambda model: replace(model, ledger_class=EarlyCommit),
    "no-fence": lambda model: replace(model, ledger_class=NoFence),
    "delete-without-refcount": lambda model: replace(model, shared_class=NoCounts),
    "accept-foreign-ack": lambda model: replace(model, coordinator_class=AnyAck),
    "barrier-before-its-batch": lambda model: replace(model, coordinator_class=EarlyBarrier),
    "incremental-on-unconfirmed": lambda model: replace(model, taker_class=UnconfirmedBase),
    "restart-without-slot": lambda model: replace(model, lives_class=RestartWithoutSlot),
}
"""By the names under which `make simulate BREAK=` takes them."""
