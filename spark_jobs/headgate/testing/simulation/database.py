"""The sink of the simulation: a database with one transaction for each call, which knows the newest generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from headgate.sink.base import BeginReport, Group, OutputState, SinkCommitter
from headgate.testing.simulation.lives import Steps
from headgate.testing.simulation.turns import Host
from headgate_contract.errors import Fenced
from headgate_contract.ids import CheckpointId, Generation

Row = tuple[Any, int]
"""A record's id, and the running number that the step gave it; of a drain's last word, how many records a key had."""


def last_word(key: int) -> int:
    """What stands in place of a record's id in what a drain says of a key."""
    return -1 - key


@dataclass
class Database:
    """What was staged, and what everybody sees."""

    steps: Steps = field(default_factory=Steps)
    staged: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    states: dict[str, OutputState] = field(default_factory=dict)
    """Where each staged thing stands."""
    published: dict[CheckpointId, tuple[str, ...]] = field(default_factory=dict)
    retracted: dict[CheckpointId, tuple[str, ...]] = field(default_factory=dict)
    generation: int = 0
    changes: int = 0
    told: Callable[[str, CheckpointId, int], None] = lambda what, group, generation: None

    def visible(self) -> list[Row]:
        """What a reader sees."""
        return [row for group in sorted(self.published) for name in self.published[group] for row in self.staged[name]]

    def stage(self, name: str, rows: Sequence[Row]) -> None:
        self.staged[name] = tuple(rows)
        self.states[name] = OutputState.STAGED

    def become(self, names: Iterable[str], state: OutputState) -> None:
        """What is named enters `state`; a repeat changes nothing."""
        self.changes += 1
        for name in names:
            before = self.states[name]
            if state is not before:
                self.steps.take("output", before.value, state.value)
                self.states[name] = state

    def publish(self, group: CheckpointId, names: tuple[str, ...]) -> None:
        self.become(names, OutputState.COMMITTED)
        self.published[group] = names
        self.retracted.pop(group, None)

    def retract(self, group: CheckpointId, names: tuple[str, ...]) -> None:
        self.become(names, OutputState.RETRACTED)
        self.retracted[group] = names
        self.published.pop(group, None)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.become([name], OutputState.DELETED)
            del self.staged[name]


class SimulatedCommitter(SinkCommitter):
    """One life's connection."""

    def __init__(self, database: Database, host: Host, generation: Generation) -> None:
        self._database = database
        self._host = host
        self._generation = generation

    def begin(
        self,
        lineage: Set[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        return self._host.call("sink: begin", lambda: self._begin(lineage, carried, abandoned, protected))

    def _begin(
        self,
        lineage: Set[CheckpointId],
        carried: Sequence[Group],
        abandoned: Sequence[Group],
        protected: frozenset[str] | None,
    ) -> BeginReport:
        database = self._database
        if database.generation > self._generation:
            raise self._fenced()
        database.generation = self._generation
        hidden = {id: names for id, names in database.published.items() if id not in lineage}
        hidden.update({id: _names(handles) for id, handles in abandoned if id not in lineage})
        for id in sorted(hidden):
            database.retract(id, hidden[id])
        shown = {id: names for id, names in database.retracted.items() if id in lineage}
        shown.update({id: _names(handles) for id, handles in carried})
        for id in sorted(shown):
            database.publish(id, shown[id])
            database.told("committed", id, self._generation)
        needed = {name for names in (*database.published.values(), *database.retracted.values()) for name in names}
        if protected is not None:
            database.delete(sorted(set(database.staged) - needed - protected))
        return BeginReport(committed=tuple(id for id, _ in carried))

    def _fenced(self) -> Fenced:
        return Fenced(f"generation {self._generation} came too late: {self._database.generation} writes")

    def stage(self, name: str, rows: Sequence[Row]) -> Mapping[str, Any]:
        """What the step's task does: its output, durable and seen by nobody."""

        def act() -> Mapping[str, Any]:
            self._database.stage(name, rows)
            return {"staged": name}

        return self._host.call("sink: stage", act)

    def prepare(self, handles: Sequence[Mapping[str, Any]], *, joinable: bool = False) -> Sequence[Mapping[str, Any]]:
        """What can be joined is, and what it was joined from is not made durable: nobody may ever need that."""

        def act() -> Sequence[Mapping[str, Any]]:
            if self._database.generation != self._generation:
                raise self._fenced()
            prepared = self._join(handles) if joinable and len(handles) > 1 else handles
            states = self._database.states
            new = [name for name in _names(prepared) if states[name] is OutputState.STAGED]
            self._database.become(new, OutputState.PREPARED)
            return prepared

        return self._host.call("sink: prepare", act)

    def _join(self, handles: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        names, staged = _names(handles), self._database.staged
        joined = f"{names[0]}+{len(staged)}"
        self._database.stage(joined, [row for name in names for row in staged[name]])
        return [{"staged": joined}]

    def commit(self, group: CheckpointId, handles: Sequence[Mapping[str, Any]]) -> None:
        def act() -> None:
            if self._database.generation != self._generation:
                raise self._fenced()
            self._database.publish(group, _names(handles))
            self._database.told("committed", group, self._generation)

        self._host.call("sink: commit", act)

    def discard(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """The next life deletes what was staged in vain."""


def _names(handles: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(handle["staged"]) for handle in handles)
