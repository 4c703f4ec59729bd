"""SavepointCompleted: waits until a stream has a savepoint that is newer than a given snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate_airflow.following import described_snapshot, newest_above
from headgate_airflow.sensors.base import StreamSensor
from headgate_airflow.triggers.base import StreamTrigger
from headgate_airflow.triggers.snapshot import SnapshotTrigger
from headgate_contract.snapshot import SnapshotKind
from headgate_control import Control


class SavepointCompleted(StreamSensor):
    """Wait until a savepoint with an id above `newer_than` is retained; 0 takes any. Returns id, name and folder."""

    template_fields: Sequence[str] = (*StreamSensor.template_fields, "newer_than")

    def __init__(self, *, newer_than: int | str = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.newer_than = newer_than

    def look(self, control: Control) -> dict[str, Any] | None:
        found = newest_above(control.snapshots(self.stream), int(self.newer_than), SnapshotKind.SAVEPOINT.value)
        return described_snapshot(self.stream, found) if found is not None else None

    def trigger(self, **common: Any) -> StreamTrigger:
        return SnapshotTrigger(newer_than=int(self.newer_than), **common)
