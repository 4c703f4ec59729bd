"""What of a snapshot a job can take: by its uids, kinds and key groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate_contract.fitting import Fit, JobShape, as_brought, fit
from headgate_contract.ids import CheckpointId, Generation, StreamName, VertexUid
from headgate_contract.operator_state import OperatorState, OperatorStateKind
from headgate_contract.settings import Settings
from headgate_contract.snapshot import (
    CommittableGroup,
    InFlight,
    InputState,
    SnapshotKind,
    SnapshotMetadata,
    SnapshotRef,
    SourceState,
    StateHandle,
    TaskState,
    VertexState,
)

COUNTS, LINES, OUT = VertexUid("counts"), VertexUid("lines"), VertexUid("out")
STATE = VertexState("counts", 2, "hashmap", (), ())
TAKEN = SnapshotMetadata(
    stream=StreamName("orders"),
    id=CheckpointId(3),
    generation=Generation(1),
    kind=SnapshotKind.CHECKPOINT,
    max_parallelism=128,
    created_ms=0,
    sources={LINES: SourceState("lines", "files", {"count": 3})},
    vertices={COUNTS: STATE},
    committables=(CommittableGroup(CheckpointId(3), {OUT: ({"staged": "a"},)}),),
)


def shape(
    keyed: Sequence[str] = ("counts",),
    source: Mapping[str, str] | None = None,
    sinks: Sequence[str] = ("out",),
    former: Mapping[str, Sequence[str]] | None = None,
    max_parallelism: int = 128,
    parallelism: int = 2,
    operator_state: Mapping[str, str] | None = None,
) -> JobShape:
    """The shape of a plan, as deploy records one."""
    sources = dict(source or {"lines": "files"})
    vertices: list[dict[str, Any]] = [{"uid": uid, "kind": "source"} for uid in sources]
    vertices += [{"uid": uid, "kind": "keyed", "operator_state": dict(operator_state or {})} for uid in keyed]
    vertices += [{"uid": uid, "kind": "sink"} for uid in sinks]
    for vertex in vertices:
        vertex["former_uids"] = list((former or {}).get(vertex["uid"], ()))
    plan = {
        "vertices": vertices,
        "sources": {uid: {"kind": kind} for uid, kind in sources.items()},
        "sinks": {uid: {} for uid in sinks},
    }
    return JobShape.of(
        plan, Settings({"pipeline.max-parallelism": max_parallelism, "parallelism.default": parallelism})
    )


def found(job: JobShape, metadata: SnapshotMetadata = TAKEN, committed: Sequence[int] = ()) -> Fit:
    return fit(metadata, job, frozenset(CheckpointId(id) for id in committed))


def refused(job: JobShape, metadata: SnapshotMetadata = TAKEN) -> str:
    refusal = found(job, metadata).refusal(())
    assert refusal is not None
    return refusal.what


def test_a_job_that_did_not_change_takes_everything() -> None:
    whole = found(shape())
    assert whole.refusal(()) is None
    assert whole.restored() == TAKEN


def test_f60_another_max_parallelism_is_refused_and_nothing_allows_it() -> None:
    other = found(shape(max_parallelism=64))
    assert refused(shape(max_parallelism=64)) == "it has max-parallelism 128, the job is set to 64"
    assert other.refusal((COUNTS, LINES, OUT)) is not None
    assert refused(shape(keyed=(), max_parallelism=64)).startswith("it has state of counts"), "no step has key groups"


def test_f61_state_that_the_job_no_longer_has_is_refused_and_dropped_only_if_allowed() -> None:
    for job in (shape(keyed=()), shape(keyed=("totals",))):
        assert refused(job) == "it has state of counts, which the job no longer has"
        assert found(job).refusal((COUNTS,)) is None
        assert found(job).restored().vertices == {}
        assert found(job).restored().sources == TAKEN.sources


def test_a_step_that_is_new_in_the_job_hinders_no_restore() -> None:
    assert found(shape(), replace(TAKEN, vertices={})).refusal(()) is None


def test_a_source_that_is_gone_is_refused_and_if_allowed_the_new_one_has_no_position() -> None:
    job = shape(source={"words": "files"})
    assert refused(job) == "it has positions of lines, the job reads words"
    assert found(job).refusal((LINES,)) is None
    assert found(job).restored().sources == {}


def test_another_kind_of_source_under_the_same_uid_is_refused_and_nothing_allows_it() -> None:
    job = shape(source={"lines": "rate"})
    assert refused(job) == "its source lines was of kind files, that of the job is of kind rate"
    assert found(job).refusal((LINES,)) is not None


def test_output_of_a_sink_that_is_gone_is_refused_until_it_is_published() -> None:
    job = shape(sinks=("new",))
    assert refused(job).startswith("it carries output of sink out that may not be published yet")
    assert found(job, committed=[3]).refusal(()) is None
    assert found(job).restored().committables == (CommittableGroup(CheckpointId(3), {}),)


def test_a_plan_that_tells_of_no_vertices_refuses_no_state() -> None:
    silent = JobShape.of({}, Settings({}))
    assert fit(TAKEN, silent, None).refusal(()) is None


WITH_OPERATOR_STATE = replace(
    TAKEN,
    vertices={
        COUNTS: replace(
            STATE,
            operator_states={
                "late": OperatorState(OperatorStateKind.LIST, ([1], [2])),
                "next": OperatorState(OperatorStateKind.SINGLE, (7, 8)),
            },
        )
    },
)
BOTH = {"late": "list", "next": "single"}


def test_a_job_that_declares_the_operator_states_of_a_snapshot_takes_them() -> None:
    assert found(shape(operator_state=BOTH), WITH_OPERATOR_STATE).refusal(()) is None
    assert found(shape(operator_state=BOTH)).refusal(()) is None, "a snapshot of before they were declared"


def test_f155_operator_state_that_cannot_be_split_refuses_the_rescale_and_nothing_allows_it() -> None:
    other = found(shape(operator_state=BOTH, parallelism=3), WITH_OPERATOR_STATE).refusal((COUNTS,))
    assert other is not None
    why = "of 2 subtasks, which cannot be split over 3: it is of kind single"
    assert other.what == f"its step counts has the operator state 'next' {why}"
    assert other.hint == "set parallelism.default back to 2"


def test_operator_state_that_the_job_declares_no_more_or_otherwise_is_refused() -> None:
    why = "its step counts has the operator state 'late'"
    assert refused(shape(), WITH_OPERATOR_STATE) == f"{why}, which the job no longer declares"
    union = shape(operator_state={**BOTH, "late": "union"})
    assert refused(union, WITH_OPERATOR_STATE) == f"{why} as list, the job declares it as union"


def test_f61_operator_state_of_a_step_that_the_job_no_longer_has_goes_with_the_step_if_that_is_allowed() -> None:
    gone = found(shape(keyed=(), parallelism=3), WITH_OPERATOR_STATE)
    assert gone.refusal(()) is not None
    assert gone.refusal((COUNTS,)) is None
    assert gone.restored().vertices == {}


def test_f159_what_stands_under_a_former_uid_is_taken_under_the_new_one() -> None:
    renamed = shape(
        keyed=("totals",),
        source={"words": "files"},
        sinks=("published",),
        former={"totals": ["sums", "counts"], "words": ["lines"], "published": ["out"]},
    )
    whole = found(renamed)
    assert whole.refusal(()) is None
    restored = whole.restored()
    assert restored.vertices == {VertexUid("totals"): STATE}
    assert restored.sources == {VertexUid("words"): TAKEN.sources[LINES]}
    assert restored.committables == (CommittableGroup(CheckpointId(3), {VertexUid("published"): ({"staged": "a"},)}),)


def test_what_stands_under_the_new_uid_already_is_not_replaced_by_what_an_older_one_left() -> None:
    both = replace(TAKEN, vertices={COUNTS: STATE, VertexUid("totals"): replace(STATE, name="newer")})
    job = shape(keyed=("totals",), former={"totals": ["counts"]})
    assert found(job, both).metadata.vertices[VertexUid("totals")].name == "newer"
    assert refused(job, both) == "it has state of counts, which the job no longer has"


def test_output_that_a_snapshot_from_elsewhere_carries_is_for_its_own_stream_to_commit() -> None:
    own = SnapshotRef(TAKEN.id, TAKEN.kind, TAKEN.generation, "chk-3-g1", 1, "00")
    assert as_brought(TAKEN, own) == TAKEN
    assert as_brought(TAKEN, replace(own, foreign=True)) == replace(TAKEN, committables=())


# ---- channels


IN_FLIGHT = TaskState(
    {
        "a->b": InputState(in_flight=(InFlight(3, (StateHandle("f", "p", 1, "00"),)), InFlight(watermark_ms=5))),
        "c->b": InputState(watermark_ms=7, in_flight=(InFlight(watermark_ms=7),)),
    }
)


def with_channels(*channels: str, former: dict[str, str] | None = None, without: CheckpointId | None = None) -> Fit:
    shape = JobShape(
        max_parallelism=TAKEN.max_parallelism,
        keyed=set(TAKEN.vertices),
        sources=dict.fromkeys(TAKEN.sources),
        sinks={VertexUid("out")},
        former={VertexUid(old): VertexUid(new) for old, new in (former or {}).items()},
        channels=set(channels),
        without_channel_state=without,
    )
    return fit(replace(TAKEN, tasks={VertexUid("b"): IN_FLIGHT}), shape, frozenset())


def test_what_is_in_flight_in_a_channel_that_the_job_has_not_is_never_left_behind() -> None:
    assert with_channels("a->b").refusal(()) is None, "a watermark without its channel is no loss"
    refusal = with_channels("c->b").refusal([VertexUid("a"), VertexUid("b")])
    assert refusal is not None
    assert "1 micro-batches in flight in a->b" in str(refusal)
    assert "savepoint" in str(refusal)


def test_f140_what_somebody_has_said_is_to_be_left_behind_of_this_checkpoint_needs_no_channel() -> None:
    assert with_channels("c->b", without=TAKEN.id).refusal(()) is None
    assert with_channels("c->b", without=TAKEN.id.next()).refusal(()) is not None


def test_a_channel_is_found_under_the_uids_that_its_ends_have_now() -> None:
    found = with_channels("a2->b2", former={"a": "a2", "b": "b2"})
    assert found.refusal(()) is None
    assert found.restored().tasks[VertexUid("b2")].inputs.keys() == {"a2->b2", "c->b2"}
