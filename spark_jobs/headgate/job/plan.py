"""The plan: a job's graph as one linear chain, checked, with the guarantee that it can give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.job.graph import ConnectedVertex, KeyedVertex, SinkVertex, SourceVertex, TransformVertex
from headgate.job.job import Job
from headgate.job.tasks import SinkEnd, graph_plan
from headgate_contract.errors import JobInvalid
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """source -> DataFrame code -> keyed step (or none) -> for each sink: Arrow functions -> sink."""

    job: str
    source: SourceVertex
    transforms: tuple[TransformVertex, ...]
    keyed: KeyedVertex | None
    sinks: tuple[SinkEnd, ...]


def linear_plan(job: Job) -> LinearPlan:
    """The one chain of `job`. Raises JobInvalid for a graph that is cut into more, or into none."""
    graph = graph_plan(job)
    if not graph.is_linear:
        raise JobInvalid(
            f"job {job.name!r} is cut into {_number(len(graph.tasks), 'task')} and "
            f"{_number(len(graph.channels), 'channel')}: it can be planned, and not run yet",
            hint="`headgate plan` shows where; what runs is one chain: a source, DataFrame code, one keyed step, "
            "map_arrow behind it, sinks",
        )
    (task,) = graph.tasks
    (only,) = task.inputs
    assert only.source is not None
    assert not isinstance(task.step, ConnectedVertex)
    return LinearPlan(job.name, only.source, only.transforms, task.step, task.sinks)


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'s' if count > 1 else ''}"


def describe(plan: LinearPlan, settings: Settings) -> dict[str, Any]:
    """The plan as plain data: what deploy records."""
    parallelism = settings["parallelism.default"]
    vertices: list[dict[str, Any]] = [
        {"uid": plan.source.uid, "name": plan.source.name, "kind": "source", **_former(plan.source)}
    ]
    vertices += [{"uid": vertex.uid, "name": vertex.name, "kind": "transform"} for vertex in plan.transforms]
    if plan.keyed is not None:
        vertices.append(
            {
                "uid": plan.keyed.uid,
                "name": plan.keyed.name,
                "kind": "keyed",
                "keys": list(plan.keyed.keys),
                "parallelism": parallelism,
                "max_parallelism": settings["pipeline.max-parallelism"],
                "state": plan.keyed.operator.state_names,
                "operator_state": {name: kind.value for name, kind in plan.keyed.operator.operator_states.items()},
                **_former(plan.keyed),
            }
        )
    shown: set[VertexUid] = set()
    for end in plan.sinks:
        maps = [vertex for vertex in end.functions if vertex.uid not in shown]
        shown.update(vertex.uid for vertex in maps)
        vertices += [{"uid": vertex.uid, "name": vertex.name, "kind": "map"} for vertex in maps]
        vertices.append({"uid": end.vertex.uid, "name": end.vertex.name, "kind": "sink", **_former(end.vertex)})
    return {
        "job": plan.job,
        "vertices": vertices,
        "sources": {plan.source.uid: plan.source.source.describe()},
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


def _former(vertex: SourceVertex | KeyedVertex | SinkVertex) -> dict[str, list[str]]:
    return {"former_uids": [str(uid) for uid in vertex.former_uids]} if vertex.former_uids else {}


_LEVELS = ("at-most-once", "at-least-once", "exactly-once")


def guarantee(plan: LinearPlan, settings: Settings) -> dict[str, str]:
    """The weakest of checkpointing, source and sinks, and which link it is."""
    links = [("checkpointing", _checkpointing(settings)), (f"source {plan.source.uid}", plan.source.source.guarantee)]
    links += [(f"sink {end.vertex.uid}", end.vertex.sink.guarantee) for end in plan.sinks]
    weakest = min(links, key=lambda link: _LEVELS.index(link[1]))
    return {"level": weakest[1], "weakest": weakest[0] if weakest[1] != "exactly-once" else ""}


def _checkpointing(settings: Settings) -> str:
    if settings["execution.checkpointing.interval"] is None:
        return "at-most-once"
    return "exactly-once" if settings["execution.checkpointing.mode"] == "EXACTLY_ONCE" else "at-least-once"
