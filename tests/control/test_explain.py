"""What the next start would do is told before it is done, by the function that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headgate_contract.errors import RestoreRefused, SnapshotUnknown
from headgate_contract.ids import CheckpointId, Generation, RequestId, SavepointName, VertexUid
from headgate_contract.mailbox import Mailbox, Request, RequestKind
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.restore import Refuse, RestoreFrom, Rollback, StartFresh
from headgate_contract.snapshot import SnapshotRef, SourceState
from headgate_control.explain import Inspector
from headgate_control.explained import as_text
from headgate_control.outcomes import Explanation
from tests.control.world import STREAM, World


@pytest.fixture
def three(world: World) -> list[SnapshotRef]:
    """A stream that was deployed and started once, and completed three checkpoints."""
    world.deployed()
    world.started()
    return [world.snapshot() for _ in range(3)]


def restored(explanation: Explanation) -> SnapshotRef:
    assert isinstance(explanation.decision, RestoreFrom), explanation
    return explanation.decision.snapshot


def test_a_first_start_begins_without_state(world: World) -> None:
    world.deployed()
    explanation = world.control().explain(STREAM)
    assert isinstance(explanation.decision, StartFresh)
    assert explanation.next_generation == 1
    assert "never run" in as_text(explanation)


def test_the_newest_checkpoint_is_taken_and_was_looked_at(world: World, three: list[SnapshotRef]) -> None:
    explanation = world.control().explain(STREAM)
    assert restored(explanation) == three[2]
    assert explanation.checked == {three[2].where: "good"}
    assert explanation.next_generation == 2


@pytest.mark.parametrize("how", ["drained", "only stopped", "unreadable"])
def test_who_would_start_from_the_end_of_a_drained_stream_is_warned(world: World, how: str) -> None:
    world.deployed()
    world.started()
    asked = Request(
        id=RequestId("stop-1"),
        kind=RequestKind.STOP,
        generation=Generation(1),
        args={"savepoint": "last", "drain": how != "only stopped"},
        deadline_ms=1000,
        by="anna",
        at_ms=0,
    )
    Mailbox(world.store, STREAM).ask(asked)
    world.snapshot("last", request=asked.id)
    world.stopped()
    if how == "unreadable":
        (world.root / StreamPaths(STREAM).request(asked.id)).write_text("{")
    explanation = world.control().explain(STREAM)
    told = "savepoint last (1) is of a drained stream: its operators have finished, and go on with what that left"
    assert explanation.warnings == ((told,) if how == "drained" else ())


NOT_READ = "of the sources a, b nothing more is read: they had ended in checkpoint 1"


@pytest.mark.parametrize(
    ("ended", "bounded", "told"),
    [
        ("a", "a", "of the sources a nothing more is read: they had ended in checkpoint 1"),
        (
            "ab",
            "ab",
            f"{NOT_READ}, so the stream ends once its steps have finished",
        ),
        ("ab", "b", "of the sources b nothing more is read: they had ended in checkpoint 1"),
        ("a", "", None),
        ("", "ab", None),
    ],
)
def test_who_would_start_behind_the_end_of_sources_is_told(
    world: World, ended: str, bounded: str, told: str | None
) -> None:
    record = world.deployed()
    sources = {uid: {"kind": "files", "bounded": uid in bounded} for uid in "ab"}
    world.decide(replace(record, plan={**record.plan, "sources": sources}))
    world.started()
    positions = {uid: {"offset": 1, **({"ended": True} if uid in ended else {})} for uid in "ab"}
    world.snapshot(sources={VertexUid(uid): SourceState(uid, "files", at) for uid, at in positions.items()})
    world.stopped()
    assert world.control().explain(STREAM).warnings == (() if told is None else (told,))


def test_who_would_begin_anew_is_told_that_what_was_published_is_taken_back(
    world: World, three: list[SnapshotRef]
) -> None:
    world.stopped()
    assert world.control().explain(STREAM, fresh=True).warnings == (
        "what sink out has published is taken back",
        "state is left behind: 3 retained snapshots are not used",
    )


def _drop_metadata(world: World, ref: SnapshotRef) -> None:
    (world.root / ref.folder / METADATA).unlink()


def _cut_metadata(world: World, ref: SnapshotRef) -> None:
    path = world.root / ref.folder / METADATA
    path.write_bytes(path.read_bytes()[:-10])


def _drop_state(world: World, ref: SnapshotRef) -> None:
    world.state_file(ref).unlink()


def _cut_state(world: World, ref: SnapshotRef) -> None:
    world.state_file(ref).write_bytes(b"short")


def _flip_state(world: World, ref: SnapshotRef) -> None:
    path = world.state_file(ref)
    path.write_bytes(path.read_bytes().swapcase())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_drop_metadata, "is not on"),
        (_cut_metadata, "bytes"),
        (World.damage_metadata, "checksum"),
        (_drop_state, "is missing"),
        (_cut_state, "5 bytes instead of"),
        (_flip_state, "another checksum"),
    ],
)
def test_f53_a_damaged_newest_checkpoint_is_refused_naming_what_would_do(
    world: World, three: list[SnapshotRef], damage: Callable[[World, SnapshotRef], None], said: str
) -> None:
    damage(world, three[2])
    explanation = world.control().explain(STREAM)
    assert isinstance(explanation.decision, Refuse)
    assert explanation.decision.rejected[0].snapshot == three[2]
    assert said in explanation.decision.rejected[0].why
    assert three[1] in explanation.decision.alternatives
    text = as_text(explanation)
    assert "--fall-back" in text
    assert f"{three[1]}: good" in text
    assert "out: is taken back (of checkpoint 3)" in text, "each alternative tells what it costs"


def test_an_alternative_is_offered_only_if_it_is_good_itself(world: World, three: list[SnapshotRef]) -> None:
    world.damage_metadata(three[2])
    world.damage_metadata(three[1])
    decision = world.control().explain(STREAM).decision
    assert isinstance(decision, Refuse)
    assert decision.alternatives == (three[0],)


def test_falling_back_is_loud(world: World, three: list[SnapshotRef]) -> None:
    world.damage_metadata(three[2])
    world.damage_metadata(three[1])
    explanation = world.control().explain(STREAM, fall_back=True)
    assert restored(explanation) == three[0]
    assert [rejected.snapshot for rejected in explanation.decision.rejected] == [three[2], three[1]]
    assert any("falling back" in warning for warning in explanation.warnings)


def test_the_setting_falls_back_as_the_flag_does_and_the_flag_outweighs_it(world: World) -> None:
    world.deployed(headgate__fall_back="true")
    world.started()
    refs = [world.snapshot() for _ in range(2)]
    world.damage_metadata(refs[1])
    assert restored(world.control().explain(STREAM)) == refs[0]
    assert isinstance(world.control().explain(STREAM, fall_back=False).decision, Refuse)


def test_a_named_older_one_tells_what_each_sink_does(world: World) -> None:
    world.sinks = {"files": "retract", "table": "overwrite"}
    world.deployed()
    world.started()
    refs = [world.snapshot() for _ in range(3)]
    explanation = world.control().explain(STREAM, snapshot=refs[0].id)
    assert restored(explanation) == refs[0]
    assert [(back.sink, back.action, back.ids) for back in explanation.decision.rollbacks] == [
        ("files", Rollback.RETRACT, {2, 3}),
        ("table", Rollback.OVERWRITE, {2, 3}),
    ]
    text = as_text(explanation)
    assert "files: is taken back (of checkpoints 2 to 3, 2 in all)" in text
    assert "checkpoint 3: newer than the one that was named" in text


def test_certain_duplicates_must_be_accepted(world: World) -> None:
    world.sinks = {"console": "duplicates"}
    world.deployed()
    world.started()
    refs = [world.snapshot() for _ in range(2)]
    control = world.control()
    refused = control.explain(STREAM, snapshot=refs[0].id)
    assert isinstance(refused.decision, Refuse)
    assert "--accept-duplicates" in as_text(refused)
    accepted = control.explain(STREAM, snapshot=refs[0].id, accept_duplicates=True)
    assert restored(accepted) == refs[0]
    assert any("duplicates" in warning for warning in accepted.warnings)


def test_a_savepoint_is_found_by_its_name_and_its_files_in_its_own_folder(world: World) -> None:
    world.deployed()
    world.started()
    ref = world.snapshot("nightly")
    explanation = world.control().explain(STREAM, snapshot=SavepointName("nightly"))
    assert restored(explanation) == ref
    assert explanation.checked[ref.where] == "good"


def test_a_snapshot_that_is_not_there_is_refused_with_those_that_are(world: World, three: list[SnapshotRef]) -> None:
    control = world.control()
    decision = control.explain(STREAM, snapshot=CheckpointId(77)).decision
    assert isinstance(decision, Refuse)
    assert set(decision.alternatives) == set(three)
    with pytest.raises(SnapshotUnknown, match="77"):
        control.restore(STREAM, snapshot=CheckpointId(77))


def test_metadata_of_another_stream_is_damage(world: World, three: list[SnapshotRef]) -> None:
    foreign = (world.root / three[1].folder / METADATA).read_bytes()
    inspector = Inspector(world.store)
    (world.root / three[2].folder / METADATA).write_bytes(foreign)
    pinned = SnapshotRef(
        three[2].id, three[2].kind, three[2].generation, three[2].folder, three[1].metadata_length,
        three[1].metadata_sha256,
    )  # fmt: skip
    inspector.inspect(world.catalogue(), pinned)
    assert "belongs to snapshot 2 of stream orders" in inspector.damaged[pinned]


def test_beyond_the_budget_files_are_compared_by_length(world: World, three: list[SnapshotRef]) -> None:
    inspector = Inspector(world.store, budget=10)
    _flip_state(world, three[2])
    inspector.inspect(world.catalogue(), three[2])
    assert inspector.found == {three[2]: "good (1 of 1 files by length only)"}
    _cut_state(world, three[1])
    inspector.inspect(world.catalogue(), three[1])
    assert three[1] in inspector.damaged


def test_fresh_says_what_it_leaves_behind(world: World, three: list[SnapshotRef]) -> None:
    explanation = world.control().explain(STREAM, fresh=True)
    assert isinstance(explanation.decision, StartFresh)
    assert len(explanation.decision.rejected) == 3
    assert any("left behind" in warning for warning in explanation.warnings)


def test_a_refused_start_names_the_alternatives_and_launches_nothing(world: World, three: list[SnapshotRef]) -> None:
    world.stopped()
    world.damage_metadata(three[2])
    with pytest.raises(RestoreRefused, match="checkpoint 2"):
        world.control().start(STREAM)
    assert len(world.catalogue().generations) == 1


def test_only_what_cannot_be_restored_is_told_as_such(world: World, three: list[SnapshotRef]) -> None:
    """A fall-back passes over what is older, and good, as well."""
    oldest, _, newest = sorted(three, key=lambda ref: ref.id)
    world.damage_metadata(newest)
    warnings = world.control().explain(STREAM, fall_back=True).warnings
    (warning,) = [text for text in warnings if text.startswith("falling back")]
    assert f"{newest}: " in warning
    assert f"{oldest}: " not in warning


@pytest.mark.parametrize(
    ("generation", "next_id", "said"),
    [
        (2, 9, "the next start takes back what is not of this log"),
        (2, 4, "a start is refused, `headgate repair orders` says what to do"),  # it would complete 7 as well
        (3, 9, "a start is refused, `headgate repair orders` says what to do"),
    ],
)
def test_what_sinks_hold_that_a_put_back_root_does_not_know_is_announced(
    world: World, generation: int, next_id: int, said: str
) -> None:
    held = {"out": {"groups": {"3": ["c"], "7": ["a"], "8": ["b"]}, "generation": generation}}
    world.write_job(f"HOLDINGS = {held!r}")
    world.deployed()
    world.started()
    for _ in range(3):
        world.snapshot()
    world.started(first_checkpoint=next_id)
    world.stopped()
    warnings = world.control().explain(STREAM).warnings
    (warning,) = [text for text in warnings if "does not tell" in text]
    assert "published: 7-8" in warning
    assert warning.endswith(said)
