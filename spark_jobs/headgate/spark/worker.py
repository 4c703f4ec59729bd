"""What a Spark task runs: it checks who it is, then runs the step."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from headgate.step.task import ACK, StepTask, run


def step(task: StepTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one subtask. With repartitionById the partition's number is the subtask's."""
    context = TaskContext.get()
    assert context is not None
    ack = run(task, context.partitionId(), context.taskAttemptId(), batches)
    _spare_the_collector()
    yield pa.RecordBatch.from_arrays([pa.array([ack.encode()], pa.string())], schema=ACK)


def _spare_the_collector() -> None:
    """Spark's daemon collects garbage after each task, which goes through every object of every module.

    What a worker's first step has imported stays for good; what comes later is collected as before.
    """
    if not gc.get_freeze_count():
        gc.freeze()
