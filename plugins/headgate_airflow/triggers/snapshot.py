"""Waits for a snapshot that is newer than a given one."""

from __future__ import annotations

from typing import Any

from headgate_airflow.following import COMPLETED, newest_above
from headgate_airflow.triggers.base import StreamTrigger
from headgate_contract.snapshot import SnapshotKind
from headgate_control import Control


class SnapshotTrigger(StreamTrigger):
    """Fires when a snapshot of `kind` (savepoint, checkpoint, or any) with an id above `newer_than` is in the log."""

    def __init__(self, *, newer_than: int = 0, kind: str | None = SnapshotKind.SAVEPOINT.value, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.newer_than = int(newer_than)
        self.kind = kind

    def fields(self) -> dict[str, Any]:
        return {"newer_than": self.newer_than, "kind": self.kind}

    def waits_for(self) -> str:
        return f"stream {self.stream} has no {self.kind or 'snapshot'} newer than {self.newer_than}"

    def look(self, control: Control) -> dict[str, Any] | None:
        found = newest_above(control.snapshots(self.stream), self.newer_than, self.kind)
        return {"outcome": COMPLETED, "snapshot": int(found.id)} if found is not None else None
