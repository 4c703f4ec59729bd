"""The sink of the simulation: a database with one transaction for each call, which knows the newest generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.sink.base import BeginReport, Group, SinkCommitter
from headgate.testing.simulation.turns import Host
from headgate_contract.errors import Fenced
from headgate_contract.ids import CheckpointId, Generation

Row = tuple[int, int]
"""A record's id, and the running number that the step gave it."""


@dataclass
class Database:
    """What was staged, and what everybody sees."""

    staged: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    published: dict[CheckpointId, tuple[str, ...]] = field(default_factory=dict)
    retracted: dict[CheckpointId, tuple[str, ...]] = field(default_factory=dict)
    generation: int = 0
    told: Callable[[str, CheckpointId, int], None] = lambda what, group, generation: None

    def visible(self) -> list[Row]:
        """What a reader sees."""
        return [row for group in sorted(self.published) for name in self.published[group] for row in self.staged[name]]


class SimulatedCommitter(SinkCommitter):
    """One life's connection."""

    def __init__(self, database: Database, host: Host, generation: Generation) -> None:
        self._database = database
        self._host = host
        self._generation = generation

    def begin(
        self,
        lineage: frozenset[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str],
    ) -> BeginReport:
        return self._host.call("sink: begin", lambda: self._begin(lineage, carried, protected))

    def _begin(
        self, lineage: frozenset[CheckpointId], carried: Sequence[Group], protected: frozenset[str]
    ) -> BeginReport:
        database = self._database
        if database.generation > self._generation:
            raise Fenced(f"generation {self._generation} came too late: {database.generation} writes")
        database.generation = self._generation
        for group in sorted(set(database.published) - lineage):
            database.retracted[group] = database.published.pop(group)
        for group in sorted(set(database.retracted) & lineage):
            database.published[group] = database.retracted.pop(group)
        for group, handles in carried:
            database.published[group] = _names(handles)
            database.told("carried", group, self._generation)
        needed = {name for names in (*database.published.values(), *database.retracted.values()) for name in names}
        for name in set(database.staged) - needed - protected:
            del database.staged[name]
        return BeginReport(committed=tuple(group for group, _ in carried))

    def stage(self, name: str, rows: Sequence[Row]) -> Mapping[str, Any]:
        """What the step's task does: its output, durable and seen by nobody."""

        def act() -> Mapping[str, Any]:
            self._database.staged[name] = tuple(rows)
            return {"staged": name}

        return self._host.call("sink: stage", act)

    def prepare(self, handles: Sequence[Mapping[str, Any]]) -> None:
        self._host.call("sink: prepare", lambda: None)

    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        def act() -> None:
            if self._database.generation != self._generation:
                raise Fenced(f"generation {self._generation} came too late: {self._database.generation} writes")
            self._database.published[group] = _names(handles)
            self._database.told("committed", group, self._generation)

        self._host.call("sink: commit", act)

    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """The next life deletes what was staged in vain."""


def _names(handles: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(handle["staged"]) for handle in handles)
