"""The plan: a job's graph as one linear chain, checked, with the guarantee that it can give."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from headgate.job.graph import ArrowVertex, KeyedVertex, SinkVertex, SourceVertex, TransformVertex, Vertex
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
    """The one chain of `job`. Raises JobInvalid, naming the vertex, for a graph that is none."""
    sources = [vertex for vertex in job.vertices.values() if isinstance(vertex, SourceVertex)]
    sinks = [vertex for vertex in job.vertices.values() if isinstance(vertex, SinkVertex)]
    if not sources:
        raise JobInvalid(f"job {job.name!r} has no source", hint="add one with job.source(...)")
    if not sinks:
        raise JobInvalid(f"job {job.name!r} has no sink", hint="end the stream with .sink(...)")
    if len(sources) > 1:
        raise JobInvalid(
            f"job {job.name!r} has {len(sources)} sources ({_names(sources)})", hint="a linear job has one"
        )
    _check_no_loose_ends(job)
    paths = [_path_to(job, sink) for sink in sinks]
    trunk = _trunk(job, paths)
    _check_one_task(job)
    return LinearPlan(
        job.name,
        sources[0],
        tuple(vertex for vertex in trunk if isinstance(vertex, TransformVertex)),
        next((vertex for vertex in trunk if isinstance(vertex, KeyedVertex)), None),
        tuple(
            SinkEnd(sink, tuple(vertex for vertex in path if isinstance(vertex, ArrowVertex)))
            for sink, path in zip(sinks, paths, strict=True)
        ),
    )


def _check_one_task(job: Job) -> None:
    tasks = graph_plan(job)
    if not tasks.is_linear:
        raise JobInvalid(
            f"job {job.name!r} is cut into {len(tasks.tasks)} tasks and {len(tasks.channels)} channels: "
            "it can be planned and not run yet",
            hint="`headgate plan` shows how; a job that runs is one chain from a source to its sinks",
        )


def _names(vertices: list[Any]) -> str:
    return ", ".join(vertex.uid for vertex in vertices)


def _check_no_loose_ends(job: Job) -> None:
    used = Counter(uid for vertex in job.vertices.values() for uid in vertex.inputs)
    for vertex in job.vertices.values():
        if not isinstance(vertex, SinkVertex) and not used[vertex.uid]:
            raise JobInvalid(
                f"nothing reads what vertex {vertex.uid!r} of job {job.name!r} makes", hint="send it to a sink"
            )


def _path_to(job: Job, sink: SinkVertex) -> list[Vertex]:
    """The vertices from the source to `sink`."""
    path: list[Vertex] = [sink]
    while path[0].inputs:
        path.insert(0, job.vertices[path[0].inputs[0]])
    return path


def _trunk(job: Job, paths: list[list[Vertex]]) -> list[Vertex]:
    """The DataFrame code and the step that all sinks share, in order."""
    trunks: list[list[Vertex]] = []
    for path in paths:
        inner = path[1:-1]
        keyed = [vertex for vertex in inner if isinstance(vertex, KeyedVertex)]
        if len(keyed) > 1:
            raise JobInvalid(
                f"job {job.name!r} has two keyed steps in a row ({_names(keyed)})", hint="a linear job has one"
            )
        arrow_seen = False
        for vertex in inner:
            if isinstance(vertex, ArrowVertex):
                arrow_seen = True
            elif isinstance(vertex, TransformVertex) and keyed and inner.index(vertex) > inner.index(keyed[0]):
                raise JobInvalid(
                    f"DataFrame code ({vertex.uid}) behind the keyed step {keyed[0].uid!r}", hint="use map_arrow there"
                )
            elif arrow_seen:
                raise JobInvalid(
                    f"{vertex.uid!r} stands behind an Arrow function", hint="put map_arrow last, before the sinks"
                )
        trunks.append([vertex for vertex in inner if not isinstance(vertex, ArrowVertex)])
    if any(trunk != trunks[0] for trunk in trunks):
        raise JobInvalid(f"job {job.name!r} branches before its step", hint="a linear job may branch only behind it")
    return trunks[0]


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
