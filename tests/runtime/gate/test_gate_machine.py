"""A gate under random histories, against the law of consistent cuts.

For each checkpoint that comes through a gate: what its state has processed and what is in flight, together, are just
what came before its barriers, each once and per input in order; at least once, the state may have more. And nothing
hangs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headgate.gate.channel import Channel
from headgate.gate.effects import ChannelState, Effect, GaveUp, Process, TakeState
from headgate.gate.elements import Barrier, Batch, ChannelId, EndOfInput
from headgate.gate.gate import Gate
from headgate_contract.ids import CheckpointId
from tests.runtime.gate.script import channel


@dataclass
class Observed:
    """What whoever looks from outside knows."""

    exactly_once: bool
    put: dict[ChannelId, list[str]] = field(default_factory=lambda: defaultdict(list))
    before: dict[tuple[int, ChannelId], int] = field(default_factory=dict)
    """How many batches had been put into a channel when the barrier of a checkpoint was."""
    processed: list[str] = field(default_factory=list)
    states: dict[int, list[str]] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    given_up: list[int] = field(default_factory=list)

    def see(self, effects: list[Effect]) -> Process | None:
        for effect in effects:
            if isinstance(effect, TakeState):
                assert effect.barrier.checkpoint not in self.states, "a state is taken once"
                self.states[effect.barrier.checkpoint] = list(self.processed)
            elif isinstance(effect, ChannelState):
                self.judge(effect)
            elif isinstance(effect, GaveUp):
                assert effect.checkpoint not in self.given_up, "given up once"
                assert effect.checkpoint not in self.whole
                self.given_up.append(effect.checkpoint)
        last = effects[-1] if effects else None
        return last if isinstance(last, Process) else None

    def judge(self, found: ChannelState) -> None:
        checkpoint = found.checkpoint
        assert checkpoint in self.states
        assert checkpoint not in self.given_up
        assert checkpoint not in self.whole
        self.whole.add(checkpoint)
        state = self.states[checkpoint]
        for id, names in self.put.items():
            wanted = names[: self.before.get((checkpoint, id), len(names))]
            mine = [name for name in state if name in set(names)]
            flying = [str(each.content) for each in found.in_flight.get(id, ()) if isinstance(each, Batch)]
            if self.exactly_once:
                assert mine + flying == wanted, f"checkpoint {checkpoint}, input {id}"
            else:
                assert not flying
                assert mine[: len(wanted)] == wanted


KINDS = st.sampled_from([None, 0, 20])
ACTIONS = st.sampled_from(["put"] * 5 + ["take", "done", "barrier"] * 4 + ["time", "end", "abort"])
LAST = 5


class History:
    """What producers, the task, time and a coordinator may do to a gate, one thing after the other."""

    def __init__(self, data: st.DataObject, inputs: int, exactly_once: bool) -> None:
        self.draw = data.draw
        self.ids = [channel(name) for name in "abcd"[:inputs]]
        self.gate = Gate({id: Channel(id) for id in self.ids}, exactly_once)
        self.seen = Observed(exactly_once)
        self.barriers = [
            Barrier(CheckpointId(number), 0, self.draw(KINDS) if exactly_once else None)
            for number in range(1, LAST + 1)
        ]
        self.passed = dict.fromkeys(self.ids, 0)
        self.ended: set[ChannelId] = set()
        self.now = self.count = 0
        self.running: Batch | None = None

    def step(self, action: str) -> None:
        if action in ("put", "barrier", "end"):
            id = self.draw(st.sampled_from(self.ids))
            if id not in self.ended:
                getattr(self, action)(id)
        else:
            getattr(self, action)()

    def put(self, id: ChannelId) -> None:
        self.count += 1
        name = f"{id.producer}{self.count}"
        self.seen.put[id].append(name)
        self.seen.see(self.gate.put(id, Batch(name), self.now))

    def barrier(self, id: ChannelId) -> None:
        number = self.passed[id] + self.draw(st.sampled_from([0, 0, 0, 1]))  # one may be missing
        if number < LAST:
            self.passed[id] = number + 1
            self.seen.before[number + 1, id] = len(self.seen.put[id])
            self.seen.see(self.gate.put(id, self.barriers[number], self.now))

    def end(self, id: ChannelId) -> None:
        self.ended.add(id)
        self.seen.see(self.gate.put(id, EndOfInput(), self.now))

    def abort(self) -> None:
        self.gate.abort(CheckpointId(self.draw(st.integers(1, LAST))))

    def time(self) -> None:
        self.now += 7
        self.seen.see(self.gate.tick(self.now))

    def take(self) -> None:
        if self.running is None:
            taken = self.seen.see(self.gate.take(self.now))
            assert taken is None or isinstance(taken.element, Batch)
            self.running = taken.element if taken is not None else None  # type: ignore[assignment]

    def done(self) -> None:
        if self.running is not None:
            self.gate.done()
            self.seen.processed.append(str(self.running.content))
            self.running = None


@given(data=st.data(), inputs=st.integers(1, 4), exactly_once=st.booleans())
def test_f125_random_barriers_hang_nothing_and_each_checkpoint_is_a_consistent_cut(
    data: st.DataObject, inputs: int, exactly_once: bool
) -> None:
    history = History(data, inputs, exactly_once)
    for action in data.draw(st.lists(ACTIONS, max_size=60)):
        history.step(action)
    for id in set(history.ids) - history.ended:
        history.end(id)
    while not history.gate.finished or history.running is not None:
        before = len(history.seen.processed), history.gate.finished
        history.done()
        history.take()
        assert history.running is not None or history.gate.finished, f"it hangs at {before}"
    for id, names in history.seen.put.items():
        mine = [name for name in history.seen.processed if name.startswith(str(id.producer))]
        assert mine == names, "each once, in order"
