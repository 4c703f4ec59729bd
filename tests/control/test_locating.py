"""A snapshot that is named by its place: moved, copied, or of another stream or root."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_contract import wire
from headgate_contract.catalogue import read_catalogue
from headgate_contract.errors import BadInput, CorruptObject, RestoreRefused, SnapshotUnknown
from headgate_contract.folding import Folding
from headgate_contract.heartbeats import StreamState
from headgate_contract.ids import CheckpointId, Generation, SavepointName, StreamName
from headgate_contract.mailbox import Request, RequestKind
from headgate_contract.paths import METADATA, StreamPaths
from headgate_contract.records import Retired, SnapshotCompleted
from headgate_contract.restore import ClaimMode, Located, Refuse, RestoreFrom
from headgate_contract.settings import Settings
from headgate_contract.snapshot import SnapshotRef, SourceState, read_metadata
from headgate_contract.store_local import LocalStore
from headgate_control.explain import Inspector
from headgate_control.explained import as_text
from headgate_control.locating import absolute_directory, snapshot_named
from tests.contract.stored_values import resealed
from tests.control.command_line import Cli
from tests.control.world import STREAM, World, ids

OTHER = StreamName("others")


def move(world: World, ref: SnapshotRef, to: Path) -> Located:
    """Move a savepoint's folder; its new place, as a person would give it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(world.root / ref.folder, to)
    return Located(f"file://{to}")


def two_checkpoints_and_a_savepoint(world: World, stream: StreamName = STREAM) -> SnapshotRef:
    world.deployed(stream)
    world.started(stream=stream)
    world.snapshot(stream=stream)
    taken = world.snapshot("before", stream=stream)
    world.snapshot(stream=stream)
    world.beat(StreamState.FAILED, cause="disk full", stream=stream)
    return taken


def test_what_a_person_types_is_an_id_a_name_or_a_place() -> None:
    assert snapshot_named("7") == CheckpointId(7)
    assert snapshot_named("before-7") == SavepointName("before-7")
    assert snapshot_named("s3://backup/before-3-g1") == Located("s3://backup/before-3-g1")
    assert snapshot_named("./before") == Located("./before")


def test_f146_a_savepoint_that_was_moved_is_restored_from_its_new_place(world: World) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    by_name = world.control().explain(STREAM, snapshot=SavepointName("before")).decision
    place = move(world, taken, world.folder / "elsewhere" / "moved")
    gone = world.control().explain(STREAM, snapshot=SavepointName("before")).decision
    assert isinstance(gone, Refuse)
    moved = world.control().explain(STREAM, snapshot=place).decision
    assert isinstance(by_name, RestoreFrom)
    assert isinstance(moved, RestoreFrom)
    assert moved.snapshot == replace(taken, location=f"file://{world.folder}/elsewhere", folder="moved")
    assert moved.rollbacks == by_name.rollbacks, "it is the same snapshot: what came before it stays published"
    assert moved.reason == f"savepoint before (2) was named by its place, file://{world.folder}/elsewhere/moved"
    launched = world.control().restore(STREAM, snapshot=place)
    assert launched.decision == moved


def test_f151_a_place_without_a_snapshot_fails_at_once_by_its_name_and_starts_nothing(world: World, cli: Cli) -> None:
    two_checkpoints_and_a_savepoint(world)
    nowhere = f"file://{world.folder}/nowhere/before-2-g1"
    with pytest.raises(SnapshotUnknown, match=f"there is no snapshot at {nowhere}"):
        world.control().restore(STREAM, snapshot=Located(nowhere))
    result = cli("restore", STREAM, "--from", nowhere)
    assert (result.code, len(world.catalogue().generations)) == (3, 1)
    for nothing in ("file:///", "s3://bucket", "/"):
        with pytest.raises(BadInput, match="is no snapshot's folder"):
            world.control().explain(STREAM, snapshot=Located(nothing))


def test_a_savepoint_of_another_stream_gets_a_number_here_and_takes_back_what_was_published(world: World) -> None:
    taken = two_checkpoints_and_a_savepoint(world, OTHER)
    two_checkpoints_and_a_savepoint(world)
    control = world.control()
    decision = control.explain(STREAM, snapshot=Located(taken.folder)).decision
    assert isinstance(decision, RestoreFrom)
    ref = decision.snapshot
    assert (ref.id, ref.generation, ref.folder, ref.location, ref.foreign) == (4, 1, taken.folder, None, True)
    assert [rollback.ids for rollback in decision.rollbacks] == [{1, 2, 3}]
    launched = control.restore(STREAM, snapshot=Located(taken.folder))
    started = world.catalogue().newest_generation
    assert started is not None
    assert (launched.decision, started.decision, started.first_checkpoint) == (decision, decision, 5)
    control.cancel(STREAM)


def test_a_crash_right_after_it_restores_it_again_and_what_follows_stands_on_it(world: World) -> None:
    place = move(world, two_checkpoints_and_a_savepoint(world, OTHER), world.folder / "backup" / "before")
    two_checkpoints_and_a_savepoint(world)
    decision = world.control().explain(STREAM, snapshot=place).decision
    assert isinstance(decision, RestoreFrom)
    first = decision.snapshot.id.next()
    started = world.started(decision)
    world.store.delete("streams/orders/slots/00000005.json")
    world.slot(replace(started, first_checkpoint=first))
    world.beat(StreamState.FAILED, cause="disk full")
    again = world.control().explain(STREAM).decision
    assert isinstance(again, RestoreFrom)
    assert again.snapshot == decision.snapshot
    assert again.reason == f"generation 2 was started from {again.snapshot} and has completed no snapshot itself"
    own = world.snapshot()
    catalogue = world.catalogue()
    assert ids(catalogue.history) == [own.id, decision.snapshot.id]
    assert catalogue.lineage(own) == {own.id}


def test_a_life_number_of_another_stream_may_be_any(world: World) -> None:
    world.deployed(OTHER)
    for _ in range(3):
        world.started(stream=OTHER)
    taken = world.snapshot("late", stream=OTHER)
    world.deployed()
    decision = world.control().explain(STREAM, snapshot=Located(taken.folder)).decision
    assert isinstance(decision, RestoreFrom)
    assert decision.snapshot.generation == Generation(3)
    world.control().restore(STREAM, snapshot=Located(taken.folder))
    assert world.catalogue().newest_generation is not None


def test_a_checkpoint_of_another_root_brings_its_shared_files_along(world: World, tmp_path: Path) -> None:
    two_checkpoints_and_a_savepoint(world, OTHER)
    ref = world.catalogue(OTHER).completed[0]
    world.root.rename(tmp_path / "old-root")
    world.make_root()
    world.deployed()
    place = Located(f"{tmp_path}/old-root/{ref.folder}/_metadata")
    decision = world.control().explain(STREAM, snapshot=place)
    assert isinstance(decision.decision, RestoreFrom)
    assert decision.decision.snapshot.location == f"file://{tmp_path}/old-root"
    assert decision.checked[decision.decision.snapshot.where] == "good"


def test_a_file_that_is_damaged_at_the_new_place_is_refused_by_name(world: World) -> None:
    place = move(world, two_checkpoints_and_a_savepoint(world, OTHER), world.folder / "backup" / "before")
    world.deployed()
    (world.folder / "backup" / "before" / "positions.bin").write_bytes(b"positions of snapshot 9\n")
    with pytest.raises(RestoreRefused, match=r"before/positions\.bin has another checksum"):
        world.control().restore(STREAM, snapshot=place)
    (world.folder / "backup" / "before" / "_metadata").write_bytes(b"torn")
    with pytest.raises(CorruptObject, match="_metadata"):
        world.control().restore(STREAM, snapshot=place)


def test_one_that_this_streams_log_does_not_know_is_refused_if_it_may_be_its_own(world: World) -> None:
    two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / world.catalogue().completed[0].folder, world.root / "attempt")
    metadata = (world.root / "attempt" / "_metadata").read_bytes()
    (world.root / "attempt" / "_metadata").write_bytes(resealed(metadata, b'"created_ms":0', b'"created_ms":1'))
    with pytest.raises(RestoreRefused, match="the log of this one does not tell of it"):
        world.control().restore(STREAM, snapshot=Located(f"{world.root}/attempt"))


def test_what_a_socket_sent_to_another_stream_cannot_be_read_again_here(world: World) -> None:
    world.deployed(OTHER)
    world.started(stream=OTHER)
    lines = {"lines": SourceState("lines", "socket", {"segment": 1})}
    taken = world.snapshot("before", stream=OTHER, sources=lines)
    world.deployed()
    with pytest.raises(RestoreRefused, match="what its socket has sent is in a log of the stream that took it"):
        world.control().restore(STREAM, snapshot=Located(taken.folder))


def test_only_a_savepoint_can_be_claimed_and_of_an_own_one_not_a_copy(world: World, cli: Cli) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    control = world.control()
    claimed = control.explain(STREAM, snapshot=SavepointName("before"), claim_mode=ClaimMode.CLAIM)
    assert isinstance(claimed.decision, RestoreFrom)
    assert claimed.decision.claim_mode is ClaimMode.CLAIM
    assert claimed.warnings == (
        "savepoint before (2) becomes the stream's: newer checkpoints subsume it, and delete it",
        "what sink out has published since then is taken back",
    )
    shutil.copytree(world.root / taken.folder, world.folder / "copy")
    copied = control.explain(STREAM, snapshot=Located(f"{world.folder}/copy"), claim_mode=ClaimMode.CLAIM).decision
    assert isinstance(copied, Refuse)
    assert "it is a copy of one that the stream has (claim mode CLAIM): claim that one" in copied.reason
    two_checkpoints_and_a_savepoint(world, OTHER)
    theirs = Located(world.catalogue(OTHER).completed[0].folder)
    foreign = control.explain(STREAM, snapshot=theirs, claim_mode=ClaimMode.CLAIM).decision
    assert isinstance(foreign, Refuse)
    assert "a checkpoint belongs to its own stream (claim mode CLAIM)" in foreign.reason
    assert cli("explain", STREAM, "--from", "before", "--claim-mode", "legacy").code == 2
    for unnamed in ((), ("--fresh",)):
        assert cli("explain", STREAM, *unnamed, "--claim-mode", "claim").code == 2
    with pytest.raises(BadInput, match="what is to be claimed is not named"):
        control.restore(STREAM, claim_mode=ClaimMode.CLAIM)
    assert "becomes the stream's" in cli("explain", STREAM, "--from", "before", "--claim-mode", "claim").all


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/x", "s3a://KEY:SE/CRET@bucket/x", "s3://SECRET@bucket/x"])
def test_a_place_that_carries_credentials_is_refused_and_not_shown(world: World, url: str) -> None:
    world.deployed()
    asked: list[Callable[[], object]] = [
        lambda: absolute_directory(url),
        lambda: Settings({"execution.checkpointing.savepoint-dir": url}),
        lambda: world.control().explain(STREAM, snapshot=Located(url)),
    ]
    for ask in asked:
        with pytest.raises(BadInput, match="carries credentials") as refused:
            ask()
        assert "SE" not in str(refused.value)


@pytest.mark.parametrize("verb", ["savepoint", "stop"])
def test_the_help_says_from_where_a_relative_directory_is_meant(cli: Cli, verb: str) -> None:
    told = re.sub(r"[\s│]+", " ", cli(verb, "--help").out)
    assert "a relative path is meant from the current folder here" in told


@pytest.mark.parametrize("name", ["no#1", "what?"])
def test_a_place_whose_name_ends_the_path_of_a_files_url_is_refused_where_it_is_named(world: World, name: str) -> None:
    world.deployed()
    places = [f"file:///mnt/{name}/x", f"/mnt/{name}/x", f"./{name}/x"]
    asked: list[Callable[[str], object]] = [
        absolute_directory,
        lambda place: world.control().explain(STREAM, snapshot=Located(place)),
    ]
    for ask in asked:
        for place in places:
            with pytest.raises(BadInput, match=r"ends the path of a file's URL.*choose a folder without them"):
                ask(place)
    with pytest.raises(BadInput, match="ends the path"):
        Settings({"execution.checkpointing.savepoint-dir": places[1]})
    assert absolute_directory(f"s3://bucket/{name}") == f"s3://bucket/{name}"


NOT_ALLOWED = "may not be .*; the stream's setting headgate.snapshot.allowed-dirs allows more places"


def test_a_caller_is_told_at_once_that_a_savepoint_may_not_go_where_no_setting_says(world: World) -> None:
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/backup")
    world.started()
    world.beat()
    control = world.control()
    for place in (f"{world.folder}/backup-evil", f"{world.folder}/backup/../else", "s3://backup/x"):
        asked: list[Callable[[], object]] = [
            lambda place=place: control.savepoint(STREAM, target_directory=place, wait=False),  # type: ignore[misc]
            lambda place=place: control.stop(STREAM, drain=True, target_directory=place, wait=False),  # type: ignore[misc]
            lambda place=place: control.ask(  # type: ignore[misc]
                STREAM, RequestKind.STOP, args={"savepoint": "x", "target_directory": place}
            ),
        ]
        for ask in asked:
            with pytest.raises(BadInput, match=NOT_ALLOWED):
                ask()
    assert control.status(STREAM).stop_wanted is None
    assert not world.store.list(StreamPaths(STREAM).requests)
    told = [event.text for event in control.history(STREAM) if event.outcome == "FAILED"]
    assert len(told) == 6, "who tried is in the history"
    control.savepoint(STREAM, target_directory=f"{world.folder}/backup/below", wait=False)


def test_nothing_is_opened_for_a_restore_from_where_no_setting_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / taken.folder, world.folder / "copy")
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/backup")
    (world.folder / "backup").mkdir()
    (world.folder / "backup" / "link").symlink_to(world.folder / "copy")
    opened: list[str] = []
    elsewhere = LocalStore.elsewhere
    monkeypatch.setattr(LocalStore, "elsewhere", lambda store, url: opened.append(url) or elsewhere(store, url))
    control = world.control()
    for place in (f"{world.folder}/copy", f"file://{world.folder}/backup/link", "s3://theirs/streams/x/checkpoints/c"):
        for ask in (control.explain, control.restore):
            with pytest.raises(BadInput, match=NOT_ALLOWED):
                ask(STREAM, snapshot=Located(place))  # type: ignore[operator]
    assert opened == []
    assert control.explain(STREAM, snapshot=Located(taken.folder)).restores == taken.id, "the root is allowed"


def test_nothing_is_opened_that_only_its_folders_name_or_a_link_below_the_root_makes_look_allowed(world: World) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    for name in ("plain", "..%2froot%2fx"):
        shutil.copytree(world.root / taken.folder, world.folder / "evil" / name)
    (world.root / "link").symlink_to(world.folder / "evil")
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/backup")
    control = world.control()
    for place in (
        f"file://{world.folder}/evil/..%2froot%2fx",
        f"{world.folder}/evil/..%2froot%2fx",
        "./evil/..%2froot%2fx",
        f"{world.store.url}/link/plain",
        "link/plain",
        "link/..%2froot%2fx",
    ):
        for ask in (control.explain, control.restore):
            with pytest.raises(BadInput):
                ask(STREAM, snapshot=Located(place))  # type: ignore[operator]
    assert len(world.catalogue().generations) == 1
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/evil")
    for place in (f"{world.folder}/evil/..%2froot%2fx", "link/plain"):
        assert control.explain(STREAM, snapshot=Located(place)).restores == taken.id


def test_a_path_means_the_folder_of_that_very_name(world: World) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/a%41 b")
    shutil.copytree(world.root / taken.folder, world.folder / "a%41 b" / "c%42 d")
    shutil.copytree(world.root / taken.folder, world.root / "e%43 f")
    control = world.control()
    folder = f"{world.folder}/a%41 b"
    for place in (f"{folder}/c%42 d", f"file://{world.folder}/a%2541%20b/c%2542%20d", "e%43 f", f"{world.root}/e%43 f"):
        assert control.explain(STREAM, snapshot=Located(place)).restores == taken.id
    assert absolute_directory(folder) == f"file://{world.folder}/a%2541 b"
    with pytest.raises(BadInput, match="is no path here"):
        absolute_directory("~nobody-of-that-name/x")


@pytest.mark.e2e
def test_a_place_is_allowed_for_once_by_an_option_that_the_log_keeps_and_a_recovery_goes_by_that(
    world: World, cli: Cli
) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / taken.folder, world.folder / "copy")
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/backup")
    refused = cli("restore", STREAM, "--from", "./copy")
    assert refused.code == 2
    assert "`headgate restore --allow-place` allows one for once" in refused.all
    told = cli("explain", STREAM, "--from", "./copy", "--allow-place")
    assert "the place was allowed for this once" in told.out
    assert cli("restore", STREAM, "--from", "./copy", "--allow-place").code == 0
    decision = world.catalogue().generations[-1].decision
    assert isinstance(decision, RestoreFrom)
    assert (decision.place_allowed, decision.snapshot.where) == (True, f"file://{world.folder}/copy")
    control = world.control()
    control.cancel(STREAM)
    assert cli("restore", STREAM, "--from", "./copy").code == 2, "it was for once"
    again = control.explain(STREAM).decision
    assert isinstance(again, RestoreFrom)
    assert (again.snapshot, again.place_allowed) == (decision.snapshot, False), "the log knows the place"
    assert "what is to be allowed is not named" in cli("restore", STREAM, "--allow-place").all


def test_what_the_stream_itself_has_written_elsewhere_is_restored_from_there_whatever_the_settings_say_now(
    world: World,
) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    away = f"file://{world.folder}/away"
    shutil.copytree(world.root / taken.folder, world.folder / "away" / "it")
    moved = replace(taken, id=CheckpointId(4), location=away, folder="it")
    metadata = read_metadata((world.root / taken.folder / METADATA).read_bytes(), "it")
    data = replace(metadata, id=CheckpointId(4)).encode()
    (world.folder / "away" / "it" / METADATA).write_bytes(data)
    moved = replace(moved, metadata_length=len(data), metadata_sha256=wire.sha256(data), name=SavepointName("away"))
    world.slot(SnapshotCompleted(generation=Generation(1), snapshot=moved, committed=(CheckpointId(4),)))
    world.deployed(headgate__snapshot__allowed_dirs=f"{world.folder}/backup")
    control = world.control()
    for name in (SavepointName("away"), Located(f"{away}/it")):
        assert control.explain(STREAM, snapshot=name).restores == 4


def test_a_savepoint_to_a_process_memory_is_refused_by_callers_settings_and_restores(world: World) -> None:
    world.deployed()
    world.started()
    world.beat()
    control = world.control()
    asked: list[Callable[[], object]] = [
        lambda: control.savepoint(STREAM, target_directory="memory://backup", wait=False),
        lambda: control.stop(STREAM, savepoint=True, target_directory="memory://backup", wait=False),
        lambda: control.explain(STREAM, snapshot=Located("memory://backup/orders-x-1-g1")),
        lambda: Settings({"execution.checkpointing.savepoint-dir": "memory://backup"}),
    ]
    for ask in asked:
        with pytest.raises(BadInput, match="is in one process's memory, and gone with it"):
            ask()
    assert control.status(STREAM).stop_wanted is None
    assert not world.store.list(StreamPaths(STREAM).requests)


@pytest.mark.parametrize("text", ["", " ", "gs://bucket/x", "file://relative/x", "http://host/x"])
def test_a_directory_where_nothing_can_be_stored_is_refused_at_once(text: str) -> None:
    with pytest.raises(BadInput):
        absolute_directory(text)


def test_the_stop_before_a_restore_keeps_what_this_log_could_retire_and_nothing_else(world: World) -> None:
    own = two_checkpoints_and_a_savepoint(world)
    theirs = two_checkpoints_and_a_savepoint(world, OTHER)
    control = world.control()
    explained = control.explain(STREAM, snapshot=Located(world.catalogue().completed[0].folder))
    assert explained.keeps == 1
    assert control.explain(STREAM, snapshot=Located(own.folder)).keeps == own.id
    shutil.copytree(world.root / own.folder, world.folder / "copy")
    assert control.explain(STREAM, snapshot=Located(f"{world.folder}/copy")).keeps is None, "a copy is nobody's"
    for mode in ClaimMode:
        foreign = control.explain(STREAM, snapshot=Located(theirs.folder), claim_mode=mode)
        assert (foreign.restores, foreign.keeps) == (4, None), "nothing of this log has that number yet"


@pytest.mark.e2e
@pytest.mark.parametrize(("mode", "kept"), [(ClaimMode.CLAIM, 1), (ClaimMode.NO_CLAIM, None)])
def test_a_foreign_savepoint_that_was_claimed_is_kept_over_the_stop_before_its_restore(
    world: World, mode: ClaimMode, kept: int | None
) -> None:
    place = Located(two_checkpoints_and_a_savepoint(world, OTHER).folder)
    world.deployed()
    control = world.control()
    control.restore(STREAM, snapshot=place, claim_mode=mode)
    control.restore(STREAM, snapshot=place, savepoint_first=False)
    [stop] = world.store.list(StreamPaths(STREAM).requests)
    asked = wire.decode("request", world.store.read(stop.path), Request, stop.path)
    assert asked.args.get("keep") == kept
    control.cancel(STREAM)


def test_a_damaged_copy_says_nothing_of_the_original_and_the_other_way_round(world: World) -> None:
    original = two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / original.folder, world.folder / "copy")
    place = Located(f"{world.folder}/copy")
    (world.folder / "copy" / "positions.bin").write_bytes(b"positions of snapshot 9\n")
    explained = world.control().explain(STREAM, snapshot=place)
    assert isinstance(explained.decision, Refuse)
    assert original in explained.decision.alternatives
    assert f"{original}: good" in as_text(explained)
    assert "another checksum" in explained.checked[f"file://{world.folder}/copy"]

    inspector = Inspector(world.store)
    for lies in ({"location": f"file://{world.folder}", "folder": "copy"}, {}):
        inspector.inspect(world.catalogue(), replace(original, **lies))
    assert (len(inspector.damaged), inspector.found[original]) == (1, "good")


def test_a_savepoint_of_the_same_name_on_another_root_is_restored_there_as_often_as_one_likes(
    world: World, tmp_path: Path
) -> None:
    taken = two_checkpoints_and_a_savepoint(world)
    world.root.rename(tmp_path / "old-root")
    world.make_root()
    world.deployed()
    place = Located(f"{tmp_path}/old-root/{taken.folder}")
    control = world.control()
    control.restore(STREAM, snapshot=place)
    again = control.explain(STREAM, snapshot=place).decision
    assert isinstance(again, RestoreFrom)
    assert again.snapshot.foreign
    control.cancel(STREAM)


def test_of_a_retired_one_nothing_is_restored_by_its_place_either_but_from_a_copy(world: World) -> None:
    first = two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / first.folder, world.folder / "copy")
    world.decide(Retired(snapshots=(first.id,), by="anna", reason="old", at_ms=1))
    refused = world.control().explain(STREAM, snapshot=Located(first.folder)).decision
    assert isinstance(refused, Refuse)
    assert "it is retired: its files may be gone" in refused.reason
    copied = world.control().explain(STREAM, snapshot=Located(f"{world.folder}/copy")).decision
    assert isinstance(copied, RestoreFrom)


def test_of_a_copy_of_one_that_was_retired_long_ago_the_log_says_that_it_knows_no_more(world: World) -> None:
    first = two_checkpoints_and_a_savepoint(world)
    shutil.copytree(world.root / first.folder, world.folder / "copy")
    world.decide(Retired(snapshots=(first.id,), by="anna", reason="old", at_ms=1))
    store = LocalStore(world.root)
    Folding(store, read_catalogue(store, STREAM)).fold()
    with pytest.raises(RestoreRefused, match=r"cannot tell any more .* its entry was folded.* under another name"):
        world.control().explain(STREAM, snapshot=Located(f"{world.folder}/copy"))
