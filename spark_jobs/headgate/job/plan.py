"""The plan as what deploy records: the vertices, what sources and sinks are, and the guarantee that follows."""

from __future__ import annotations

from typing import Any

from headgate.job.graph import ConnectedVertex, KeyedVertex, SinkVertex, SourceVertex
from headgate.job.tasks import GraphPlan, Task
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings


def describe(plan: GraphPlan, settings: Settings) -> dict[str, Any]:
    """The plan as plain data."""
    vertices: list[dict[str, Any]] = [
        {"uid": source.uid, "name": source.name, "kind": "source", **_former(source)} for source in plan.sources
    ]
    shown: set[VertexUid] = set()
    for each in (each for task in plan.tasks for each in _vertices(task, settings)):
        if each["uid"] not in shown:  # what several share is shown once
            shown.add(each["uid"])
            vertices.append(each)
    return {
        "job": plan.job,
        "vertices": vertices,
        "channels": [str(channel) for channel in plan.channels if plan.written(channel)],
        "sources": {source.uid: source.source.describe() for source in plan.sources},
        "sinks": {
            end.vertex.uid: {
                **end.vertex.sink.describe(),
                "kind": end.vertex.sink.kind,
                "rollback": end.vertex.sink.rollback.value,
                "guarantee": end.vertex.sink.guarantee,
            }
            for end in plan.sinks
        },
        "guarantee": guarantee(plan, settings),
    }


def _vertices(task: Task, settings: Settings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"uid": vertex.uid, "name": vertex.name, "kind": "transform"}
        for way in task.inputs
        for vertex in way.transforms
    ]
    operator, step = task.operator, task.step
    if step is not None and operator is not None:
        keys = step.keys[0] if isinstance(step, ConnectedVertex) else step.keys
        found.append(
            {
                "uid": step.uid,
                "name": step.name,
                "kind": "keyed",
                "keys": list(keys),
                "parallelism": settings["parallelism.default"],
                "max_parallelism": settings["pipeline.max-parallelism"],
                "state": operator.state_names,
                "operator_state": {name: kind.value for name, kind in operator.operator_states.items()},
                **_former(step),
            }
        )
    for end in task.sinks:
        found += [{"uid": vertex.uid, "name": vertex.name, "kind": "map"} for vertex in end.functions]
        found.append({"uid": end.vertex.uid, "name": end.vertex.name, "kind": "sink", **_former(end.vertex)})
    for written in task.channels:
        found += [{"uid": vertex.uid, "name": vertex.name, "kind": "map"} for vertex in written.functions]
    return found


def _former(vertex: SourceVertex | KeyedVertex | ConnectedVertex | SinkVertex) -> dict[str, list[str]]:
    return {"former_uids": [str(uid) for uid in vertex.former_uids]} if vertex.former_uids else {}


_LEVELS = ("at-most-once", "at-least-once", "exactly-once")


def guarantee(plan: GraphPlan, settings: Settings) -> dict[str, str]:
    """The weakest of checkpointing, sources and sinks, and which link it is."""
    links = [("checkpointing", _checkpointing(settings))]
    links += [(f"source {source.uid}", source.source.guarantee) for source in plan.sources]
    links += [(f"sink {end.vertex.uid}", end.vertex.sink.guarantee) for end in plan.sinks]
    weakest = min(links, key=lambda link: _LEVELS.index(link[1]))
    return {"level": weakest[1], "weakest": weakest[0] if weakest[1] != "exactly-once" else ""}


def _checkpointing(settings: Settings) -> str:
    if settings["execution.checkpointing.interval"] is None:
        return "at-most-once"
    return "exactly-once" if settings["execution.checkpointing.mode"] == "EXACTLY_ONCE" else "at-least-once"
