"""Measures what each checkpoint costs, as the coordinator's events and actions go by."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headgate.coordinator.messages import (
    Acknowledged,
    Action,
    Event,
    NotifyAborted,
    StoreSnapshot,
    TakeSnapshot,
)
from headgate.driver import clock
from headgate_contract.ids import CheckpointId
from headgate_contract.measures import CheckpointCost
from headgate_contract.snapshot import SnapshotKind, StateHandle


def now_ms() -> float:
    """Time that never jumps."""
    return time.monotonic_ns() / 1_000_000


@dataclass
class _Attempt:
    """A snapshot under way, and the moments that are behind it."""

    action: TakeSnapshot
    """That of its first barrier to pass."""
    passed_ms: float
    """When the last barrier so far had passed."""
    snapshot_ms: float = 0.0
    """For how long their passing has held up micro-batches, in all."""
    acknowledged_ms: float = 0.0
    parts: StoreSnapshot | None = None
    bytes: int = 0
    files: int = 0

    def handles(self) -> Iterator[StateHandle]:
        if self.parts is not None:
            for vertex in self.parts.vertices.values():
                for subtask in vertex.subtasks:
                    yield from subtask.files
            for source in self.parts.sources.values():
                yield from source.files
            for task in self.parts.tasks.values():
                for each in task.inputs.values():
                    for element in each.in_flight:
                        yield from element.files


class CheckpointMeter:
    """Follows every attempt from its barrier to its end.

    Who has the coordinator's turn calls `saw` and `passed`, uploading threads `uploaded`, the ledger's thread asks for
    the cost.
    """

    def __init__(self, tell: Callable[[CheckpointCost], None] = lambda cost: None) -> None:
        self._tell = tell
        self._attempts: dict[CheckpointId, _Attempt] = {}
        self._lock = threading.Lock()

    def saw(self, event: Event, actions: Sequence[Action], began_ms: float) -> None:
        """The coordinator took in `event`, from `began_ms` on, and wants `actions` done; none of them has begun."""
        with self._lock:
            if isinstance(event, Acknowledged) and event.checkpoint in self._attempts:
                self._attempts[event.checkpoint].acknowledged_ms = began_ms
            for action in actions:
                if isinstance(action, TakeSnapshot):
                    self._attempts.setdefault(action.checkpoint, _Attempt(action, began_ms)).passed_ms = began_ms
                elif isinstance(action, StoreSnapshot) and action.checkpoint in self._attempts:
                    self._attempts[action.checkpoint].parts = action

    def passed(self, actions: Sequence[Action]) -> None:
        """`actions` are done, as far as its turn goes: from now on micro-batches may run."""
        now = now_ms()
        with self._lock:
            for action in actions:
                attempt = self._attempts.get(action.checkpoint) if isinstance(action, TakeSnapshot) else None
                if attempt is not None:
                    attempt.snapshot_ms += now - attempt.passed_ms
                    attempt.passed_ms = now

    def uploaded(self, checkpoint: CheckpointId, length: int) -> None:
        """A file was uploaded for this attempt."""
        with self._lock:
            attempt = self._attempts.get(checkpoint)
            if attempt is not None:
                attempt.bytes += length
                attempt.files += 1

    def completed(self, checkpoint: CheckpointId) -> CheckpointCost | None:
        """It is complete and committed, and everybody knows; what it cost, unless nobody saw it begin."""
        with self._lock:
            attempt = self._attempts.pop(checkpoint, None)
        if attempt is None:
            return None
        cost = _cost(attempt, now_ms(), full=sum({file.path: file.length for file in attempt.handles()}.values()))
        self._tell(cost)
        return cost

    def aborted(self, action: NotifyAborted) -> CheckpointCost:
        """It came to nothing; what it had cost until then."""
        with self._lock:
            attempt = self._attempts.pop(action.checkpoint, None)
        if attempt is not None:
            return _cost(attempt, now_ms(), full=None)
        return CheckpointCost(  # its barrier never passed
            checkpoint=action.checkpoint,
            kind=SnapshotKind.CHECKPOINT,
            due_ms=clock.wall_ms() - action.held_up_ms,
            barrier_ms=float(action.held_up_ms),
        )


def _cost(attempt: _Attempt, ended_ms: float, full: int | None) -> CheckpointCost:
    stored = attempt.parts is not None
    persisted_ms = attempt.acknowledged_ms if stored else ended_ms
    action = attempt.action
    return CheckpointCost(
        checkpoint=action.checkpoint,
        kind=action.kind,
        name=action.name,
        due_ms=clock.wall_ms() - round(ended_ms - action.due_ms),
        barrier_ms=_round(attempt.passed_ms - attempt.snapshot_ms - action.due_ms),
        snapshot_ms=_round(attempt.snapshot_ms),
        persist_ms=_round(persisted_ms - attempt.passed_ms),
        coordination_ms=_round(ended_ms - persisted_ms) if stored else 0.0,
        uploaded_bytes=attempt.bytes,
        uploaded_files=attempt.files,
        full_bytes=full,
    )


def _round(ms: float) -> float:
    return round(max(0.0, ms), 3)
