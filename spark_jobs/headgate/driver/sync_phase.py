"""Watches the sync phase of a checkpoint: from its barrier on, until micro-batches may begin again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.coordinator.messages import FailStream
from headgate_contract.ids import CheckpointId


class SyncPhaseWatchdog:
    """Fails the stream if a sync phase is stuck: who is in it has the coordinator's turn, and nobody else gets that."""

    def __init__(self, timeout_ms: int, fail: Callable[[FailStream], None]) -> None:
        self._timeout_ms = int(timeout_ms)
        self._fail = fail

    @contextmanager
    def watch(self, checkpoint: CheckpointId) -> Iterator[None]:
        """What is done in here is a sync phase. With a timeout of 0 it may take as long as it likes."""
        if not self._timeout_ms:
            yield
            return
        cause = (
            f"the sync phase of checkpoint {checkpoint} is stuck: for {self._timeout_ms} ms no micro-batch could begin "
            "(execution.checkpointing.sync-phase-timeout)"
        )
        timer = threading.Timer(self._timeout_ms / 1000, self._fail, [FailStream(cause=cause)])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
