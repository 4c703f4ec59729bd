"""A job's plan for people: as text, and as a picture for Graphviz. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Plan = dict[str, Any]


def as_text(plan: Plan) -> str:
    """Each task with its chain, then the channels."""
    tasks, channels = plan["tasks"], plan["channels"]
    parts = [_number(tasks, "task"), _number(channels, "channel"), f"{plan['max_parallelism']} key groups"]
    lines = [f"job {plan['job']}: {', '.join(parts)}"]
    for task in tasks:
        lines += ["", f"task {task['uid']}", *(f"  {line}" for line in _task(task))]
    for channel in channels:
        lines += [
            "",
            f"channel {channel['id']}",
            f"  holds    {channel['holds']}: up to {channel['elements']} of them, or {_size(channel['bytes'])}",
            f"  barrier  {channel['barrier']}",
        ]
    return "\n".join(lines)


def _task(task: Plan) -> Iterator[str]:
    several = len(task["inputs"]) > 1
    for each in task["inputs"]:
        port = f", input {each['port'] + 1}" if several and task["step"] and len(task["step"]["keys"]) > 1 else ""
        way = "" if each["channel"] is None else f" by channel {each['channel']}"
        chain = "".join(f" -> {uid}" for uid in each["transforms"])
        ends = ", which ends" if each["bounded"] else ""
        yield f"reads    {'source ' if each['source'] else ''}{each['producer']}{way}{port}{chain}{ends}"
        if each["watermark"] is not None:
            yield f"         {_event_time(each['watermark'])}"
    step = task["step"]
    if step is not None:
        keys = " and ".join("a broadcast" if keys is None else ", ".join(keys) for keys in step["keys"])
        states = [*step["state"], *(f"{name} ({kind})" for name, kind in step["operator_state"].items())]
        yield f"step     {step['uid']} by {keys}{', state ' if states else ''}{', '.join(states)}"
        groups = ", ".join(f"{first}-{last}" for first, last in task["key_groups"])
        yield f"         {_number(range(task['parallelism']), 'subtask')}, key groups {groups}"
    for end in task["ends"]:
        to = [f"sink {end['sink']}"] if end["sink"] else [f"channel {channel}" for channel in end["channels"]]
        yield f"writes   {''.join(f'{uid} -> ' for uid in end['functions'])}{', '.join(to)}"
    yield f"barrier  {task['barrier']}"


def _event_time(told: Plan) -> str:
    idle = "" if told["idle_after"] is None else f", idle after {told['idle_after']}"
    return f"event time {told['column']}, {told['delay']} late at most{idle}"


def _number(things: Any, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _size(count: int) -> str:
    return f"{count // (1024 * 1024)} MiB"


# ---- Graphviz


def as_dot(plan: Plan) -> str:
    """A box for each task with its vertices in it; dashed arrows are channels."""
    lines = [
        f"digraph {_quoted(plan['job'])} {{",
        "  rankdir=LR; fontname=Helvetica;",
        "  node [shape=box, style=rounded, fontname=Helvetica, fontsize=11];",
        "  edge [fontname=Helvetica, fontsize=9];",
    ]
    edges: list[str] = []
    for number, task in enumerate(plan["tasks"]):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted('task ' + task['uid'])}; style=filled;"]
        lines += ["    color=lightgrey; fontsize=10;"]
        for uid, label in _vertices(task):
            lines.append(f"    {_quoted(uid)} [label={_quoted(label)}];")
        lines.append("  }")
        edges += _edges(task)
    return "\n".join([*lines, *(f"  {edge};" for edge in dict.fromkeys(edges)), "}"])


def _vertices(task: Plan) -> Iterator[tuple[str, str]]:
    for each in task["inputs"]:
        if each["source"] and each["channel"] is None:
            yield each["producer"], each["producer"]
        yield from ((uid, uid) for uid in each["transforms"])
    if task["step"] is not None:
        keys = "; ".join("broadcast" if keys is None else ", ".join(keys) for keys in task["step"]["keys"])
        yield task["uid"], f"{task['uid']}\\nby {keys}"
    elif _joins(task):
        yield task["uid"], task["uid"]
    for end in task["ends"]:
        yield from ((uid, uid) for uid in end["functions"])
        if end["sink"]:
            yield end["sink"], end["sink"]


def _joins(task: Plan) -> bool:
    """Whether a task without a step has a vertex of its own: one that several inputs come together in."""
    return task["step"] is None and len(task["inputs"]) > 1


def _edges(task: Plan) -> Iterator[str]:
    """Along the chain; where records come by a channel the arrow is dashed."""
    middle = [task["uid"]] if task["step"] is not None or _joins(task) else []
    for each in task["inputs"]:
        path = [each["producer"], *each["transforms"], *middle]
        dashed = each["channel"] is not None
        for first, second in pairwise(path):
            yield f"{_quoted(first)} -> {_quoted(second)}{' [style=dashed]' if dashed else ''}"
            dashed = False
        last = path[-1]
        for end in task["ends"]:
            behind = [last, *end["functions"], *([end["sink"]] if end["sink"] else [])]
            for first, second in pairwise(behind):
                yield f"{_quoted(first)} -> {_quoted(second)}{' [style=dashed]' if dashed and first == last else ''}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "'") + '"'
