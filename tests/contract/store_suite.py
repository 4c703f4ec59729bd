"""What every ObjectStore must do: a backend adds one class to this suite, not a copy of it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from headgate_contract.errors import ObjectMissing, StorageError
from headgate_contract.store import ObjectStore

T = TypeVar("T")

RACERS = 50

HOSTILE = (
    "",
    "/etc/passwd",
    "..",
    "../outside",
    "a/../../outside",
    "a/..",
    "a//b",
    "a/./b",
    "./a",
    "a/",
    "nul\0byte",
    ".tmp-0123",
    "a/.tmp-0123",
    ".tmp-folder/a",
)


def race(action: Callable[[int], T], racers: int = RACERS) -> list[T]:
    """What `action(n)` returns in each of `racers` threads that are let go at one moment."""
    gate = threading.Barrier(racers)

    def run(number: int) -> T:
        gate.wait(timeout=60)
        return action(number)

    with ThreadPoolExecutor(racers) as pool:
        return list(pool.map(run, range(racers)))


class ObjectStoreSuite:
    """Subclasses give a fixture `store`: an ObjectStore on an empty root."""

    ROUNDS = 5

    # ---- create: the one thing that fsspec does not promise

    def test_create_makes_an_object_once(self, store: ObjectStore) -> None:
        assert store.create("slots/1", b"mine")
        assert not store.create("slots/1", b"other")
        assert store.read("slots/1") == b"mine"

    def test_create_recognises_its_own_bytes_after_a_lost_answer(self, store: ObjectStore) -> None:
        assert store.create("slots/1", b"mine")
        assert store.create("slots/1", b"mine")

    def test_of_racing_creators_exactly_one_wins(self, store: ObjectStore) -> None:
        for round_number in range(self.ROUNDS):
            path = f"slots/{round_number}"
            won = race(lambda racer, path=path: store.create(path, b"racer %d" % racer))  # type: ignore[misc]
            assert won.count(True) == 1, f"round {round_number}"
            assert store.read(path) == b"racer %d" % won.index(True)
        assert len(store.list("slots")) == self.ROUNDS

    def test_a_deleted_object_can_be_created_again(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        store.delete("a")
        assert store.create("a", b"2")
        assert store.read("a") == b"2"

    # ---- read, replace, stat, delete

    def test_replace_writes_whether_it_exists_or_not(self, store: ObjectStore) -> None:
        store.replace("beat", b"long and first")
        store.replace("beat", b"second")
        assert store.read("beat") == b"second"

    def test_readers_of_an_object_that_is_replaced_see_old_or_new_bytes_and_never_a_mix(
        self, store: ObjectStore
    ) -> None:
        versions = [bytes([n]) * 20_000 for n in range(8)]
        store.replace("beat", versions[0])

        def one(racer: int) -> bytes:
            if racer < len(versions):
                store.replace("beat", versions[racer])
            return store.read("beat")

        assert all(seen in versions for seen in race(one, 16))

    def test_a_missing_object_is_named(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissing, match="streams/gone"):
            store.read("streams/gone")
        assert store.stat("streams/gone") is None
        assert not store.delete("streams/gone")

    def test_a_folder_is_no_object(self, store: ObjectStore) -> None:
        store.create("a/b/c", b"1")
        assert store.stat("a/b") is None
        assert not store.delete("a/b")
        with pytest.raises(ObjectMissing):
            store.read("a/b")
        assert store.read("a/b/c") == b"1"

    def test_stat_tells_length_and_moment(self, store: ObjectStore) -> None:
        before = store.now()
        store.create("a/b", b"12345")
        found = store.stat("a/b")
        assert found is not None
        assert (found.path, found.length) == ("a/b", 5)
        assert before - 2 <= found.modified <= store.now() + 2  # S3 tells whole seconds

    def test_delete_says_whether_it_was_there(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        assert store.delete("a")
        assert not store.delete("a")

    @pytest.mark.parametrize("data", [b"", b"\0\xff" * 10, b"x" * 300_000], ids=["empty", "binary", "300 kB"])
    def test_bytes_come_back_as_they_were(self, store: ObjectStore, data: bytes) -> None:
        assert store.create("a", data)
        assert store.read("a") == data
        seen, listed = store.stat("a"), store.list("")[0]
        assert seen is not None
        assert (seen.path, seen.length) == (listed.path, listed.length) == ("a", len(data))
        assert abs(seen.modified - listed.modified) < 1  # S3 tells whole seconds of one object, and more in a listing

    @pytest.mark.parametrize("name", ["with space", "100%", "a+b&c=d", "ümläut", "a#b?c", "x" * 200])
    def test_names_are_taken_as_they_are(self, store: ObjectStore, name: str) -> None:
        assert store.create(f"f/{name}", b"1")
        assert [info.path for info in store.list("f")] == [f"f/{name}"]
        assert store.read(f"f/{name}") == b"1"
        assert store.delete(f"f/{name}")

    # ---- list

    def test_a_listing_is_sorted_deep_and_of_this_folder_only(self, store: ObjectStore) -> None:
        for path in ("f/b", "f/a/z", "f/a/y", "f2/c", "f", "g"):
            if path != "f":
                store.create(path, path.encode())
        assert [info.path for info in store.list("f")] == ["f/a/y", "f/a/z", "f/b"]
        assert [info.path for info in store.list("f/")] == ["f/a/y", "f/a/z", "f/b"]
        assert [info.path for info in store.list("")] == ["f/a/y", "f/a/z", "f/b", "f2/c", "g"]
        assert [info.length for info in store.list("f2")] == [4]

    def test_the_listing_of_what_is_not_there_is_empty(self, store: ObjectStore) -> None:
        assert store.list("nothing/here") == []
        assert store.list("") == []
        store.create("object", b"1")
        assert store.list("object") == []

    def test_many_are_read_and_deleted_at_once(self, store: ObjectStore) -> None:
        paths = [f"f/{number}" for number in range(40)]
        for path in paths:
            store.create(path, path.encode())
        assert store.read_all(["f/7", "missing", *paths]) == [b"f/7", None, *(path.encode() for path in paths)]
        assert store.read_all([]) == []
        store.delete_many([*paths[:39], "missing/too"])
        assert [info.path for info in store.list("f")] == ["f/39"]
        store.delete_many([])

    def test_a_listing_can_begin_in_the_middle_of_a_folder(self, store: ObjectStore) -> None:
        for name in ("00000001.json", "00000002.json", "00000010.json", "x/00000011.json"):
            store.create(f"f/{name}", name.encode())
        store.create("f2/00000012.json", b"another folder's")
        behind = store.list_after("f", "00000001.json")
        assert [info.path for info in behind] == ["f/00000002.json", "f/00000010.json"]
        whole = {info.path: info for info in store.list("f")}
        assert behind == [whole[info.path] for info in behind]
        assert len(store.list_after("f", "")) == 3
        assert store.list_after("f", "00000010.json") == []
        assert store.list_after("nothing/here", "") == []

    def test_folders_are_named_without_a_look_into_them(self, store: ObjectStore) -> None:
        for path in ("f/a/1", "f/a/deep/2", "f/b/3", "f/file", "f2/c/4"):
            store.create(path, b"x")
        assert store.folders("f") == ["a", "b"]
        assert store.folders("nothing/here") == []

    def test_an_object_is_read_with_its_age(self, store: ObjectStore) -> None:
        assert store.read_aged("a") is None
        store.create("a", b"data")
        found = store.read_aged("a")
        assert found is not None
        assert found.data == b"data"
        assert 0 <= found.age_s < 60
        assert abs(found.modified - store.list("")[0].modified) < 1

    def test_a_listing_shows_what_was_created_before_it_at_once(self, store: ObjectStore) -> None:
        for number in range(5):
            store.create(f"slots/{number}", b"1")
            assert len(store.list("slots")) == number + 1
        store.delete("slots/0")
        assert len(store.list("slots")) == 4

    def test_delete_all_leaves_the_neighbours(self, store: ObjectStore) -> None:
        for path in ("f/a", "f/b/c", "f2/d"):
            store.create(path, b"1")
        assert store.delete_all("f") == 2
        assert [info.path for info in store.list("")] == ["f2/d"]
        assert store.delete_all("f") == 0
        assert store.create("f/b/c", b"again")

    # ---- files

    def test_a_file_goes_up_and_comes_down(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "up").write_bytes(b"state" * 40_000)
        assert store.upload(tmp_path / "up", "shared/0001.sst") == 200_000
        assert store.download("shared/0001.sst", tmp_path / "down") == 200_000
        assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["down", "up"]

    def test_an_upload_that_is_repeated_replaces(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "up").write_bytes(b"first, longer")
        store.upload(tmp_path / "up", "a")
        (tmp_path / "up").write_bytes(b"second")
        store.upload(tmp_path / "up", "a")
        assert store.read("a") == b"second"

    def test_an_upload_of_a_file_that_is_gone_says_so(self, store: ObjectStore, tmp_path: Path) -> None:
        with pytest.raises(ObjectMissing, match=r"local file .*gone"):
            store.upload(tmp_path / "gone", "a")
        assert store.list("") == []

    def test_a_failed_download_leaves_what_was_there(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(b"old")
        with pytest.raises(ObjectMissing, match="shared/gone"):
            store.download("shared/gone", tmp_path / "local")
        assert (tmp_path / "local").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["local"]

    def test_a_download_to_where_nothing_can_be_written_says_where(self, store: ObjectStore, tmp_path: Path) -> None:
        store.create("a", b"1")
        with pytest.raises(StorageError, match="no/such/folder"):
            store.download("a", tmp_path / "no/such/folder/local")

    # ---- move

    def test_a_move_gives_a_new_name(self, store: ObjectStore) -> None:
        store.create("staged/a", b"1")
        assert store.move("staged/a", "out/2024/a")
        assert [info.path for info in store.list("")] == ["out/2024/a"]
        assert store.read("out/2024/a") == b"1"

    def test_a_move_that_is_repeated_does_no_harm(self, store: ObjectStore) -> None:
        store.create("staged/a", b"1")
        store.move("staged/a", "out/a")
        assert not store.move("staged/a", "out/a")
        assert store.read("out/a") == b"1"

    def test_a_move_that_died_between_copy_and_delete_is_finished_by_its_repeat(self, store: ObjectStore) -> None:
        store.create("staged/a", b"1")
        store.create("out/a", b"1")
        assert store.move("staged/a", "out/a")
        assert [info.path for info in store.list("")] == ["out/a"]

    def test_a_move_of_nothing_names_both_ends(self, store: ObjectStore) -> None:
        store.create("folder/a", b"1")
        with pytest.raises(ObjectMissing, match=r"staged/a.*out/a"):
            store.move("staged/a", "out/a")
        with pytest.raises(ObjectMissing):
            store.move("folder", "elsewhere")

    def test_a_move_onto_itself_keeps_the_object(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        assert store.move("a", "a")
        assert store.read("a") == b"1"

    def test_racing_movers_lose_nothing_and_raise_nothing(self, store: ObjectStore) -> None:
        for number in range(3):
            store.create(f"staged/{number}", b"%d" % number)
            moved = race(lambda _, n=number: store.move(f"staged/{n}", f"out/{n}"), 8)  # type: ignore[misc]
            assert any(moved)
            assert store.read(f"out/{number}") == b"%d" % number
        assert [info.path for info in store.list("")] == ["out/0", "out/1", "out/2"]

    # ---- the root

    def test_the_clock_moves_with_the_moments_of_objects(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        first = store.now()
        assert abs(first - store.list("")[0].modified) < 5
        assert store.now() >= first
        assert [info.path for info in store.list("")] == ["a"]

    def test_sync_is_for_objects_that_are_there(self, store: ObjectStore) -> None:
        store.create("f/a", b"1")
        store.sync("f/a")
        for path in ("f/gone", "f"):
            with pytest.raises(ObjectMissing):
                store.sync(path)

    def test_a_root_that_can_be_written_passes_the_check_and_stays_as_it_was(self, store: ObjectStore) -> None:
        store.check_writable()
        assert store.list("") == []

    @pytest.mark.parametrize("path", HOSTILE)
    def test_a_hostile_name_never_leaves_the_root(self, store: ObjectStore, tmp_path: Path, path: str) -> None:
        local = tmp_path / "local"
        local.write_bytes(b"1")
        store.create("good", b"1")
        for attempt in (
            lambda: store.create(path, b"x"),
            lambda: store.replace(path, b"x"),
            lambda: store.read(path),
            lambda: store.stat(path),
            lambda: store.delete(path),
            lambda: store.upload(local, path),
            lambda: store.download(path, local),
            lambda: store.move(path, "target"),
            lambda: store.move("good", path),
            lambda: store.sync(path),
        ):
            with pytest.raises(StorageError, match=r"root|kept for writes"):
                attempt()
        assert [info.path for info in store.list("")] == ["good"]
        assert local.read_bytes() == b"1"

    @pytest.mark.parametrize("folder", [path for path in HOSTILE if path.rstrip("/") not in ("", "a")])
    def test_a_hostile_folder_is_not_listed(self, store: ObjectStore, folder: str) -> None:
        with pytest.raises(StorageError):
            store.list(folder)
        with pytest.raises(StorageError):
            store.delete_all(folder)


def unique() -> str:
    return uuid.uuid4().hex[:12]
