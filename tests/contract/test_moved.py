"""What of a job is at another place than it was; and that a path's spelling alone is no move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headgate_contract.fitting import fit
from headgate_contract.id_ranges import IdRanges
from headgate_contract.ids import CheckpointId, SlotNumber, VertexUid
from headgate_contract.log import Slot
from headgate_contract.moved import Move, Moves, moved_since, published_elsewhere, spelled
from headgate_contract.records import Deployed
from headgate_contract.restore import Named, Refuse, RestoreFacts, Rollback, decide_restore
from tests.contract.lives import Lives
from tests.contract.stored_values import DEPLOYED
from tests.contract.test_fitting import LINES, OUT, TAKEN, shape

BACK = Moves(sources={LINES: Move("/a", "/b")})
SINK = Moves(sinks={OUT: Move("/a", "/b")})


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("in", "/job/in"),
        ("./in/", "/job/in"),
        ("/data//in", "/data/in"),
        ("//data/in", "/data/in"),
        ("file:///data/in", "/data/in"),
        ("file:///data/a%20b", "/data/a b"),
        ("/data/x/../in", "/data/x/../in"),  # if x is a link that is another folder
        ("s3a://b//in/", "s3://b/in"),
        ("s3://b/in", "s3://b/in"),
    ],
)
def test_one_place_is_spelled_in_one_way(path: str, place: str) -> None:
    assert spelled(path, "/job") == place


def test_positions_of_another_folder_are_refused_and_dropped_if_that_is_allowed() -> None:
    found = fit(TAKEN, shape(), frozenset(), BACK)
    refusal = found.refusal(())
    assert refusal is not None
    assert "was read from /a, the job reads /b" in refusal.what
    assert found.refusal((LINES,)) is None
    assert found.restored().sources == {}
    assert found.restored().vertices == TAKEN.vertices


def test_output_that_may_lie_unpublished_at_the_old_place_is_refused() -> None:
    refusal = fit(TAKEN, shape(), frozenset(), SINK).refusal(())
    assert refusal is not None
    assert "may not be published yet at /a, and the job writes to /b" in refusal.what


def test_output_that_is_published_at_the_old_place_is_not_looked_for_at_the_new_one() -> None:
    found = fit(TAKEN, shape(), frozenset([CheckpointId(3)]), SINK)
    assert found.refusal(()) is None
    (group,) = found.restored().committables
    assert (group.id, group.sinks) == (3, {OUT: ()})
    stays = fit(TAKEN, shape(), frozenset([CheckpointId(3)]))
    assert stays.restored() == TAKEN


def test_a_source_that_is_new_has_not_moved() -> None:
    assert fit(replace(TAKEN, sources={}), shape(), None, BACK).non_restored == {}


def deployed(sources: Mapping[str, str], sinks: Mapping[str, str], former: Mapping[str, str] | None = None) -> Deployed:
    plan: dict[str, Any] = {
        "vertices": [{"uid": uid, "former_uids": [old]} for uid, old in (former or {}).items()],
        "sources": {uid: {"kind": "files", "path": path} for uid, path in sources.items()},
        "sinks": {uid: {"kind": "files", "path": path} for uid, path in sinks.items()},
    }
    return replace(DEPLOYED, directory="/job", plan=plan)


def test_each_snapshot_is_judged_by_the_job_that_took_it_and_a_new_uid_is_followed() -> None:
    first, second = deployed({"lines": "in"}, {"out": "a"}), deployed({"lines": "in"}, {"out": "b"})
    third = deployed({"texts": "other"}, {"out": "a"}, {"texts": "lines"})
    lives = Lives()
    refs = []
    for number, each in enumerate((first, second), start=1):
        lives.decide(each)
        record = lives.start()
        lives.slots[-1] = Slot(lives.slots[-1].number, replace(record, deployed=SlotNumber(number)))
        refs.append(lives.checkpoint())
        lives.stop()
    one, two = (moved_since(lives.catalogue, ref, third) for ref in refs)
    source = {VertexUid("texts"): Move("/job/in", "/job/other")}
    assert one == Moves(sources=source)
    assert two == Moves(sources=source, sinks={OUT: Move("/job/b", "/job/a")})
    assert moved_since(lives.catalogue, None, third) == two
    assert published_elsewhere(lives.catalogue, third) == {OUT: {refs[1].id}}
    assert published_elsewhere(lives.catalogue, second) == {OUT: {refs[0].id}}
    assert moved_since(lives.catalogue, refs[1], second) == Moves()
    lives.decide(third)
    lives.start()
    lives.fold()
    assert moved_since(lives.catalogue, refs[1], third) == two, "a summary keeps who took what is retained"
    assert published_elsewhere(lives.catalogue, third) == {OUT: {refs[1].id}}


def test_a_rollback_repeats_what_lies_elsewhere_and_takes_back_the_rest() -> None:
    lives = Lives()
    lives.start()
    older, newer = lives.checkpoint(), lives.checkpoint()
    for elsewhere, action in (({}, Rollback.RETRACT), ({OUT: IdRanges.of([newer.id])}, Rollback.DUPLICATES)):
        facts = RestoreFacts(
            catalogue=lives.catalogue,
            wanted=Named(older.id),
            damaged={},
            sinks={OUT: Rollback.RETRACT},
            elsewhere=elsewhere,
            accept_duplicates=True,
        )
        (rollback,) = decide_restore(facts).rollbacks
        assert (rollback.action, rollback.ids) == (action, {newer.id})
        refused = isinstance(decide_restore(replace(facts, accept_duplicates=False)), Refuse)
        assert refused is bool(elsewhere)
