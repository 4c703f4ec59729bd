"""What is said of the newest checkpoint while nothing comes, and of the files that snapshots have in common."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headgate_contract.heartbeats import CurrentCheckpoint, Progress
from headgate_contract.ids import CheckpointId, VertexUid
from headgate_contract.snapshot import SnapshotRef, SourceState, StateHandle
from headgate_contract.wire import sha256
from headgate_control.sharing import Sharing
from tests.control.command_line import Cli
from tests.control.world import STREAM, World

LINES = VertexUid("lines")


def handle(world: World, name: str) -> StateHandle:
    data = f"what {name} holds\n".encode()
    path = f"streams/{STREAM}/shared/{name}"
    world.store.create(path, data)
    return StateHandle(name, path, len(data), sha256(data))


def snapshot(world: World, *names: str, name: str | None = None) -> SnapshotRef:
    """With these files."""
    files = tuple(handle(world, each) for each in names)
    return world.snapshot(name, sources={LINES: SourceState("lines", "files", {"offset": 1}, files)})


@pytest.fixture
def started(world: World) -> World:
    world.deployed()
    world.started()
    return world


def test_of_each_snapshot_it_is_known_which_others_have_its_files(started: World) -> None:
    first = snapshot(started, "a", "b", "c")
    second = snapshot(started, "a", "b", "d")
    third = snapshot(started, "d", "e")
    alone = snapshot(started, "f")
    empty = snapshot(started)
    found = started.control().sharing(STREAM)
    assert {id: replace(about, created_ms=0, bytes=0) for id, about in found.items()} == {
        first.id: Sharing(files=3, shared=2, alone=1, shared_with=(second.id,), created_ms=0, bytes=0),
        second.id: Sharing(files=3, shared=3, alone=0, shared_with=(third.id, first.id), created_ms=0, bytes=0),
        third.id: Sharing(files=2, shared=1, alone=1, shared_with=(second.id,), created_ms=0, bytes=0),
        alone.id: Sharing(files=1, shared=0, alone=1, shared_with=(), created_ms=0, bytes=0),
        empty.id: Sharing(files=0, shared=0, alone=0, shared_with=(), created_ms=0, bytes=0),
    }


def test_when_it_was_taken_and_how_large_it_is_is_told(started: World, cli: Cli) -> None:
    taken = snapshot(started, "a", "b")
    about = started.control().sharing(STREAM)[taken.id]
    lengths = [len((started.root / "streams" / STREAM / "shared" / name).read_bytes()) for name in ("a", "b")]
    metadata = json.loads((started.root / taken.folder / "_metadata").read_bytes())
    assert about.bytes == sum(lengths) + (started.root / taken.folder / "_metadata").stat().st_size
    assert about.created_ms == metadata["body"]["created_ms"]
    (listed,) = cli("snapshots", STREAM, "--json").json
    assert listed["files"]["bytes"] == about.bytes
    assert "UTC" in cli("snapshots", STREAM).out


def test_a_savepoint_of_the_same_content_shares_nothing(started: World) -> None:
    taken = started.snapshot("nightly")
    other = started.snapshot("weekly")
    found = started.control().sharing(STREAM)
    assert {found[ref.id].shared for ref in (taken, other)} == {0}


def test_of_one_whose_metadata_is_damaged_nothing_is_known_and_the_others_are_told(started: World) -> None:
    first, second = snapshot(started, "a"), snapshot(started, "a")
    started.damage_metadata(first)
    assert list(started.control().sharing(STREAM)) == [second.id]


@pytest.mark.parametrize(
    ("sharing", "said"),
    [
        (
            Sharing(
                files=5, shared=5, alone=0, shared_with=(CheckpointId(12), CheckpointId(11)), created_ms=0, bytes=0
            ),
            "shares 5 of 5 files with 12, 11",
        ),
        (
            Sharing(files=1, shared=1, alone=0, shared_with=(CheckpointId(3),), created_ms=0, bytes=0),
            "shares 1 of 1 file with 3",
        ),
        (Sharing(files=2, shared=0, alone=2, shared_with=(), created_ms=0, bytes=0), "has 2 files of its own"),
        (Sharing(files=0, shared=0, alone=0, shared_with=(), created_ms=0, bytes=0), "has no files"),
        (
            Sharing(
                files=2,
                shared=1,
                alone=1,
                shared_with=tuple(CheckpointId(id) for id in range(9, 1, -1)),
                created_ms=0,
                bytes=0,
            ),
            "shares 1 of 2 files with 9, 8, 7, 6, 5 and 3 more",
        ),
    ],
)
def test_it_is_told_in_one_line(sharing: Sharing, said: str) -> None:
    assert sharing.told == said


def test_the_command_line_tells_it_to_people_and_programs(started: World, cli: Cli) -> None:
    first, second = snapshot(started, "a", "b"), snapshot(started, "a", "b")
    assert f"shares 2 of 2 files with {first.id}" in cli("snapshots", "orders").out
    listed = cli("snapshots", "orders", "--json").json
    assert [each["id"] for each in listed] == [second.id, first.id]
    assert listed[0]["files"].items() >= {"files": 2, "shared": 2, "alone": 0, "shared_with": [int(first.id)]}.items()
    said = cli("explain", "orders").out
    assert f"{second} shares 2 of 2 files with {first.id}: a damaged file takes all of them" in said
    assert cli("explain", "orders", "--json").json["sharing"]["shared_with"] == [int(first.id)]
    started.damage_metadata(first)
    assert "cannot be known" in cli("snapshots", "orders").out
    assert cli("snapshots", "orders", "--json").json[1]["files"] is None


def test_the_status_says_which_checkpoint_is_current_by_the_storages_clock(started: World, cli: Cli) -> None:
    current = CurrentCheckpoint(checkpoint=CheckpointId(12), as_of_ms=1_700_000_000_000, age_ms=1_500)
    started.beat(age_s=2.0, progress=Progress(current=current))
    status = started.control().status(STREAM)
    assert status.current_age_s is not None
    assert 3.4 < status.current_age_s < 30, "both ages, and what the look took"
    said = cli("status", "orders").out
    assert "current:     checkpoint 12 is current as of 2023-11-1" in said
    assert cli("status", "orders", "--json").json["progress"]["current"]["checkpoint"] == 12


def test_without_a_checkpoint_there_is_none(started: World, cli: Cli) -> None:
    started.beat()
    assert started.control().status(STREAM).current_age_s is None
    assert "current" not in cli("status", "orders").out
