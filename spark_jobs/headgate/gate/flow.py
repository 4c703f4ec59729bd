"""The flow of a whole job: all of its channels and gates, and how a barrier goes through them. Pure.

One driver holds every queue of a job, so that a barrier is put into the channels of all sources, and what a task passes
on into all channels behind it, in one critical section. What is told to the outside: which task passes a barrier, which
of what it has overtaken belongs to the checkpoint, and from where the sources have to be read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headgate.coordinator.cut import at_end
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.gate.channel import Capacity, Channel
from headgate.gate.effects import ChannelState, Effect, Finished, GaveUp, Process, TakeState
from headgate.gate.elements import Barrier, Batch, ChannelId, Data, Element, EndOfInput, Json, Watermark
from headgate.gate.gate import Gate
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId, VertexUid


@dataclass(frozen=True)
class Topology:
    """Who puts what where."""

    sources: Mapping[VertexUid, ChannelId]
    """Each source feeds one task."""
    inputs: Mapping[VertexUid, tuple[ChannelId, ...]]
    """Of each task, each behind those that it reads from."""
    ends: Mapping[VertexUid, tuple[VertexUid, ...]]
    """Of each task, the vertices whose records leave it for other tasks."""

    def outputs(self, task: VertexUid, producers: Iterable[VertexUid] | None = None) -> list[ChannelId]:
        """Behind a task, or behind some of its ends only."""
        wanted = self.ends[task] if producers is None else producers
        return [id for ids in self.inputs.values() for id in ids if id.producer in wanted and not self._fed(id)]

    def _fed(self, channel: ChannelId) -> bool:
        return channel in self.sources.values()


# ---- what is told to the outside


@dataclass(frozen=True, kw_only=True)
class Run:
    """The task's next element."""

    task: VertexUid
    channel: ChannelId
    element: Batch | Watermark


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The task's part of a checkpoint is its state as it is now."""

    checkpoint: CheckpointId
    task: VertexUid
    watermarks: Watermarks


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """What else belongs to it at this task."""

    checkpoint: CheckpointId
    task: VertexUid
    channels: Mapping[ChannelId, tuple[Data, ...]]
    """Of those that are written."""
    positions: Mapping[VertexUid, Json]
    """S_n of each source that feeds the task: what its channel held is read again."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """It comes to nothing at this task."""

    checkpoint: CheckpointId
    task: VertexUid
    reason: CheckpointFailureReason


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Nothing comes to this task any more. Once it has finished, `end` is to be called."""

    task: VertexUid


Told = Run | Passed | InFlight | Refused | Ended


class Flow:
    """From the sources' hands to the last task. What takes time, running an element, is done by others in between."""

    gate_class: ClassVar[type[Gate]] = Gate
    channel_class: ClassVar[type[Channel]] = Channel

    def __init__(
        self,
        topology: Topology,
        positions: Mapping[VertexUid, Json],
        *,
        exactly_once: bool = True,
        capacity: Capacity | None = None,
        watermarks: Mapping[VertexUid, Watermarks] | None = None,
        in_flight: Mapping[ChannelId, Sequence[Data]] | None = None,
    ) -> None:
        self.topology = topology
        self.exactly_once = exactly_once
        self._consumers = {id: task for task, ids in topology.inputs.items() for id in ids}
        self._sources = {id: source for source, id in topology.sources.items()}
        self._reached = dict(positions)
        """S_n behind what each source has put."""
        self._at_barrier: dict[CheckpointId, dict[VertexUid, Json]] = {}
        self.gates = {
            task: self.gate_class(
                {id: self.channel_class(id, capacity or Capacity()) for id in ids},
                exactly_once,
                (watermarks or {}).get(task, Watermarks({})),
            )
            for task, ids in topology.inputs.items()
        }
        for id, elements in (in_flight or {}).items():
            self.gates[self._consumers[id]].inject(id, elements)
        self._running: dict[VertexUid, Batch | Watermark] = {}

    # ---- sources

    def has_room(self, source: VertexUid) -> bool:
        return self._channel(self.topology.sources[source]).has_room

    def put(self, source: VertexUid, element: Batch | Watermark | EndOfInput, now_ms: int) -> list[Told]:
        """A source hands over a micro-batch with the positions before and behind it, a watermark, or its end."""
        if isinstance(element, Batch):
            assert element.after is not None
            self._reached[source] = element.after
        elif isinstance(element, EndOfInput):
            self._reached[source] = at_end(self._reached[source])
        return self._put([(self.topology.sources[source], element)], now_ms)

    def inject(self, barrier: Barrier, now_ms: int) -> list[Told]:
        """Behind everything that sources have put so far; and, where a producer has finished, that it has."""
        self._at_barrier[barrier.checkpoint] = dict(self._reached)
        into = [id for id in self.topology.sources.values() if not self._channel(id).ended]
        into += [id for gate in self.gates.values() for id in gate.ending]
        finished = [(task, gate.pass_by(barrier)) for task, gate in self.gates.items() if gate.finished]
        told = self._put([(id, barrier) for id in into], now_ms)
        return told + [each for task, effects in finished for each in self._follow(task, effects, now_ms)]

    # ---- tasks

    def take(self, task: VertexUid, now_ms: int) -> list[Told]:
        """The task has nothing to do: what it is to do next, if anything, comes last.

        Where there is no room for what it would make, it only meets what needs none.
        """
        room = all(self._channel(id).has_room for id in self.topology.outputs(task))
        return self._follow(task, self.gates[task].take(now_ms, data=room), now_ms)

    def done(
        self, task: VertexUid, made: Mapping[VertexUid, Batch], now_ms: int, watermark: Watermark | None = None
    ) -> list[Told]:
        """The task has run its element, and this is what it made for others, by the vertex that made it.

        `watermark`: what the records of a source have told of event time.
        """
        self._running.pop(task)
        news = self.gates[task].done(watermark)
        told = self.pass_on(task, made, now_ms)
        return told + self._put([(id, each) for each in news for id in self.topology.outputs(task)], now_ms)

    def end(self, task: VertexUid, now_ms: int) -> list[Told]:
        """The task has finished: nothing comes behind what it has passed on."""
        return self._put([(id, EndOfInput()) for id in self.topology.outputs(task)], now_ms)

    def watermark_ms(self, task: VertexUid) -> int | None:
        """How far event time has come at a task."""
        return self.gates[task].watermarks.passed

    def is_silent(self, source: VertexUid) -> bool:
        """Whether it goes on, and all that it has put is behind its task."""
        channel = self._channel(self.topology.sources[source])
        return not channel.ended and not channel.batches and not self.gates[channel.id.consumer].is_at(channel.id)

    def pass_on(self, task: VertexUid, made: Mapping[VertexUid, Batch], now_ms: int) -> list[Told]:
        """What the task has made goes to those behind it."""
        outputs = {producer: self.topology.outputs(task, [producer]) for producer in made}
        return self._put([(id, made[producer]) for producer, ids in outputs.items() for id in ids], now_ms)

    def abort(self, checkpoint: CheckpointId) -> None:
        """Nobody wants it any more."""
        for gate in self.gates.values():
            gate.abort(checkpoint)
        self.over(checkpoint)

    def over(self, checkpoint: CheckpointId) -> None:
        """All of its parts have been told: nothing of it needs to be known any more."""
        self._at_barrier.pop(checkpoint, None)

    def tick(self, now_ms: int) -> list[Told]:
        """Time has passed."""
        return [told for task, gate in self.gates.items() for told in self._follow(task, gate.tick(now_ms), now_ms)]

    def next_deadline(self) -> int | None:
        moments = (gate.next_deadline() for gate in self.gates.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def at(self, task: VertexUid, channel: ChannelId) -> Batch | None:
        """The micro-batch of this channel that the task is at."""
        element = self._running.get(task)
        return element if isinstance(element, Batch) and self.gates[task].is_at(channel) else None

    def is_running(self, task: VertexUid) -> bool:
        return task in self._running

    @property
    def holds_batches(self) -> bool:
        """Whether any micro-batch is anywhere, be it in a task's hands."""
        return bool(self._running) or any(self.batches())

    def filled(self) -> dict[str, int]:
        """How many micro-batches wait in each channel."""
        channels = (channel for gate in self.gates.values() for channel in gate.channels.values())
        return {str(channel.id): len(channel.batches) for channel in channels}

    def batches(self) -> Iterator[Batch]:
        """All that there are, those in the tasks' hands included."""
        for gate in self.gates.values():
            for channel in gate.channels.values():
                yield from channel.batches
        yield from (element for element in self._running.values() if isinstance(element, Batch))

    def noted(self) -> Iterator[Batch]:
        """What belongs to a checkpoint that is not through at its gate: the task may have had it meanwhile."""
        for gate in self.gates.values():
            for elements in gate.state.noted.values():
                yield from (element for element in elements if isinstance(element, Batch))

    def in_flight(self, checkpoint: CheckpointId) -> list[InFlight]:
        """What the barriers of `checkpoint` would find in flight, if they came now and overtook everything."""
        return [
            self._in_flight(task, ChannelState(checkpoint=checkpoint, in_flight=gate.in_flight(checkpoint)))
            for task, gate in self.gates.items()
        ]

    # ---- how

    def _channel(self, id: ChannelId) -> Channel:
        return self.gates[self._consumers[id]].channels[id]

    def _put(self, puts: Iterable[tuple[ChannelId, Element]], now_ms: int) -> list[Told]:
        told: list[Told] = []
        for id, element in puts:
            task = self._consumers[id]
            told += self._follow(task, self.gates[task].put(id, element, now_ms), now_ms)
        return told

    def _follow(self, task: VertexUid, effects: list[Effect], now_ms: int) -> list[Told]:
        """What a gate wants done, and what follows from that at the gates behind."""
        told: list[Told] = []
        waiting = deque((task, effect) for effect in effects)
        while waiting:
            at, effect = waiting.popleft()
            match effect:
                case Process(channel=channel, element=element):
                    self._running[at] = element
                    told.append(Run(task=at, channel=channel, element=element))
                case TakeState(barrier=barrier, watermarks=watermarks):
                    told.append(Passed(checkpoint=barrier.checkpoint, task=at, watermarks=watermarks))
                    waiting += self._pass_on(at, barrier, now_ms)
                case ChannelState():
                    told.append(self._in_flight(at, effect))
                case GaveUp(checkpoint=checkpoint, reason=reason):
                    told.append(Refused(checkpoint=checkpoint, task=at, reason=reason))
                case Finished():
                    told.append(Ended(task=at))
        return sorted(told, key=lambda each: isinstance(each, Run))

    def _pass_on(self, task: VertexUid, barrier: Barrier, now_ms: int) -> Iterable[tuple[VertexUid, Effect]]:
        for id in self.topology.outputs(task):
            if not self._channel(id).ended:  # else those behind know that nothing comes by it
                behind = self._consumers[id]
                for effect in self.gates[behind].put(id, barrier, now_ms):
                    yield behind, effect

    def _in_flight(self, task: VertexUid, found: ChannelState) -> InFlight:
        """What was overtaken in a source's channel is not kept: the source is read again from before it."""
        positions = {}
        for id in self.topology.inputs[task]:
            if id in self._sources:
                source = self._sources[id]
                overtaken = (each for each in found.in_flight.get(id, ()) if isinstance(each, Batch))
                first = next(overtaken, None)
                at_barrier = self._at_barrier.get(found.checkpoint, self._reached)
                positions[source] = at_barrier[source] if first is None or first.before is None else first.before
        written = {id: elements for id, elements in found.in_flight.items() if id not in self._sources}
        return InFlight(checkpoint=found.checkpoint, task=task, channels=written, positions=positions)
