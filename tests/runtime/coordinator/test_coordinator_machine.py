"""Random histories of micro-batches, barriers, acks, failures and requests; the world holds each step to the laws."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.coordinator.cut import Group
from headgate.coordinator.messages import BatchFailed, Cancel, Declined, Tick, Trigger, WriteStopped
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinator_books import OUT, PARTICIPANTS, STATE, ack_of, checkpoint_ref, savepoint_ref
from headgate.testing.coordinators import CoordinatorHarness as World
from headgate_contract.ids import CheckpointId, RequestId

INTERVAL = 1_000
TIMEOUT = 3_000

picks = st.integers(0, 10_000)
options = st.builds(
    CheckpointOptions,
    interval_ms=st.sampled_from([None, INTERVAL, INTERVAL]),
    timeout_ms=st.just(TIMEOUT),
    min_pause_ms=st.sampled_from([0, 0, 700]),
    max_concurrent=st.integers(1, 3),
    retained=st.integers(1, 3),
    tolerable_failures=st.sampled_from([0, 2, 100]),
)
PAST = [checkpoint_ref(3), savepoint_ref(4, "older"), checkpoint_ref(5), checkpoint_ref(6)]


class CoordinatorHistory(RuleBasedStateMachine):
    """Everything that may happen to a coordinator, in any order that its driver allows."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.asked = 0

    @initialize(options=options, restored=st.booleans())
    def start(self, options: CheckpointOptions, restored: bool) -> None:
        carried = tuple(Group(id=CheckpointId(id), sinks={OUT: ()}) for id in (5, 6))
        self.world = World(options, retained=PAST, carried=carried) if restored else World(options)

    @property
    def may_begin(self) -> bool:
        return not self.world.busy and self.world.coordinator.may_begin

    # ---- micro-batches and time

    @precondition(lambda self: self.may_begin)
    @rule()
    def begin(self) -> None:
        self.world.begin()

    @precondition(lambda self: self.world.busy)
    @rule(staged=st.integers(0, 3))
    def finish(self, staged: int) -> None:
        self.world.finish(staged)

    @rule(ms=st.sampled_from([1, 300, INTERVAL, TIMEOUT]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule()
    def wait_for_the_deadline(self) -> None:
        deadline = self.world.coordinator.next_deadline()
        if deadline is not None:
            self.world.pass_time(max(0, deadline - self.world.now_ms))

    @precondition(lambda self: self.world.busy and self.steps > 15)
    @rule(really=st.integers(0, 4))
    def fail_the_batch(self, really: int) -> None:
        if really == 0:
            self.world.busy = False
            self.world.tell(BatchFailed(cause="the step failed"))

    # ---- acks

    @precondition(lambda self: self.world.attempts)
    @rule(pick=picks, participant=st.sampled_from(PARTICIPANTS))
    def ack_any(self, pick: int, participant: str) -> None:
        """Also late ones, repeats, and acks of what is being stored."""
        ids = sorted(self.world.attempts)
        self.world.ack(ids[pick % len(ids)], participant)

    @precondition(lambda self: self.world.open_attempts)
    @rule(pick=picks, all_but=st.sampled_from([None, None, *PARTICIPANTS]))
    def ack_most(self, pick: int, all_but: str | None) -> None:
        attempts = self.world.open_attempts
        chosen = attempts[pick % len(attempts)].take.checkpoint
        self.world.ack(chosen, *(participant for participant in PARTICIPANTS if participant != all_but))

    @rule(checkpoint=st.integers(1, 2), participant=st.sampled_from(["state of another job", STATE]))
    def ack_of_a_stranger(self, checkpoint: int, participant: str) -> None:
        unknown = checkpoint + max(self.world.attempts, default=0) if participant == STATE else checkpoint
        assert self.world.tell(ack_of(unknown, participant)) == []

    @precondition(lambda self: self.world.attempts)
    @rule(pick=picks, participant=st.sampled_from([*PARTICIPANTS, "a stranger"]))
    def decline(self, pick: int, participant: str) -> None:
        ids = sorted(self.world.attempts)
        event = Declined(checkpoint=ids[pick % len(ids)], participant=participant, cause="the disk is full")
        actions = self.world.tell(event)
        assert participant in PARTICIPANTS or not actions

    # ---- what people ask for

    @rule(name=st.sampled_from([None, None, "a", "b", "c", "older"]))
    def ask_for_a_snapshot(self, name: str | None) -> None:
        self.world.request(self.next_request(), name)

    @precondition(lambda self: self.steps > 6)
    @rule(
        name=st.sampled_from([None, "last", "a"]),
        asked=st.booleans(),
        keep=st.sampled_from([None, 3, 5, 7, 9]),
        drain=st.booleans(),
    )
    def ask_to_stop(self, name: str | None, asked: bool, keep: int | None, drain: bool) -> None:
        if asked:
            self.world.request(self.next_request(), name, stop=True, drain=drain and name is not None, keep=keep)
        else:
            self.world.tell(Trigger(stop=True, reason="SIGTERM"))

    @precondition(lambda self: self.steps > 15)
    @rule(really=st.integers(0, 4), asked=st.booleans())
    def cancel(self, really: int, asked: bool) -> None:
        if really == 0:
            self.world.tell(Cancel(request=RequestId(self.next_request()) if asked else None))

    # ---- the ledger

    @precondition(lambda self: self.world.ledger)
    @rule(fail=st.sampled_from([False, False, False, True]))
    def carry_out(self, fail: bool) -> None:
        self.world.carry_out(fail=fail)

    @precondition(lambda self: self.world.inbox)
    @rule()
    def deliver(self) -> None:
        self.world.deliver()

    @precondition(lambda self: self.world.disposal)
    @rule()
    def clean(self) -> None:
        self.world.clean()

    @rule(clean=st.booleans())
    def settle(self, clean: bool) -> None:
        self.world.settle(clean=clean)

    def next_request(self) -> str:
        self.asked += 1
        return f"request-{self.asked}"

    # ---- the laws that hold between steps

    @invariant()
    def laws(self) -> None:
        self.steps += 1
        if not hasattr(self, "world"):
            return
        coordinator, attempts = self.world.coordinator, self.world.open_attempts
        deadline = coordinator.next_deadline()
        if self.world.ended:
            assert not coordinator.may_begin
            assert deadline is None, "who ended does nothing more"
        elif any(attempt.trigger.stop for attempt in attempts):
            assert not coordinator.may_begin, "nothing begins while the stream stops"
        elif len(coordinator.store.cleaning) > self.world.options.max_concurrent:
            return  # the cleaner's word is an event of its own
        elif coordinator.may_begin and not self.world.busy and not attempts:
            assert (deadline is not None) == (self.world.options.interval_ms is not None), "checkpoints go on"

    def teardown(self) -> None:
        """Whatever has happened: a stop that nothing fails any more completes, and everybody has an answer."""
        if not hasattr(self, "world"):
            return
        world = self.world
        if world.busy:
            world.finish()
        world.settle()
        if not world.ended:
            world.tell(Trigger(stop=True, reason="the end"))
        for _ in range(20):
            if world.busy:  # a drain's last step
                world.finish()
            for attempt in list(world.open_attempts):
                world.ack(attempt.take.checkpoint)
            world.settle()
            world.tell(Tick())
        assert world.ended, "a stop completes"
        self.check_books(world)

    def check_books(self, world: World) -> None:
        assert set(world.replies) == world.requests, "everybody has an answer"
        gone = {id for slot in world.slots for id in slot.retires}
        assert not gone & world.spared, "what a stop was to keep is there"
        last = world.slots[-1] if world.slots else None
        assert bool(world.failures) != isinstance(last, WriteStopped), "it ends once: stopped or failed"
        done = [number for numbers in world.groups().values() for number in numbers]
        assert done == world.staged[: len(done)], "each staged thing is in one group, none lost, none twice, in order"
        if isinstance(last, WriteStopped) and last.snapshot is not None:
            assert done == world.staged, "a stop leaves nothing behind"
            drained = [attempt for attempt in world.attempts.values() if attempt.trigger.drain]
            assert not drained or world.finishing, "a drain ends with what the operators have finished"
        for id, answer in world.replies.items():
            self.check_answer(world, id, answer)

    def check_answer(self, world: World, id: RequestId, answer: Any) -> None:
        """Who is told that a snapshot is there finds it in the log; who is told that there is none does not."""
        completed = {slot.checkpoint: slot for slot in world.completed}
        own = [slot for slot in world.completed if slot.request == id]
        if isinstance(answer, WriteStopped):
            assert answer.snapshot is None or answer.snapshot in completed
        elif answer.done:
            assert answer.result["snapshot"] in completed
        else:
            assert answer.why
            assert not own or "is complete" in answer.why, f"{id} was refused ({answer.why}), but its snapshot is there"


TestCoordinatorHistory = CoordinatorHistory.TestCase
TestCoordinatorHistory.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
