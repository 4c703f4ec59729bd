"""`headgate plan`: a job's tasks and channels as text, as JSON, and as a picture that Graphviz reads."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from headgate_control.deploy import Programs
from headgate_control.picture import as_dot, as_text
from tests.control.command_line import Result, headgate

JOB = """
import pyarrow as pa
import headgate

NUMBERED = pa.schema({"key": pa.int64(), "number": pa.int64()})


def same(thing):
    return thing


def step(rows, keyed):
    return rows


job = headgate.Job("orders")
orders = job.source("orders", headgate.sources.files("in")).transform(same, uid="parse")
prices = job.source("prices", headgate.sources.files("in"))
priced = orders.key_by("item").connect(prices.key_by("item")).process(
    "price", step, step, output=NUMBERED, state={"last": NUMBERED}
)
priced.key_by("key").aggregate("totals", n=headgate.count()).sink("totals-out", headgate.sinks.discard())
priced.map_arrow(same, uid="round").sink("priced-out", headgate.sinks.discard())
"""
REAL = Programs(check=(sys.executable, "-P", "-m", "headgate.job.check"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "orders.py"
    file.write_text(JOB)
    return file


def plan(*arguments: str) -> Result:
    return headgate("plan", *arguments, programs=REAL)


def test_the_plan_is_told_without_a_root_and_without_spark(job: Path) -> None:
    told = plan(str(job), "--set", "pipeline.max-parallelism=8")
    assert told.code == 0, told.err
    assert told.out.rstrip().splitlines() == [
        "job orders: 2 tasks, 3 channels, 8 key groups",
        "",
        "task price",
        "  reads    source orders by channel orders->price, input 1 -> parse",
        "  reads    source prices by channel prices->price, input 2",
        "  step     price by item and item, state last",
        "           2 subtasks, key groups 0-3, 4-7",
        "  writes   round -> sink priced-out",
        "  writes   channel price->totals",
        "  barrier  an input that has brought it is held back until all have",
        "",
        "task totals",
        "  reads    price by channel price->totals",
        "  step     totals by key, state aggregates",
        "           2 subtasks, key groups 0-3, 4-7",
        "  writes   sink totals-out",
        "  barrier  passes when everything before it has been processed",
        "",
        "channel orders->price",
        "  holds    micro-batches that the source has handed over: up to 8 of them, or 256 MiB",
        "  barrier  stands behind what the source has handed over; nothing of it is ever written",
        "",
        "channel prices->price",
        "  holds    micro-batches that the source has handed over: up to 8 of them, or 256 MiB",
        "  barrier  stands behind what the source has handed over; nothing of it is ever written",
        "",
        "channel price->totals",
        "  holds    files that the task before it writes: up to 8 of them, or 256 MiB",
        "  barrier  stands behind what has been put before it",
    ]


def test_the_plan_is_json_for_programs_and_a_picture_for_graphviz(job: Path) -> None:
    found = json.loads(plan(str(job), "--json").out)
    assert [task["uid"] for task in found["tasks"]] == ["price", "totals"]
    dot = plan(str(job), "--dot").out
    assert dot.startswith('digraph "orders" {')
    assert dot.rstrip().endswith("}")
    for edge in (
        '"orders" -> "parse" [style=dashed];',
        '"parse" -> "price";',
        '"prices" -> "price" [style=dashed];',
        '"price" -> "totals" [style=dashed];',
        '"price" -> "round";',
        '"round" -> "priced-out";',
        '"totals" -> "totals-out";',
    ):
        assert f"  {edge}" in dot.splitlines()
    assert "subgraph cluster_1 {" in dot
    assert plan(str(job), "--dot", "--json").code == 2


def test_a_job_that_cannot_be_planned_is_told_by_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import headgate\njob = headgate.Job('j')\n")
    told = plan(str(tmp_path / "bad.py"))
    assert told.code == 2
    assert "job 'j' has no source" in told.all
    assert "cannot be read" in plan(str(tmp_path / "none.py")).all


def test_a_broadcast_input_and_operator_state_are_told(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        JOB.replace('connect(prices.key_by("item"))', "connect(prices.broadcast())").replace(
            '"last": NUMBERED}', '"last": NUMBERED}, operator_state={"rules": "broadcast"}'
        )
    )
    assert (
        "  step     price by item and a broadcast, state last, rules (broadcast)"
        in plan(str(tmp_path / "rules.py")).out.splitlines()
    )


def test_a_union_without_a_step_is_a_vertex_of_its_own_in_the_picture() -> None:
    task = {
        "uid": "a.union1",
        "inputs": [
            {
                "producer": name,
                "source": True,
                "bounded": name == "b",
                "channel": f"{name}->a.union1",
                "transforms": [],
                "watermark": {"column": "at", "delay": "10 s", "idle_after": idle},
                "port": 0,
            }
            for name, idle in (("a", None), ("b", "1 min"))
        ],
        "step": None,
        "parallelism": None,
        "key_groups": [],
        "ends": [{"functions": [], "sink": "out", "channels": []}],
        "barrier": "an input that has brought it is held back until all have",
    }
    found = {"job": "j", "max_parallelism": 128, "tasks": [task], "channels": []}
    dot = as_dot(found).splitlines()
    assert '  "a" -> "a.union1" [style=dashed];' in dot
    assert '  "a.union1" -> "out";' in dot
    text = as_text(found)
    assert "writes   sink out" in text
    assert "reads    source a by channel a->a.union1\n           event time at, 10 s late at most\n" in text
    assert "b->a.union1, which ends\n           event time at, 10 s late at most, idle after 1 min\n" in text


def test_the_picture_in_the_docs_is_that_of_its_job(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "graphs.md").read_text()
    (tmp_path / "orders.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    dot = plan(str(tmp_path / "orders.py"), "--dot").out
    assert page.partition("```dot\n")[2].partition("```")[0].strip() == dot.strip()
    drawn = set(re.findall(r"<title>([^<&]+)</title>", (docs / "pictures" / "orders.svg").read_text()))
    assert {"orders", "prices", "price", "priced", "totals", "out"} <= drawn
