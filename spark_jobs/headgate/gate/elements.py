"""What a channel carries, in order: micro-batches, watermarks, barriers, and its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headgate_contract.ids import CheckpointId, VertexUid

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class ChannelId:
    """From whose output to whose input; a task has no two channels from one producer."""

    producer: VertexUid
    consumer: VertexUid

    def __str__(self) -> str:
        return f"{self.producer}->{self.consumer}"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A micro-batch: where its records are, and how many. Two are never the same one."""

    content: Any
    rows: int = 0
    bytes: int = 0
    before: Json | None = None
    """What a source hands over: S_n if the batch is still to come. None: it stands in files of the channel's own."""
    after: Json | None = None
    """S_n right behind it."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record behind it is older."""

    ms: int | None
    """None: the producer is idle, and nobody is to wait for it."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Between what belongs to the state of a checkpoint and what does not."""

    checkpoint: CheckpointId
    started_ms: int = 0
    overtakes_after_ms: int | None = None
    """How long after the start it begins to overtake the batches before it: 0 is at once, None is never."""

    @property
    def overtakes_ms(self) -> int | None:
        """From when on it overtakes."""
        return None if self.overtakes_after_ms is None else self.started_ms + self.overtakes_after_ms

    def may_overtake(self, now_ms: int) -> bool:
        return self.overtakes_ms is not None and now_ms >= self.overtakes_ms

    def at_once(self) -> Barrier:
        """What follows a barrier that has begun to overtake: it does so at each gate behind."""
        return replace(self, overtakes_after_ms=0)


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The producer has finished: nothing comes behind it."""


Data = Batch | Watermark
Element = Data | Barrier | EndOfInput
