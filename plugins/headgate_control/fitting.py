"""Tells whether a snapshot fits what is deployed, before anything is stopped or started for it. Pure.

The driver decides the same from the job itself; here the plan stands for it, as far as it tells.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from headgate_contract.ids import CheckpointId
from headgate_contract.records import Deployed
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotMetadata


def misfit(metadata: SnapshotMetadata, deployed: Deployed, committed: AbstractSet[CheckpointId] | None) -> str | None:
    """Why the deployed job cannot go on from a snapshot, or None if nothing speaks against it.

    `committed` are the groups that are surely published, of which no sink is needed any more; None: all will be.
    """
    keyed = {vertex["uid"] for vertex in deployed.plan.get("vertices", []) if vertex.get("kind") == "keyed"}
    reasons = (
        _max_parallelism(metadata, deployed) if keyed else None,
        _state(metadata, keyed) if deployed.plan.get("vertices") else None,
        _sources(metadata, deployed),
        _output(metadata, deployed, committed) if committed is not None else None,
    )
    return next((reason for reason in reasons if reason is not None), None)


def _max_parallelism(metadata: SnapshotMetadata, deployed: Deployed) -> str | None:
    now = Settings(deployed.settings)["pipeline.max-parallelism"]
    if metadata.max_parallelism == now:
        return None
    return f"its max-parallelism is {metadata.max_parallelism}, what is deployed has {now} (fixed for a stream's life)"


def _state(metadata: SnapshotMetadata, keyed: AbstractSet[str]) -> str | None:
    orphans = sorted(uid for uid in metadata.vertices if uid not in keyed)
    return (
        f"it has state of {', '.join(orphans)}, which the deployed job has not (is a uid changed?)" if orphans else None
    )


def _sources(metadata: SnapshotMetadata, deployed: Deployed) -> str | None:
    for uid, about in deployed.plan.get("sources", {}).items():
        state = metadata.sources.get(uid)
        if state is None:
            held = ", ".join(sorted(metadata.sources)) or "no source"
            return f"it has positions of {held}, the deployed job reads {uid} (is a uid changed?)"
        if state.kind != about.get("kind", state.kind):
            return f"its source {uid} was of kind {state.kind}, that of the deployed job is of kind {about['kind']}"
    return None


def _output(metadata: SnapshotMetadata, deployed: Deployed, committed: AbstractSet[CheckpointId]) -> str | None:
    known = deployed.plan.get("sinks", {})
    for group in metadata.committables:
        orphans = sorted(uid for uid, handles in group.sinks.items() if handles and uid not in known)
        if orphans and group.id not in committed:
            return (
                f"it carries output of {', '.join(orphans)} that may not be published yet, and the deployed job has no "
                "such sink: give it back, start and stop the stream once, and change it then"
            )
    return None
