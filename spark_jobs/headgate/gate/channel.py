"""A channel: the queue between a source or a task and the task behind it. Pure: who puts may have to wait elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.gate.elements import Barrier, Batch, ChannelId, Data, Element, EndOfInput
from headgate_contract.ids import CheckpointId


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Until when a channel has room: only micro-batches count, and one fits however large it is."""

    elements: int = 8
    bytes: int = 256 * 1024 * 1024


@dataclass
class Channel:
    """First in, first out; a barrier may overtake."""

    id: ChannelId
    capacity: Capacity = field(default_factory=Capacity)
    ended: bool = False
    """Its producer has finished; what it put before may still be here."""
    _queue: deque[Element] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def batches(self) -> list[Batch]:
        return [element for element in self._queue if isinstance(element, Batch)]

    @property
    def barriers(self) -> list[Barrier]:
        return [element for element in self._queue if isinstance(element, Barrier)]

    @property
    def has_room(self) -> bool:
        """Whether the producer may put one more micro-batch; barriers, watermarks and the end need no room."""
        waiting = self.batches
        return not waiting or (
            len(waiting) < self.capacity.elements and sum(batch.bytes for batch in waiting) < self.capacity.bytes
        )

    def put(self, element: Element) -> None:
        """A barrier that comes when the producer has finished stands behind all that it put, before its end."""
        if self.ended and isinstance(element, Barrier) and self._queue:
            self._queue.insert(len(self._queue) - 1, element)
            return
        if self.ended:
            raise AssertionError(f"channel {self.id} has ended, and is given {type(element).__name__}")
        self.ended = isinstance(element, EndOfInput)
        self._queue.append(element)

    def inject(self, in_flight: Iterable[Data]) -> None:
        """What was in flight in the snapshot comes first, whether there is room for it or not."""
        self._queue.extendleft(reversed(list(in_flight)))

    def head(self) -> Element | None:
        return self._queue[0] if self._queue else None

    def take(self) -> Element:
        return self._queue.popleft()

    def holds(self, checkpoint: CheckpointId) -> bool:
        """Whether its barrier is here."""
        return any(barrier.checkpoint == checkpoint for barrier in self.barriers)

    def overtaken_by(self, checkpoint: CheckpointId) -> tuple[Data, ...]:
        """What stands before the barrier of `checkpoint`, or everything while that has not come."""
        overtaken: list[Data] = []
        for element in self._queue:
            if isinstance(element, Barrier):
                if element.checkpoint == checkpoint:
                    break
            elif not isinstance(element, EndOfInput):
                overtaken.append(element)
        return tuple(overtaken)

    def remove(self, checkpoints: Iterable[CheckpointId]) -> None:
        """Barriers that have been seen to, or are of no use any more."""
        gone = set(checkpoints)
        self._queue = deque(
            element for element in self._queue if not (isinstance(element, Barrier) and element.checkpoint in gone)
        )
