"""Output on its way: staged by steps, part of a completed snapshot, committed by the sinks, noted in a slot. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headgate.coordinator.cut import Group, Staged, StagedOutput
from headgate_contract.ids import CheckpointId, VertexUid


@dataclass
class Segment:
    """Output staged before the barrier of one attempt, and not yet in a completed snapshot."""

    barrier: CheckpointId
    output: StagedOutput


@dataclass
class OutputOnItsWay:
    """Which group each staged thing belongs to, and which groups the sinks have still to commit."""

    groups: list[Group]
    """Groups that completed and of which no slot says yet that they are committed, oldest first."""
    committed: set[CheckpointId]
    """Those of them that are committed."""
    staged: StagedOutput = field(default_factory=StagedOutput)
    """Since the last barrier."""
    segments: list[Segment] = field(default_factory=list)
    noting: tuple[CheckpointId, ...] = ()
    """Groups that the slot which is being written says are committed."""

    def stage(self, handles: Staged) -> None:
        self.staged = self.staged.plus(handles)

    def barrier(self, checkpoint: CheckpointId, sinks: Collection[VertexUid] | None = None) -> Staged:
        """A barrier passes these sinks, or all: what its snapshot has to carry of theirs."""
        handles = self.staged.handles
        passed = {sink: staged for sink, staged in handles.items() if sinks is None or sink in sinks}
        self.segments.append(Segment(checkpoint, StagedOutput(handles=passed)))
        self.staged = StagedOutput(handles={sink: staged for sink, staged in handles.items() if sink not in passed})
        own = self.group(checkpoint).sinks
        return {sink: staged for sink, staged in own.items() if sinks is None or sink in sinks}

    def group(self, checkpoint: CheckpointId) -> Group:
        """Everything staged before this barrier that no completed snapshot has: a failed attempt's rolls on."""
        output = StagedOutput()
        for segment in self.segments:
            if segment.barrier <= checkpoint:
                output = output.plus(segment.output.handles)
        return Group(id=checkpoint, sinks=output.handles)

    def stand_in(self, checkpoint: CheckpointId, given: Staged, prepared: Staged) -> None:
        """What the sinks have `prepared` stands for what they were `given` at this barrier.

        But where the group has become another one since: an earlier attempt has completed with a part of it.
        """
        own = self.group(checkpoint).sinks
        joined = {sink: handles for sink, handles in prepared.items() if own.get(sink) == given.get(sink) != handles}
        if not joined:
            return
        before = [segment for segment in self.segments if segment.barrier <= checkpoint]
        for segment in before:
            left = {sink: handles for sink, handles in segment.output.handles.items() if sink not in joined}
            segment.output = StagedOutput(handles=left)
        self.segments.insert(len(before), Segment(checkpoint, StagedOutput(handles=joined)))

    def note(self) -> tuple[CheckpointId, ...]:
        """A slot is about to be written: the groups that it says are committed."""
        self.noting = tuple(sorted(self.committed))
        return self.noting

    def not_noted(self) -> None:
        """That slot was not written."""
        self.noting = ()

    def complete(self, checkpoint: CheckpointId) -> None:
        """The slot is there: what was staged before this barrier is a group of its own."""
        own = self.group(checkpoint)
        self.segments = [segment for segment in self.segments if segment.barrier > checkpoint]
        self.groups = [group for group in self.groups if group.id not in self.noting] + [own]
        self.committed -= set(self.noting)
        self.noting = ()

    def commit(self, groups: Collection[CheckpointId]) -> None:
        """The sinks have made these groups visible."""
        self.committed |= {group.id for group in self.groups if group.id in groups}

    @property
    def is_staged(self) -> bool:
        """Whether there is output that no completed snapshot has."""
        return any(each.handles for each in (self.staged, *(segment.output for segment in self.segments)))

    @property
    def has_to_be_noted(self) -> bool:
        """Whether output is committed, and no slot says so. A group without any waits for whatever slot comes."""
        return any(group.id in self.committed and any(group.sinks.values()) for group in self.groups)

    def uncommitted(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.id not in self.committed)
