"""The arithmetic of `make bench-checkpoint`, on a turn that was made up; the benchmark itself is for idle machines."""

from __future__ import annotations

import math

import pytest

from benchmarks.checkpoint import (
    ARMS,
    EVERY_1_S,
    EVERY_5_S,
    OFF,
    Batch,
    Turn,
    amplification,
    blocking,
    order,
    percentile,
    rate,
    throughput,
)
from headgate_contract.ids import CheckpointId
from headgate_contract.measures import CheckpointCost
from headgate_contract.snapshot import SnapshotKind

pytestmark = pytest.mark.spark


def cost(number: int, uploaded: int, snapshot_ms: float = 0.2) -> CheckpointCost:
    return CheckpointCost(
        checkpoint=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        due_ms=0,
        barrier_ms=30.0,
        snapshot_ms=snapshot_ms,
        persist_ms=50.0,
        coordination_ms=10.0,
        uploaded_bytes=uploaded,
        uploaded_files=2,
    )


def turn(every_ms: float = 100.0, uploaded: int = 3200, wait_ms: float = 0.5) -> Turn:
    """100 rows a batch; measured from 1000 to 2000; checkpoints 1 to 3, the first one before that."""
    made = Turn(100, opened=1000.0, closed=2000.0)
    at = 0.0
    while at < 3000:
        made.batches.append(Batch(at, at + wait_ms, at + every_ms - 5))
        at += every_ms
    made.costs = [(500.0, cost(1, 999_999)), (1400.0, cost(2, uploaded)), (1900.0, cost(3, uploaded))]
    made.records = {CheckpointId(1): 400, CheckpointId(2): 500, CheckpointId(3): 5000}
    return made


def arms(with_checkpoints: Turn, *off: Turn) -> dict[str, list[Turn]]:
    return {OFF: list(off), EVERY_5_S: [with_checkpoints], EVERY_1_S: [with_checkpoints]}


def test_a_turn_counts_what_lies_between_its_opening_and_its_closing() -> None:
    made = turn()
    assert made.progress == (900, pytest.approx(0.9))
    assert rate([made, turn(200.0)]) == pytest.approx((900 + 400) / (0.9 + 0.8))
    assert [measured.checkpoint for measured in made.measured] == [2, 3]
    assert made.changed(keys=300) == 100 + 300, "a key counts once a checkpoint"
    assert made.waits() == [0.5, 0.5]


def test_throughput_is_met_within_5_percent_and_by_no_machine_that_is_too_noisy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert throughput({OFF: [1000.0, 980.0, 990.0], EVERY_5_S: [960.0, 985.0, 950.0], EVERY_1_S: [1.0]})
    assert not throughput({OFF: [1000.0, 1000.0], EVERY_5_S: [909.0], EVERY_1_S: [1000.0]})
    assert "loss of throughput at 5 s <= 5%: 9.1%" in capsys.readouterr().out
    assert not throughput({OFF: [1000.0, 1100.0], EVERY_5_S: [1050.0], EVERY_1_S: [1000.0]})
    assert "too noisy" in capsys.readouterr().out
    assert not throughput({OFF: [1000.0, 1000.0], EVERY_5_S: [1000.0], EVERY_1_S: [1000.0]}, missing=1)
    assert "1 checkpoints are missing" in capsys.readouterr().out
    assert not throughput({OFF: [1000.0], EVERY_5_S: [1000.0], EVERY_1_S: [1000.0]}), "nothing to compare with"


def test_a_machine_that_drifts_makes_no_round_and_no_arm_look_faster() -> None:
    moments: dict[tuple[int, str], list[int]] = {}
    for at, turn in enumerate(order(3)):
        moments.setdefault(turn, []).append(at)
    assert {len(found) for found in moments.values()} == {3}
    for number in range(3):
        assert sum(sum(moments[number, arm]) for arm in ARMS) == sum(range(27)) / 3
    for arm in ARMS:
        assert sum(sum(moments[number, arm]) for number in range(3)) == sum(range(27)) / 3
    assert {sum(found) for found in moments.values()} == {39}


def test_blocking_is_the_worse_of_what_the_driver_says_and_what_the_next_batch_felt() -> None:
    assert blocking(arms(turn(wait_ms=4.0), turn()))
    assert not blocking(arms(turn(wait_ms=6.0), turn()))
    slow = turn()
    slow.costs[1] = (1400.0, cost(2, 3200, snapshot_ms=7.0))
    assert not blocking(arms(slow, turn()))


def test_amplification_is_over_all_measured_checkpoints_of_an_arm() -> None:
    assert amplification(arms(turn(uploaded=4 * 16 * 200), turn()), keys=300)
    assert not amplification(arms(turn(uploaded=4 * 16 * 200 + 16), turn()), keys=300)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) == math.inf


def test_where_no_checkpoint_was_measured_nothing_about_them_is_met() -> None:
    none = turn()
    none.costs = none.costs[:1]
    assert not blocking(arms(none, turn()))
    assert not amplification(arms(none, turn()), keys=300)
