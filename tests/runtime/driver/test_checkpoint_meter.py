"""What a checkpoint cost: the terms follow one another, add up, and are there for those that came to nothing too."""

from __future__ import annotations

import pytest

from headgate.coordinator.cut import Cut
from headgate.coordinator.messages import Acknowledged, Action, Event, NotifyAborted, StoreSnapshot, TakeSnapshot, Tick
from headgate.coordinator.reasons import CheckpointFailureReason
from headgate.driver import checkpoint_meter
from headgate.driver.checkpoint_meter import CheckpointMeter
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.measures import CheckpointCost
from headgate_contract.snapshot import SnapshotKind, SourceState, SubtaskState, VertexState
from tests.runtime.driver.ledger_world import LINES, handle

SEVEN = CheckpointId(7)


class Bench:
    """A meter under a clock that the test moves."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.told: list[CheckpointCost] = []
        patch.setattr(checkpoint_meter, "now_ms", lambda: self.now)
        self.meter = CheckpointMeter(self.told.append)

    def handle(self, event: Event, *actions: Action, takes: float = 0.0) -> None:
        """The coordinator takes in an event, and carrying out what it wants takes so long."""
        self.meter.saw(event, actions, self.now)
        self.now += takes
        self.meter.passed(actions)

    def acknowledge(self) -> None:
        self.handle(Acknowledged(checkpoint=SEVEN, participant="state counts"))

    def abort(self, held_up_ms: int = 0) -> CheckpointCost:
        return self.meter.aborted(
            NotifyAborted(
                checkpoint=SEVEN,
                reason=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                cause="why",
                latest_completed=None,
                held_up_ms=held_up_ms,
            )
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def barrier(due_ms: int) -> TakeSnapshot:
    return TakeSnapshot(
        checkpoint=SEVEN,
        kind=SnapshotKind.CHECKPOINT,
        name=None,
        cut=Cut(epoch=1),
        staged={},
        due_ms=due_ms,
        parts=frozenset(),
    )


def storing() -> StoreSnapshot:
    """Two subtasks share a file; the source has one of its own."""
    subtasks = tuple(SubtaskState(n, n, n, {}, (handle("shared/a"), handle(f"shared/b{n}"))) for n in range(2))
    return StoreSnapshot(
        checkpoint=SEVEN,
        kind=SnapshotKind.CHECKPOINT,
        name=None,
        origin=None,
        request=None,
        cut=Cut(epoch=1),
        vertices={VertexUid("counts"): VertexState("counts", 2, "hashmap", (), subtasks)},
        sources={LINES: SourceState("lines", "files", {}, (handle("shared/list"),))},
        groups=(),
        committed=(),
        retires=(),
    )


def terms(cost: CheckpointCost | None) -> tuple[float, float, float, float]:
    assert cost is not None
    return cost.barrier_ms, cost.snapshot_ms, cost.persist_ms, cost.coordination_ms


def test_a_completed_checkpoint_is_barrier_snapshot_persist_and_coordination_one_after_the_other(bench: Bench) -> None:
    bench.now = 1040.0
    bench.handle(Tick(), barrier(due_ms=1000), takes=0.5)
    bench.now += 10
    bench.meter.uploaded(SEVEN, 100)
    bench.meter.uploaded(SEVEN, 23)
    bench.acknowledge()
    bench.now += 20
    bench.acknowledge()
    bench.now += 3  # an older snapshot has to complete first
    bench.handle(Tick(), storing())
    bench.now += 4
    cost = bench.meter.completed(SEVEN)
    assert terms(cost) == (40.0, 0.5, 30.0, 7.0)
    assert cost is not None
    assert cost.total_ms == bench.now - 1000
    assert (cost.uploaded_bytes, cost.uploaded_files, cost.full_bytes) == (123, 2, 4)
    assert bench.told == [cost]
    assert bench.meter.completed(SEVEN) is None, "it is told once"


def test_one_that_is_given_up_while_it_is_persisted_has_the_terms_up_to_there(bench: Bench) -> None:
    bench.handle(Tick(), barrier(due_ms=1000), takes=1)
    bench.meter.uploaded(SEVEN, 100)
    bench.acknowledge()
    bench.now += 50
    cost = bench.abort()
    assert terms(cost) == (0.0, 1.0, 50.0, 0.0)
    assert (cost.uploaded_bytes, cost.full_bytes) == (100, None)
    assert bench.told == [], "the heart tells of those that completed"


def test_one_that_could_not_be_stored_has_spent_its_time_on_coordination(bench: Bench) -> None:
    bench.handle(Tick(), barrier(due_ms=1000))
    bench.now += 5
    bench.acknowledge()
    bench.handle(Tick(), storing())
    bench.now += 60
    assert terms(bench.abort()) == (0.0, 0.0, 5.0, 60.0)


def test_one_whose_barrier_never_passed_has_only_waited(bench: Bench) -> None:
    assert terms(bench.abort(held_up_ms=600)) == (600.0, 0.0, 0.0, 0.0)


def test_what_comes_for_an_attempt_that_is_over_is_nobodys(bench: Bench) -> None:
    bench.acknowledge()
    bench.meter.uploaded(SEVEN, 100)
    bench.handle(Tick(), barrier(due_ms=1000))
    bench.handle(Tick(), storing())
    cost = bench.meter.completed(SEVEN)
    assert cost is not None
    assert cost.uploaded_bytes == 0
