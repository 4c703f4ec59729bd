"""Makes the metadata of a snapshot of what its participants have said."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.coordinator.cut import least
from headgate.coordinator.messages import StoreSnapshot
from headgate.driver import clock
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.snapshot import CommittableGroup, SnapshotMetadata


def metadata_of(
    action: StoreSnapshot,
    stream: StreamName,
    generation: Generation,
    max_parallelism: int,
    published: Mapping[VertexUid, CheckpointId],
) -> SnapshotMetadata:
    """`published`: of each sink the newest group with output that is committed."""
    return SnapshotMetadata(
        stream=stream,
        id=action.checkpoint,
        generation=generation,
        kind=action.kind,
        max_parallelism=max_parallelism,
        created_ms=clock.wall_ms(),
        sources=action.sources,
        vertices=action.vertices,
        tasks=action.tasks,
        finished=tuple(sorted(action.cut.finished)),
        committables=tuple(CommittableGroup(group.id, group.sinks) for group in action.groups),
        published=dict(published),
        records=action.cut.records,
        watermark_ms=_watermark(action),
        name=action.name,
        retention=action.retention,
    )


def _watermark(action: StoreSnapshot) -> int | None:
    """How far event time has come: at all tasks, of a job with channels."""
    return least(task.watermark_ms for task in action.tasks.values()) if action.tasks else action.cut.watermark_ms
