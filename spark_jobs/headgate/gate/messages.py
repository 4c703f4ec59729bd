"""What the tasks of a job with channels tell their coordinator, and what it wants of them. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.cut import BatchResult, Cut
from headgate.coordinator.messages import TaskAction, TaskEvent
from headgate.gate.elements import Batch, ChannelId
from headgate_contract.ids import VertexUid

# ---- events


@dataclass(frozen=True, kw_only=True)
class HandedOver(TaskEvent):
    """A source has a micro-batch, and waits until it is taken."""

    source: VertexUid
    batch: Batch


@dataclass(frozen=True, kw_only=True)
class SourcesRun(TaskEvent):
    """All sources have begun: from now on who is silent may be idle."""


@dataclass(frozen=True, kw_only=True)
class ElementDone(TaskEvent):
    """A task has run its element, or has finished, and made this for the tasks behind it."""

    task: VertexUid
    result: BatchResult
    made: Mapping[VertexUid, Batch] = field(default_factory=dict)
    """By the vertex whose records they are."""


# ---- actions


@dataclass(frozen=True, kw_only=True)
class BatchTaken(TaskAction):
    """What the source has handed over stands in its channel: it may hand over the next."""

    source: VertexUid


@dataclass(frozen=True, kw_only=True)
class RunElement(TaskAction):
    """The task's next element, on top of this cut; ElementDone is to follow."""

    task: VertexUid
    channel: ChannelId
    batch: Batch
    cut: Cut


@dataclass(frozen=True, kw_only=True)
class FinishTask(TaskAction):
    """Run the task's step once more, without records, for its operators to finish; ElementDone is to follow."""

    task: VertexUid
    cut: Cut
