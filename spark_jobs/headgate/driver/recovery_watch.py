"""Times the way of a start to running, term by term: what is in no term of its own is redeployment."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headgate_contract.errors import StorageError
from headgate_contract.ids import CheckpointId, Generation, SlotNumber, StreamName
from headgate_contract.measures import RecoveryKind, RecoveryTime
from headgate_contract.paths import StreamPaths, numbered
from headgate_contract.records import GenerationStarted
from headgate_contract.restore import RestoreFrom
from headgate_contract.store import ObjectStore

log = logging.getLogger(__name__)


class RecoveryWatch:
    """One way to running."""

    def __init__(
        self,
        kind: RecoveryKind,
        generation: Generation,
        snapshot: CheckpointId | None,
        *,
        since_ms: float = 0.0,
        detect_ms: float | None = None,
    ) -> None:
        """`since_ms` have passed since the generation was claimed, or since the failure that is restarted from."""
        self._kind = kind
        self._generation = generation
        self._snapshot = snapshot
        self._detect_ms = detect_ms
        self._began_ms = _now_ms() - since_ms
        self._terms = {"load_state": 0.0, "reset_source": 0.0, "reset_sink": 0.0}
        self._loaded = 0

    @classmethod
    def of_launch(
        cls, store: ObjectStore, stream: StreamName, started: GenerationStarted, slot: SlotNumber
    ) -> RecoveryWatch:
        """Of a generation that has just begun to live. What storage cannot tell is left out."""
        detect_ms, since_ms = None, 0.0
        try:
            detect_ms, since_ms = _by_storage(store, StreamPaths(stream), started, slot)
        except StorageError as error:
            log.warning("when generation %s was claimed cannot be told: %s", started.generation, error)
        return cls(
            RecoveryKind.START if started.replaces is None else RecoveryKind.RECOVERY,
            started.generation,
            started.decision.snapshot.id if isinstance(started.decision, RestoreFrom) else None,
            since_ms=since_ms,
            detect_ms=detect_ms,
        )

    @contextmanager
    def term(self, name: str) -> Iterator[None]:
        """What happens inside belongs to this term."""
        began = _now_ms()
        try:
            yield
        finally:
            self._terms[name] += _now_ms() - began

    def loaded(self, length: int) -> None:
        """So many bytes of state were fetched."""
        self._loaded += length

    def runs(self) -> RecoveryTime:
        """The stream runs: how long it took."""
        whole = _now_ms() - self._began_ms
        return RecoveryTime(
            kind=self._kind,
            generation=self._generation,
            snapshot=self._snapshot,
            detect_ms=round(self._detect_ms, 3) if self._detect_ms is not None else None,
            redeploy_ms=round(whole - sum(self._terms.values()), 3),
            load_state_ms=round(self._terms["load_state"], 3),
            reset_source_ms=round(self._terms["reset_source"], 3),
            reset_sink_ms=round(self._terms["reset_sink"], 3),
            loaded_bytes=self._loaded,
        )


def _by_storage(
    store: ObjectStore, paths: StreamPaths, started: GenerationStarted, slot: SlotNumber
) -> tuple[float | None, float]:
    """From the lost generation's last sign of life to the claim of this one, and from the claim to now.

    A frozen driver that has woken since gives signs of life again: then nobody can tell how long it was silent.
    """
    claim = store.stat(numbered(paths.slots, slot))
    if claim is None:
        return None, 0.0
    since_ms = max(0.0, store.now() - claim.modified) * 1000
    sign = store.stat(paths.heartbeat(started.replaces)) if started.replaces is not None else None
    silent = sign is not None and sign.modified <= claim.modified
    return (claim.modified - sign.modified) * 1000 if sign is not None and silent else None, since_ms


def _now_ms() -> float:
    """Time that never jumps."""
    return time.monotonic_ns() / 1_000_000
