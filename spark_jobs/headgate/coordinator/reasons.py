"""Why a checkpoint, or a request for one, came to nothing: Flink's CheckpointFailureReason."""

from __future__ import annotations

import enum


class CheckpointFailureReason(enum.Enum):
    """The name is Flink's, the value what a person is told."""

    # ---- before there is a checkpoint: a request is put aside
    PERIODIC_SCHEDULER_SHUTDOWN = "the periodic checkpoint scheduler is shut down"
    TOO_MANY_CHECKPOINT_REQUESTS = "the maximum number of queued checkpoint requests is exceeded"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the minimum time between checkpoints is still pending"
    # ---- a checkpoint under way is given up
    IO_EXCEPTION = "it could not be begun"
    CHECKPOINT_DECLINED = "it was declined"
    CHECKPOINT_DECLINED_SUBSUMED = "a newer barrier came to an input before its own"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "an input ended before its barrier came"
    CHECKPOINT_ASYNC_EXCEPTION = "its asynchronous part failed"
    CHECKPOINT_EXPIRED = "it expired before completing"
    CHECKPOINT_SUBSUMED = "it has been subsumed"
    FINALIZE_CHECKPOINT_FAILURE = "it could not be stored"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the stream was cancelled"
    JOB_FAILURE = "the stream has failed"

    @property
    def counts(self) -> bool:
        """Whether it goes against `execution.checkpointing.tolerable-failed-checkpoints`."""
        return self in _COUNTED

    @property
    def told(self) -> str:
        return f"{self.value} ({self.name})"


_COUNTED = frozenset(
    {
        CheckpointFailureReason.IO_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)
