"""What a sink has prepared stands for what it was given, but where the group has become another one meanwhile."""

from __future__ import annotations

from headgate.coordinator.output import OutputOnItsWay
from headgate.coordinator.policy import CheckpointOptions
from headgate.testing.coordinators import CoordinatorHarness
from headgate_contract.ids import CheckpointId, VertexUid

OUT, OTHER = VertexUid("out"), VertexUid("other")


def handles(*names: str) -> tuple[dict[str, object], ...]:
    return tuple({"staged": name} for name in names)


def at(output: OutputOnItsWay, checkpoint: int, *names: str) -> dict[VertexUid, tuple[dict[str, object], ...]]:
    """These are staged, and then a barrier passes; what its snapshot is given."""
    output.stage({OUT: handles(*names)})
    return dict(output.barrier(CheckpointId(checkpoint)))


def test_the_group_consists_of_what_its_sinks_have_joined() -> None:
    output = OutputOnItsWay([], set())
    output.stage({OTHER: handles("x", "y")})
    given = at(output, 1, "a", "b")
    output.stand_in(CheckpointId(1), given, {OUT: handles("ab"), OTHER: given[OTHER]})
    assert output.group(CheckpointId(1)).sinks == {OUT: handles("ab"), OTHER: handles("x", "y")}
    output.complete(CheckpointId(1))
    assert [dict(group.sinks) for group in output.groups] == [{OTHER: handles("x", "y"), OUT: handles("ab")}]


def test_what_was_joined_for_an_attempt_that_could_not_be_stored_rolls_on() -> None:
    output = OutputOnItsWay([], set())
    output.stand_in(CheckpointId(1), at(output, 1, "a", "b"), {OUT: handles("ab")})
    given = at(output, 2, "c")
    assert given == {OUT: handles("ab", "c")}
    output.stand_in(CheckpointId(2), given, {OUT: handles("abc")})
    assert output.group(CheckpointId(2)).sinks == {OUT: handles("abc")}


def test_what_an_earlier_attempt_has_completed_with_is_not_published_again_in_a_joined_file() -> None:
    output = OutputOnItsWay([], set())
    at(output, 1, "a", "b")
    given = at(output, 2, "c")
    assert given == {OUT: handles("a", "b", "c")}
    output.complete(CheckpointId(1))
    output.stand_in(CheckpointId(2), given, {OUT: handles("abc")})
    assert output.group(CheckpointId(2)).sinks == {OUT: handles("c")}


def test_a_barrier_that_passes_sinks_one_by_one_has_each_of_them_stand_in_for_itself() -> None:
    output = OutputOnItsWay([], set())
    output.stage({OUT: handles("a", "b")})
    given = dict(output.barrier(CheckpointId(1), {OUT}))
    output.stage({OUT: handles("later"), OTHER: handles("x", "y")})
    given |= output.barrier(CheckpointId(1), {OTHER})
    output.stand_in(CheckpointId(1), given, {OUT: handles("ab"), OTHER: handles("xy")})
    assert output.group(CheckpointId(1)).sinks == {OUT: handles("ab"), OTHER: handles("xy")}
    assert output.staged.handles == {OUT: handles("later")}


TOLERANT = CheckpointOptions(interval_ms=1000, timeout_ms=5000, max_concurrent=3, tolerable_failures=100)


def test_only_the_first_attempt_under_way_may_have_its_output_joined() -> None:
    """What a later one is given may complete with an earlier one: joined, a part of it would be published twice."""
    world = CoordinatorHarness(TOLERANT)
    for _ in range(3):
        world.batch()
        world.pass_time(1000)
    assert [world.attempts[CheckpointId(number)].take.joinable for number in (1, 2, 3)] == [True, False, False]
    world.complete(1)
    world.complete(2)
    world.complete(3)
    world.batch()
    world.pass_time(1000)
    assert world.attempts[CheckpointId(4)].take.joinable


def test_one_whose_predecessor_came_to_nothing_may() -> None:
    world = CoordinatorHarness(TOLERANT)
    world.batch()
    world.pass_time(1000)
    world.decline(1)
    world.batch()
    world.pass_time(1000)
    assert world.attempts[CheckpointId(2)].take.joinable
