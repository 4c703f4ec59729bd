"""The cut: what one consistent moment of the stream consists of, between two micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.operator_state import OperatorState

Json = dict[str, Any]
Versions = Mapping[VertexUid, Mapping[int, Json]]
OperatorStates = Mapping[VertexUid, Mapping[str, OperatorState]]
Staged = Mapping[VertexUid, tuple[Json, ...]]

_ENDED = "ended"


def at_end(position: Json) -> Json:
    """S_n of a source that has handed over all that it has: a life that goes on from there does not ask it again."""
    return {**position, _ENDED: True}


def is_at_end(position: Json) -> bool:
    return bool(position.get(_ENDED))


def without_end(position: Json) -> Json:
    """The same for a source that may have more again."""
    return {key: value for key, value in position.items() if key != _ENDED}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """State versions and source positions that belong together, after `epoch` micro-batches."""

    epoch: int
    versions: Versions = field(default_factory=dict)
    """For each stateful vertex the version of each subtask that has one."""
    operator_states: OperatorStates = field(default_factory=dict)
    """For each stateful vertex, by name, what belongs to no key: the values themselves."""
    positions: Mapping[VertexUid, Json] = field(default_factory=dict)
    """S_n of each source."""
    records: int = 0
    watermark_ms: int | None = None
    finished: frozenset[VertexUid] = frozenset()
    """The tasks whose operators have finished, and to which nothing has come since."""

    def after(self, batch: BatchResult) -> Cut:
        """The cut after one more micro-batch; what the batch did not touch stays."""
        versions = {vertex: dict(subtasks) for vertex, subtasks in self.versions.items()}
        for vertex, subtasks in batch.versions.items():
            versions.setdefault(vertex, {}).update(subtasks)
        return replace(
            self,
            epoch=batch.epoch,
            versions=versions,
            operator_states={**self.operator_states, **batch.operator_states},
            positions={**self.positions, **batch.positions},
            records=self.records + batch.records,
            watermark_ms=latest(self.watermark_ms, batch.watermark_ms),
            finished=batch.finished,
        )

    def at_end_of(self, source: VertexUid) -> Cut:
        """The same, and the source has ended."""
        return replace(self, positions={**self.positions, source: at_end(self.positions[source])})

    def of(self, vertices: Collection[VertexUid]) -> Cut:
        """Only the state of these."""
        return Cut(
            epoch=self.epoch,
            versions={uid: found for uid, found in self.versions.items() if uid in vertices},
            operator_states={uid: found for uid, found in self.operator_states.items() if uid in vertices},
        )

    def plus(self, part: Cut) -> Cut:
        """Put together with the part of others."""
        return replace(
            self,
            epoch=max(self.epoch, part.epoch),
            versions={**self.versions, **part.versions},
            operator_states={**self.operator_states, **part.operator_states},
            positions={**self.positions, **part.positions},
            records=self.records + part.records,
            finished=self.finished | part.finished,
        )


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What the acks of one micro-batch add up to."""

    epoch: int
    versions: Versions
    positions: Mapping[VertexUid, Json]
    staged: Staged
    records: int
    operator_states: OperatorStates = field(default_factory=dict)
    watermark_ms: int | None = None
    """What the source tells behind it, if it tells of event time."""
    finished: frozenset[VertexUid] = frozenset()
    """The task, if this was its operators' last step."""


def latest(*moments: int | None) -> int | None:
    """Of those that are known."""
    return max((moment for moment in moments if moment is not None), default=None)


def least(moments: Iterable[int | None]) -> int | None:
    """None as long as one of them is unknown."""
    found = list(moments)
    known = [moment for moment in found if moment is not None]
    return min(known, default=None) if len(known) == len(found) else None


@dataclass(frozen=True, kw_only=True)
class StagedOutput:
    """What the sinks staged since the last barrier, in order; rolls on until a snapshot completes with it."""

    handles: Staged = field(default_factory=dict)

    def plus(self, more: Staged) -> StagedOutput:
        merged = dict(self.handles)
        for sink, handles in more.items():
            if handles:
                merged[sink] = (*merged.get(sink, ()), *handles)
        return StagedOutput(handles=merged)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The committables of one completed snapshot."""

    id: CheckpointId
    sinks: Staged
