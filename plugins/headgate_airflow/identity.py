"""Who asks: a task's identity within its DAG run, by which retries and clears find what the first try did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate_contract.ids import RequestId, StreamName


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One task of one DAG run. The logical date is no part of it: it may be None; nor is the try's number."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> TaskIdentity:
        """The identity of the task that `context` belongs to."""
        ti = context["ti"]
        index = ti.map_index if ti.map_index is not None else -1
        return cls(ti.dag_id, ti.run_id, ti.task_id, index)

    @property
    def by(self) -> str:
        """How logs and history name it; equal for all tries, and for no other task."""
        index = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"airflow {self.dag_id}/{self.run_id}/{self.task_id}{index}"

    def request(self, verb: str, stream: StreamName) -> RequestId:
        """The id of what this task asks `stream` for; the beginning is for people, the end tells it from all others."""
        parts = json.dumps([self.dag_id, self.run_id, self.task_id, self.map_index, verb, stream])
        return RequestId(f"{verb}-{stream}-{hashlib.sha256(parts.encode()).hexdigest()[:24]}")
