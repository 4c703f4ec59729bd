"""A random job of up to eight tasks on a Flow, at random paces; its checkpoints are restored and run to the end.

A record is a text. A task counts the records that it has had and hands each on under a name that says which way it
came; so what every task must have counted in the end is known without running anything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.gate.channel import Capacity
from headgate.gate.elements import Barrier, Batch, ChannelId, Data, EndOfInput, Watermark
from headgate.gate.flow import Ended, Flow, InFlight, Passed, Refused, Run, Told, Topology
from headgate_contract.ids import CheckpointId, VertexUid

RECORDS = 10
"""Of each source."""
TIMEOUT_MS = 20


def random_topology(chance: random.Random) -> Topology:
    inputs: dict[VertexUid, tuple[ChannelId, ...]] = {}
    sources: dict[VertexUid, ChannelId] = {}
    for number in range(chance.randint(1, 8)):
        task = VertexUid(f"t{number}")
        behind = chance.sample(list(inputs)[-4:], min(len(inputs), chance.choice([0, 1, 1, 2])))
        fed = range(len(sources), len(sources) + (chance.randint(0, 2) if behind else chance.randint(1, 2)))
        for source in fed:
            sources[VertexUid(f"s{source}")] = ChannelId(VertexUid(f"s{source}"), task)
        own = [ChannelId(VertexUid(f"s{source}"), task) for source in fed]
        inputs[task] = (*own, *(ChannelId(producer, task) for producer in behind))
    read = {id.producer for ids in inputs.values() for id in ids}
    return Topology(sources, inputs, {task: (task,) if task in read else () for task in inputs})


def truth(topology: Topology) -> dict[VertexUid, Counter[str]]:
    """What each task has had when everything is over."""
    had: dict[VertexUid, Counter[str]] = {}
    for task, ids in topology.inputs.items():
        had[task] = Counter()
        for id in ids:
            if id in topology.sources.values():
                had[task].update(f"{id.producer}.{number}" for number in range(RECORDS))
            else:
                had[task].update(handed_on(id.producer, record) for record in had[id.producer].elements())
    return had


def handed_on(task: VertexUid, record: str) -> str:
    return f"{task}<{record}"


@dataclass
class Snapshot:
    """What a checkpoint has collected."""

    unaligned: bool
    waiting: set[VertexUid]
    states: dict[VertexUid, Counter[str]] = field(default_factory=dict)
    positions: dict[VertexUid, dict[str, int]] = field(default_factory=dict)
    channels: dict[ChannelId, tuple[Data, ...]] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return sum(len(elements) for elements in self.channels.values())


@dataclass
class Lived:
    """One life of the job."""

    topology: Topology
    chance: random.Random
    exactly_once: bool
    restored: Snapshot | None = None
    flow_class: type[Flow] = Flow
    checkpoints: bool = True
    now: int = 0
    last: int = 0

    def __post_init__(self) -> None:
        snapshot = self.restored
        start = {source: {"next": 0} for source in self.topology.sources}
        self.next = {source: at["next"] for source, at in (snapshot.positions if snapshot else start).items()}
        self.states = {
            task: Counter(snapshot.states[task]) if snapshot else Counter[str]() for task in self.topology.inputs
        }
        self.flow = self.flow_class(
            self.topology,
            {source: {"next": at} for source, at in self.next.items()},
            exactly_once=self.exactly_once,
            capacity=Capacity(elements=self.chance.randint(1, 4)),
            in_flight=snapshot.channels if snapshot else None,
        )
        self.running: dict[VertexUid, Batch | Watermark] = {}
        self.ended_sources: set[VertexUid] = set()
        self.finishing: set[VertexUid] = set()
        self.ended: set[VertexUid] = set()
        self.pending: dict[int, Snapshot] = {}
        self.completed: dict[int, Snapshot] = {}
        self.given_up = 0
        paces = [1, 1, 2, 5]
        self.pace = {name: self.chance.choice(paces) for name in (*self.topology.sources, *self.topology.inputs)}

    # ---- what may happen

    def turn(self) -> bool:
        """Something happens; False when nothing more can."""
        actors = [source for source in self.topology.sources if source not in self.ended_sources]
        actors += [task for task in self.topology.inputs if task not in self.ended]
        if not actors:
            return False
        actor = self.chance.choices(actors, [1 / self.pace[each] for each in actors])[0]
        if actor in self.topology.sources:
            self._feed(actor)
        elif actor in self.finishing:
            self.finishing.remove(actor)
            self.ended.add(actor)
            self._see(self.flow.end(actor, self.now))
        elif actor in self.running:
            self._done(actor)
        else:
            self._see(self.flow.take(actor, self.now))
        if self.checkpoints and self.chance.random() < 0.05:
            self._trigger()
        if self.chance.random() < 0.01 and self.pending:
            self._abort(self.chance.choice(list(self.pending)))
        if self.chance.random() < 0.2:
            self.now += self.chance.randint(1, 10)
            self._see(self.flow.tick(self.now))
        return True

    def _feed(self, source: VertexUid) -> None:
        if not self.flow.has_room(source):
            return
        first = self.next[source]
        if first >= RECORDS:
            self.ended_sources.add(source)
            self._see(self.flow.put(source, EndOfInput(), self.now))
            return
        behind = min(RECORDS, first + self.chance.randint(1, 3))
        self.next[source] = behind
        records = [f"{source}.{number}" for number in range(first, behind)]
        batch = Batch(records, len(records), 10, {"next": first}, {"next": behind})
        self._see(self.flow.put(source, batch, self.now))

    def _done(self, task: VertexUid) -> None:
        element = self.running.pop(task)
        assert isinstance(element, Batch)
        self.states[task].update(element.content)
        made = Batch([handed_on(task, record) for record in element.content], element.rows, 10)
        self._see(self.flow.done(task, dict.fromkeys(self.topology.ends[task], made), self.now))

    def _trigger(self) -> None:
        if len(self.pending) >= 2:
            return
        self.last += 1
        after = self.chance.choice([None, 0, TIMEOUT_MS]) if self.exactly_once else None
        if after is not None and self.pending:
            after = None  # only aligned ones may be under way together
        self.pending[self.last] = Snapshot(after is not None, set(self.topology.inputs))
        self._see(self.flow.inject(Barrier(CheckpointId(self.last), self.now, after), self.now))

    def _abort(self, checkpoint: int) -> None:
        self.pending.pop(checkpoint)
        self.flow.abort(CheckpointId(checkpoint))
        self.given_up += 1

    # ---- what is told

    def _see(self, told: list[Told]) -> None:
        for each in told:
            match each:
                case Run(task=task, element=element):
                    assert task not in self.running
                    self.running[task] = element
                case Passed(checkpoint=checkpoint, task=task) if checkpoint in self.pending:
                    self.pending[checkpoint].states[task] = Counter(self.states[task])
                case InFlight(checkpoint=checkpoint) if checkpoint in self.pending:
                    self._collect(each)
                case Refused(checkpoint=checkpoint) if checkpoint in self.pending:
                    self._abort(checkpoint)
                case Ended(task=task):
                    self.finishing.add(task)

    def _collect(self, found: InFlight) -> None:
        snapshot = self.pending[found.checkpoint]
        assert found.task in snapshot.states, "the state is told before what is in flight"
        snapshot.waiting.remove(found.task)
        snapshot.positions.update({source: dict(at) for source, at in found.positions.items()})
        snapshot.channels.update(found.channels)
        if not snapshot.waiting:
            self.completed[found.checkpoint] = self.pending.pop(found.checkpoint)
            self.flow.over(found.checkpoint)
            for older in [each for each in self.pending if each < found.checkpoint]:
                self._abort(older)


def run_to_the_end(run: Lived) -> None:
    for _ in range(200_000):
        if not run.turn():
            return
    left = {str(id): len(channel) for gate in run.flow.gates.values() for id, channel in gate.channels.items()}
    raise AssertionError(f"it hangs: {run.running} run, in channels are {left}")


def missing(found: Mapping[VertexUid, Counter[str]], wanted: Mapping[VertexUid, Counter[str]]) -> Counter[str]:
    return sum((wanted[task] - found[task] for task in wanted), Counter[str]())


def doubled(found: Mapping[VertexUid, Counter[str]], wanted: Mapping[VertexUid, Counter[str]]) -> Counter[str]:
    return sum((found[task] - wanted[task] for task in wanted), Counter[str]())
