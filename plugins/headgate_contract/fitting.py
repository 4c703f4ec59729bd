"""Tells whether a snapshot fits a job, and what of it the job no longer has. Pure.

The control plane asks it of what is deployed, before anything is stopped or started; the driver, of the job itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.moved import Moves
from headgate_contract.operator_state import OperatorStateKind, misfit
from headgate_contract.settings import Settings
from headgate_contract.snapshot import CommittableGroup, SnapshotMetadata, SnapshotRef


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """What of a job a snapshot must fit."""

    max_parallelism: int
    keyed: AbstractSet[VertexUid] | None
    """The vertices that keep state; None if the plan does not tell."""
    sources: Mapping[VertexUid, str | None]
    """The kind of each, if the plan tells it."""
    sinks: AbstractSet[VertexUid]
    former: Mapping[VertexUid, VertexUid] = field(default_factory=dict)
    """By a uid that a vertex had, the one that it has now."""
    parallelism: int = 1
    operator_states: Mapping[VertexUid, Mapping[str, OperatorStateKind]] = field(default_factory=dict)
    """Those that each keyed vertex declares."""
    channels: AbstractSet[str] | None = None
    """Those that are written, `producer->consumer`; None if the plan does not tell."""
    without_channel_state: CheckpointId | None = None
    """Of this one, what is in flight is left behind: somebody has said so."""

    @classmethod
    def of(cls, plan: Mapping[str, Any], settings: Settings) -> JobShape:
        """The shape of a plan as a *deployed* decision keeps it."""
        vertices = plan.get("vertices") or []
        return cls(
            max_parallelism=settings["pipeline.max-parallelism"],
            keyed={VertexUid(each["uid"]) for each in vertices if each.get("kind") == "keyed"} if vertices else None,
            sources={VertexUid(uid): about.get("kind") for uid, about in plan.get("sources", {}).items()},
            sinks={VertexUid(uid) for uid in plan.get("sinks", {})},
            former={VertexUid(old): VertexUid(each["uid"]) for each in vertices for old in each.get("former_uids", ())},
            parallelism=settings["parallelism.default"],
            operator_states={
                VertexUid(each["uid"]): {name: OperatorStateKind(kind) for name, kind in declared.items()}
                for each in vertices
                if (declared := each.get("operator_state"))
            },
            channels=set(plan["channels"]) if "channels" in plan else None,
            without_channel_state=settings["execution.checkpointing.recover-without-channel-state.checkpoint-id"],
        )


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a job cannot go on from a snapshot, and what to do about it."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})"


@dataclass(frozen=True, slots=True)
class Fit:
    """What a snapshot is to a job."""

    metadata: SnapshotMetadata
    """Under the uids that the job has now."""
    non_restored: Mapping[VertexUid, Misfit]
    """What the job no longer has: state, positions, output that may not be published yet."""
    misfit: Misfit | None
    """Why it cannot be restored, whatever is left behind."""

    def refusal(self, allowed: Collection[VertexUid]) -> Misfit | None:
        """Why it is not restored, if no more than what is `allowed` may be left behind."""
        left = (why for uid, why in self.non_restored.items() if uid not in allowed)
        return self.misfit or next(left, None)

    def restored(self) -> SnapshotMetadata:
        """The metadata without what the job no longer has."""
        gone = self.non_restored
        return replace(
            self.metadata,
            sources={uid: state for uid, state in self.metadata.sources.items() if uid not in gone},
            vertices={uid: state for uid, state in self.metadata.vertices.items() if uid not in gone},
            committables=tuple(
                CommittableGroup(group.id, {uid: handles for uid, handles in group.sinks.items() if uid not in gone})
                for group in self.metadata.committables
            ),
        )


def as_brought(metadata: SnapshotMetadata, ref: SnapshotRef) -> SnapshotMetadata:
    """What is taken of a snapshot from elsewhere: not the output that it carries, which its own stream commits."""
    return replace(metadata, committables=(), published={}) if ref.foreign else metadata


def fit(
    metadata: SnapshotMetadata,
    job: JobShape,
    committed: AbstractSet[CheckpointId] | None,
    moves: Moves = Moves(),  # noqa: B008 - it is frozen
) -> Fit:
    """How `metadata` fits `job`.

    `committed` are the groups that are surely published, of which no sink is needed any more; None: all will be.
    `moves`: what the job has at another place than whoever took it.
    """
    metadata = renamed(metadata, job.former)
    gone = {**_state(metadata, job), **_positions(metadata, job), **_moved(metadata, moves)}
    if committed is not None:
        gone |= _output(metadata, job, committed, moves)
        metadata = _without_what_lies_elsewhere(metadata, committed, moves)
    why = (
        _max_parallelism(metadata, job)
        or _operator_states(metadata, job)
        or _in_flight(metadata, job)
        or _sources(metadata, job, gone)
    )
    return Fit(metadata, gone, why)


def renamed(metadata: SnapshotMetadata, former: Mapping[VertexUid, VertexUid]) -> SnapshotMetadata:
    """The metadata under the uids of now. What stands under a uid of now already is not replaced."""

    def now(held: Mapping[VertexUid, Any]) -> dict[VertexUid, Any]:
        names = {uid: former.get(uid, uid) for uid in held}
        return {uid if names[uid] != uid and names[uid] in held else names[uid]: value for uid, value in held.items()}

    if not former:
        return metadata
    return replace(
        metadata,
        sources=now(metadata.sources),
        vertices=now(metadata.vertices),
        tasks={
            uid: replace(task, inputs={_renamed(channel, former): held for channel, held in task.inputs.items()})
            for uid, task in now(metadata.tasks).items()
        },
        finished=tuple(now(dict.fromkeys(metadata.finished))),
        committables=tuple(CommittableGroup(group.id, now(group.sinks)) for group in metadata.committables),
        published=now(metadata.published),
    )


def _renamed(channel: str, former: Mapping[VertexUid, VertexUid]) -> str:
    ends = (VertexUid(uid) for uid in channel.split("->"))
    return "->".join(former.get(uid, uid) for uid in ends)


def _in_flight(metadata: SnapshotMetadata, job: JobShape) -> Misfit | None:
    """Records on their way through a channel that the job does not have would never come to anybody."""
    if metadata.id == job.without_channel_state:
        return None
    for task in metadata.tasks.values():
        for channel, held in task.inputs.items():
            batches = sum(bool(element.files) for element in held.in_flight)
            if batches and job.channels is not None and channel not in job.channels:
                return Misfit(
                    f"it has {batches} micro-batches in flight in {channel}, and the job has no such channel",
                    "change the job's graph behind a savepoint, whose barriers overtake nothing",
                )
    return None


def _max_parallelism(metadata: SnapshotMetadata, job: JobShape) -> Misfit | None:
    if not job.keyed or metadata.max_parallelism == job.max_parallelism:
        return None
    return Misfit(
        f"it has max-parallelism {metadata.max_parallelism}, the job is set to {job.max_parallelism}",
        "pipeline.max-parallelism is fixed for a stream's life: set it back",
    )


def _state(metadata: SnapshotMetadata, job: JobShape) -> dict[VertexUid, Misfit]:
    if job.keyed is None:
        return {}
    gone = sorted(uid for uid in metadata.vertices if uid not in job.keyed)
    why = Misfit(
        f"it has state of {', '.join(gone)}, which the job no longer has",
        "give the vertex its uid back, or name it among former_uids; --allow-non-restored-state drops the state",
    )
    return dict.fromkeys(gone, why)


def _operator_states(metadata: SnapshotMetadata, job: JobShape) -> Misfit | None:
    for uid in sorted(job.keyed or ()):
        if uid in metadata.vertices:
            declared = job.operator_states.get(uid, {})
            found = misfit(metadata.vertices[uid].operator_states, declared, job.parallelism)
            if found is not None:
                return Misfit(f"its step {uid} {found[0]}", found[1])
    return None


def _positions(metadata: SnapshotMetadata, job: JobShape) -> dict[VertexUid, Misfit]:
    gone = sorted(uid for uid in metadata.sources if uid not in job.sources) if job.sources else []
    why = Misfit(
        f"it has positions of {', '.join(gone)}, the job reads {', '.join(sorted(job.sources))}",
        "give the source its uid back, or name it among former_uids; "
        "with --allow-non-restored-state the new one begins at its beginning",
    )
    return dict.fromkeys(gone, why)


def _moved(metadata: SnapshotMetadata, moves: Moves) -> dict[VertexUid, Misfit]:
    """Positions by the paths of another folder say nothing of this one: all that lies in it would be read as new."""
    return {
        uid: Misfit(
            f"its source {uid} was read from {move.before}, the job reads {move.now}: its position names files by "
            "their paths, and would let all that lies there be read as new",
            "name the folder as it was named before (a link will do if its files were moved), or give what is another "
            "source another uid; with --allow-non-restored-state it is read from its beginning, whatever of it was "
            "read before",
        )
        for uid, move in moves.sources.items()
        if uid in metadata.sources
    }


def _without_what_lies_elsewhere(
    metadata: SnapshotMetadata, committed: AbstractSet[CheckpointId], moves: Moves
) -> SnapshotMetadata:
    """What a sink has published at another place is not looked for where it writes now."""
    if not moves.sinks:
        return metadata
    groups = (
        CommittableGroup(
            group.id,
            {uid: () if uid in moves.sinks and group.id in committed else held for uid, held in group.sinks.items()},
        )
        for group in metadata.committables
    )
    return replace(metadata, committables=tuple(groups))


def _output(
    metadata: SnapshotMetadata, job: JobShape, committed: AbstractSet[CheckpointId], moves: Moves
) -> dict[VertexUid, Misfit]:
    """Output that nobody would commit: it lies before the positions and would not come again."""
    groups = [group for group in metadata.committables if group.id not in committed]
    held = sorted({uid for group in groups for uid, handles in group.sinks.items() if handles})
    gone = [uid for uid in held if uid not in job.sinks]
    elsewhere = {
        uid: Misfit(
            f"it carries output of sink {uid} that may not be published yet at {moves.sinks[uid].before}, and the job "
            f"writes to {moves.sinks[uid].now}",
            "deploy it as it was, start and stop the stream once, and change it then; "
            "--allow-non-restored-state loses the output",
        )
        for uid in held
        if uid in moves.sinks
    }
    why = Misfit(
        f"it carries output of sink {', '.join(gone)} that may not be published yet, and the job has no such sink",
        "give the sink its uid back, start and stop the stream once, and change it then; "
        "--allow-non-restored-state loses the output",
    )
    return {**elsewhere, **dict.fromkeys(gone, why)}


def _sources(metadata: SnapshotMetadata, job: JobShape, gone: Collection[VertexUid]) -> Misfit | None:
    for uid, kind in job.sources.items():
        state = metadata.sources.get(uid)
        if state is None and not any(old in gone for old in metadata.sources):
            return Misfit(f"it has positions of no source, the job reads {uid}", "start with --fresh")
        if state is not None and kind is not None and state.kind != kind:
            return Misfit(
                f"its source {uid} was of kind {state.kind}, that of the job is of kind {kind}",
                "give a new kind of source a new uid and start with --fresh",
            )
    return None
