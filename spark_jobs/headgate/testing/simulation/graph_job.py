"""Jobs with channels for the simulation: random ones of up to eight vertices, whose truth is known without running any.

A record is a text. A task counts the records that it has had, tells its sink each of them, and hands each on under a
name that says which way it came.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from headgate.coordinator.policy import CheckpointOptions
from headgate.gate.coordinator import TaskParts
from headgate.gate.elements import ChannelId
from headgate.gate.flow import Topology
from headgate_contract.ids import VertexUid
from headgate_contract.restore import Rollback

Records = Counter[str]
_LAST = "!"

SINK: Any = SimpleNamespace(rollback=Rollback.RETRACT, check=lambda: None)


@dataclass(frozen=True, kw_only=True)
class GraphJob:
    """What the drivers of one simulation run."""

    topology: Topology
    records: int
    """Of each source."""
    batch: int
    """How many a micro-batch has, at most."""
    capacity: int
    """Of a channel, in micro-batches."""
    exactly_once: bool
    timed: frozenset[VertexUid] = frozenset()
    """The sources that tell of event time: of a record its number."""
    idle_after_ms: int | None = None
    bounded: frozenset[VertexUid] = frozenset()
    """The sources that end behind their last record."""
    silent: frozenset[VertexUid] = frozenset()
    """The tasks that hand on nothing before they finish."""

    def hands_on(self, task: VertexUid, records: Records) -> Records:
        """What a task makes, for those behind it, of what it tells its sink."""
        return handed_on(task, last_words(task, records) if task in self.silent else records)

    def watermark(self, source: VertexUid, position: int) -> int | None:
        """What a source has told up to there."""
        return position - 2 if source in self.timed and position else None

    @property
    def ending(self) -> frozenset[VertexUid]:
        """The tasks to which nothing comes any more at some time: all that they read from is bounded."""
        found = set(self.bounded)
        for task, ids in self.topology.inputs.items():
            if found.issuperset(id.producer for id in ids):
                found.add(task)
        return frozenset(found - self.bounded)

    @property
    def tasks(self) -> tuple[VertexUid, ...]:
        return tuple(self.topology.inputs)

    @property
    def sinks(self) -> tuple[VertexUid, ...]:
        return tuple(sink_of(task) for task in self.tasks)

    @property
    def parts(self) -> dict[VertexUid, TaskParts]:
        fed = {task: [] for task in self.tasks}  # type: dict[VertexUid, list[VertexUid]]
        for source, channel in self.topology.sources.items():
            fed[channel.consumer].append(source)
        return {task: TaskParts(state=task, sources=tuple(fed[task]), sinks=(sink_of(task),)) for task in self.tasks}

    @property
    def plan(self) -> Any:
        """What production's parts ask of it."""
        return SimpleNamespace(
            sources=[SimpleNamespace(uid=source) for source in self.topology.sources],
            tasks=[],
            sinks=[SimpleNamespace(vertex=SimpleNamespace(uid=sink, sink=SINK)) for sink in self.sinks],
        )

    def truth(self) -> dict[VertexUid, Records]:
        """What each task has had when everything is over."""
        had: dict[VertexUid, Records] = {}
        for task, ids in self.topology.inputs.items():
            had[task] = Counter()
            for id in ids:
                if id in self.topology.sources.values():
                    had[task].update(of_source(id.producer, range(self.records)))
                else:
                    had[task].update(self.hands_on(id.producer, had[id.producer]))
        return had


def sink_of(task: VertexUid) -> VertexUid:
    return VertexUid(f"out-{task}")


def of_source(source: VertexUid, numbers: range) -> list[str]:
    return [f"{source}.{number}" for number in numbers]


def handed_on(task: VertexUid, records: Records) -> Records:
    return Counter({f"{task}<{record}": times for record, times in records.items()})


def last_word(task: VertexUid, records: int) -> str:
    """What a task says, to its sink and to those behind it, when it has finished behind so many records."""
    return f"{task}{_LAST}{records}"


def last_words(task: VertexUid, records: Records) -> Records:
    """Its own among these."""
    return Counter({record: times for record, times in records.items() if record.startswith(f"{task}{_LAST}")})


def without_last_words(records: Records) -> Records:
    """Only what sources have made, however it came."""
    return Counter({record: times for record, times in records.items() if _LAST not in record})


def random_graph(chance: random.Random) -> GraphJob:
    """Up to eight vertices, sources and tasks, each task behind one to three others."""
    inputs: dict[VertexUid, tuple[ChannelId, ...]] = {}
    sources: dict[VertexUid, ChannelId] = {}
    most = chance.randint(2, 8)
    while len(inputs) + len(sources) < most:
        task = VertexUid(f"t{len(inputs)}")
        behind = chance.sample(list(inputs)[-4:], min(len(inputs), chance.choice([0, 1, 1, 2])))
        least = 0 if behind else 1
        room = max(least, most - len(inputs) - len(sources) - 1)
        fed = range(len(sources), len(sources) + min(room, chance.randint(least, 2)))
        own = [ChannelId(VertexUid(f"s{number}"), task) for number in fed]
        sources.update({id.producer: id for id in own})
        inputs[task] = (*own, *(ChannelId(producer, task) for producer in behind))
    read = {id.producer for ids in inputs.values() for id in ids}
    timed, bounded = chance.choice([0, 0.5, 1]), chance.choice([0, 0, 0.5, 1])
    return GraphJob(
        topology=Topology(sources, inputs, {task: (task,) if task in read else () for task in inputs}),
        records=chance.randint(8, 24),
        batch=chance.randint(1, 5),
        capacity=chance.randint(1, 4),
        exactly_once=chance.random() < 0.75,
        timed=frozenset(source for source in sources if chance.random() < timed),
        idle_after_ms=chance.choice([None, 5, 100]),
        bounded=frozenset(source for source in sources if chance.random() < bounded),
        silent=frozenset(task for task in inputs if chance.random() < 0.1),
    )


def options_for(job: GraphJob, options: CheckpointOptions, chance: random.Random) -> CheckpointOptions:
    """The four ways in which barriers may pass: at least once, aligned, unaligned, aligned with a timeout.

    An aligned barrier waits for all that is before it: a timeout too short for that would fail the stream for ever.
    """
    options = replace(options, timeout_ms=chance.choice((2_000, 5_000)))
    overtakes = chance.choice([None, 0, 15]) if job.exactly_once else None
    return options if overtakes is None else replace(options, overtakes_after_ms=overtakes, max_concurrent=1)
