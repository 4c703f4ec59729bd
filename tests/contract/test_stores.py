"""The object store on local files and in memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from headgate_contract.errors import BadConfiguration, ObjectMissing, RootLost, StorageError, StorageUnreachable
from headgate_contract.records import slot_log
from headgate_contract.root_store import RootStore, make_root
from headgate_contract.store import TEMP_PREFIX, ObjectStore, open_store
from headgate_contract.store_local import LocalStore
from headgate_contract.store_memory import MemoryStore
from tests.contract.lives import STREAM, started
from tests.contract.root_suite import RootSuite
from tests.contract.store_suite import RACERS, ObjectStoreSuite, unique

FORK = multiprocessing.get_context("fork")


class TestMemoryStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_store(f"memory://{unique()}")

    def test_two_stores_of_one_url_see_the_same_objects(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        assert open_store(store.url).read("a") == b"1"
        assert open_store(f"{store.url}x").list("") == []

    def test_a_root_without_a_name_is_refused(self) -> None:
        with pytest.raises(BadConfiguration, match="memory://name"):
            open_store("memory://")

    def test_an_object_below_an_object_is_refused(self, store: ObjectStore) -> None:
        store.create("a", b"1")
        with pytest.raises(StorageError, match="a/b"):
            store.create("a/b", b"1")


def in_child(action: Callable[[], object]) -> int | None:
    """The exit code of a forked process that runs `action`."""
    child = FORK.Process(target=action)
    child.start()
    child.join(60)
    return child.exitcode


class TestLocalStore(ObjectStoreSuite):
    ROUNDS = 8

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        store = LocalStore(tmp_path / "the root")
        store.make()
        return store

    def test_of_racing_processes_exactly_one_wins(self, store: LocalStore) -> None:
        gate = FORK.Barrier(RACERS)
        results = FORK.SimpleQueue()

        def racer(number: int) -> None:
            for round_number in range(self.ROUNDS):
                gate.wait(60)
                if store.create(f"slots/{round_number}", b"racer %d" % number):
                    results.put((round_number, number))

        children = [FORK.Process(target=racer, args=(number,)) for number in range(RACERS)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * RACERS
        winners: list[tuple[int, int]] = []
        while not results.empty():
            winners.append(results.get())
        assert sorted(round_number for round_number, _ in winners) == list(range(self.ROUNDS))
        for round_number, number in winners:
            assert store.read(f"slots/{round_number}") == b"racer %d" % number

    def test_a_write_that_never_ended_is_not_listed_and_blocks_nobody(self, store: LocalStore) -> None:
        store.create("slots/1", b"1")
        (store.root / "slots" / ".tmp-dead").write_bytes(b"trunc")
        os.utime(store.root / "slots" / ".tmp-dead", (1, 1))
        (store.root / ".tmp-dead").mkdir()
        (store.root / ".tmp-dead" / "a").write_bytes(b"trunc")
        assert [info.path for info in store.list("")] == ["slots/1"]
        assert store.create("slots/2", b"2")
        assert store.delete_all("slots") == 2
        assert not (store.root / "slots").exists()

    def test_a_process_that_is_killed_while_it_writes_leaves_the_whole_object_or_none(self, store: LocalStore) -> None:
        versions = [bytes([65 + n]) * 3_000_000 for n in range(2)]
        started = FORK.Event()

        def write_for_ever() -> None:
            number = 0
            while True:
                store.replace("beat", versions[number % 2])
                store.create(f"objects/{number}", versions[number % 2])
                if not number:  # once: who is killed in there would leave it locked for ever
                    started.set()
                number += 1

        for _ in range(5):
            child = FORK.Process(target=write_for_ever)
            started.clear()
            child.start()
            assert started.wait(30)
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join(30)
            assert store.read("beat") in versions
            assert all(info.length == 3_000_000 for info in store.list("objects"))
            assert store.delete_all("objects") > 0

    def test_a_full_disk_is_named_and_leaves_no_part_of_an_object(self, store: LocalStore, tmp_path: Path) -> None:
        store.create("before", b"1")
        (tmp_path / "large").write_bytes(b"x" * 100_000)
        (tmp_path / "down").write_bytes(b"old")
        store.upload(tmp_path / "large", "large")

        def write_too_much() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
            for attempt in (
                lambda: store.create("a", b"x" * 100_000),
                lambda: store.replace("before", b"x" * 100_000),
                lambda: store.upload(tmp_path / "large", "a"),
                lambda: store.download("large", tmp_path / "down"),
            ):
                with pytest.raises(StorageError, match=r"cannot (create|write) .*: File too large"):
                    attempt()

        assert in_child(write_too_much) == 0
        assert [info.path for info in store.list("")] == ["before", "large"]
        assert store.read("before") == b"1"
        assert (tmp_path / "down").read_bytes() == b"old"
        assert [path.name for path in [*tmp_path.rglob("*")] if path.name.startswith(".tmp")] == []

    @pytest.mark.parametrize(
        ("call", "code", "says"),
        [
            ("fsync", errno.ENOSPC, "No space left on device; make room there"),
            ("fsync", errno.EIO, "Input/output error$"),
            ("link", errno.ENOTSUP, "no hard links, which an exclusive create needs"),
        ],
    )
    def test_what_a_disk_refuses_is_told_with_what_to_do(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int, says: str
    ) -> None:
        """No disk here fails on demand: the system's answer is put in its place."""

        def refuse(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as failing:
            failing.setattr(os, call, refuse)
            with pytest.raises(StorageError, match=f"cannot create a on .*{says}"):
                store.create("a", b"1")
        assert store.list("") == []
        assert [path.name for path in store.root.iterdir()] == []
        assert store.create("a", b"1")

    def test_a_create_that_failed_after_its_link_is_found_by_its_repeat(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.create("before", b"1")
        synced: list[int] = []

        def fail_for_the_folder(descriptor: int) -> None:
            synced.append(descriptor)
            if len(synced) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as failing:
            failing.setattr(os, "fsync", fail_for_the_folder)
            with pytest.raises(StorageError, match="cannot create a"):
                store.create("a", b"mine")
        assert store.create("a", b"mine")
        assert not store.create("a", b"theirs")

    def test_a_local_disk_that_fails_leaves_what_was_there(
        self, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.create("a", b"new")
        (tmp_path / "down").write_bytes(b"old")

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(shutil, "copyfileobj", refuse)
        with pytest.raises(StorageError, match=r"cannot write the local file .*No space left"):
            store.download("a", tmp_path / "down")
        assert (tmp_path / "down").read_bytes() == b"old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["down", "the root"]

    def test_an_object_below_an_object_is_refused(self, store: LocalStore) -> None:
        store.create("a", b"1")
        with pytest.raises(StorageError, match=r"cannot create a/b .*(File exists|Not a directory)"):
            store.create("a/b", b"1")
        with pytest.raises(ObjectMissing):
            store.read("a/b")
        assert store.stat("a/b") is None
        assert not store.delete("a/b")
        assert store.list("a/b") == []

    def test_what_is_neither_file_nor_folder_is_no_object(self, store: LocalStore) -> None:
        store.create("real", b"1")
        os.mkfifo(store.root / "fifo")
        (store.root / "dangling").symlink_to(store.root / "gone")
        (store.root / "loop").symlink_to(store.root)
        (store.root / "link").symlink_to(store.root / "real")
        assert [info.path for info in store.list("")] == ["link", "real"]
        assert store.stat("fifo") is None
        assert store.stat("loop") is None

    def test_a_name_that_a_folder_has_cannot_be_created_or_replaced(self, store: LocalStore) -> None:
        store.create("a/b", b"1")
        assert not store.create("a", b"1")
        with pytest.raises(StorageError, match="cannot write a "):
            store.replace("a", b"1")
        assert [info.path for info in store.list("")] == ["a/b"]

    def test_a_root_that_is_a_file_cannot_be_written_and_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"1")
        store = LocalStore(tmp_path / "file" / "root")
        with pytest.raises(StorageUnreachable, match=r"the root .*file/root is not there"):
            store.check_writable()
        with pytest.raises(StorageUnreachable, match=r"Not a directory"):
            store.make()
        with pytest.raises(StorageUnreachable, match=r"is no folder"):
            LocalStore(tmp_path / "file").make()
        assert store.now() > 0

    def test_what_a_killed_writer_left_goes_once_it_is_old_and_nothing_else(self, store: LocalStore) -> None:
        store.create("shared/deep/a", b"1")
        folder = store.root / "shared" / "deep"
        old, new = folder / f"{TEMP_PREFIX}old", folder / f"{TEMP_PREFIX}new"
        for path in (old, new):
            path.write_bytes(b"half")
        os.utime(old, (0, 0))
        os.utime(folder / "a", (0, 0))
        assert store.delete_broken_writes("other") == 0
        assert store.delete_broken_writes("shared") == 1
        assert sorted(folder.iterdir()) == [new, folder / "a"]

    def test_a_writer_that_was_taken_for_dead_writes_anew(
        self, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local, copies, copy = tmp_path / "local", [], shutil.copyfileobj
        local.write_bytes(b"all of it")

        def copied_and_swept(source: IO[bytes], target: IO[bytes], length: int) -> None:
            copy(source, target, length)
            target.flush()
            copies.append(target.name)
            if len(copies) == 1:
                os.utime(target.name, (0, 0))
                assert store.delete_broken_writes("shared") == 1

        monkeypatch.setattr(shutil, "copyfileobj", copied_and_swept)
        store.upload(local, "shared/a")
        assert store.read("shared/a") == b"all of it"
        assert len(copies) == 2

    def test_a_folder_that_was_renamed_away_is_not_made_again(self, store: LocalStore, tmp_path: Path) -> None:
        local = tmp_path / "local"
        local.write_bytes(b"1")
        store.create("slots/1", b"1")
        gone = store.root.rename(tmp_path / "gone")
        for write in (
            lambda: store.create("slots/2", b"2"),
            lambda: store.replace("beat", b"2"),
            lambda: store.upload(local, "shared/2"),
        ):
            with pytest.raises(StorageUnreachable, match=r"the root file://.*the%20root is not there"):
                write()
        with pytest.raises(ObjectMissing):
            store.move("slots/1", "slots/3")
        store.now()
        assert store.list("") == []
        assert store.delete_all("slots") == 0
        assert not store.root.exists()
        gone.rename(store.root)
        assert [info.path for info in store.list("")] == ["slots/1"]
        assert store.create("slots/2", b"2")

    def test_only_the_folder_itself_is_made_and_none_above_it(self, tmp_path: Path) -> None:
        with pytest.raises(StorageUnreachable, match=r"cannot be made: .*/mnt is not there"):
            LocalStore(tmp_path / "mnt" / "root").make()
        assert list(tmp_path.iterdir()) == []
        store = LocalStore(tmp_path / "root")
        store.make()
        store.create("a/b/c", b"1")
        store.make()
        assert store.read("a/b/c") == b"1"

    def test_a_file_is_durable_only_with_all_folders_above_it_whoever_made_them(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A crash of the machine forgets a folder's name that nobody synced, and with it what was synced in it."""
        synced: list[Path] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(store.root))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        above = {Path("staged/deep"), Path("staged"), Path()}
        (store.root / "staged" / "deep").mkdir(parents=True)  # as a task makes it
        (store.root / "staged" / "deep" / "file").write_bytes(b"1")
        store.sync("staged/deep/file")
        assert {Path("staged/deep/file"), *above} <= set(synced)
        synced.clear()
        store.sync("staged/deep/file")
        assert set(synced) == {Path("staged/deep/file"), Path("staged/deep")}
        shutil.rmtree(store.root / "staged" / "deep")
        (tmp_path / "local").write_bytes(b"1")
        for number, write in enumerate(
            (
                lambda store: store.create("staged/deep/new", b"1"),
                lambda store: store.replace("staged/deep/new", b"1"),
                lambda store: store.upload(tmp_path / "local", "staged/deep/new"),
                lambda store: store.move("staged/deep/new", "staged/deep/moved"),
            )
        ):
            synced.clear()
            write(LocalStore(store.root))  # another process, which need not have made the folders
            assert above <= set(synced), number

    def test_a_folder_that_was_emptied_and_made_again_is_synced_again(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.create("f/g/a", b"1")
        store.delete_all("f")
        synced: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        store.create("f/g/a", b"1")
        assert {str(store.root), str(store.root / "f"), str(store.root / "f" / "g")} <= set(synced)

    def test_a_file_system_whose_links_replace_is_refused(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "link", shutil.copyfile)
        with pytest.raises(StorageUnreachable, match=r"that is there already.*hard links"):
            store.check_writable()
        assert store.list("") == []

    def test_writers_outlive_a_neighbour_who_deletes_their_folder(self, store: LocalStore) -> None:
        over = threading.Event()

        def sweep() -> None:
            while not over.wait(0.001):
                store.delete_all("f")

        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        try:
            for number in range(60):
                assert store.create(f"f/g/{number}", b"1") is True
                store.replace(f"f/h/{number}", b"1")
        finally:
            over.set()
            sweeper.join(30)

    def test_emptied_folders_are_not_left_behind(self, store: LocalStore) -> None:
        store.create("checkpoints/chk-1-g1/_metadata", b"1")
        store.create("checkpoints/chk-1-g1/state/0001", b"1")
        store.create("checkpoints/chk-2-g1/_metadata", b"1")
        assert store.delete_all("checkpoints/chk-1-g1") == 2
        assert os.listdir(store.root / "checkpoints") == ["chk-2-g1"]


class TestRootInMemory(RootSuite, ObjectStoreSuite):
    ROUNDS = 1

    @pytest.fixture
    def inner(self) -> ObjectStore:
        return open_store(f"memory://{unique()}")


class TestRootOnAFolder(RootSuite):
    @pytest.fixture
    def inner(self, tmp_path: Path) -> LocalStore:
        return LocalStore(tmp_path / "root")

    def test_a_mount_that_dropped_leaves_an_empty_folder_which_is_not_taken_for_the_root(
        self, store: RootStore, inner: LocalStore
    ) -> None:
        log = slot_log(store, STREAM)
        first = log.append(None, started(1))
        mounted = inner.root.rename(inner.root.with_name("elsewhere"))
        inner.root.mkdir()
        with pytest.raises(RootLost):
            log.append(first.number, started(2))
        with pytest.raises(RootLost):
            log.peek(first.number.next())
        assert list(inner.root.iterdir()) == []
        inner.root.rmdir()
        mounted.rename(inner.root)
        assert log.append(first.number, started(2)).number == 2

    def test_a_root_that_goes_away_while_it_is_written_to_is_noticed(
        self, store: RootStore, inner: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The mount drops between the look and the write, below which the folders are made once more."""
        make_folder = LocalStore._make_folder

        def drop_first(self: LocalStore, folder: Path) -> None:
            monkeypatch.setattr(LocalStore, "_make_folder", make_folder)
            inner.root.rename(inner.root.with_name("elsewhere"))
            inner.root.mkdir()
            make_folder(self, folder)

        monkeypatch.setattr(LocalStore, "_make_folder", drop_first)
        with pytest.raises(RootLost):
            store.create("streams/orders/slots/00000001.json", b"1")
        assert list(inner.root.iterdir()) == [], "and nothing is made there"

    def test_a_root_that_goes_away_at_the_very_last_moment_is_noticed_afterwards(
        self, store: RootStore, inner: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = os.link

        def drop_first(source: Path, target: Path) -> None:
            monkeypatch.setattr(os, "link", link)
            inner.root.rename(inner.root.with_name("elsewhere"))
            target.parent.mkdir(parents=True)
            source.write_bytes(b"1")
            link(source, target)

        monkeypatch.setattr(os, "link", drop_first)
        with pytest.raises(RootLost):
            store.create("streams/orders/slots/00000001.json", b"1")

    def test_a_root_is_not_made_below_what_is_not_there(self, inner: LocalStore) -> None:
        store = RootStore(LocalStore(inner.root / "above" / "root"))
        with pytest.raises(StorageUnreachable, match=r"above is not there"):
            make_root(store, by="anna", at_ms=1)
        assert not inner.root.exists()


class TestOpenStore:
    @pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "a#b", "a?b", "ü"])
    def test_a_stores_url_opens_the_same_root(self, tmp_path: Path, name: str) -> None:
        store = open_store(str(tmp_path / name))
        store.make()
        store.create("a", b"1")
        assert open_store(store.url).read("a") == b"1"
        assert (tmp_path / name / "a").read_bytes() == b"1"

    def test_a_relative_path_is_made_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert open_store("root").url == (tmp_path / "root").as_uri()

    def test_a_home_is_expanded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert open_store("~/root").url == (tmp_path / "root").as_uri()

    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("", "names no folder"),
            ("file://", "names no folder"),
            ("file:///a%00b", "names no folder"),
            ("file://relative/path", "three slashes"),
            ("file:///a?b", "%3F"),
            ("file:///a#b", "%23"),
            ("gs://bucket/x", "no atomic create is proved"),
            ("s3://", "names no bucket"),
            ("s3:///x", "names no bucket"),
        ],
    )
    def test_a_root_that_cannot_be_meant_is_refused(self, url: str, says: str) -> None:
        with pytest.raises(BadConfiguration, match=says):
            open_store(url)

    def test_credentials_in_a_url_are_refused_and_not_repeated(self) -> None:
        with pytest.raises(BadConfiguration, match="credentials") as caught:
            open_store("s3://key:secret@bucket/x")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("url", ["/tmp/x", "memory://x"])
    def test_options_that_a_root_cannot_use_are_not_ignored(self, url: str) -> None:
        with pytest.raises(BadConfiguration, match="endpoint_url"):
            open_store(url, {"endpoint_url": "http://x"})

    def test_the_kind_of_store_follows_the_scheme(self, tmp_path: Path) -> None:
        assert isinstance(open_store(tmp_path.as_uri()), LocalStore)
        assert isinstance(open_store("memory://x"), MemoryStore)
        assert open_store("s3a://bucket/x/", {"key": "k", "secret": "s"}).url == "s3://bucket/x"
