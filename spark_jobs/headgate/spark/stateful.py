"""Finds operators that keep state in Spark between micro-batches: that state would be in no snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from headgate_contract.errors import JobInvalid

_STATEFUL = {
    "Aggregate": "groupBy or an aggregation",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "GlobalLimit": "limit",
    "Sort": "orderBy",
    "Window": "a window function",
}


def refuse_stateful(frame: DataFrame, where: str) -> None:
    """Raise JobInvalid, naming the operator, if `frame` needs state between micro-batches."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        if not node.isStreaming():
            continue
        name = node.nodeName()
        streaming = sum(1 for child in _children(node) if child.isStreaming())
        what = "a join of two streams" if name == "Join" and streaming > 1 else _STATEFUL.get(name)
        if what is not None:
            raise JobInvalid(
                f"the DataFrame code of {where} uses {what}, which keeps state in Spark that no snapshot would hold",
                hint="use key_by(...).aggregate(...) or .process(...)",
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]
