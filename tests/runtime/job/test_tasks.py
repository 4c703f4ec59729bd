"""What a job's graph is cut into: chains that stay together, and channels only where the graph needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headgate
from headgate.gate.elements import ChannelId
from headgate.job.graph import EventTime
from headgate.job.graph_description import describe_graph
from headgate.job.job import KeyedStream, Stream
from headgate.job.tasks import GraphPlan, Task, graph_plan
from headgate_contract.errors import JobInvalid
from headgate_contract.ids import VertexUid
from headgate_contract.settings import Settings

OUTPUT = pa.schema({"key": pa.int64()})


def same(thing: Any) -> Any:
    return thing


def step(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    return rows


def source(job: headgate.Job, uid: str = "s") -> Stream:
    return job.source(uid, headgate.sources.files("in"))


def counted(stream: Stream, uid: str = "counts") -> Stream:
    return stream.key_by("key").aggregate(uid, n=headgate.count())


def out(stream: Stream, uid: str = "out") -> None:
    stream.sink(uid, headgate.sinks.discard())


def plan_of(build: Callable[[headgate.Job], object]) -> GraphPlan:
    job = headgate.Job("j")
    build(job)
    return graph_plan(job)


def shape(plan: GraphPlan) -> list[str]:
    """Each task in a line: inputs with their transforms, | step | ends."""
    return [_shape(task) for task in plan.tasks]


def _shape(task: Task) -> str:
    inputs = " + ".join(
        ("" if each.channel is None else "~") + ".".join([each.producer, *(vertex.uid for vertex in each.transforms)])
        for each in task.inputs
    )
    ends = [".".join([*(each.uid for each in end.functions), end.vertex.uid]) for end in task.sinks]
    for end in task.channels:
        ends += [".".join([*(each.uid for each in end.functions), f"~{id.consumer}"]) for id in end.channels]
    return f"{inputs} | {task.step.uid if task.step else '-'} | {', '.join(ends)}"


def test_a_linear_stretch_is_one_task_without_a_channel() -> None:
    def build(job: headgate.Job) -> None:
        counts = counted(source(job).transform(same, uid="t").transform(same, uid="u"))
        out(counts)
        out(counts.map_arrow(same, uid="m"), "other")

    plan = plan_of(build)
    assert shape(plan) == ["s.t.u | counts | out, m.other"]
    assert plan.is_linear
    assert plan.channels == ()


def test_sinks_without_a_step_stay_with_their_source() -> None:
    def build(job: headgate.Job) -> None:
        stream = source(job).transform(same, uid="t")
        out(stream, "a")
        out(stream.map_arrow(same, uid="m"), "b")

    assert shape(plan_of(build)) == ["s.t | - | a, m.b"]


def test_a_second_shuffle_and_dataframe_code_behind_a_step_begin_a_chain_behind_a_written_channel() -> None:
    def build(job: headgate.Job) -> None:
        counts = counted(source(job))
        out(counted(counts, "again"), "a")
        out(counts.map_arrow(same, uid="m").transform(same, uid="t"), "b")

    plan = plan_of(build)
    assert shape(plan) == ["~s | counts | ~again, m.~t", "~counts | again | a", "~m.t | - | b"]
    assert [plan.written(channel) for channel in plan.channels] == [False, True, True]


def test_a_step_of_two_inputs_reads_each_by_a_channel_and_a_sources_is_not_written() -> None:
    def build(job: headgate.Job) -> None:
        left = counted(source(job, "a"), "first")
        right = source(job, "b").transform(same, uid="t")
        both = left.key_by("key").connect(right.key_by("key")).process("both", step, step, output=OUTPUT, state={})
        out(both)

    plan = plan_of(build)
    assert shape(plan) == ["~a | first | ~both", "~first + ~b.t | both | out"]
    assert [each.port for each in plan.tasks[1].inputs] == [0, 1]
    written = {"a->first": False, "first->both": True, "b->both": False}
    assert {str(channel): plan.written(channel) for channel in plan.channels} == written


def test_a_union_gives_the_step_behind_it_all_its_inputs() -> None:
    def build(job: headgate.Job) -> None:
        merged = source(job, "a").union(source(job, "b").transform(same, uid="t"), counted(source(job, "c")))
        out(counted(merged.transform(same, uid="after"), "all"))

    plan = plan_of(build)
    assert shape(plan) == ["~c | counts | ~all", "~a.after + ~b.t.after + ~counts.after | all | out"]


def test_unions_of_unions_and_unions_on_both_sides_of_a_connection() -> None:
    def build(job: headgate.Job) -> None:
        left = source(job, "a").union(source(job, "b")).union(source(job, "c"))
        right = source(job, "d").union(source(job, "e"), uid="right")
        keyed = left.key_by("key").connect(right.key_by("key"))
        out(keyed.process("both", step, step, output=OUTPUT, state={}))

    (task,) = plan_of(build).tasks
    assert [(each.producer, each.port) for each in task.inputs] == [("a", 0), ("b", 0), ("c", 0), ("d", 1), ("e", 1)]


def test_a_source_that_several_steps_read_is_run_once_and_written_for_them() -> None:
    def build(job: headgate.Job) -> None:
        lines = source(job).transform(same, uid="t")
        out(counted(lines, "one"), "a")
        out(counted(lines, "two"), "b")
        out(lines, "raw")

    plan = plan_of(build)
    assert shape(plan) == ["~s.t | - | raw, ~one, ~two", "~t | one | a", "~t | two | b"]
    assert not any(task.is_fused for task in plan.tasks)
    (end,) = plan.tasks[0].channels
    assert end.channels == (ChannelId(VertexUid("t"), VertexUid("one")), ChannelId(VertexUid("t"), VertexUid("two")))


def test_a_broadcast_input_is_the_second_of_its_step() -> None:
    def build(job: headgate.Job) -> None:
        rules = source(job, "rules").broadcast()
        checked = source(job).key_by("key").connect(rules)
        out(checked.process("check", step, step, output=OUTPUT, state={}, operator_state={"rules": "broadcast"}))

    plan = plan_of(build)
    assert shape(plan) == ["~s + ~rules | check | out"]


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda job: out(counted(source(job).start_new_chain())), ["~s | counts | out"]),
        (
            lambda job: out(counted(source(job).transform(same, uid="t").start_new_chain())),
            ["~s.t | counts | out"],
        ),
        (
            lambda job: out(counted(source(job)).start_new_chain()),
            ["~s | counts | ~out", "~counts | - | out"],
        ),
        (
            lambda job: out(counted(source(job)).start_new_chain().map_arrow(same, uid="m")),
            ["~s | counts | ~m", "~counts | - | m.out"],
        ),
        (
            lambda job: out(counted(counted(source(job)).transform(same, uid="t").start_new_chain(), "again")),
            ["~s | counts | ~t", "~counts.t | - | ~again", "~t | again | out"],
        ),
    ],
    ids=["behind a source", "behind dataframe code", "before a sink", "before a map", "behind a channel"],
)
def test_an_author_may_want_a_pace_of_its_own(build: Callable[[headgate.Job], None], wanted: list[str]) -> None:
    assert shape(plan_of(build)) == wanted


REFUSED: dict[str, tuple[Callable[[headgate.Job], object], str]] = {
    "no source": (lambda job: None, "job 'j' has no source"),
    "no sink": (lambda job: counted(source(job)), "job 'j' has no sink"),
    "a loose end": (
        lambda job: (out(source(job, "a")), counted(source(job, "b"))),
        "nothing reads what vertex 'counts' of job 'j' makes",
    ),
    "one input twice": (
        lambda job: out(_with_itself(source(job).key_by("key"))),
        "'both' of job 'j' reads 's' twice",
    ),
    "a union with itself": (lambda job: source(job).union(), "union with 's' needs other streams, and each once"),
    "a union with no stream": (lambda job: source(job).union("b"), "a str cannot stand there; give it a Stream"),
    "a union with a keyed stream": (
        lambda job: source(job).union(source(job, "b").key_by("key")),
        "a KeyedStream cannot stand there; give it a Stream",
    ),
    "a second input without keys": (
        lambda job: source(job).key_by("a").connect(source(job, "b")),
        "a Stream cannot stand there; give it a KeyedStream, by key_by, or a BroadcastStream, by broadcast()",
    ),
    "another job's stream": (
        lambda job: source(job).union(source(headgate.Job("k"), "b")),
        "the other stream belongs to job 'k'",
    ),
    "a watermark behind a step": (
        lambda job: out(
            counted(source(job)).with_watermark("at", "5 s").key_by("key").aggregate("n", n=headgate.count())
        ),
        "with_watermark behind 'counts' of job 'j' stands behind another task",
    ),
    "a watermark that is no time": (
        lambda job: source(job).with_watermark("at", "soon"),
        "with_watermark behind 's': delay: 'soon' is not a duration",
    ),
    "keys of another number": (
        lambda job: source(job).key_by("a", "b").connect(source(job, "t").key_by("a")),
        "connect: 's' has the keys a, b and 't' a",
    ),
    "a broadcast that nobody can keep": (
        lambda job: (
            source(job)
            .key_by("a")
            .connect(source(job, "t").broadcast())
            .process("both", step, step, output=OUTPUT, state={})
        ),
        "process 'both' has an input that is broadcast and no operator state of kind broadcast",
    ),
    "a second function that is none": (
        lambda job: (
            source(job)
            .key_by("a")
            .connect(source(job, "t").key_by("a"))
            .process("both", step, "step", output=OUTPUT, state={})  # type: ignore[arg-type]
        ),
        "process 'both' needs a function of (rows, keyed), not 'step'",
    ),
}


def _with_itself(keyed: KeyedStream) -> Stream:
    return keyed.connect(keyed).process("both", step, step, output=OUTPUT, state={})


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_run_is_refused_by_name(what: str) -> None:
    build, said = REFUSED[what]
    with pytest.raises(JobInvalid) as refused:
        plan_of(build)
    assert said in str(refused.value)


def both_from_one(job: headgate.Job) -> None:
    left = source(job)
    out(left.key_by("key").connect(counted(left).key_by("key")).process("both", step, step, output=OUTPUT, state={}))


NO_CHAIN: dict[str, Callable[[headgate.Job], object]] = {
    "a connection of one source's streams": both_from_one,
    "a pace of its own": lambda job: out(counted(source(job).start_new_chain())),
    "a union with a step's output": lambda job: out(counted(source(job)).union(source(job, "t"))),
}


@pytest.mark.parametrize("what", NO_CHAIN)
def test_where_there_is_more_than_one_chain_every_way_into_a_task_is_a_channel(what: str) -> None:
    job = headgate.Job("j")
    NO_CHAIN[what](job)
    plan = graph_plan(job)
    assert not plan.is_linear
    assert all(way.channel is not None for task in plan.tasks for way in task.inputs)


def test_each_source_before_a_watermark_tells_of_event_time() -> None:
    def build(job: headgate.Job) -> None:
        both = source(job, "a").union(source(job, "b")).with_watermark("at", "5 s", idle_after=60_000)
        out(counted(both.transform(lambda frame: frame).union(source(job, "c"))))

    (task,) = plan_of(build).tasks
    assert {way.producer: way.time for way in task.inputs} == {
        "a": EventTime("at", 5_000, 60_000),
        "b": EventTime("at", 5_000, 60_000),
        "c": None,
    }
    (shown,) = describe_graph(plan_of(build), Settings({}))["tasks"]
    assert shown["inputs"][0]["watermark"] == {"column": "at", "delay": "5 s", "idle_after": "1 min"}


def test_the_description_tells_what_a_barrier_does_at_each_task_and_channel() -> None:
    def build(job: headgate.Job) -> None:
        left, right = source(job, "a").key_by("key"), source(job, "b").key_by("key")
        both = left.connect(right).process("both", step, step, output=OUTPUT, state={"seen": OUTPUT})
        out(counted(both, "again"))

    plan = plan_of(build)
    settings = Settings({"parallelism.default": 2, "pipeline.max-parallelism": 16})
    found = describe_graph(plan, settings)
    both, again = found["tasks"]
    assert both["barrier"] == "an input that has brought it is held back until all have"
    assert again["barrier"] == "passes when everything before it has been processed"
    unaligned = {"execution.checkpointing.unaligned.enabled": True}
    timeout = {**unaligned, "execution.checkpointing.aligned-checkpoint-timeout": "2 s"}
    for more, when in ((unaligned, "that comes first"), (timeout, "that has waited for 2 s")):
        told = {task["barrier"] for task in describe_graph(plan, Settings(more))["tasks"]}
        assert told == {
            f"the one {when} overtakes everything before it, which belongs to the checkpoint; of a savepoint, none does"
        }
    assert both["step"] == {
        "uid": "both",
        "keys": [["key"], ["key"]],
        "state": ["seen"],
        "operator_state": {},
    }
    assert both["key_groups"] == [[0, 7], [8, 15]]
    assert {each["id"]: each["written"] for each in found["channels"]} == {
        "a->both": False,
        "b->both": False,
        "both->again": True,
    }
    at_least_once = describe_graph(plan, Settings({"execution.checkpointing.mode": "AT_LEAST_ONCE"}))
    assert "nothing is held back" in at_least_once["tasks"][0]["barrier"]
