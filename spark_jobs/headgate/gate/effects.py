"""What a gate wants done, in order. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.gate.elements import Barrier, Batch, ChannelId, Data, Watermark
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId

InFlight = Mapping[ChannelId, tuple[Data, ...]]


@dataclass(frozen=True, kw_only=True)
class Process:
    """The task's next element. Until `done` is called the gate gives out no other."""

    channel: ChannelId
    element: Batch | Watermark
    """A watermark is that of the task, the least of its inputs': it comes when that has moved."""


@dataclass(frozen=True, kw_only=True)
class TakeState:
    """The task's part of a checkpoint is its state as it is now: while a step runs, that is the step's parent.

    Then `barrier` is passed on into every channel behind the task, in one critical section with noting the state.
    """

    barrier: Barrier
    watermarks: Watermarks


@dataclass(frozen=True, kw_only=True)
class ChannelState:
    """All barriers are here: what they have overtaken belongs to the checkpoint. Follows its TakeState."""

    checkpoint: CheckpointId
    in_flight: InFlight
    """In order, for each channel that has any."""


@dataclass(frozen=True, kw_only=True)
class GaveUp:
    """The checkpoint can come to nothing at this gate any more: whoever coordinates is to be told."""

    checkpoint: CheckpointId
    reason: CheckpointFailureReason


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Every input has ended, and nothing of them is left."""


Effect = Process | TakeState | ChannelState | GaveUp | Finished
