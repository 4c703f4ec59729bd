"""What the newest checkpoint holds, and whether another one would hold anything else: then none is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.cut import Cut, Json
from headgate.coordinator.output import OutputOnItsWay
from headgate.coordinator.pending import PendingCheckpoint
from headgate_contract.ids import CheckpointId, VertexUid


@dataclass(frozen=True, kw_only=True)
class Content:
    """All that a restore goes by: two checkpoints of one generation with equal contents restore to the same."""

    cut: Cut
    in_flight: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    """By the channel, of those that hold something."""
    watermarks: Mapping[VertexUid, Json] = field(default_factory=dict)
    """Of a job with channels: how far the inputs of each task have come."""

    @classmethod
    def of(cls, pending: PendingCheckpoint) -> Content:
        """What a checkpoint whose barriers have passed everybody holds."""
        held = {channel: elements for channel, elements in pending.in_flight.items() if elements}
        return cls(cut=pending.cut, in_flight=held, watermarks=pending.watermarks)


@dataclass
class NewestCheckpoint:
    """The newest checkpoint that this generation has completed. A savepoint is none: it belongs to who asked for it."""

    id: CheckpointId | None
    """None until there is one. So the first of a generation is always written, and full: what a launch has restored may
    be a savepoint, be claimed, or be of another job or parallelism, and from then on nothing needs it.
    """
    content: Content
    asked_for: bool = True
    """Whether somebody may count on it by its number: of one that an earlier life has taken that is not known."""

    def completed(self, pending: PendingCheckpoint) -> None:
        if not pending.trigger.is_savepoint:
            self.id, self.content = pending.id, Content.of(pending)
            self.asked_for = not pending.is_periodic

    def repeated_by(self, pending: PendingCheckpoint) -> CheckpointId | None:
        """The newest checkpoint, if a periodic one holds the same, is there only to note what is committed, and may
        take its place: what a person has asked for goes when `num-retained` says so, and not before."""
        may = pending.is_periodic and not self.asked_for
        return self.id if may and Content.of(pending) == self.content else None

    def says_all(self, now: Content | None, output: OutputOnItsWay) -> CheckpointId | None:
        """The checkpoint that another one would only repeat, if that is so.

        `now` is what that would hold, None if it has still to turn out. Output that is staged belongs to a new one; and
        output that was committed is to be noted as such, once, by the slot of a checkpoint.
        """
        repeats = now is not None and now == self.content and not output.is_staged and not output.has_to_be_noted
        return self.id if repeats else None
