"""A job's tasks and channels as plain data, and what a barrier does at each: what `headgate plan` shows."""

from __future__ import annotations

from typing import Any

from headgate.gate.channel import Capacity
from headgate.gate.elements import ChannelId
from headgate.job.graph import ConnectedVertex, EventTime, KeyedVertex
from headgate.job.tasks import GraphPlan, Task, TaskInput
from headgate.state.key_groups import subtask_range
from headgate_contract.durations import Duration
from headgate_contract.settings import Settings

Plain = dict[str, Any]


def describe_graph(plan: GraphPlan, settings: Settings) -> Plain:
    """Vertices in their chains, channels, parallelism, key groups."""
    return {
        "job": plan.job,
        "max_parallelism": settings["pipeline.max-parallelism"],
        "tasks": [_task(task, settings) for task in plan.tasks],
        "channels": [_channel(plan, channel) for channel in plan.channels],
    }


def _task(task: Task, settings: Settings) -> Plain:
    parallelism = settings["parallelism.default"]
    max_parallelism = settings["pipeline.max-parallelism"]
    ranges = [subtask_range(subtask, parallelism, max_parallelism) for subtask in range(parallelism)]
    return {
        "uid": task.uid,
        "inputs": [_input(each) for each in task.inputs],
        "step": _step(task.step),
        "parallelism": parallelism if task.step is not None else None,
        "key_groups": [[groups.start, groups.end] for groups in ranges] if task.step is not None else [],
        "ends": [
            *(
                {"functions": [each.uid for each in end.functions], "sink": end.vertex.uid, "channels": []}
                for end in task.sinks
            ),
            *(
                {
                    "functions": [each.uid for each in end.functions],
                    "sink": None,
                    "channels": list(map(str, end.channels)),
                }
                for end in task.channels
            ),
        ],
        "barrier": _barrier(task, settings),
    }


def _input(each: TaskInput) -> Plain:
    return {
        "producer": each.producer,
        "source": each.source is not None,
        "bounded": each.source is not None and each.source.source.bounded,
        "channel": None if each.channel is None else str(each.channel),
        "transforms": [vertex.uid for vertex in each.transforms],
        "watermark": None if each.time is None else _time(each.time),
        "port": each.port,
    }


def _time(time: EventTime) -> Plain:
    idle = None if time.idle_after_ms is None else str(Duration(time.idle_after_ms))
    return {"column": time.column, "delay": str(Duration(time.delay_ms)), "idle_after": idle}


def _step(step: KeyedVertex | ConnectedVertex | None) -> Plain | None:
    if step is None:
        return None
    operator = step.operator.first if isinstance(step, ConnectedVertex) else step.operator
    keys: tuple[tuple[str, ...] | None, ...] = step.keys if isinstance(step, ConnectedVertex) else (step.keys,)
    return {
        "uid": step.uid,
        "keys": [None if each is None else list(each) for each in keys],
        "state": operator.state_names,
        "operator_state": {name: kind.value for name, kind in operator.operator_states.items()},
    }


def _barrier(task: Task, settings: Settings) -> str:
    if task.is_fused:
        return "passes between two micro-batches"
    if settings["execution.checkpointing.unaligned.enabled"]:
        waits = settings["execution.checkpointing.aligned-checkpoint-timeout"]
        when = f"that has waited for {waits}" if int(waits) else "that comes first"
        return (
            f"the one {when} overtakes everything before it, which belongs to the checkpoint; of a savepoint, none does"
        )
    if len(task.inputs) == 1:
        return "passes when everything before it has been processed"
    if settings["execution.checkpointing.mode"] == "EXACTLY_ONCE":
        return "an input that has brought it is held back until all have"
    return "passes when all inputs have brought it; nothing is held back, and what came behind it may be in the state"


def _channel(plan: GraphPlan, channel: ChannelId) -> Plain:
    capacity = Capacity()
    written = plan.written(channel)
    return {
        "id": str(channel),
        "written": written,
        "holds": "files that the task before it writes" if written else "micro-batches that the source has handed over",
        "elements": capacity.elements,
        "bytes": capacity.bytes,
        "barrier": (
            "stands behind what has been put before it"
            if written
            else "stands behind what the source has handed over; nothing of it is ever written"
        ),
    }
