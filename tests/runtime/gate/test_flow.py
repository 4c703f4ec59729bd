"""Barriers through whole jobs: every checkpoint that completes is a consistent cut, and can be lived on from."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headgate.gate.elements import Barrier, Batch, ChannelId
from headgate.gate.flow import Flow, InFlight, Passed, Run, Topology
from headgate.gate.gate import Gate
from headgate_contract.ids import CheckpointId, VertexUid
from tests.runtime.gate.dags import Lived, doubled, missing, random_topology, run_to_the_end, truth

SEEDS = 40


def lived(seed: int, *, exactly_once: bool, flow_class: type[Flow] = Flow) -> tuple[Lived, Counter[str], Counter[str]]:
    """A life to its end, and what is missing and doubled after a restore of each of its checkpoints."""
    chance = random.Random(seed)
    topology = random_topology(chance)
    wanted = truth(topology)
    life = Lived(topology, chance, exactly_once, flow_class=flow_class)
    run_to_the_end(life)
    assert not missing(life.states, wanted)
    assert not doubled(life.states, wanted)
    lost, twice = Counter[str](), Counter[str]()
    for snapshot in chance.sample(list(life.completed.values()), min(2, len(life.completed))):
        next_life = Lived(topology, chance, exactly_once, restored=snapshot, checkpoints=False)
        run_to_the_end(next_life)
        lost += missing(next_life.states, wanted)
        twice += doubled(next_life.states, wanted)
    return life, lost, twice


def test_exactly_once_every_checkpoint_of_a_random_job_restores_to_the_truth() -> None:
    completed = in_flight = 0
    for seed in range(SEEDS):
        life, lost, twice = lived(seed, exactly_once=True)
        assert not lost, f"seed {seed}"
        assert not twice, f"seed {seed}"
        completed += len(life.completed)
        in_flight += sum(bool(snapshot.in_flight) for snapshot in life.completed.values())
    assert completed > 2 * SEEDS
    assert in_flight > SEEDS / 4


def test_at_least_once_nothing_is_lost_and_something_is_doubled() -> None:
    doubles = 0
    for seed in range(SEEDS):
        _, lost, twice = lived(seed, exactly_once=False)
        assert not lost, f"seed {seed}"
        doubles += bool(twice)
    assert doubles > SEEDS / 4, "several inputs at different paces: else at-least-once would prove nothing"


# ---- the same with a fault: the law notices


def drop_channel_state(patch: pytest.MonkeyPatch) -> None:
    in_flight = Flow._in_flight

    def forgetful(self: Flow, task: VertexUid, found: object) -> InFlight:
        told = in_flight(self, task, found)  # type: ignore[arg-type]
        return InFlight(checkpoint=told.checkpoint, task=told.task, channels={}, positions=told.positions)

    patch.setattr(Flow, "_in_flight", forgetful)


def barrier_overtakes(patch: pytest.MonkeyPatch) -> None:
    """Aligned barriers are met before what stands before them."""
    from headgate.gate.channel import Channel

    put = Channel.put

    def ahead(self: Channel, element: object) -> None:
        put(self, element)  # type: ignore[arg-type]
        if isinstance(element, Barrier) and element.overtakes_after_ms is None and not self.ended:
            self._queue.appendleft(self._queue.pop())

    patch.setattr(Channel, "put", ahead)


def no_block_in_aligned(patch: pytest.MonkeyPatch) -> None:
    from headgate.gate.states import Aligning

    patch.setattr(Aligning, "holds_back", lambda self, channel: False)


def forget_overtaken_batch(patch: pytest.MonkeyPatch) -> None:
    """What a task is at when its state is taken is in neither."""
    overtake = Gate._overtake

    def forgetful(self: Gate, barrier: Barrier) -> object:
        running, self._running = self._running, None
        try:
            return overtake(self, barrier)
        finally:
            self._running = running

    patch.setattr(Gate, "_overtake", forgetful)


@pytest.mark.parametrize(
    "fault",
    [drop_channel_state, barrier_overtakes, no_block_in_aligned, forget_overtaken_batch],
    ids=lambda f: f.__name__,
)
def test_a_planted_fault_breaks_the_law(fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)  # type: ignore[operator]
    broken = Counter[str]()
    for seed in range(SEEDS):
        _, lost, twice = lived(seed, exactly_once=True)
        broken += lost + twice
        if broken:
            return
    pytest.fail("nothing was noticed")


# ---- one small job, step by step

S0, S1, A, B = (VertexUid(name) for name in ("s0", "s1", "a", "b"))
"""s0 and s1 feed a, whose records b reads."""
FROM_S0, FROM_S1, A_TO_B = ChannelId(S0, A), ChannelId(S1, A), ChannelId(A, B)


def small() -> Flow:
    topology = Topology({S0: FROM_S0, S1: FROM_S1}, {A: (FROM_S0, FROM_S1), B: (A_TO_B,)}, {A: (A,), B: ()})
    return Flow(topology, {S0: {"next": 0}, S1: {"next": 0}})


def batch(first: int) -> Batch:
    return Batch([first], 1, 1, {"next": first}, {"next": first + 1})


def test_what_was_overtaken_in_a_sources_channel_is_read_again_and_in_a_written_one_is_kept() -> None:
    flow = small()
    for number in range(3):
        flow.put(S0, batch(number), 0)
    (begun,) = flow.take(A, 0)
    assert isinstance(begun, Run)
    flow.done(A, {A: Batch(["made"], 1, 1)}, 0)
    flow.take(A, 0)
    told = flow.inject(Barrier(CheckpointId(1), 0, 0), 0)
    assert [each.task for each in told if isinstance(each, Passed)] == [A, B]
    kept = {each.task: each for each in told if isinstance(each, InFlight)}
    of_a, of_b = kept[A], kept[B]
    assert of_a.channels == {}
    assert of_a.positions == {S0: {"next": 1}, S1: {"next": 0}}, "behind what is in the state of a"
    (made,) = of_b.channels[A_TO_B]
    assert isinstance(made, Batch)
    assert made.content == ["made"]


def test_an_aligned_barrier_stands_behind_everything_that_was_put() -> None:
    flow = small()
    flow.put(S0, batch(0), 0)
    assert flow.inject(Barrier(CheckpointId(1)), 0) == []
    flow.put(S0, batch(1), 0)
    flow.take(A, 0)
    flow.done(A, {A: Batch(["made"], 1, 1)}, 0)
    told = flow.take(A, 0)
    (of_a,) = (each for each in told if isinstance(each, InFlight))
    assert of_a.positions == {S0: {"next": 1}, S1: {"next": 0}}
    assert isinstance(told[-1], Run), "and it goes on with what came behind"
    assert [type(each) for each in flow.take(B, 0)] == [Run], "what a had made before the barrier"
    flow.done(B, {}, 0)
    assert [type(each) for each in flow.take(B, 0)] == [Passed, InFlight]


def test_a_task_begins_nothing_while_there_is_no_room_behind_it_but_meets_its_barriers() -> None:
    flow = small()
    made = 0
    while flow._channel(A_TO_B).has_room:
        flow.put(S0, batch(made), 0)
        assert isinstance(flow.take(A, 0)[-1], Run)
        flow.done(A, {A: Batch([made], 1, 1)}, 0)
        made += 1
    flow.put(S0, batch(made), 0)
    assert flow.take(A, 0) == []
    flow.put(S0, batch(made + 1), 0)
    flow.inject(Barrier(CheckpointId(1), 0, 0), 0)
    assert flow.take(A, 0) == []
    flow.take(B, 0)
    flow.done(B, {}, 0)
    assert isinstance(flow.take(A, 0)[-1], Run)


def test_what_a_checkpoint_has_noted_is_known_until_it_is_told_though_the_task_has_had_it() -> None:
    """Whoever deletes a channel's files asks for it: here one of two inputs has brought the barrier."""
    flow = small()
    overtaken = batch(7)
    flow.put(S0, overtaken, 0)
    flow.gates[A].put(FROM_S1, Barrier(CheckpointId(1), 0, 0), 0)
    flow.take(A, 0)
    flow.done(A, {}, 0)
    assert (list(flow.batches()), list(flow.noted())) == ([], [overtaken])
    flow.gates[A].put(FROM_S0, Barrier(CheckpointId(1), 0, 0), 0)
    assert list(flow.noted()) == []
