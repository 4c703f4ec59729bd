"""What an author may write, and what is refused on the spot with the vertex's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headgate
from headgate.job.graph import TransformVertex
from headgate.job.job import Stream
from headgate.job.tasks import GraphPlan, graph_plan
from headgate_contract.errors import InvalidName, JobInvalid


def same(frame: Any) -> Any:
    return frame


def lines_of(job: headgate.Job, uid: str = "lines") -> Stream:
    return job.source(uid, headgate.sources.files("in"))


def counted(stream: Stream, uid: str = "counts") -> Stream:
    return stream.key_by("value").aggregate(uid, n=headgate.count())


def finish(stream: Stream, uid: str = "out") -> None:
    stream.sink(uid, headgate.sinks.discard())


# ---- what is refused where it is written

Write = Callable[[headgate.Job], object]
REFUSED: dict[str, tuple[Write, str]] = {
    "former uids that are one text": (
        lambda job: job.source("lines", headgate.sources.files("in"), former_uids="old"),
        "former_uids of 'lines' is a list of uids, not 'old'",
    ),
    "a former uid that is its own": (
        lambda job: job.source("lines", headgate.sources.files("in"), former_uids=["old", "lines"]),
        "former_uids of 'lines' names a uid twice: old, lines, lines",
    ),
    "a former uid that another vertex has": (
        lambda job: lines_of(job).sink("out", headgate.sinks.discard(), former_uids=["lines"]),
        "vertex 'out' of job 'j' was called 'lines', and so is or was vertex 'lines'",
    ),
    "a former uid that another vertex had": (
        lambda job: (
            job.source("lines", headgate.sources.files("in"), former_uids=["old"])
            .key_by("value")
            .aggregate("counts", n=headgate.count(), former_uids=["old"])
        ),
        "vertex 'counts' of job 'j' was called 'old', and so is or was vertex 'lines'",
    ),
    "a source that is none": (
        lambda job: job.source("lines", "in/"),  # type: ignore[arg-type]
        "source 'lines' of job 'j' is not one of headgate.sources: 'in/'",
    ),
    "a sink that is none": (
        lambda job: lines_of(job).sink("out", print),  # type: ignore[arg-type]
        "sink 'out' of job 'j' is not one of headgate.sinks: <built-in function print>",
    ),
    "a transform that is no function": (
        lambda job: lines_of(job).transform("upper"),  # type: ignore[arg-type]
        "transform behind 'lines' needs a function of a DataFrame, not 'upper'",
    ),
    "an Arrow function that is no function": (
        lambda job: lines_of(job).map_arrow(5),  # type: ignore[arg-type]
        "map_arrow behind 'lines' needs a function of a record batch, not 5",
    ),
    "no key": (lambda job: lines_of(job).key_by(), r"key_by behind 'lines' needs names of columns, not \(\)"),
    "a key that is no name": (
        lambda job: lines_of(job).key_by("a", 5),  # type: ignore[arg-type]
        r"key_by behind 'lines' needs names of columns, not \('a', 5\)",
    ),
    "a key twice": (
        lambda job: lines_of(job).key_by("a", "b", "a"),
        "key_by behind 'lines' names a column twice: a, b, a",
    ),
    "no aggregate": (
        lambda job: lines_of(job).key_by("a").aggregate("counts"),
        r"aggregate 'counts' keeps nothing; like \.aggregate\('counts', n=headgate\.count\(\)\)",
    ),
    "an aggregate that is none": (
        lambda job: lines_of(job).key_by("a").aggregate("counts", n=headgate.count),  # type: ignore[arg-type]
        "aggregate 'counts': n=<function count at .*> is not one of headgate.count, sum, min, max, avg",
    ),
    "two vertices with one uid": (
        lambda job: (lines_of(job, "x"), counted(lines_of(job, "y"), "x")),
        "two vertices of job 'j' have the uid 'x'; state is found again by uid: give each its own",
    ),
    "two sinks with one uid": (
        lambda job: list(map(finish, [lines_of(job)] * 2)),
        "two vertices of job 'j' have the uid 'out'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_where_it_is_written(what: str) -> None:
    write, message = REFUSED[what]
    with pytest.raises(JobInvalid, match=f"^{message}"):
        write(headgate.Job("j"))


@pytest.mark.parametrize("uid", ["", "a b", "a/b", "../x", ".hidden", "x" * 101, 5, None])
def test_a_uid_must_be_fit_for_a_storage_path(uid: Any) -> None:
    with pytest.raises(InvalidName, match="is not a valid vertex uid"):
        lines_of(headgate.Job("j"), uid)


@pytest.mark.parametrize("name", ["", "  ", 5, None])
def test_a_job_needs_a_name(name: Any) -> None:
    with pytest.raises(JobInvalid, match="a job's name is a text, not"):
        headgate.Job(name)


def test_a_vertex_has_a_display_name_beside_its_uid() -> None:
    job = headgate.Job("j")
    lines = job.source("lines", headgate.sources.files("in"), name="Lines of text")
    counts = lines.key_by("value").aggregate("counts", name="Counts", n=headgate.count())
    counts.sink("out", headgate.sinks.discard())
    assert [(vertex.uid, vertex.name) for vertex in job.vertices.values()] == [
        ("lines", "Lines of text"),
        ("counts", "Counts"),
        ("out", "out"),
    ]


# ---- uids that nobody gave


def transforms(job: headgate.Job) -> list[str]:
    return [vertex.uid for vertex in job.vertices.values() if isinstance(vertex, TransformVertex)]


def test_stateless_vertices_get_uids_that_do_not_grow_with_their_number() -> None:
    job = headgate.Job("j")
    stream = lines_of(job, "x" * 90)
    for _ in range(30):
        stream = stream.transform(same)
    assert len(set(transforms(job))) == 30
    assert max(map(len, transforms(job))) < 100


def test_a_derived_uid_gives_way_to_one_that_was_given() -> None:
    job = headgate.Job("j")
    lines_of(job).transform(same, uid="lines.transform1").transform(same).transform(same)
    assert transforms(job) == ["lines.transform1", "lines.transform1.transform1", "lines.transform1.transform2"]
    other = headgate.Job("k")
    lines_of(other).transform(same, uid="lines.transform2").transform(same)
    lines_of(other, "more").transform(same).transform(same)
    assert transforms(other) == [
        "lines.transform2",
        "lines.transform2.transform1",
        "more.transform1",
        "more.transform2",
    ]


# ---- the chain


def plan_of(build: Callable[[headgate.Job], object]) -> GraphPlan:
    job = headgate.Job("j")
    build(job)
    return graph_plan(job)


def test_a_whole_chain_becomes_a_plan_in_its_order() -> None:
    def build(job: headgate.Job) -> None:
        words = lines_of(job).transform(same).transform(same)
        counts = counted(words)
        finish(counts)
        finish(counts.map_arrow(same).map_arrow(same, uid="last"), "copy")

    plan = plan_of(build)
    assert plan.job == "j"
    (task,) = plan.tasks
    (way,) = task.inputs
    assert (way.producer, way.channel) == ("lines", None)
    assert [vertex.uid for vertex in way.transforms] == ["lines.transform1", "lines.transform2"]
    port = task.port(way)
    assert port is not None
    assert (port.uid, port.keys) == ("counts", ("value",))
    assert [(end.vertex.uid, [vertex.uid for vertex in end.functions]) for end in plan.sinks] == [
        ("out", []),
        ("copy", ["counts.map1", "last"]),
    ]


def test_a_stream_may_go_to_its_sink_as_it_is() -> None:
    plan = plan_of(lambda job: finish(lines_of(job)))
    (task,) = plan.tasks
    assert (task.inputs[0].transforms, task.step) == ((), None)


def test_sinks_may_share_an_arrow_function_and_part_behind_it() -> None:
    def build(job: headgate.Job) -> None:
        shared = counted(lines_of(job)).map_arrow(same, uid="shared")
        finish(shared)
        finish(shared.map_arrow(same, uid="own"), "copy")

    assert [[vertex.uid for vertex in end.functions] for end in plan_of(build).sinks] == [["shared"], ["shared", "own"]]


def two_sources(job: headgate.Job) -> None:
    finish(lines_of(job, "a"), "out-a")
    finish(lines_of(job, "b"), "out-b")


def branch_before_the_step(job: headgate.Job) -> None:
    words = lines_of(job).transform(same)
    finish(counted(words.transform(same)))
    finish(counted(words, "others"), "copy")


def one_branch_with_a_step(job: headgate.Job) -> None:
    lines = lines_of(job)
    finish(counted(lines))
    finish(lines, "raw")


def loose_transform(job: headgate.Job) -> None:
    lines = lines_of(job)
    lines.transform(same, uid="nowhere")
    finish(counted(lines))


def step_without_a_reader(job: headgate.Job) -> None:
    lines = lines_of(job)
    counted(lines)
    finish(lines)


BAD: dict[str, tuple[Callable[[headgate.Job], object], str]] = {
    "nothing at all": (lambda job: None, "job 'j' has no source; add one with job.source"),
    "no sink": (lambda job: counted(lines_of(job)), "job 'j' has no sink; end the stream with .sink"),
    "a loose end": (loose_transform, "nothing reads what vertex 'nowhere' of job 'j' makes; send it to a sink"),
    "a step that nobody reads": (step_without_a_reader, "nothing reads what vertex 'counts' of job 'j' makes"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_graph_that_cannot_run_is_refused_with_what_and_which(what: str) -> None:
    build, message = BAD[what]
    with pytest.raises(JobInvalid, match=f"^{message}"):
        plan_of(build)


CUT: dict[str, tuple[Callable[[headgate.Job], object], list[str], list[str]]] = {
    "two sources": (two_sources, ["a", "b"], ["a->a", "b->b"]),
    "two steps in a row": (
        lambda job: finish(counted(counted(lines_of(job)), "again")),
        ["counts", "again"],
        ["lines->counts", "counts->again"],
    ),
    "DataFrame code behind the step": (
        lambda job: finish(counted(lines_of(job)).transform(same, uid="late")),
        ["counts", "late"],
        ["lines->counts", "counts->late"],
    ),
    "DataFrame code behind an Arrow function": (
        lambda job: finish(lines_of(job).map_arrow(same).transform(same, uid="late")),
        ["lines", "late"],
        ["lines->lines", "lines.map1->late"],
    ),
    "a step behind an Arrow function": (
        lambda job: finish(counted(lines_of(job).map_arrow(same))),
        ["lines", "counts"],
        ["lines->lines", "lines.map1->counts"],
    ),
    "a branch before the step": (
        branch_before_the_step,
        ["lines.transform1", "counts", "others"],
        ["lines->lines.transform1", "lines.transform1->counts", "lines.transform1->others"],
    ),
    "a branch with a step and one without": (
        one_branch_with_a_step,
        ["lines", "counts"],
        ["lines->lines", "lines->counts"],
    ),
}


@pytest.mark.parametrize("what", CUT)
def test_a_graph_that_is_no_chain_is_cut_into_tasks_with_channels(what: str) -> None:
    build, tasks, channels = CUT[what]
    plan = plan_of(build)
    assert [task.uid for task in plan.tasks] == tasks
    assert [str(channel) for channel in plan.channels] == channels
    assert not plan.is_linear
