"""The guarantee that a plan can give, and the plan as plain data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.job.plan import describe, guarantee
from headgate.job.tasks import GraphPlan, graph_plan
from headgate.sink.base import Sink
from headgate.source.base import Source
from headgate_contract.codec import to_plain
from headgate_contract.settings import Settings

INTERVAL = "execution.checkpointing.interval"
MODE = "execution.checkpointing.mode"
CHECKPOINTING: dict[str, dict[str, object]] = {
    "at-most-once": {},
    "at-least-once": {INTERVAL: "10 s", MODE: "AT_LEAST_ONCE"},
    "exactly-once": {INTERVAL: "10 s"},
}
SOURCES: dict[str, Callable[[], Source]] = {
    "at-most-once": lambda: headgate.sources.socket("localhost", 9999),
    "exactly-once": lambda: headgate.sources.socket("localhost", 9999, resume=True),
}
SINKS: dict[str, Callable[[], Sink]] = {"at-least-once": headgate.sinks.console, "exactly-once": headgate.sinks.discard}
ORDER = ["at-most-once", "at-least-once", "exactly-once"]


def plan_of(source: Source, *sinks: Sink) -> GraphPlan:
    job = headgate.Job("word-count")
    counts = job.source("lines", source).key_by("value").aggregate("counts", n=headgate.count())
    for number, sink in enumerate(sinks):
        counts.sink(f"sink-{number}", sink)
    return graph_plan(job)


@pytest.mark.parametrize(("checkpointing", "source", "sink"), list(itertools.product(CHECKPOINTING, SOURCES, SINKS)))
def test_a_stream_guarantees_what_its_weakest_link_does_and_names_it(
    checkpointing: str, source: str, sink: str
) -> None:
    links = {"checkpointing": checkpointing, "source lines": source, "sink sink-0": sink}
    weakest = min(links.values(), key=ORDER.index)
    found = guarantee(plan_of(SOURCES[source](), SINKS[sink]()), Settings(CHECKPOINTING[checkpointing]))
    assert found["level"] == weakest
    if weakest == "exactly-once":
        assert found["weakest"] == ""
    else:
        assert links[found["weakest"]] == weakest


def test_of_several_sinks_the_weakest_is_named() -> None:
    plan = plan_of(SOURCES["exactly-once"](), headgate.sinks.discard(), headgate.sinks.console())
    found = guarantee(plan, Settings(CHECKPOINTING["exactly-once"]))
    assert found == {"level": "at-least-once", "weakest": "sink sink-1"}


def numbers(rows: pa.Table, keyed: headgate.Keyed) -> pa.Table:
    return rows


SOURCE_KINDS: dict[str, Callable[[], Source]] = {
    "files": lambda: headgate.sources.files("in/", format="csv", schema="value STRING"),
    "files of a Path": lambda: headgate.sources.files(Path("in")),
    "rate": lambda: headgate.sources.rate(5),
    "rate by batch": lambda: headgate.sources.rate(rows_per_batch=5),
    "socket": lambda: headgate.sources.socket("localhost", 9999),
}


@pytest.mark.parametrize("kind", SOURCE_KINDS)
def test_a_plan_is_plain_data_whatever_it_is_made_of(kind: str) -> None:
    job = headgate.Job("word-count")
    words = job.source("lines", SOURCE_KINDS[kind](), name="Lines").transform(lambda frame: frame, uid="split")
    out = words.key_by("value").process(
        "numbers",
        numbers,
        output=pa.schema({"value": pa.string()}),
        state={"count": pa.schema({"n": pa.int64()}), "seen": pa.schema({"at": pa.timestamp("us")})},
    )
    out.sink("files", headgate.sinks.files("s3://bucket/out", storage_options={"secret": "hidden"}))
    out.map_arrow(lambda batch: batch, uid="shorten").sink("console", headgate.sinks.console(3))
    out.sink("nothing", headgate.sinks.discard())
    plan = describe(graph_plan(job), Settings({INTERVAL: "10 s", "parallelism.default": 3}))
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    assert to_plain(plan) == plan, "deploy can record it"
    assert "hidden" not in json.dumps(plan)
    assert plan["vertices"] == [
        {"uid": "lines", "name": "Lines", "kind": "source"},
        {"uid": "split", "name": "split", "kind": "transform"},
        {
            "uid": "numbers",
            "name": "numbers",
            "kind": "keyed",
            "keys": ["value"],
            "parallelism": 3,
            "max_parallelism": 128,
            "state": ["count", "seen"],
            "operator_state": {},
        },
        {"uid": "files", "name": "files", "kind": "sink"},
        {"uid": "shorten", "name": "shorten", "kind": "map"},
        {"uid": "console", "name": "console", "kind": "sink"},
        {"uid": "nothing", "name": "nothing", "kind": "sink"},
    ]
    assert plan["sources"]["lines"]["kind"] == kind.split(maxsplit=1)[0]
    assert {uid: (sink["kind"], sink["rollback"], sink["guarantee"]) for uid, sink in plan["sinks"].items()} == {
        "files": ("files", "retract", "exactly-once"),
        "console": ("console", "overwrite", "at-least-once"),
        "nothing": ("discard", "overwrite", "exactly-once"),
    }


def test_an_arrow_function_that_sinks_share_is_shown_once() -> None:
    job = headgate.Job("j")
    shared = job.source("lines", headgate.sources.files("in")).map_arrow(lambda batch: batch, uid="shared")
    shared.sink("a", headgate.sinks.discard())
    shared.sink("b", headgate.sinks.discard())
    vertices = describe(graph_plan(job), Settings({}))["vertices"]
    assert [vertex["uid"] for vertex in vertices] == ["lines", "shared", "a", "b"]


def test_a_channel_that_a_source_feeds_now_takes_no_files() -> None:
    files = headgate.sources.files("in")
    job = headgate.Job("j")
    for uid in ("a", "c"):
        job.source(uid, files).key_by("value").aggregate(f"n-{uid}", n=headgate.count()).sink(
            f"out-{uid}", headgate.sinks.discard()
        )
    assert describe(graph_plan(job), Settings({}))["channels"] == []
