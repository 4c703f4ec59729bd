"""Planted faults: each breaks one rule of the protocol, and the simulation must find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.coordinator.coordinator import Coordinator
from headgate.coordinator.cut import at_end, is_at_end
from headgate.coordinator.messages import Acknowledged, Action, BatchDone, Event, StoreSnapshot, TakeSnapshot
from headgate.coordinator.newest import Content, NewestCheckpoint
from headgate.coordinator.output import OutputOnItsWay
from headgate.driver.ledger import Ledger
from headgate.driver.shared_state import SharedFiles
from headgate.gate.channel import Channel
from headgate.gate.coordinator import GraphCoordinator
from headgate.gate.effects import ChannelState, Effect
from headgate.gate.elements import Barrier, ChannelId, Element
from headgate.gate.flow import Flow, InFlight
from headgate.gate.gate import Gate
from headgate.state.vertex import StatefulVertex
from headgate.testing.faults import CommitBeforeCompletion
from headgate.testing.simulation.driver import Model, SimulatedLives
from headgate.testing.simulation.job import NUMBERS
from headgate.testing.simulation.taker import SimulatedTaker
from headgate_contract.catalogue import Catalogue
from headgate_contract.errors import SlotTaken
from headgate_contract.folding import Folding
from headgate_contract.ids import CheckpointId, SlotNumber, VertexUid
from headgate_contract.log import ExclusiveLog
from headgate_contract.records import Restarted, SlotLog, SlotRecord
from headgate_contract.root_store import RootStore
from headgate_contract.snapshot import SnapshotMetadata, StateHandle
from headgate_contract.summary import Summary


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


class FreeingNumbers(Folding):
    """Deletes every slot that summaries cover: whoever was frozen finds his number free."""

    def _deletable(self, summary: Summary) -> Sequence[SlotNumber]:
        return super()._deletable(replace(summary, taken=()))


class FreeingLedger(Ledger):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.cleaner.folding_class = FreeingNumbers


class HastyFolding(Folding):
    """Deletes what the newest summary covers, before another one is there."""

    def _clear(self, numbers: Sequence[SlotNumber]) -> None:
        super()._clear([numbers[0], *numbers])


class HastyLedger(Ledger):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.cleaner.folding_class = HastyFolding


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


class DropChannelState(Flow):
    """Keeps nothing of what barriers have overtaken in written channels."""

    def _in_flight(self, task: VertexUid, found: ChannelState) -> InFlight:
        return replace(super()._in_flight(task, found), channels={})


class EagerChannel(Channel):
    """An aligned barrier is met before what stands before it."""

    def put(self, element: Element) -> None:
        super().put(element)
        if isinstance(element, Barrier) and element.overtakes_after_ms is None and not self.ended:
            self._queue.appendleft(self._queue.pop())


class BarrierOvertakes(Flow):
    channel_class = EagerChannel


class OpenGate(Gate):
    """Holds back no input whose barrier has come."""

    def _holds_back(self, channel: ChannelId) -> bool:
        return False


class NoBlock(Flow):
    gate_class = OpenGate


class ForgetfulGate(Gate):
    """What a task is at when its state is taken is in neither."""

    def _overtake(self, barrier: Barrier) -> list[Effect]:
        running, self._running = self._running, None
        try:
            return super()._overtake(barrier)
        finally:
            self._running = running


class ForgetOvertakenBatch(Flow):
    gate_class = ForgetfulGate


class NeverFinishes(Coordinator):
    """Lets no operator finish."""

    def _finish(self) -> list[Action]:
        self.busy = False
        return []


class NobodyFinishes(GraphCoordinator):
    def _has_finished(self, task: VertexUid) -> bool:
        return True


class EarlyEnd(Flow):
    """Takes a source for ended also where its last micro-batches have been overtaken."""

    def _in_flight(self, task: VertexUid, found: ChannelState) -> InFlight:
        told = super()._in_flight(task, found)
        ended = {source: at_end(at) for source, at in told.positions.items() if is_at_end(self._reached[source])}
        return replace(told, positions={**told.positions, **ended})


class WhateverCame(NewestCheckpoint):
    """Takes the newest checkpoint for current whatever has come since."""

    def says_all(self, now: Content | None, output: OutputOnItsWay) -> CheckpointId | None:
        return self.id


class WhateverTasksDid(NewestCheckpoint):
    """Takes it for current while the sources stand where they stood."""

    def says_all(self, now: Content | None, output: OutputOnItsWay) -> CheckpointId | None:
        return self.id if now is not None and now.cut.positions == self.content.cut.positions else None


class Careless(Coordinator):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._newest = WhateverCame(self._newest.id, self._newest.content)


class CarelessOfTasks(GraphCoordinator):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._newest = WhateverTasksDid(self._newest.id, self._newest.content)


class AnyRoot(RootStore):
    """Takes whatever is in the root's place for it."""

    def check(self, *, anew: bool = False) -> None:
        """Nobody looks."""


class AnyLog(ExclusiveLog[SlotRecord]):
    """Goes on wherever its next number is free."""

    def confirm(self, number: SlotNumber) -> None:
        """Nobody looks."""


class BelievingLedger(Ledger):
    """Takes what was written for written, wherever that went."""

    def __init__(self, **parts: Any) -> None:
        known: SlotLog = parts["slots"]
        parts["slots"] = AnyLog(known.store, known.folder, known.kind, known.records)
        super().__init__(**parts)

    def _check_stored(self, action: StoreSnapshot, metadata: SnapshotMetadata, folder: str) -> None:
        """Nobody looks."""


BREAKS: dict[str, Callable[[Model], Model]] = {
    "commit-before-completion": lambda model: replace(model, ledger_class=EarlyCommit),
    "no-fence": lambda model: replace(model, ledger_class=NoFence),
    "no-root-check": lambda model: replace(model, root_class=AnyRoot, ledger_class=BelievingLedger),
    "fold-frees-numbers": lambda model: replace(model, ledger_class=FreeingLedger),
    "fold-deletes-early": lambda model: replace(model, ledger_class=HastyLedger),
    "delete-without-refcount": lambda model: replace(model, shared_class=NoCounts),
    "accept-foreign-ack": lambda model: replace(model, coordinator_class=AnyAck),
    "barrier-before-its-batch": lambda model: replace(model, coordinator_class=EarlyBarrier),
    "incremental-on-unconfirmed": lambda model: replace(model, taker_class=UnconfirmedBase),
    "restart-without-slot": lambda model: replace(model, lives_class=RestartWithoutSlot),
    "drop-channel-state": lambda model: replace(model, flow_class=DropChannelState),
    "barrier-overtakes": lambda model: replace(model, flow_class=BarrierOvertakes),
    "no-block-in-aligned": lambda model: replace(model, flow_class=NoBlock),
    "never-finish": lambda model: replace(
        model, coordinator_class=NeverFinishes, graph_coordinator_class=NobodyFinishes
    ),
    "end-before-overtaken": lambda model: replace(model, flow_class=EarlyEnd),
    "current-whatever-came": lambda model: replace(model, coordinator_class=Careless),
    "current-by-positions": lambda model: replace(model, graph_coordinator_class=CarelessOfTasks),
    "forget-overtaken-batch": lambda model: replace(model, flow_class=ForgetOvertakenBatch),
}
"""By the names under which `make simulate BREAK=` takes them."""
