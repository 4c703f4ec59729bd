"""What a gate is doing about checkpoints: nothing, aligning, overtaking; or, at least once, counting barriers.

A state knows which channels are held back, and what a barrier, an end and an abort mean now. It never moves elements:
it answers with the state that follows and with what is to be done. The gate carries the channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.gate.effects import ChannelState, Effect, GaveUp, TakeState
from headgate.gate.elements import Barrier, ChannelId, Data
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId

Channels = frozenset[ChannelId]


@dataclass(frozen=True, kw_only=True)
class View:
    """What a state may know of its gate."""

    open: Channels
    """Inputs whose end has not been reached."""
    watermarks: Watermarks


@dataclass(frozen=True)
class Next:
    """What follows an event."""

    state: GateState
    effects: tuple[Effect, ...] = ()

    def behind(self, *effects: Effect) -> Next:
        """The same after these."""
        return replace(self, effects=(*effects, *self.effects))


class GateState(ABC):
    """One of the things that a gate may be doing."""

    @property
    @abstractmethod
    def under_way(self) -> frozenset[CheckpointId]:
        """The checkpoints that have begun here and are not over here."""

    @property
    def noted(self) -> Mapping[ChannelId, tuple[Data, ...]]:
        """What belongs to a checkpoint as in flight, though the task may have had it since."""
        return {}

    def holds_back(self, channel: ChannelId) -> bool:
        """Whether nothing of this channel may be processed now."""
        return False

    def lets_wait(self, channel: ChannelId, barrier: Barrier) -> bool:
        """Whether this barrier, at the head of its channel, has to wait for another checkpoint."""
        return False

    @abstractmethod
    def met(self, channel: ChannelId, barrier: Barrier, view: View) -> Next:
        """Everything before the barrier in its channel has been processed."""

    @abstractmethod
    def ended(self, channel: ChannelId, view: View) -> Next:
        """`channel`, which is not open any more, brings nothing more."""

    @abstractmethod
    def aborted(self, checkpoint: CheckpointId) -> GateState:
        """What follows when nobody wants the checkpoint any more."""

    def gives_up(self, reason: Reason) -> Next:
        """What follows when what is under way cannot be completed here."""
        return Next(Flowing(), tuple(GaveUp(checkpoint=each, reason=reason) for each in sorted(self.under_way)))


@dataclass(frozen=True)
class Flowing(GateState):
    """No checkpoint is under way here."""

    @property
    def under_way(self) -> frozenset[CheckpointId]:
        return frozenset()

    def met(self, channel: ChannelId, barrier: Barrier, view: View) -> Next:
        return Aligning(barrier, frozenset({channel})).looked(view)

    def ended(self, channel: ChannelId, view: View) -> Next:
        return Next(self)

    def aborted(self, checkpoint: CheckpointId) -> GateState:
        return self


@dataclass(frozen=True)
class Aligning(GateState):
    """Some inputs have come to the barrier and are held back until all have."""

    barrier: Barrier
    here: Channels

    @property
    def under_way(self) -> frozenset[CheckpointId]:
        return frozenset({self.barrier.checkpoint})

    def holds_back(self, channel: ChannelId) -> bool:
        return channel in self.here

    def met(self, channel: ChannelId, barrier: Barrier, view: View) -> Next:
        if barrier.checkpoint < self.barrier.checkpoint:  # on another input this one is missing
            return Next(self, (GaveUp(checkpoint=barrier.checkpoint, reason=Reason.CHECKPOINT_DECLINED_SUBSUMED),))
        if barrier.checkpoint > self.barrier.checkpoint:  # on this input the older one is missing
            given_up = self.gives_up(Reason.CHECKPOINT_DECLINED_SUBSUMED)
            return given_up.state.met(channel, barrier, view).behind(*given_up.effects)
        return Aligning(self.barrier, self.here | {channel}).looked(view)

    def looked(self, view: View) -> Next:
        """Everybody here: the state is what all inputs before their barriers have made it."""
        if not view.open <= self.here:
            return Next(self)
        taken = TakeState(barrier=self.barrier, watermarks=view.watermarks)
        return Next(Flowing(), (taken, ChannelState(checkpoint=self.barrier.checkpoint, in_flight={})))

    def ended(self, channel: ChannelId, view: View) -> Next:
        return self.looked(view)

    def aborted(self, checkpoint: CheckpointId) -> GateState:
        return Flowing() if checkpoint == self.barrier.checkpoint else self


@dataclass(frozen=True)
class Overtaking(GateState):
    """The state is taken. What inputs bring before their barriers is processed, and noted as in flight."""

    barrier: Barrier
    here: Channels
    in_flight: Mapping[ChannelId, tuple[Data, ...]] = field(default_factory=dict)

    @property
    def under_way(self) -> frozenset[CheckpointId]:
        return frozenset({self.barrier.checkpoint})

    @property
    def noted(self) -> Mapping[ChannelId, tuple[Data, ...]]:
        return self.in_flight

    def lets_wait(self, channel: ChannelId, barrier: Barrier) -> bool:
        return channel in self.here

    def brought(self, channel: ChannelId, element: Data) -> Overtaking:
        """Something has come into `channel`."""
        if channel in self.here:
            return self
        noted = (*self.in_flight.get(channel, ()), element)
        return replace(self, in_flight={**self.in_flight, channel: noted})

    def arrived(self, channel: ChannelId, view: View) -> Next:
        """The barrier has come into `channel`."""
        return replace(self, here=self.here | {channel}).looked(view)

    def looked(self, view: View) -> Next:
        if not view.open <= self.here:
            return Next(self)
        in_flight = {channel: noted for channel, noted in self.in_flight.items() if noted}
        return Next(Flowing(), (ChannelState(checkpoint=self.barrier.checkpoint, in_flight=in_flight),))

    def met(self, channel: ChannelId, barrier: Barrier, view: View) -> Next:
        given_up = self.gives_up(Reason.CHECKPOINT_DECLINED_SUBSUMED)  # on this input the older one is missing
        return given_up.state.met(channel, barrier, view).behind(*given_up.effects)

    def ended(self, channel: ChannelId, view: View) -> Next:
        return self.looked(view)

    def aborted(self, checkpoint: CheckpointId) -> GateState:
        return Flowing() if checkpoint == self.barrier.checkpoint else self


@dataclass(frozen=True)
class Counting(GateState):
    """At least once: nothing is ever held back, and several checkpoints may be under way."""

    here: Mapping[CheckpointId, Channels] = field(default_factory=dict)
    barriers: Mapping[CheckpointId, Barrier] = field(default_factory=dict)

    @property
    def under_way(self) -> frozenset[CheckpointId]:
        return frozenset(self.here)

    def met(self, channel: ChannelId, barrier: Barrier, view: View) -> Next:
        checkpoint = barrier.checkpoint
        here = {**self.here, checkpoint: self.here.get(checkpoint, frozenset()) | {channel}}
        return Counting(here, {**self.barriers, checkpoint: barrier})._looked(view)

    def ended(self, channel: ChannelId, view: View) -> Next:
        return self._looked(view)

    def aborted(self, checkpoint: CheckpointId) -> GateState:
        return self._without({checkpoint})

    def gives_up(self, reason: Reason) -> Next:
        return replace(super().gives_up(reason), state=Counting())

    def _looked(self, view: View) -> Next:
        """The newest checkpoint of which all barriers are here; older ones are overtaken by it."""
        whole = [checkpoint for checkpoint, here in self.here.items() if view.open <= here]
        if not whole:
            return Next(self)
        newest = max(whole)
        older = sorted(checkpoint for checkpoint in self.here if checkpoint < newest)
        given_up = [GaveUp(checkpoint=each, reason=Reason.CHECKPOINT_DECLINED_SUBSUMED) for each in older]
        taken = TakeState(barrier=self.barriers[newest], watermarks=view.watermarks)
        behind = ChannelState(checkpoint=newest, in_flight={})
        return Next(self._without({newest, *older}), (*given_up, taken, behind))

    def _without(self, gone: set[CheckpointId]) -> Counting:
        return Counting(
            {checkpoint: here for checkpoint, here in self.here.items() if checkpoint not in gone},
            {checkpoint: barrier for checkpoint, barrier in self.barriers.items() if checkpoint not in gone},
        )


def overtaking(barrier: Barrier, here: Channels, in_flight: Mapping[ChannelId, tuple[Data, ...]], view: View) -> Next:
    """The barrier begins to overtake: the state is taken now, whatever is still before it."""
    taken = TakeState(barrier=barrier.at_once(), watermarks=view.watermarks)
    return Overtaking(barrier, here, in_flight).looked(view).behind(taken)
