"""The gate before a task: which element comes next, and when a barrier has come from all inputs. Pure.

Whoever puts something into a channel calls `put`; the task, when it has nothing to do, calls `take`, and `done` when
the element that it was given is behind it. Each answers with what is to be done, in order. One thread at a time.

Exactly once, a gate aligns: an input whose barrier it has met is held back. A barrier that may overtake does not wait
to be met: as soon as it may, the state is taken, and what it has overtaken belongs to the checkpoint. At least once,
nothing is held back and nothing overtaken: what comes behind a barrier may be in the state, and is read again after a
restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from headgate.coordinator.reasons import CheckpointFailureReason as Reason
from headgate.gate.channel import Channel
from headgate.gate.effects import ChannelState, Effect, Finished, GaveUp, Process, TakeState
from headgate.gate.elements import Barrier, Batch, ChannelId, Data, Element, EndOfInput, Watermark
from headgate.gate.states import (
    Aligning,
    Channels,
    Counting,
    Flowing,
    GateState,
    Next,
    Overtaking,
    View,
    overtaking,
)
from headgate.gate.watermarks import Watermarks
from headgate_contract.ids import CheckpointId

MOST_REMEMBERED = 64
"""How many aborted checkpoints whose barriers may still come a gate remembers."""


@dataclass
class Gate:
    """The inputs of one task."""

    channels: Mapping[ChannelId, Channel]
    exactly_once: bool = True
    watermarks: Watermarks = field(default_factory=lambda: Watermarks({}))
    """As restored; those of a first start know of none."""
    state: GateState = field(init=False)
    begun: int = field(default=0, init=False)
    """The newest checkpoint that has been taken or given up here: older barriers come too late."""

    def __post_init__(self) -> None:
        self.state = Flowing() if self.exactly_once else Counting()
        if not self.watermarks.levels:
            self.watermarks = Watermarks.of(self.channels)
        self._open = frozenset(self.channels)
        self._aborted: list[CheckpointId] = []
        self._turns = list(self.channels)
        """Whose turn it is: the first that has something, which is the last then."""
        self._running: tuple[ChannelId, Data] | None = None
        """What the task is at, as it stood in its channel."""
        self._known_when_done = self.watermarks

    # ---- what happens

    def put(self, channel: ChannelId, element: Element, now_ms: int) -> list[Effect]:
        """`element` comes into `channel`."""
        if isinstance(element, Barrier) and self._is_late(element):
            return []
        into = self.channels[channel]
        into.put(element)
        effects: list[Effect] = []
        if isinstance(self.state, Overtaking) and channel not in self.state.here:
            effects += self._noted(self.state, into, element)
        return [*effects, *self.tick(now_ms)]

    def inject(self, channel: ChannelId, in_flight: Iterable[Data]) -> None:
        """Before anything is put: what was in flight in the snapshot that the task begins with."""
        self.channels[channel].inject(in_flight)

    def take(self, now_ms: int, *, data: bool = True) -> list[Effect]:
        """What the task is to do next: nothing while it is at something, or while everything is held back.

        At most one Process, and that last; the barriers and ends that stand before it are met first, and they alone
        where the task may have no `data` now.
        """
        effects = self.tick(now_ms)
        while self._running is None and (channel := self._next_channel(data)) is not None:
            element = channel.take()
            if isinstance(element, Barrier):
                effects += [*self._meet(channel.id, element), *self.tick(now_ms)]
            elif isinstance(element, EndOfInput):
                effects += self._end(channel.id)
            elif isinstance(element, Watermark):
                effects += self._tell(channel.id, element, self.watermarks.after(channel.id, element))
            else:
                self._running = (channel.id, element)
                effects.append(Process(channel=channel.id, element=element))
        return effects

    def done(self, watermark: Watermark | None = None) -> tuple[Watermark, ...]:
        """The element is behind the task: its new state, its output and its watermark hold.

        `watermark` is what a source's micro-batch has told of event time. What those behind are to be told is returned.
        """
        assert self._running is not None
        (channel, _), self._running = self._running, None
        if watermark is not None:
            self._known_when_done = self._known_when_done.after(channel, watermark)
        before, self.watermarks = self.watermarks, self._known_when_done
        return self.watermarks.news_since(before)

    def is_at(self, channel: ChannelId) -> bool:
        """Whether what the task is at has come by this channel."""
        return self._running is not None and self._running[0] == channel

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: barriers may have waited long enough to overtake."""
        effects: list[Effect] = []
        while (barrier := self._overtaker(now_ms)) is not None:
            effects += self._overtake(barrier)
        return effects

    def next_deadline(self) -> int | None:
        """When `tick` should come at the latest, or None."""
        moments = [barrier.overtakes_ms for barrier in self._waiting_barriers()]
        return min((moment for moment in moments if moment is not None), default=None)

    def pass_by(self, barrier: Barrier) -> list[Effect]:
        """A barrier for a task to which nothing comes any more: there is no input that could bring it."""
        assert self.finished
        taken = TakeState(barrier=barrier, watermarks=self.watermarks)
        return [taken, ChannelState(checkpoint=barrier.checkpoint, in_flight={})]

    def abort(self, checkpoint: CheckpointId) -> None:
        """Nobody wants the checkpoint any more: what it held back goes on, and its barriers mean nothing."""
        self.state = self.state.aborted(checkpoint)
        if checkpoint > self.begun and checkpoint not in self._aborted:
            self._aborted = [*self._aborted, checkpoint][-MOST_REMEMBERED:]
        for channel in self.channels.values():
            channel.remove([checkpoint])

    def in_flight(self, checkpoint: CheckpointId) -> dict[ChannelId, tuple[Data, ...]]:
        """What stands in the inputs before that barrier, and what the task is at: that is not in its state."""
        held = {id: self.channels[id].overtaken_by(checkpoint) for id in self._open}
        if self._running is not None:
            id, element = self._running
            held[id] = (element, *held.get(id, ()))
        return held

    @property
    def finished(self) -> bool:
        """All inputs have ended, and nothing of them is left."""
        return not self._open

    @property
    def ending(self) -> list[ChannelId]:
        """The inputs that are left whose producers have finished: nobody passes a barrier on to them."""
        return sorted(id for id in self._open if self.channels[id].ended)

    # ---- elements

    def _next_channel(self, data: bool) -> Channel | None:
        for at, id in enumerate(self._turns):
            channel = self.channels[id]
            head = channel.head()
            if head is None or self._holds_back(id) or (isinstance(head, (Batch, Watermark)) and not data):
                continue
            if isinstance(head, Barrier) and not self._is_late(head) and self.state.lets_wait(id, head):
                continue
            self._turns = [*self._turns[:at], *self._turns[at + 1 :], id]
            return channel
        return None

    def _holds_back(self, channel: ChannelId) -> bool:
        return self.state.holds_back(channel)

    def _tell(self, channel: ChannelId, element: Watermark | EndOfInput, known: Watermarks) -> list[Effect]:
        """A watermark that moves the task's is an element like any other; one that does not is done with."""
        news = known.news_since(self.watermarks)
        self._known_when_done = known
        if not news:
            self.watermarks = known
            return []
        self._running = (channel, element if isinstance(element, Watermark) else news[0])
        return [Process(channel=channel, element=news[0])]

    def _end(self, channel: ChannelId) -> list[Effect]:
        self._open -= {channel}
        effects = self._enter(self.state.ended(channel, self._view))
        known = self.watermarks.without(channel)
        if self._open:
            return effects + self._tell(channel, EndOfInput(), known)
        self.watermarks = known  # those behind are told the end, and no more
        return [*effects, Finished()]

    # ---- barriers

    @property
    def _view(self) -> View:
        return View(open=self._open, watermarks=self.watermarks)

    def _is_late(self, barrier: Barrier) -> bool:
        checkpoint = barrier.checkpoint
        return checkpoint in self._aborted or (checkpoint <= self.begun and checkpoint not in self.state.under_way)

    def _enter(self, following: Next) -> list[Effect]:
        self.state = following.state
        for effect in following.effects:
            if isinstance(effect, (TakeState, GaveUp)):
                checkpoint = effect.barrier.checkpoint if isinstance(effect, TakeState) else effect.checkpoint
                self.begun = max(self.begun, checkpoint)
        self._aborted = [checkpoint for checkpoint in self._aborted if checkpoint > self.begun]
        return list(following.effects)

    def _meet(self, channel: ChannelId, barrier: Barrier) -> list[Effect]:
        return [] if self._is_late(barrier) else self._enter(self.state.met(channel, barrier, self._view))

    def _noted(self, state: Overtaking, channel: Channel, element: Element) -> list[Effect]:
        """Something comes into an input whose barrier has still to come."""
        if isinstance(element, Barrier):
            if element.checkpoint != state.barrier.checkpoint:
                return []
            channel.remove([element.checkpoint])
            return self._enter(state.arrived(channel.id, self._view))
        if isinstance(element, EndOfInput):
            return self._enter(state.gives_up(Reason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM))
        self.state = state.brought(channel.id, element)
        return []

    def _waiting_barriers(self) -> Iterator[Barrier]:
        """Those that may overtake, now or later."""
        if not self.exactly_once:
            return
        if isinstance(self.state, Aligning):
            yield self.state.barrier
        here = self.state.here if isinstance(self.state, (Aligning, Overtaking)) else frozenset()
        for id in self._open - here:
            of_use = (barrier for barrier in self.channels[id].barriers if not self._is_late(barrier))
            yield from islice(of_use, 1)  # no barrier overtakes another

    def _overtaker(self, now_ms: int) -> Barrier | None:
        ready = [barrier for barrier in self._waiting_barriers() if barrier.may_overtake(now_ms)]
        return min(ready, key=lambda barrier: barrier.checkpoint, default=None)

    def _overtake(self, barrier: Barrier) -> list[Effect]:
        """Take the state now. In flight is what stands before the barrier, and what the task is at: that is not in."""
        checkpoint, state = barrier.checkpoint, self.state
        effects: list[Effect] = []
        aligned: Channels = frozenset()
        if isinstance(state, Aligning) and state.barrier.checkpoint == checkpoint:
            aligned = state.here
        elif state.under_way:
            effects += self._enter(state.gives_up(Reason.CHECKPOINT_DECLINED_SUBSUMED))
        effects += self._overtaken(barrier)
        here, in_flight = set(aligned), {}
        for id in self._open - aligned:
            channel = self.channels[id]
            in_flight[id] = channel.overtaken_by(checkpoint)
            if channel.holds(checkpoint) or channel.ended:
                here.add(id)
            channel.remove([checkpoint])
        if self._running is not None:
            id, element = self._running
            in_flight[id] = (element, *in_flight.get(id, ()))
        return [*effects, *self._enter(overtaking(barrier, frozenset(here), in_flight, self._view))]

    def _overtaken(self, barrier: Barrier) -> list[Effect]:
        """Older barriers on other inputs: on this one they are missing."""
        waiting = {each for channel in self.channels.values() for each in channel.barriers if not self._is_late(each)}
        older = sorted(each.checkpoint for each in waiting if each.checkpoint < barrier.checkpoint)
        reason = Reason.CHECKPOINT_DECLINED_SUBSUMED
        return self._enter(Next(self.state, tuple(GaveUp(checkpoint=each, reason=reason) for each in older)))
